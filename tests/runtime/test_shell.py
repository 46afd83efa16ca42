"""Shell actions (`loops.md`, section 10), with real processes and signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llc.runtime.effects import process, process_group
from llc.runtime.effects.output_capture import CAPTURE_LIMIT, KEPT_END
from llc.runtime.effects.process import Runner
from llc.runtime.effects.shell import Shell, plain_words, shell_of
from llc.runtime.effects.world import World
from llc.runtime.host import processes
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.vm.primitives.verdicts import judge_crash

Perform = Callable[..., dict[str, Any]]


def wait_until(claim: Callable[[], bool]) -> bool:
    """Whether a claim comes true within a minute."""
    end = time.monotonic() + 60
    while not claim():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes an executable `sh` script on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time between TERM and KILL."""
    monkeypatch.setattr(process._SHELL_OPTIONS, "grace", 0.3)


# --- which shell --------------------------------------------------------------------------------


def test_a_shell_action_runs_under_bash(perform: Perform) -> None:
    """Where there is a bash it is the shell, also for what only bash knows."""
    result = perform("shell", command='[[ ab == a* ]] && echo "${BASH_VERSION:+bash} $0"')
    assert result["output"] == "bash bash\n"


def test_without_bash_a_shell_action_runs_under_sh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, perform: Perform
) -> None:
    """`sh` is enough."""
    sh = shutil.which("sh")
    assert sh is not None
    (tmp_path / "sh").symlink_to(sh)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert perform("shell", command='echo "$0"; exit 4') | {"duration_ms": 0} == {
        "output": "sh\n",
        "stderr": "",
        "exit_code": 4,
        "duration_ms": 0,
        "elapsed_ms": 0,
    }


def test_a_shell_action_has_its_own_process_group_and_session(perform: Perform) -> None:
    """Signals to our group do not reach it, nor does it get at the terminal."""
    output = perform(
        "shell", command="read -r _ _ _ _ group session _ < /proc/$$/stat; echo $$ $group $session"
    )
    pid, group, session = output["output"].split()
    assert pid == group == session
    assert int(group) != os.getpgrp()


def test_a_shell_action_has_its_standard_input_closed(perform: Perform) -> None:
    """Reading gives the end at once instead of waiting for somebody to type."""
    assert perform("shell", command="cat; read -r line; echo $?", timeout_s=20)["output"] == "1\n"


def test_an_action_inherits_no_descriptor_of_ours(perform: Perform, tmp_path: Path) -> None:
    """A background child must not keep locks or journals open."""
    with open(tmp_path / "lock", "w"):
        result = perform("shell", command="ls -l /proc/self/fd; :")
    assert "lock" not in result["output"]


def test_an_action_finds_its_keys_in_its_environment(perform: Perform) -> None:
    """The effect's id is the action's idempotency key; run, loop, state and iteration go along."""
    names = "LLC_EFFECT_ID LLC_RUN_ID LLC_LOOP LLC_STATE LLC_ITERATION"
    result = perform("shell", command=f"for n in {names}; do echo ${{!n}}; done")
    assert result["output"].split() == [f"lint-{os.getpid()}/7", "lint-1", "lint", "check", "2"]


