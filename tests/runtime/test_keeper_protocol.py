"""Every message order between a keeper of actions, a killed driver and the resuming processes.

A driver takes one step at a time and is killed after each of them. Meanwhile the keeper is suspended since
each earlier step, so that it finds messages, the death of the driver and the end of the action at once; it
takes them in the order of the system or in the opposite one. A keeper is killed before each line that it
executes, while its driver lives and after that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from llc.runtime.effects.process import NotStarted, Runner
from llc.runtime.host import files, keeper, keeper_process, leftovers, processes
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.host.errors import UserError
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks

EFFECT = "job/1"
ACTION = "echo begun >> log; echo one; echo two >&2; read -r _ < go; echo three; exit 7"
STEPS = "request", "started", "output-file", "output", "errors", "ended", "exit", "release"
# Steps that wait for the keeper.
ANSWERED = {"started", "exit"}
# What a process that resumes does before it is killed.
TAKES = "asked", "read", "ended", "exit"


def orders() -> Iterator[tuple[int, int | None]]:
    """How many steps the driver takes, and after how many of them the keeper is suspended."""
    for count in range(len(STEPS) + 1):
        yield count, None
        for since in range(count):
            if not ANSWERED & set(STEPS[since:count]):
                yield count, since


class Opposite:
    """A poller that reports events in the opposite order."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self.register, self.unregister = self._poller.register, self._poller.unregister

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._poller.poll(timeout)[::-1]


class Select:
    """The module `select` with another poller."""

    poll, select, POLLIN = Opposite, select.select, select.POLLIN


# `keeper_process.main`, or one around it.
Main = Callable[[Any, int], NoReturn]


