"""Every message order between an action keeper, a killed driver and the processes that resume the run.

The driver takes one step at a time and is killed after each step. Meanwhile the keeper is suspended since
each earlier step, so that it receives messages, the death of the driver and the end of the action together;
it handles them in the order of the system or in the opposite order. A keeper is also killed before each
line that it executes, while its driver lives and afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import functools
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
import waiting
from waiting import is_running

from llc.runtime.effects.process import NotStarted, Runner
from llc.runtime.host import files, keeper, keeper_process, leftovers, processes
from llc.runtime.host.effect_context import Context, Interrupt
from llc.runtime.host.errors import UserError
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks

# The tests wait several thousand times.
wait_for = functools.partial(waiting.wait_for, interval_s=0.001)
EFFECT = "job/1"
ACTION = "echo started >> log; echo one; echo two >&2; read -r _ < go; echo three; exit 7"
STEPS = "request", "started", "output-file", "output", "errors", "ended", "exit", "release"
# Steps that wait for an answer of the keeper.
ANSWERED_STEPS = {"started", "exit"}
# Steps of a resuming process before it is killed.
RESUME_STEPS = "asked", "read", "ended", "exit"


def step_orders() -> Iterator[tuple[int, int | None]]:
    """Number of steps of the driver, and the step since which the keeper is suspended, if it is."""
    for count in range(len(STEPS) + 1):
        yield count, None
        for since in range(count):
            if not ANSWERED_STEPS & set(STEPS[since:count]):
                yield count, since


class ReversedPoller:
    """A poller that reports events in the opposite order."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self.register, self.unregister = self._poller.register, self._poller.unregister

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._poller.poll(timeout)[::-1]


class ReversedSelect:
    """The module `select` with the opposite poller."""

    poll, select, POLLIN = ReversedPoller, select.select, select.POLLIN


# Type of `keeper_process.main` and of functions that wrap it.
Main = Callable[[Any, int], NoReturn]


def guard(folder: Path) -> None:
    """Hold the lock of the run in a folder, as its driver does."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    files.flock(lock, files.LOCK_EX)
    about = {"run": "job", "pid": os.getpid(), "start_time": processes.start_time(os.getpid())}
    os.write(lock, json.dumps(about).encode())
    keeper.guard(str(folder), lock)


class Driver:
    """A process that runs one action with its keeper, step by step.

    pid, keeper: process ids of the driver and the keeper. main: main function of the keeper.
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
                    keeper_process.select = ReversedSelect  # type: ignore[assignment]
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

    # --- in the process --------------------------------------------------------------------------

    def _reached(self, message: str = "ok") -> None:
        os.write(self._answers, message.encode())
        if not os.read(self._orders, 1):
            os._exit(0)

    def _drive(self) -> NoReturn:
        guard(self.folder)
        assert keeper._keeper(self._main)
        self._reached(children(os.getpid()))
        send, wait_start = keeper.send, keeper.Action.wait_start
        reached = self._reached

        def report_and_wait(action: keeper.Action) -> None:
            reached()  # the request is sent
            wait_start(action)

        def send_and_wait(connection: Any, data: bytes, handles: list[int]) -> None:
            send(connection, data, handles)
            if data == b"output":
                reached()

        keeper.Action.wait_start = report_and_wait  # type: ignore[method-assign]
        keeper.send = send_and_wait
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        facts: dict[str, Any] = {"folder": str(self.folder), "effect": EFFECT, "begun": 0.0, "end": None}
        facts |= {"limited_by": "", "signals": [int(signal.SIGTERM)], "grace": 1.0, "about": {}}
        handles = os.open(os.devnull, os.O_RDONLY), output_end, errors_end, output, errors
        argv = [b"sh", b"-c", ACTION.encode()]
        action = keeper.start("/bin/sh", argv, os.environb, handles, facts, self._main)
        assert action is not None
        self._reached()  # the action has started
        for handle in (output_end, errors_end):
            os.close(handle)
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


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def start_count(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().split()) if log.exists() else 0


def run_killed_driver(
    folder: Path,
    count: int,
    since: int | None,
    is_opposite: bool = False,
    is_early: bool = False,
    main: Main = keeper_process.main,
) -> Driver:
    """A driver that was killed after `count` steps; the keeper was suspended after `since` of them.

    is_early: the action had already ended then.
    """
    if is_early:
        (folder / "go").unlink()
        (folder / "go").write_text("\n")
    driver = Driver(folder, is_opposite, main)
    for step in range(count):
        if step == since:
            if is_early:  # the keeper has sent a message that the driver has not read
                wait_for(lambda: start_count(folder) and not children(driver.keeper))
            os.kill(driver.keeper, signal.SIGSTOP)
        driver.step()
        if STEPS[step] == "request" and since is None:
            wait_for(lambda: start_count(folder))
    driver.kill()
    if since is not None:
        os.kill(driver.keeper, signal.SIGCONT)
    return driver