def test_an_outer_runs_keys_do_not_show_through(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program has no state, an action sees none, even if llc itself runs in an action."""
    monkeypatch.setenv("LLC_STATE", "outer")
    assert perform("shell", {"state": None}, command="echo ${LLC_STATE-unset}")["output"] == "unset\n"


# --- results ------------------------------------------------------------------------------------


def test_output_and_errors_are_captured_apart(perform: Perform) -> None:
    """Two streams, two fields."""
    result = perform("shell", command="echo out; echo err >&2; exit 3")
    assert (result["output"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 3)


@pytest.mark.parametrize(
    "command", ["kill -KILL $$", "exec sleep 60 & kill -KILL $!; wait $!; kill -KILL $$"]
)
def test_an_exit_by_signal_is_what_a_shell_says(perform: Perform, command: str) -> None:
    """128 and the number as exit code, and the signal's name."""
    result = perform("shell", command=command)
    assert (result["exit_code"], result["signal"]) == (137, "SIGKILL")


def test_a_missing_command_is_named_and_exits_with_127(perform: Perform) -> None:
    """The shell's own message, with the name."""
    result = perform("shell", command="no-such-program --flag")
    assert result["exit_code"] == 127
    assert "no-such-program" in result["stderr"]


def test_a_command_that_may_not_be_run_exits_with_126(perform: Perform, tmp_path: Path) -> None:
    """A file without execute permission."""
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n")
    result = perform("shell", command=f"{path} now")
    assert result["exit_code"] == 126
    assert str(path) in result["stderr"]


def test_output_that_is_not_utf_8_gets_replacement_characters(perform: Perform) -> None:
    """Binary output is no error."""
    result = perform("shell", command=r"printf 'a\377b\303'; printf '\0\200' >&2")
    assert (result["output"], result["stderr"]) == ("a�b�", "\0�")


def test_durations_are_measured(perform: Perform) -> None:
    """`duration_ms` is the action's, `elapsed_ms` the run's."""
    result = perform("shell", {"elapsed_ms": lambda: 1234}, command="sleep 0.05")
    assert result["duration_ms"] >= 50
    assert result["elapsed_ms"] == 1234


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo a\0b", "NUL"),
        ("echo \ud800", "UTF-8"),
        ("echo " + "x" * (1 << 18), "longer than the system permits"),
    ],
)
def test_a_command_the_system_refuses_is_an_error_with_its_reason(
    perform: Perform, command: str, reason: str
) -> None:
    """A result with `error`, not an exception."""
    result = perform("shell", command=command)
    assert result["exit_code"] == 126
    assert result["error"]["kind"] == "failed-to-start"
    assert reason in result["error"]["message"]
    assert result["error"]["message"] == result["stderr"]


# --- live output --------------------------------------------------------------------------------


def test_output_is_shown_while_the_action_runs(perform: Perform, tmp_path: Path) -> None:
    """The action ends only after its first line was seen."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    seen: list[str] = []

    def show(stream: str, text: str) -> None:
        seen.append(f"{stream}:{text}")
        if text == "first\n":
            gate.write_text("second\n")

    perform("shell", {"on_output": show}, command=f"echo first; cat {gate}; echo last >&2", timeout_s=20)
    assert seen == ["output:first\n", "output:second\n", "stderr:last\n"]


def test_a_partial_line_is_shown(perform: Perform, tmp_path: Path) -> None:
    """Text without a newline is not held back."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def show(stream: str, text: str) -> None:
        if text == "Continue?":
            gate.write_text("yes")

    result = perform("shell", {"on_output": show}, command=f"printf 'Continue?'; cat {gate}", timeout_s=20)
    assert result["output"] == "Continue?yes"


def test_a_character_that_comes_in_two_parts_is_shown_as_one(perform: Perform) -> None:
    """Live decoding waits for the rest of a character."""
    seen: list[str] = []
    command = r"printf '\303'; sleep 0.05; printf '\251'; printf '\342'"
    result = perform("shell", {"on_output": lambda _, text: seen.append(text)}, command=command)
    assert seen == ["é", "�"]
    assert result["output"] == "é�"


def test_a_waiting_display_is_called_about_every_tenth_of_a_second(perform: Perform) -> None:
    """A spinner turns although nothing is printed."""
    ticks: list[int] = []
    perform("shell", {"on_tick": lambda: ticks.append(1)}, command="sleep 0.55; :")
    assert len(ticks) >= 2