def guard(folder: Path) -> None:
    """Hold the lock of the run in a folder, as its driver."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    files.flock(lock, files.LOCK_EX)
    about = {"run": "job", "pid": os.getpid(), "start_time": processes.start_time(os.getpid())}
    os.write(lock, json.dumps(about).encode())
    keeper.guard(str(folder), lock)


class Driver:
    """A process that runs one action by its keeper, step by step. pid, keeper: of the two processes.

    main: of the keeper.
    """

    def __init__(self, folder: Path, is_opposite: bool, main: Main = keeper_process.main) -> None:
        self.folder = folder
        self._main = main
        self._orders, orders = os.pipe()
        answers, self._answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.close(orders)
                os.close(answers)
                if is_opposite:
                    keeper_process.select = Select  # type: ignore[assignment]
                self._drive()
            finally:
                os._exit(1)
        os.close(self._orders)
        os.close(self._answers)
        self._orders, self._answers = orders, answers
        self.keeper = int(self._answer())

    def step(self) -> None:
        os.write(self._orders, b"\n")
        self._answer()

    def _answer(self) -> str:
        answer = os.read(self._answers, 100).decode()
        assert answer
        return answer

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)

    # --- in the process ---------------------------------------------------------------------------

    def _reached(self, text: str = "ok") -> None:
        os.write(self._answers, text.encode())
        if not os.read(self._orders, 1):
            os._exit(0)

    def _drive(self) -> NoReturn:
        guard(self.folder)
        assert keeper._keeper(self._main)
        self._reached(children(os.getpid()))
        send, wait_start = keeper.send, keeper.Action.wait_start
        reached = self._reached

        def wait_when_told(action: keeper.Action) -> None:
            reached()  # the request is sent
            wait_start(action)

        def send_and_wait(connection: Any, data: bytes, handles: list[int]) -> None:
            send(connection, data, handles)
            if data == b"output":
                reached()

        keeper.Action.wait_start = wait_when_told  # type: ignore[method-assign]
        keeper.send = send_and_wait
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        facts: dict[str, Any] = {"folder": str(self.folder), "effect": EFFECT, "begun": 0.0, "end": None}
        facts |= {"limited_by": "", "signals": [int(signal.SIGTERM)], "grace": 1.0, "about": {}}
        ends = os.open(os.devnull, os.O_RDONLY), output_end, errors_end, output, errors
        words = [b"sh", b"-c", ACTION.encode()]
        action = keeper.start("/bin/sh", words, os.environb, ends, facts, self._main)
        assert action is not None
        self._reached()  # it has started
        for end in (output_end, errors_end):
            os.close(end)
        action.read(output, "output", 4)
        self._reached()
        action.read(errors, "stderr", 4)
        self._reached()
        with open(self.folder / "go", "w") as go:
            go.write("\n")
        pid = action.pid
        while processes.is_alive(pid, processes.start_time(pid)):
            time.sleep(0.001)
        self._reached()
        action.wait_status()
        self._reached()
        with contextlib.suppress(OSError):
            action._connection.send(b"r")
        self._reached()
        os._exit(0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "go")
    return tmp_path


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)
    return found


def has_died(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def begun(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().split()) if log.exists() else 0


def die(
    folder: Path,
    count: int,
    since: int | None,
    is_opposite: bool = False,
    is_early: bool = False,
    main: Main = keeper_process.main,
) -> Driver:
    """A driver that was killed after `count` steps; the keeper was suspended after `since` of them.

    is_early: the action had ended then already.
    """
    if is_early:
        (folder / "go").unlink()
        (folder / "go").write_text("\n")
    driver = Driver(folder, is_opposite, main)
    for step in range(count):
        if step == since:
            if is_early:  # the keeper has told the driver, which has not read it
                wait_for(lambda: begun(folder) and not children(driver.keeper))
            os.kill(driver.keeper, signal.SIGSTOP)
        driver.step()
        if STEPS[step] == "request" and since is None:
            wait_for(lambda: begun(folder))
    driver.kill()
    if since is not None:
        os.kill(driver.keeper, signal.SIGCONT)
    return driver


def taken(folder: Path) -> keeper.Kept | None:
    found = locks.survivors(RunFolder("", str(folder)))
    assert set(found) <= {EFFECT}
    return found.get(EFFECT)


def finish(folder: Path, action: keeper.Kept, until: str = "exit") -> tuple[str, str, int] | None:
    """Attend it to its end: output, stderr and exit code; None where the attendant is killed before."""
    said = {"output": b"", "stderr": b""}

    def read() -> None:
        for stream in said:
            said[stream] += action.read(stream, 1000)

    if until == "asked":
        return None
    if until == "read":
        read()
        return None
    if action.status is None:
        with contextlib.suppress(OSError):  # it has read that already
            go = os.open(folder / "go", os.O_WRONLY | os.O_NONBLOCK)
            os.write(go, b"\n")
            os.close(go)
        select.select([action.fileno()], [], [], 60)
        if until == "ended":
            return None
        action.status = action.wait_status()
    read()
    return said["output"].decode(), said["stderr"].decode(), os.waitstatus_to_exitcode(action.status)


def check_whole(folder: Path, driver: Driver) -> None:
    """The action can be taken over with all of its output; then the keeper ends."""
    action = taken(folder)
    assert action is not None
    assert finish(folder, action) == WHOLE
    action.release()
    wait_for(lambda: has_died(driver.keeper))
    assert begun(folder) == 1


WHOLE = "one\nthree\n", "two\n", 7


@pytest.mark.parametrize("is_opposite", [False, True])
@pytest.mark.parametrize(("count", "since"), list(orders()))
def test_the_driver_dies(folder: Path, count: int, since: int | None, is_opposite: bool) -> None:
    """Whatever it had sent, the action was started once, and all of it is there; then the keeper ends."""
    driver = die(folder, count, since, is_opposite)
    if STEPS[:count][-1:] == ("release",) or count == 0:
        assert taken(folder) is None
    else:
        wait_for(lambda: begun(folder))
        check_whole(folder, driver)
    wait_for(lambda: has_died(driver.keeper))
    assert begun(folder) == (count > 0)
    assert sorted(path.name for path in folder.iterdir()) == ["go", "lock", *["log"] * (count > 0)]


@pytest.mark.parametrize("is_opposite", [False, True])
@pytest.mark.parametrize(
    ("count", "since"), [(count, since) for count, since in orders() if since in range(2, 7) and count < 8]
)
def test_the_action_ended_before(folder: Path, count: int, since: int, is_opposite: bool) -> None:
    """The driver dies before it reads a message, and the keeper has not read all of its messages."""
    check_whole(folder, die(folder, count, since, is_opposite, is_early=True))


@pytest.mark.parametrize("takes", TAKES)
@pytest.mark.parametrize(
    "count", [STEPS.index("started") + 1, STEPS.index("errors") + 1, STEPS.index("ended") + 1]
)
def test_the_process_that_resumes_dies_too(folder: Path, count: int, takes: str) -> None:
    """After each of its steps; the next one finds the whole action."""
    driver = die(folder, count, None)
    first = taken(folder)
    assert first is not None
    finish(folder, first, takes)
    first.close()
    check_whole(folder, driver)


@pytest.mark.usefixtures("impatient")
def test_two_processes_resume_at_once(folder: Path) -> None:
    """An action has one attendant: the second process does not get it while the first one lives."""
    die(folder, STEPS.index("errors") + 1, None)
    first = taken(folder)
    assert first is not None
    with pytest.raises(UserError, match="still running"):
        taken(folder)
    assert finish(folder, first) == WHOLE
    first.release()


# --- keepers and processes that are suspended -----------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for a keeper that is suspended for good."""
    monkeypatch.setattr(keeper, "_ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(locks, "_KEEPER_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("since", ["request", "death", "socket", "list"])
def test_a_keeper_is_suspended(folder: Path, monkeypatch: pytest.MonkeyPatch, since: str) -> None:
    """Whatever it has answered by then, the run counts as live: the action is neither lost nor repeated."""
    driver = Driver(folder, is_opposite=False)
    if since == "request":
        os.kill(driver.keeper, signal.SIGSTOP)
    driver.step()
    if since != "request":
        driver.step()
        wait_for(lambda: begun(folder))
    if since == "death":
        os.kill(driver.keeper, signal.SIGSTOP)
    driver.kill()
    receive = keeper.receive

    def receive_and_suspend(connection: Any, count: int) -> tuple[bytes, list[int]]:
        answer = receive(connection, count)
        if count == 1:
            os.kill(driver.keeper, signal.SIGSTOP)
        return answer

    if since in ("socket", "list"):
        wait_for(lambda: (folder / "keeper").exists())
    if since == "socket":
        os.kill(driver.keeper, signal.SIGSTOP)
    if since == "list":
        monkeypatch.setattr(keeper, "receive", receive_and_suspend)
    with pytest.raises(UserError, match="still running"):
        taken(folder)
    os.kill(driver.keeper, signal.SIGCONT)
    monkeypatch.undo()
    os.chdir(folder)
    wait_for(lambda: begun(folder))
    check_whole(folder, driver)


def test_a_process_that_asks_too_late(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects and is suspended, so the keeper closes the connection; the action is still there."""
    driver = die(folder, STEPS.index("started") + 1, None)
    wait_for(lambda: (folder / "keeper").exists())
    receive, asked = keeper.receive, list[int]()

    def receive_late(connection: Any, count: int) -> tuple[bytes, list[int]]:
        answer = receive(connection, count)
        asked.append(count)
        if asked == [1, 2]:
            raise ValueError("the other side has closed the connection")
        return answer

    monkeypatch.setattr(keeper, "receive", receive_late)
    check_whole(folder, driver)
    assert asked.count(2) == 2


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_run_that_has_another_owner(folder: Path, has_begun: bool) -> None:
    """Where the lock file was removed while the keeper was suspended, it starts nothing and keeps nothing."""
    driver = Driver(folder, is_opposite=False)
    actions = ""
    if has_begun:
        driver.step()
        driver.step()
        wait_for(lambda: begun(folder))
        actions = children(driver.keeper)
    os.kill(driver.keeper, signal.SIGSTOP)
    if not has_begun:
        driver.step()
    driver.kill()
    (folder / "lock").unlink()
    os.kill(driver.keeper, signal.SIGCONT)
    wait_for(lambda: has_died(driver.keeper))
    assert begun(folder) == has_begun == len(actions.split())
    wait_for(lambda: all(has_died(int(pid)) for pid in actions.split()))


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an action writes cannot be kept: its result is not used, whether a process attends it or not."""
    splice = os.splice

    def splice_unless_full(source: int, target: int, length: int) -> int:
        if (folder / "full").exists():
            raise OSError(errno.ENOSPC, "full")
        return splice(source, target, length)

    monkeypatch.setattr(os, "splice", splice_unless_full)
    driver = die(folder, STEPS.index("errors") + 1, None)
    action = taken(folder)
    assert action is not None
    (folder / "full").touch()
    end_action(folder)
    with pytest.raises(keeper.KeeperDied):
        action.wait_status()
    action.close()
    wait_for(lambda: has_died(driver.keeper))
    assert taken(folder) is None


def test_an_action_that_nothing_waits_for_is_ended(folder: Path) -> None:
    """Also if its keeper is killed before."""
    driver = die(folder, STEPS.index("errors") + 1, None)
    action = taken(folder)
    assert action is not None
    os.kill(driver.keeper, signal.SIGKILL)
    wait_for(lambda: has_died(driver.keeper))
    assert not has_died(action.pid)
    leftovers.end_kept(action)
    wait_for(lambda: has_died(action.pid))


# --- the death of the keeper ----------------------------------------------------------------------

QUICK = "echo begun >> log; echo one; echo two >&2; sleep 0.01; echo three; exit 7"


def killed_at(spot: str, folder: Path, since: str) -> Main:
    """A keeper that is killed before it executes a line for the first time. It lists all that it executes.

    since: the function from which on that counts.
    """
    main, seen = keeper_process.main, set[str]()

    def trace(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != keeper_process.__file__:
            return None
        if frame.f_code.co_name == since:
            seen.add(since)
        line = f"{frame.f_code.co_name}:{frame.f_lineno}"
        if event == "line" and seen and line not in seen:
            if line == spot:
                os.kill(os.getpid(), signal.SIGKILL)
            seen.add(line)
            with open(folder / "lines", "a") as file:
                file.write(f"{line}\n")
        return trace

    def traced(channel: Any, driver: int) -> NoReturn:
        sys.settrace(trace)
        main(channel, driver)

    return traced


def lines(folder: Path) -> list[str]:
    """The lines that a keeper has executed; not all of them, unless time does not matter."""
    return (folder / "lines").read_text().split()[:: 1 if os.environ.get("LLC_CRASH") else 4]


def perform(folder: Path, path: str, spot: str = "") -> dict[str, Any]:
    """The result of an action whose keeper is killed at a line; what is left of the action."""
    folder.mkdir()
    effect = f"{os.getpid()}-{folder.parent.parent.name}-{folder.name}/1"
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            guard(folder)
            keeper_process.main = killed_at(spot, folder, "request")
            context = Context("job", effect, None, None, None, lambda: 0, Interrupt(), folder=str(folder))
            try:
                result = Runner().run(path, ["sh", "-c", QUICK], {}, context)
            except NotStarted as error:
                result = error.result(context)
            keeper.release(effect)
            (folder / "result").write_text(json.dumps(result))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    wait_for(lambda: not processes.find_marked(effect))
    return dict(json.loads((folder / "result").read_text()))


@pytest.mark.parametrize("path", ["/bin/sh", "/nowhere/sh"])
def test_the_keeper_dies(folder: Path, path: str) -> None:
    """Before each line that it executes: the action was started once, and its result is whole or unknown."""
    whole = perform(folder / "0", path)
    assert whole["exit_code"] == (7 if path == "/bin/sh" else 126)
    outcomes = set()
    for spot in lines(folder / "0"):
        place = folder / spot
        result = perform(place, path, spot)
        kind = result.get("error", {}).get("kind")
        outcomes.add(kind)
        if kind == "unknown-outcome":
            assert begun(place) <= 1, spot
        else:
            for name in ("output", "stderr", "exit_code"):
                assert result[name] == whole[name], spot
            assert begun(place) == begun(folder / "0"), spot
    assert outcomes == {whole.get("error", {}).get("kind"), "unknown-outcome"}


@pytest.mark.parametrize("is_attended", [False, True])
def test_the_keeper_dies_after_its_driver(folder: Path, is_attended: bool) -> None:
    """Before each line that it executes then: what a process that resumes gets of the action is whole."""

    def resume(spot: str) -> tuple[str, str, int] | None:
        place = folder / spot.replace(":", "-")
        place.mkdir()
        os.chdir(place)
        os.mkfifo(place / "go")
        driver = die(place, STEPS.index("errors") + 1, None, main=killed_at(spot, place, "keep"))
        if not is_attended:
            end_action(place)
            wait_for(lambda: has_died(driver.keeper))
        action = taken(place)
        if action is None:
            if is_attended:
                end_action(place)
            return None
        try:
            return finish(place, action)
        except keeper.KeeperDied:
            return None
        finally:
            action.release()
            wait_for(lambda: has_died(driver.keeper))
            assert begun(place) == 1

    assert resume("none") == WHOLE
    found = {spot: resume(spot) for spot in lines(folder / "none")}
    assert set(found.values()) == {None, WHOLE}, found


def end_action(folder: Path) -> None:
    """Let an action end that waits."""
    go = os.open(folder / "go", os.O_RDWR)
    os.write(go, b"\n")
    wait_for(lambda: not select.select([go], [], [], 0)[0])
    os.close(go)


def test_two_threads_notice_the_death_of_a_keeper(folder: Path) -> None:
    """The second one leaves the next keeper alone, which would believe that its driver is dead."""
    pid = os.fork()
    if pid == 0:
        try:
            notice_twice(folder)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    first, second = (folder / "keepers").read_text().split()
    assert first == second


def notice_twice(folder: Path) -> None:
    """Two actions are asked for when a keeper dies; another keeper starts one before and one after the second
    thread notices that. Writes down which keepers these were."""
    guard(folder)
    null = os.open(os.devnull, os.O_RDWR)

    def start() -> keeper.Action | None:
        facts: dict[str, Any] = {"folder": str(folder), "effect": EFFECT, "begun": 0.0, "end": None}
        facts |= {"limited_by": "", "signals": [9], "grace": 1.0, "about": {}}
        return keeper.start("/bin/sleep", [b"sleep", b"60"], {}, (null,) * 5, facts, keeper_process.main)

    asked, noticed = threading.Barrier(3, timeout=60), [threading.Event(), threading.Event()]
    wait_start = keeper.Action.wait_start

    def wait_in_turn(action: keeper.Action) -> None:
        number = int(threading.current_thread().name)
        asked.wait()
        assert noticed[number].wait(60)
        wait_start(action)

    def ask() -> None:
        with pytest.raises(keeper.KeeperDied):
            start()

    keeper._keeper(keeper_process.main)
    dying = int(children(os.getpid()))
    os.kill(dying, signal.SIGSTOP)
    keeper.Action.wait_start = wait_in_turn  # type: ignore[method-assign]
    threads = [threading.Thread(target=ask, name=str(number)) for number in range(2)]
    for thread in threads:
        thread.start()
    asked.wait()
    os.kill(dying, signal.SIGKILL)
    wait_for(lambda: has_died(dying))
    keeper.Action.wait_start = wait_start  # type: ignore[method-assign]
    actions = []
    for thread, event in zip(threads, noticed, strict=True):
        event.set()
        thread.join()
        actions.append(start())
    parents = [Path(f"/proc/{action.pid}/stat").read_text().split()[3] for action in actions if action]
    (folder / "keepers").write_text(" ".join(parents))
    for action in actions:
        assert action is not None
        os.kill(action.pid, signal.SIGKILL)
        action.release()