def take_over(folder: Path) -> keeper.Kept | None:
    surviving = locks.survivors(RunFolder("", str(folder)))
    assert set(surviving) <= {EFFECT}
    return surviving.get(EFFECT)


def finish(folder: Path, action: keeper.Kept, until: str = "exit") -> tuple[str, str, int] | None:
    """Attend the action until a step.

    Return its output, stderr and exit code; None if the attendant stops before it has the result.
    """
    output = {"output": b"", "stderr": b""}

    def read() -> None:
        for stream in output:
            output[stream] += action.read(stream, 1000)

    if until == "asked":
        return None
    if until == "read":
        read()
        return None
    if action.status is None:
        with contextlib.suppress(OSError):  # it has already read the line
            go = os.open(folder / "go", os.O_WRONLY | os.O_NONBLOCK)
            os.write(go, b"\n")
            os.close(go)
        select.select([action.fileno()], [], [], 60)
        if until == "ended":
            return None
        action.status = action.wait_status()
    read()
    return output["output"].decode(), output["stderr"].decode(), os.waitstatus_to_exitcode(action.status)


def check_complete(folder: Path, driver: Driver) -> None:
    """The action can be taken over with its complete output; then the keeper ends."""
    action = take_over(folder)
    assert action is not None
    assert finish(folder, action) == COMPLETE
    action.release()
    wait_for(lambda: not is_running(driver.keeper))
    assert start_count(folder) == 1


COMPLETE = "one\nthree\n", "two\n", 7


@pytest.mark.parametrize("is_opposite", [False, True])
@pytest.mark.parametrize(("count", "since"), list(step_orders()))
def test_driver_dies_after_each_step(folder: Path, count: int, since: int | None, is_opposite: bool) -> None:
    """The action is started once, all of its output is available, and then the keeper ends."""
    driver = run_killed_driver(folder, count, since, is_opposite)
    if STEPS[:count][-1:] == ("release",) or count == 0:
        assert take_over(folder) is None
    else:
        wait_for(lambda: start_count(folder))
        check_complete(folder, driver)
    wait_for(lambda: not is_running(driver.keeper))
    assert start_count(folder) == (count > 0)
    assert sorted(path.name for path in folder.iterdir()) == ["go", "lock", *["log"] * (count > 0)]


@pytest.mark.parametrize("is_opposite", [False, True])
@pytest.mark.parametrize(
    ("count", "since"),
    [(count, since) for count, since in step_orders() if since in range(2, 7) and count < 8],
)
def test_action_ends_before_the_driver_dies(folder: Path, count: int, since: int, is_opposite: bool) -> None:
    """The driver dies before it reads a message, and the keeper has not read all messages of the driver."""
    check_complete(folder, run_killed_driver(folder, count, since, is_opposite, is_early=True))


@pytest.mark.parametrize("resume_step", RESUME_STEPS)
@pytest.mark.parametrize(
    "count", [STEPS.index("started") + 1, STEPS.index("errors") + 1, STEPS.index("ended") + 1]
)
def test_resuming_process_dies_after_each_step(folder: Path, count: int, resume_step: str) -> None:
    """After each of its steps, the next process gets the complete action."""
    driver = run_killed_driver(folder, count, None)
    first = take_over(folder)
    assert first is not None
    finish(folder, first, resume_step)
    first.close()
    check_complete(folder, driver)


@pytest.mark.usefixtures("impatient")
def test_two_processes_resume_at_once(folder: Path) -> None:
    """An action has one attendant: the second process does not get it while the first one lives."""
    run_killed_driver(folder, STEPS.index("errors") + 1, None)
    first = take_over(folder)
    assert first is not None
    with pytest.raises(UserError, match="still running"):
        take_over(folder)
    assert finish(folder, first) == COMPLETE
    first.release()