def test_an_error_in_a_callback_ends_the_action(perform: Perform, tmp_path: Path) -> None:
    """A full disk under the journal, a closed terminal: nothing is left running."""
    pids = tmp_path / "pids"

    def show(stream: str, text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        perform("shell", {"on_output": show}, command=f"echo $$ > {pids}; echo x; sleep 60")
    assert not is_running(pids_in(pids)[0])


# --- large output -------------------------------------------------------------------------------


def test_output_up_to_the_limit_is_kept_whole(perform: Perform) -> None:
    """1 MiB to the byte."""
    result = perform("shell", command=f"head -c {CAPTURE_LIMIT} /dev/zero | tr '\\0' x")
    assert result["output"] == "x" * CAPTURE_LIMIT
    assert "truncated" not in result


def test_a_large_output_is_kept_in_full_on_disk(perform: Perform, tmp_path: Path) -> None:
    """Every byte, in the run's folder."""
    folder = tmp_path / "outputs"
    result = perform("shell", {"output_dir": str(folder)}, command="seq 400000; seq 5 >&2")
    whole = "".join(f"{n}\n" for n in range(1, 400001))
    assert (folder / "7-output.txt").read_text() == whole
    assert result["truncated"] == {"output": len(whole)}
    assert [path.name for path in folder.iterdir()] == ["7-output.txt"]
    assert result["stderr"] == "1\n2\n3\n4\n5\n"


def test_of_a_large_output_the_first_and_last_part_are_in_the_result(
    perform: Perform, tmp_path: Path
) -> None:
    """With a line between that says how much is left out and where all of it is."""
    result = perform("shell", {"output_dir": str(tmp_path)}, command="seq 400000")
    whole = "".join(f"{n}\n" for n in range(1, 400001))
    head, _, rest = result["output"].partition("\n[llc: ")
    marker, _, tail = rest.partition("]\n")
    assert head == whole[:KEPT_END]
    assert tail == whole[-KEPT_END:]
    left_out = len(whole) - CAPTURE_LIMIT
    assert marker == (
        f"{left_out} of {len(whole)} bytes are left out here; all of it is in {tmp_path / '7-output.txt'}"
    )


def test_a_cut_does_not_go_through_a_character(perform: Perform) -> None:
    """Neither part begins or ends with half a character."""
    code = "import sys; sys.stdout.write('x' + 'é€😀' * 200000)"
    output = perform("shell", command=f'{sys.executable} -c "{code}"')["output"]
    assert "�" not in output
    assert output.startswith("xé€😀")
    assert output.endswith("é€😀")


def test_a_disk_that_takes_no_copy_does_not_fail_the_action(perform: Perform, tmp_path: Path) -> None:
    """The marker says that there is no copy, and why."""
    (tmp_path / "file").write_text("")
    result = perform("shell", {"output_dir": str(tmp_path / "file" / "x")}, command="seq 400000")
    assert result["exit_code"] == 0
    assert "no full copy: Not a directory]" in result["output"]


def test_a_hundred_megabytes_of_output_do_not_grow_the_process(tmp_path: Path) -> None:
    """Memory stays flat and all of it is on disk."""
    code = f"""
import resource
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt
class Effect:
    kind = "shell"
    args = {{"command": "yes 123456789 | head -c 100000000"}}
context = Context(run_id="r", effect_id="r/1", loop=None, state=None, iteration=None,
    elapsed_ms=lambda: 0, interrupt=Interrupt(), output_dir={str(tmp_path)!r}, on_output=lambda *part: None)
world = World()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = world.perform(Effect, context)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, result["truncated"]["output"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown_kib, total = map(int, done.stdout.split())
    assert total == 100_000_000 == (tmp_path / "1-output.txt").stat().st_size
    assert grown_kib < 12 * 1024


# --- time-outs ----------------------------------------------------------------------------------


def test_a_timeout_ends_the_action_with_term(perform: Perform) -> None:
    """The result says that the action's own limit ended it."""
    result = perform("shell", command="sleep 60", timeout_s=0.1)
    assert (result["timed_out"], result["exit_code"], result["signal"]) == ("action", 143, "SIGTERM")


def test_the_loops_deadline_ends_an_action(perform: Perform) -> None:
    """What is left of the run's time bounds it, if that is less than its own limit."""
    at = {"elapsed_ms": lambda: 900}
    assert perform("shell", at, command="sleep 60", timeout_s=50, deadline_ms=1000)["timed_out"] == "loop"
    assert perform("shell", at, command="sleep 60", timeout_s=0.05, deadline_ms=1000)["timed_out"] == "action"


def test_no_action_starts_after_the_loops_deadline(perform: Perform, tmp_path: Path) -> None:
    """It is timed out without having run."""
    mark = tmp_path / "mark"
    result = perform("shell", {"elapsed_ms": lambda: 1000}, command=f"touch {mark}", deadline_ms=1000)
    assert (result["timed_out"], result["exit_code"], mark.exists()) == ("loop", 124, False)


def test_a_timeout_ends_the_whole_group(perform: Perform, tmp_path: Path, quick: None) -> None:
    """Children and grandchildren, also those that ignore TERM (they get KILL)."""
    pids = tmp_path / "pids"
    deaf = f"(trap '' TERM; echo $BASHPID >> {pids}; while :; do sleep 60; done)"
    result = perform("shell", command=f"echo $$ > {pids}; {deaf} & {deaf} & {deaf}", timeout_s=0.4)
    assert result["timed_out"] == "action"
    running = pids_in(pids)
    assert len(running) == 4
    assert wait_until(lambda: not any(is_running(pid) for pid in running))


def test_an_action_that_ignores_term_gets_kill(perform: Perform, quick: None) -> None:
    """After two seconds (fewer in this test)."""
    result = perform("shell", command="trap '' TERM; while :; do sleep 60; done", timeout_s=0.1)
    assert (result["exit_code"], result["signal"], result["timed_out"]) == (137, "SIGKILL", "action")


def test_an_action_has_time_to_clean_up_after_term(perform: Perform) -> None:
    """What it writes then is captured, and its own exit code counts."""
    command = "trap 'sleep 0.1; echo cleaned; exit 9' TERM; echo begun; while :; do sleep 0.02; done"
    result = perform("shell", command=command, timeout_s=0.3)
    assert (result["output"], result["exit_code"], result["timed_out"]) == ("begun\ncleaned\n", 9, "action")


def test_a_child_has_time_to_clean_up_although_the_shell_is_gone(perform: Perform, tmp_path: Path) -> None:
    """bash dies of TERM at once; what it ran does not get KILL before the grace is over."""
    mark = tmp_path / "mark"
    child = f"trap 'sleep 0.2; touch {mark}; exit' TERM; while :; do sleep 0.02; done"
    perform("shell", command=f'bash -c "{child}" > /dev/null 2>&1; :', timeout_s=0.3)
    assert mark.exists()


def test_a_timeout_holds_when_a_child_holds_the_pipe(perform: Perform, tmp_path: Path) -> None:
    """A child in a session of its own, beyond our reach, does not keep us waiting."""
    pids = tmp_path / "pids"
    child = f"setsid bash -c 'echo $$ > {pids}; exec sleep 600'"
    result = perform("shell", command=f"{child} & echo x; sleep 600", timeout_s=0.3)
    assert (result["timed_out"], result["output"]) == ("action", "x\n")
    assert is_running(pids_in(pids)[0])
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_a_timeout_holds_in_the_middle_of_a_line(perform: Perform) -> None:
    """Waiting for a newline would wait for ever."""
    result = perform("shell", command="printf partial; sleep 60", timeout_s=0.2)
    assert (result["timed_out"], result["output"]) == ("action", "partial")


def test_a_timeout_holds_while_output_pours(perform: Perform) -> None:
    """Reading does not starve the clock."""
    result = perform("shell", command="yes", timeout_s=0.2)
    assert result["timed_out"] == "action"
    assert result["truncated"]["output"] > CAPTURE_LIMIT


# --- background children ------------------------------------------------------------------------


def test_a_background_child_does_not_hold_the_step(perform: Perform, tmp_path: Path) -> None:
    """The step ends with its own process although the child has its output open."""
    pids = tmp_path / "pids"
    result = perform("shell", command=f"sleep 60 & echo $! > {pids}; echo done")
    assert (result["output"], result["exit_code"]) == ("done\n", 0)
    assert is_running(pids_in(pids)[0])
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_what_was_written_before_the_end_is_not_lost(perform: Perform, tmp_path: Path) -> None:
    """A full pipe is drained although a child holds it."""
    pids = tmp_path / "pids"
    result = perform("shell", command=f"sleep 60 & echo $! > {pids}; head -c 65536 /dev/zero | tr '\\0' x")
    assert result["output"] == "x" * 65536
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_the_end_of_a_process_substitution_is_not_lost(perform: Perform) -> None:
    """`cmd > >(filter)` ends before its filter has written."""
    result = perform("shell", command="echo text > >(sleep 0.02; tr a-z A-Z)")
    assert result["output"] == "TEXT\n"


def test_a_background_child_may_go_on_writing(perform: Perform, tmp_path: Path) -> None:
    """A server left behind does not die of SIGPIPE, nor block, while the run goes on."""
    mark = tmp_path / "mark"
    perform("shell", command=f"(sleep 0.3; seq 50000; echo $? > {mark}) & :")
    assert wait_until(lambda: bool(perform("shell", command="sleep 0.05; :")) and mark.exists())
    assert mark.read_text() == "0\n"


def test_only_so_many_pipes_are_kept_open(
    perform: Perform, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that leaves a child behind in each iteration does not run out of descriptors."""
    monkeypatch.setattr(process_group, "MAX_LEFT_BEHIND", 2)
    for _ in range(3):
        perform("shell", command="sleep 1 & :")
    assert len(shell_of(world).runner._left_behind.descriptors) == 2


# --- interrupts ---------------------------------------------------------------------------------


def test_an_interrupt_ends_the_action_and_the_wait(
    perform: Perform, interrupt: Interrupt, tmp_path: Path
) -> None:
    """The group gets TERM, and `Interrupted` is raised."""
    pids = tmp_path / "pids"
    threading.Timer(0.2, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("shell", command=f"echo $$ > {pids}; sleep 60 & echo $! >> {pids}; wait")
    assert wait_until(lambda: not any(is_running(pid) for pid in pids_in(pids)))


def test_a_second_interrupt_kills_at_once(
    perform: Perform, interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who insists does not wait for a process that ignores TERM."""
    monkeypatch.setattr(process._SHELL_OPTIONS, "grace", 600)
    for seconds in (0.2, 0.3):
        threading.Timer(seconds, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("shell", command="trap '' TERM; while :; do sleep 60; done")


def test_a_signal_handler_may_set_the_interrupt(perform: Perform, interrupt: Interrupt) -> None:
    """A real signal to this process ends a wait in the system call."""
    before = signal.signal(signal.SIGUSR1, lambda *_: interrupt.set())
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(Interrupted):
            perform("shell", command="sleep 60")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_nothing_starts_after_an_interrupt(perform: Perform, interrupt: Interrupt, tmp_path: Path) -> None:
    """The effect is refused before it is performed."""
    interrupt.set()
    with pytest.raises(Interrupted):
        perform("shell", command=f"touch {tmp_path / 'mark'}")
    assert list(tmp_path.iterdir()) == []


def test_without_a_pidfd_everything_works_too(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems, older kernels: the exit is asked for every now and then."""
    monkeypatch.setattr(processes, "exit_handle", lambda pid: -1)
    assert perform("shell", command="sleep 1 & echo a; exit 3")["exit_code"] == 3
    assert perform("shell", command="sleep 60", timeout_s=0.05)["timed_out"] == "action"


def children() -> list[str]:
    """The pids of the children of this thread, dead ones too."""
    return Path("/proc/thread-self/children").read_text().split()


def test_no_descriptor_and_no_process_is_left_over(perform: Perform) -> None:
    """After many steps, failed ones among them."""
    perform("shell", command="true")
    before = len(os.listdir("/proc/self/fd"))
    children_before = children()
    for command in ("true", "exit 1", "kill -9 $$", "echo a\0", "seq 300000"):
        perform("shell", command=command)
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() == children_before


# --- commands that need no shell ----------------------------------------------------------------


def test_plain_words_are_run_without_a_shell(perform: Perform) -> None:
    """The parent of the program is this process."""
    code = perform("shell", command="sleep 0")["exit_code"]
    assert code == 0
    output = perform("shell", command="cat /proc/self/stat")["output"]
    assert int(output.rpartition(")")[2].split()[1]) == os.getpid()


def test_what_a_shell_would_not_look_up_is_not_plain() -> None:
    """Every keyword and builtin of bash, but `true` and `false`, whose programs do the same."""
    listed = subprocess.run(
        ["bash", "-c", "compgen -k; compgen -b"], capture_output=True, text=True, check=True
    )
    plain = {word for word in listed.stdout.split() if plain_words(f"{word} x")}
    assert plain == {"true", "false"}


WORDS = st.text("ab/.-_=:,@%+~*?[]{}!#$&|;<>()'\"\\` \t\n0^é", min_size=1, max_size=6)


@settings(deadline=None, max_examples=300)
@given(st.lists(WORDS, min_size=1, max_size=4))
def test_plain_words_are_what_bash_reads(words: list[str]) -> None:
    """If a command counts as plain, bash makes the same words of it."""
    command = "printf-words " + " ".join(words)
    argv = plain_words(command)
    if argv:
        script = f"printf-words() {{ printf '%s\\n' \"$@\"; }}; {command}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == argv[1:] or (argv[1:] == [] and done.stdout == "\n")


@pytest.mark.parametrize("first", ["a=b", "a+=b", "~", "%1", "!", "{", "[", ".", "$x", "'x'"])
def test_a_first_word_that_means_something_is_not_plain(first: str) -> None:
    """Assignments, job numbers, expansions, quotes."""
    assert plain_words(f"{first} true") == []


def test_a_program_without_a_hash_bang_line_runs(perform: Perform, program: Callable[..., Path]) -> None:
    """The system refuses it, the shell does not."""
    path = program("bare", "")
    path.write_text('echo "bare $1"\n')
    assert perform("shell", command="bare step")["output"] == "bare step\n"


def test_a_function_from_the_environment_wins(monkeypatch: pytest.MonkeyPatch, perform: Perform) -> None:
    """bash imports exported functions, so nothing is plain any more."""
    monkeypatch.setenv("BASH_FUNC_uname%%", "() { echo fake; }")
    assert perform("shell", command="uname -a")["output"] == "fake\n"


def test_a_program_of_the_working_folder_is_found_by_its_path(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./tool` needs no PATH."""
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho tool $1\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert perform("shell", command="./tool x")["output"] == "tool x\n"


def test_standard_descriptors_that_are_closed_do_no_harm(tmp_path: Path) -> None:
    """`llc run … <&- >&-`: pipes do not end up in the places of the standard descriptors."""
    code = """
from llc.runtime.effects.world import World
from llc.runtime.host.effect_context import Context, Interrupt
import json, sys
class Effect:
    kind = "shell"
    args = {"command": "echo out; echo err >&2"}
context = Context(run_id="r", effect_id="r/1", loop=None, state=None, iteration=None,
    elapsed_ms=lambda: 0, interrupt=Interrupt())
with open(sys.argv[1], "w") as file:
    json.dump(World().perform(Effect, context), file)
"""
    path = tmp_path / "result"
    subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" "$2" <&- >&- 2>&-', sys.executable, code, path], check=True
    )
    assert '"output": "out\\n", "stderr": "err\\n"' in path.read_text()


def test_a_stale_working_folder_does_not_matter(perform: Perform, tmp_path: Path) -> None:
    """PWD is what a shell would make it."""
    home = os.getcwd()
    try:
        os.chdir(tmp_path)
        assert Runner().env[b"PWD"] == os.fsencode(tmp_path)
    finally:
        os.chdir(home)


def test_many_shells_may_be_made(context: Callable[..., Context]) -> None:
    """Closing one leaves no descriptor behind."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        shell = Shell()
        shell.perform({"command": "true"}, context())
        shell.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_commands_are_utf_8_whatever_the_locale(tmp_path: Path, locale: str) -> None:
    """In an ASCII locale a command reaches its program as it was written."""
    script = tmp_path / "script.py"
    script.write_text(
        "from llc.runtime.effects.world import World\n"
        "from llc.runtime.host.effect_context import Context, Interrupt\n"
        "class Effect:\n"
        "    kind = 'shell'\n"
        "    args = {'command': 'printf %s é→ > out; é→'}\n"
        "context = Context(run_id='r', effect_id='r/1', loop='é', state=None, iteration=None,\n"
        "    elapsed_ms=lambda: 0, interrupt=Interrupt())\n"
        "print(World().perform(Effect(), context)['exit_code'])\n",
        "utf-8",
    )
    env = {**os.environ, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "127\n", done.stderr
    assert (tmp_path / "out").read_bytes() == "é→".encode()


def test_a_time_out_says_the_limit_and_not_the_grace(perform: Perform) -> None:
    """An action that ignores TERM has had its time all the same."""
    result = perform("shell", command="trap '' TERM; sleep 3; sleep 3", timeout_s=0.2)
    assert (result["timed_out"], result["limit_ms"]) == ("action", 200)
    verdict = judge_crash(result)
    assert verdict is not None
    assert verdict["details"]["message"] == "timed out after 0.2 s"