# --- keepers and processes that are suspended ---------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short timeouts for a keeper that stays suspended."""
    monkeypatch.setattr(keeper, "_ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(locks, "_KEEPER_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("since", ["request", "death", "socket", "list"])
def test_suspended_keeper_means_active_run(folder: Path, monkeypatch: pytest.MonkeyPatch, since: str) -> None:
    """At every point of the exchange, the run counts as active: the action is neither lost nor repeated."""
    driver = Driver(folder, is_opposite=False)
    if since == "request":
        os.kill(driver.keeper, signal.SIGSTOP)
    driver.step()
    if since != "request":
        driver.step()
        wait_for(lambda: start_count(folder))
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
        take_over(folder)
    os.kill(driver.keeper, signal.SIGCONT)
    monkeypatch.undo()
    os.chdir(folder)
    wait_for(lambda: start_count(folder))
    check_complete(folder, driver)


def test_late_request_is_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper closes the connection of a suspended process; the action is still available."""
    driver = run_killed_driver(folder, STEPS.index("started") + 1, None)
    wait_for(lambda: (folder / "keeper").exists())
    receive, handle_counts = keeper.receive, list[int]()

    def receive_late(connection: Any, count: int) -> tuple[bytes, list[int]]:
        answer = receive(connection, count)
        handle_counts.append(count)
        if handle_counts == [1, 2]:
            raise ValueError("the other side has closed the connection")
        return answer

    monkeypatch.setattr(keeper, "receive", receive_late)
    check_complete(folder, driver)
    assert handle_counts.count(2) == 2


@pytest.mark.parametrize("has_started", [False, True])
def test_keeper_ends_if_the_lock_file_was_removed(folder: Path, has_started: bool) -> None:
    """If the lock file was removed while the keeper was suspended, the keeper starts and keeps no action."""
    driver = Driver(folder, is_opposite=False)
    actions = ""
    if has_started:
        driver.step()
        driver.step()
        wait_for(lambda: start_count(folder))
        actions = children(driver.keeper)
    os.kill(driver.keeper, signal.SIGSTOP)
    if not has_started:
        driver.step()
    driver.kill()
    (folder / "lock").unlink()
    os.kill(driver.keeper, signal.SIGCONT)
    wait_for(lambda: not is_running(driver.keeper))
    assert start_count(folder) == has_started == len(actions.split())
    wait_for(lambda: all(not is_running(int(pid)) for pid in actions.split()))


def test_result_is_lost_on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that cannot be stored makes the result unusable, with and without an attendant."""
    splice = os.splice

    def splice_unless_full(source: int, target: int, length: int) -> int:
        if (folder / "full").exists():
            raise OSError(errno.ENOSPC, "full")
        return splice(source, target, length)

    monkeypatch.setattr(os, "splice", splice_unless_full)
    driver = run_killed_driver(folder, STEPS.index("errors") + 1, None)
    action = take_over(folder)
    assert action is not None
    (folder / "full").touch()
    end_action(folder)
    with pytest.raises(keeper.KeeperDied):
        action.wait_status()
    action.close()
    wait_for(lambda: not is_running(driver.keeper))
    assert take_over(folder) is None


def test_unattended_action_is_ended(folder: Path) -> None:
    """Also if its keeper was killed before."""
    driver = run_killed_driver(folder, STEPS.index("errors") + 1, None)
    action = take_over(folder)
    assert action is not None
    os.kill(driver.keeper, signal.SIGKILL)
    wait_for(lambda: not is_running(driver.keeper))
    assert is_running(action.pid)
    leftovers.end_kept(action)
    wait_for(lambda: not is_running(action.pid))


# --- the death of the keeper --------------------------------------------------------------------

QUICK = "echo started >> log; echo one; echo two >&2; sleep 0.01; echo three; exit 7"


def kill_keeper_at(target_line: str, folder: Path, since: str) -> Main:
    """A keeper that is killed before it executes a line for the first time; it logs its executed lines.

    since: function from whose first call on this applies.
    """
    main, seen = keeper_process.main, set[str]()

    def trace(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != keeper_process.__file__:
            return None
        if frame.f_code.co_name == since:
            seen.add(since)
        line = f"{frame.f_code.co_name}:{frame.f_lineno}"
        if event == "line" and seen and line not in seen:
            if line == target_line:
                os.kill(os.getpid(), signal.SIGKILL)
            seen.add(line)
            with open(folder / "lines", "a") as file:
                file.write(f"{line}\n")
        return trace

    def traced(channel: Any, driver: int) -> NoReturn:
        sys.settrace(trace)
        main(channel, driver)

    return traced


def executed_lines(folder: Path) -> list[str]:
    """Lines that a keeper has executed; every fourth one, unless LLC_CRASH is set."""
    return (folder / "lines").read_text().split()[:: 1 if os.environ.get("LLC_CRASH") else 4]


def perform(folder: Path, path: str, line: str = "") -> dict[str, Any]:
    """The result of an action whose keeper is killed at a line; all its processes have ended then."""
    folder.mkdir()
    effect = f"{os.getpid()}-{folder.parent.parent.name}-{folder.name}/1"
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            guard(folder)
            keeper_process.main = kill_keeper_at(line, folder, "request")
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
def test_keeper_dies_at_each_line(folder: Path, path: str) -> None:
    """The action is started once, and its result is complete or in doubt."""
    expected = perform(folder / "0", path)
    assert expected["exit_code"] == (7 if path == "/bin/sh" else 126)
    outcomes = set()
    for line in executed_lines(folder / "0"):
        target_folder = folder / line
        result = perform(target_folder, path, line)
        kind = result.get("error", {}).get("kind")
        outcomes.add(kind)
        if kind == "unknown-outcome":
            assert start_count(target_folder) <= 1, line
        else:
            for name in ("output", "stderr", "exit_code"):
                assert result[name] == expected[name], line
            assert start_count(target_folder) == start_count(folder / "0"), line
    assert outcomes == {expected.get("error", {}).get("kind"), "unknown-outcome"}


@pytest.mark.parametrize("is_attended", [False, True])
def test_keeper_dies_after_its_driver_at_each_line(folder: Path, is_attended: bool) -> None:
    """Before each line that it executes then: a resuming process gets the complete action or nothing."""

    def resume(line: str) -> tuple[str, str, int] | None:
        target_folder = folder / line.replace(":", "-")
        target_folder.mkdir()
        os.chdir(target_folder)
        os.mkfifo(target_folder / "go")
        driver = run_killed_driver(
            target_folder, STEPS.index("errors") + 1, None, main=kill_keeper_at(line, target_folder, "keep")
        )
        if not is_attended:
            end_action(target_folder)
            wait_for(lambda: not is_running(driver.keeper))
        action = take_over(target_folder)
        if action is None:
            if is_attended:
                end_action(target_folder)
            return None
        try:
            return finish(target_folder, action)
        except keeper.KeeperDied:
            return None
        finally:
            action.release()
            wait_for(lambda: not is_running(driver.keeper))
            assert start_count(target_folder) == 1

    assert resume("none") == COMPLETE
    results = {line: resume(line) for line in executed_lines(folder / "none")}
    assert set(results.values()) == {None, COMPLETE}, results


def end_action(folder: Path) -> None:
    """Let a waiting action end."""
    go = os.open(folder / "go", os.O_RDWR)
    os.write(go, b"\n")
    wait_for(lambda: not select.select([go], [], [], 0)[0])
    os.close(go)


def test_two_threads_notice_the_death_of_a_keeper(folder: Path) -> None:
    """The second thread keeps the new keeper, which would otherwise believe that its driver is dead."""
    pid = os.fork()
    if pid == 0:
        try:
            notice_death_twice(folder)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    first, second = (folder / "keepers").read_text().split()
    assert first == second


def notice_death_twice(folder: Path) -> None:
    """Write the keepers of two actions to `keepers`.

    A keeper dies while two threads wait for an action. A new keeper starts an action before and after the
    second thread notices the death.
    """
    guard(folder)
    null = os.open(os.devnull, os.O_RDWR)

    def start() -> keeper.Action | None:
        facts: dict[str, Any] = {"folder": str(folder), "effect": EFFECT, "begun": 0.0, "end": None}
        facts |= {"limited_by": "", "signals": [9], "grace": 1.0, "about": {}}
        return keeper.start("/bin/sleep", [b"sleep", b"60"], {}, (null,) * 5, facts, keeper_process.main)

    both_requested, noticed = threading.Barrier(3, timeout=60), [threading.Event(), threading.Event()]
    wait_start = keeper.Action.wait_start

    def wait_in_turn(action: keeper.Action) -> None:
        number = int(threading.current_thread().name)
        both_requested.wait()
        assert noticed[number].wait(60)
        wait_start(action)

    def request() -> None:
        with pytest.raises(keeper.KeeperDied):
            start()

    keeper._keeper(keeper_process.main)
    dying_keeper = int(children(os.getpid()))
    os.kill(dying_keeper, signal.SIGSTOP)
    keeper.Action.wait_start = wait_in_turn  # type: ignore[method-assign]
    threads = [threading.Thread(target=request, name=str(number)) for number in range(2)]
    for thread in threads:
        thread.start()
    both_requested.wait()
    os.kill(dying_keeper, signal.SIGKILL)
    wait_for(lambda: not is_running(dying_keeper))
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
