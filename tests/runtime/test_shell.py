"""Shell actions (`loops.md`, section 10), tested with real processes and signals."""

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
from laws import tried

from llc.runtime.effects import process, process_group
from llc.runtime.effects.output_capture import CAPTURE_LIMIT, KEPT_END
from llc.runtime.effects.process import Runner
from llc.runtime.effects.shell import Shell, plain_words, shell_of
from llc.runtime.effects.world import World
from llc.runtime.host import processes
from llc.runtime.host.effect_context import Context, Interrupt, Interrupted
from llc.vm.primitives.verdicts import judge_crash

Perform = Callable[..., dict[str, Any]]


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait up to a minute for a condition; returns whether it became true."""
    end = time.monotonic() + 60
    while not condition():
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
def write_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Factory of executable `sh` scripts in a folder on PATH."""
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
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time between SIGTERM and SIGKILL."""
    monkeypatch.setattr(process._SHELL_OPTIONS, "grace", 0.3)


# --- choice of the shell --------------------------------------------------------------------------


def test_a_shell_action_runs_under_bash(perform: Perform) -> None:
    """Where bash is installed it is the shell, so bash syntax works."""
    result = perform("shell", command='[[ ab == a* ]] && echo "${BASH_VERSION:+bash} $0"')
    assert result["output"] == "bash bash\n"


def test_without_bash_a_shell_action_runs_under_sh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, perform: Perform
) -> None:
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
    """Signals to llc's process group do not reach the action, and the action has no terminal."""
    output = perform(
        "shell", command="read -r _ _ _ _ group session _ < /proc/$$/stat; echo $$ $group $session"
    )
    pid, group, session = output["output"].split()
    assert pid == group == session
    assert int(group) != os.getpgrp()


def test_standard_input_of_a_shell_action_is_empty(perform: Perform) -> None:
    """Reading returns end of file at once instead of waiting for input."""
    assert perform("shell", command="cat; read -r line; echo $?", timeout_s=20)["output"] == "1\n"


def test_an_action_inherits_no_file_descriptor(perform: Perform, tmp_path: Path) -> None:
    """A background child does not keep locks or journals of llc open."""
    with open(tmp_path / "lock", "w"):
        result = perform("shell", command="ls -l /proc/self/fd; :")
    assert "lock" not in result["output"]


def test_an_action_has_its_ids_in_its_environment(perform: Perform) -> None:
    """The environment has the effect id (idempotency key), run, loop, state and iteration."""
    names = "LLC_EFFECT_ID LLC_RUN_ID LLC_LOOP LLC_STATE LLC_ITERATION"
    result = perform("shell", command=f"for n in {names}; do echo ${{!n}}; done")
    assert result["output"].split() == [f"lint-{os.getpid()}/7", "lint-1", "lint", "check", "2"]


def test_variables_of_an_outer_run_are_removed(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """An action without a state has no LLC_STATE, even if llc itself runs in an action that has one."""
    monkeypatch.setenv("LLC_STATE", "outer")
    assert perform("shell", {"state": None}, command="echo ${LLC_STATE-unset}")["output"] == "unset\n"


# --- results ------------------------------------------------------------------------------------


def test_stdout_and_stderr_are_captured_separately(perform: Perform) -> None:
    result = perform("shell", command="echo out; echo err >&2; exit 3")
    assert (result["output"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 3)


@pytest.mark.parametrize(
    "command", ["kill -KILL $$", "exec sleep 60 & kill -KILL $!; wait $!; kill -KILL $$"]
)
def test_death_by_signal_has_the_exit_code_of_a_shell(perform: Perform, command: str) -> None:
    """The exit code is 128 plus the number of the signal; `signal` is its name."""
    result = perform("shell", command=command)
    assert (result["exit_code"], result["signal"]) == (137, "SIGKILL")


def test_a_missing_command_is_named_and_exits_with_127(perform: Perform) -> None:
    """The error output is the shell's own message, with the name of the command."""
    result = perform("shell", command="no-such-program --flag")
    assert result["exit_code"] == 127
    assert "no-such-program" in result["stderr"]


def test_a_file_without_execute_permission_exits_with_126(perform: Perform, tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n")
    result = perform("shell", command=f"{path} now")
    assert result["exit_code"] == 126
    assert str(path) in result["stderr"]


def test_output_that_is_not_utf_8_gets_replacement_characters(perform: Perform) -> None:
    """Binary output is not an error."""
    result = perform("shell", command=r"printf 'a\377b\303'; printf '\0\200' >&2")
    assert (result["output"], result["stderr"]) == ("a�b�", "\0�")


def test_durations_are_measured(perform: Perform) -> None:
    """`duration_ms` is the duration of the action, `elapsed_ms` that of the run."""
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
    """The result has an `error`; no exception is raised."""
    result = perform("shell", command=command)
    assert result["exit_code"] == 126
    assert result["error"]["kind"] == "failed-to-start"
    assert reason in result["error"]["message"]
    assert result["error"]["message"] == result["stderr"]


# --- live output --------------------------------------------------------------------------------


def test_output_is_shown_while_the_action_runs(perform: Perform, tmp_path: Path) -> None:
    """The action ends only after its first line was displayed."""
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
    """Text without a newline is displayed at once."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def show(stream: str, text: str) -> None:
        if text == "Continue?":
            gate.write_text("yes")

    result = perform("shell", {"on_output": show}, command=f"printf 'Continue?'; cat {gate}", timeout_s=20)
    assert result["output"] == "Continue?yes"


def test_a_character_received_in_two_parts_is_shown_whole(perform: Perform) -> None:
    """Incremental decoding waits for the remaining bytes of a character."""
    seen: list[str] = []
    command = r"printf '\303'; sleep 0.05; printf '\251'; printf '\342'"
    result = perform("shell", {"on_output": lambda _, text: seen.append(text)}, command=command)
    assert seen == ["é", "�"]
    assert result["output"] == "é�"


def test_on_tick_is_called_about_every_tenth_of_a_second(perform: Perform) -> None:
    """A spinner moves although nothing is printed."""
    ticks: list[int] = []
    perform("shell", {"on_tick": lambda: ticks.append(1)}, command="sleep 0.55; :")
    assert len(ticks) >= 2


def test_an_error_in_a_callback_ends_the_action(perform: Perform, tmp_path: Path) -> None:
    """An exception in a callback (journal on a full disk, closed terminal) leaves no process running."""
    pids = tmp_path / "pids"

    def show(stream: str, text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        perform("shell", {"on_output": show}, command=f"echo $$ > {pids}; echo x; sleep 60")
    assert not is_running(pids_in(pids)[0])


# --- large output -------------------------------------------------------------------------------


def test_output_up_to_the_limit_is_not_truncated(perform: Perform) -> None:
    """The limit of 1 MiB is exact to the byte."""
    result = perform("shell", command=f"head -c {CAPTURE_LIMIT} /dev/zero | tr '\\0' x")
    assert result["output"] == "x" * CAPTURE_LIMIT
    assert "truncated" not in result


def test_a_large_output_is_complete_on_disk(perform: Perform, tmp_path: Path) -> None:
    """The run's output folder has a file with every byte."""
    folder = tmp_path / "outputs"
    result = perform("shell", {"output_dir": str(folder)}, command="seq 400000; seq 5 >&2")
    complete = "".join(f"{n}\n" for n in range(1, 400001))
    assert (folder / "7-output.txt").read_text() == complete
    assert result["truncated"] == {"output": len(complete)}
    assert [path.name for path in folder.iterdir()] == ["7-output.txt"]
    assert result["stderr"] == "1\n2\n3\n4\n5\n"


def test_the_result_has_the_start_and_end_of_a_large_output(perform: Perform, tmp_path: Path) -> None:
    """A line between them states how many bytes are omitted and which file has the complete output."""
    result = perform("shell", {"output_dir": str(tmp_path)}, command="seq 400000")
    complete = "".join(f"{n}\n" for n in range(1, 400001))
    head, _, rest = result["output"].partition("\n[llc: ")
    notice, _, tail = rest.partition("]\n")
    assert head == complete[:KEPT_END]
    assert tail == complete[-KEPT_END:]
    left_out = len(complete) - CAPTURE_LIMIT
    assert notice == (
        f"{left_out} of {len(complete)} bytes are left out here; all of it is in {tmp_path / '7-output.txt'}"
    )


def test_truncation_does_not_split_a_character(perform: Perform) -> None:
    """Neither part begins or ends with an incomplete character."""
    code = "import sys; sys.stdout.write('x' + 'é€😀' * 200000)"
    output = perform("shell", command=f'{sys.executable} -c "{code}"')["output"]
    assert "�" not in output
    assert output.startswith("xé€😀")
    assert output.endswith("é€😀")


def test_an_action_succeeds_if_its_output_cannot_be_stored(perform: Perform, tmp_path: Path) -> None:
    """The truncation marker states that there is no full copy, and why."""
    (tmp_path / "file").write_text("")
    result = perform("shell", {"output_dir": str(tmp_path / "file" / "x")}, command="seq 400000")
    assert result["exit_code"] == 0
    assert "no full copy: Not a directory]" in result["output"]


def test_memory_is_bounded_for_a_hundred_megabytes_of_output(tmp_path: Path) -> None:
    """The process does not grow, and the complete output is on disk."""
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


# --- timeouts -----------------------------------------------------------------------------------


def test_a_timeout_ends_the_action_with_term(perform: Perform) -> None:
    """`timed_out` names the action's own limit."""
    result = perform("shell", command="sleep 60", timeout_s=0.1)
    assert (result["timed_out"], result["exit_code"], result["signal"]) == ("action", 143, "SIGTERM")


def test_the_loops_deadline_ends_an_action(perform: Perform) -> None:
    """The deadline of the run ends an action if it is earlier than the action's own timeout."""
    at = {"elapsed_ms": lambda: 900}
    assert perform("shell", at, command="sleep 60", timeout_s=50, deadline_ms=1000)["timed_out"] == "loop"
    assert perform("shell", at, command="sleep 60", timeout_s=0.05, deadline_ms=1000)["timed_out"] == "action"


def test_no_action_starts_after_the_loops_deadline(perform: Perform, tmp_path: Path) -> None:
    """The result is a timeout; the command does not run."""
    marker_file = tmp_path / "marker_file"
    result = perform("shell", {"elapsed_ms": lambda: 1000}, command=f"touch {marker_file}", deadline_ms=1000)
    assert (result["timed_out"], result["exit_code"], marker_file.exists()) == ("loop", 124, False)


def test_a_timeout_ends_the_whole_group(perform: Perform, tmp_path: Path, short_grace: None) -> None:
    """All descendants end; SIGKILL ends those that ignore SIGTERM."""
    pids = tmp_path / "pids"
    ignoring_term = f"(trap '' TERM; echo $BASHPID >> {pids}; while :; do sleep 60; done)"
    result = perform(
        "shell",
        command=f"echo $$ > {pids}; {ignoring_term} & {ignoring_term} & {ignoring_term}",
        timeout_s=0.4,
    )
    assert result["timed_out"] == "action"
    running = pids_in(pids)
    assert len(running) == 4
    assert wait_until(lambda: not any(is_running(pid) for pid in running))


def test_an_action_that_ignores_term_gets_kill(perform: Perform, short_grace: None) -> None:
    """SIGKILL follows after the grace period of two seconds (shorter in this test)."""
    result = perform("shell", command="trap '' TERM; while :; do sleep 60; done", timeout_s=0.1)
    assert (result["exit_code"], result["signal"], result["timed_out"]) == (137, "SIGKILL", "action")


def test_an_action_has_time_to_clean_up_after_term(perform: Perform) -> None:
    """Output written after SIGTERM is captured, and the exit code is the action's own."""
    command = "trap 'sleep 0.1; echo cleaned; exit 9' TERM; echo started; while :; do sleep 0.02; done"
    result = perform("shell", command=command, timeout_s=0.3)
    assert (result["output"], result["exit_code"], result["timed_out"]) == ("started\ncleaned\n", 9, "action")


def test_a_child_has_time_to_clean_up_after_the_shell_ended(perform: Perform, tmp_path: Path) -> None:
    """bash dies of SIGTERM at once; its child gets SIGKILL only after the grace period."""
    marker_file = tmp_path / "marker_file"
    child = f"trap 'sleep 0.2; touch {marker_file}; exit' TERM; while :; do sleep 0.02; done"
    perform("shell", command=f'bash -c "{child}" > /dev/null 2>&1; :', timeout_s=0.3)
    assert marker_file.exists()


def test_a_timeout_ends_the_wait_for_a_child_with_an_open_pipe(perform: Perform, tmp_path: Path) -> None:
    """A child in its own session survives the timeout; the effect does not wait for it."""
    pids = tmp_path / "pids"
    child = f"setsid bash -c 'echo $$ > {pids}; exec sleep 600'"
    result = perform("shell", command=f"{child} & echo x; sleep 600", timeout_s=0.3)
    assert (result["timed_out"], result["output"]) == ("action", "x\n")
    assert is_running(pids_in(pids)[0])
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_a_timeout_ends_an_action_that_printed_a_partial_line(perform: Perform) -> None:
    result = perform("shell", command="printf partial; sleep 60", timeout_s=0.2)
    assert (result["timed_out"], result["output"]) == ("action", "partial")


def test_a_timeout_ends_an_action_that_prints_continuously(perform: Perform) -> None:
    """Reading output does not delay the timeout."""
    result = perform("shell", command="yes", timeout_s=0.2)
    assert result["timed_out"] == "action"
    assert result["truncated"]["output"] > CAPTURE_LIMIT


# --- background children ------------------------------------------------------------------------


def test_a_background_child_does_not_delay_the_result(perform: Perform, tmp_path: Path) -> None:
    """The effect ends with the shell process although a child has the output pipe open."""
    pids = tmp_path / "pids"
    result = perform("shell", command=f"sleep 60 & echo $! > {pids}; echo done")
    assert (result["output"], result["exit_code"]) == ("done\n", 0)
    assert is_running(pids_in(pids)[0])
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_output_written_before_the_exit_is_complete(perform: Perform, tmp_path: Path) -> None:
    """A full pipe is drained although a child has it open."""
    pids = tmp_path / "pids"
    result = perform("shell", command=f"sleep 60 & echo $! > {pids}; head -c 65536 /dev/zero | tr '\\0' x")
    assert result["output"] == "x" * 65536
    os.kill(pids_in(pids)[0], signal.SIGKILL)


def test_output_of_a_process_substitution_is_complete(perform: Perform) -> None:
    """The shell ends before the filter of `cmd > >(filter)` has written its output."""
    result = perform("shell", command="echo text > >(sleep 0.02; tr a-z A-Z)")
    assert result["output"] == "TEXT\n"


def test_a_background_child_can_continue_to_write(perform: Perform, tmp_path: Path) -> None:
    """A server started in the background neither dies of SIGPIPE nor blocks during the run."""
    marker_file = tmp_path / "marker_file"
    perform("shell", command=f"(sleep 0.3; seq 50000; echo $? > {marker_file}) & :")
    assert wait_until(lambda: bool(perform("shell", command="sleep 0.05; :")) and marker_file.exists())
    assert marker_file.read_text() == "0\n"


def test_the_number_of_open_pipes_is_limited(
    perform: Perform, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that leaves a child in each iteration does not run out of file descriptors."""
    monkeypatch.setattr(process_group, "MAX_LEFT_BEHIND", 2)
    for _ in range(3):
        perform("shell", command="sleep 1 & :")
    assert len(shell_of(world).runner._left_behind.descriptors) == 2


# --- interrupts ---------------------------------------------------------------------------------


def test_an_interrupt_ends_the_action(perform: Perform, interrupt: Interrupt, tmp_path: Path) -> None:
    """The process group gets SIGTERM, and `Interrupted` is raised."""
    pids = tmp_path / "pids"
    threading.Timer(0.2, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("shell", command=f"echo $$ > {pids}; sleep 60 & echo $! >> {pids}; wait")
    assert wait_until(lambda: not any(is_running(pid) for pid in pids_in(pids)))


def test_a_second_interrupt_kills_at_once(
    perform: Perform, interrupt: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second interrupt does not wait for a process that ignores SIGTERM."""
    monkeypatch.setattr(process._SHELL_OPTIONS, "grace", 600)
    for seconds in (0.2, 0.3):
        threading.Timer(seconds, interrupt.set).start()
    with pytest.raises(Interrupted):
        perform("shell", command="trap '' TERM; while :; do sleep 60; done")


def test_a_signal_handler_may_set_the_interrupt(perform: Perform, interrupt: Interrupt) -> None:
    """A signal to the llc process ends the wait in the system call."""
    before = signal.signal(signal.SIGUSR1, lambda *_: interrupt.set())
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(Interrupted):
            perform("shell", command="sleep 60")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_nothing_starts_after_an_interrupt(perform: Perform, interrupt: Interrupt, tmp_path: Path) -> None:
    """The effect is refused before it starts a process."""
    interrupt.set()
    with pytest.raises(Interrupted):
        perform("shell", command=f"touch {tmp_path / 'marker_file'}")
    assert list(tmp_path.iterdir()) == []


def test_without_a_pidfd_the_exit_is_polled(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions work on systems and kernels without pidfd."""
    monkeypatch.setattr(processes, "exit_handle", lambda pid: -1)
    assert perform("shell", command="sleep 1 & echo a; exit 3")["exit_code"] == 3
    assert perform("shell", command="sleep 60", timeout_s=0.05)["timed_out"] == "action"


def child_pids() -> list[str]:
    """The pids of the children of this thread, zombies included."""
    return Path("/proc/thread-self/children").read_text().split()


def test_no_descriptor_and_no_process_is_leaked(perform: Perform) -> None:
    perform("shell", command="true")
    before = len(os.listdir("/proc/self/fd"))
    children_before = child_pids()
    for command in ("true", "exit 1", "kill -9 $$", "echo a\0", "seq 300000"):
        perform("shell", command=command)
    assert len(os.listdir("/proc/self/fd")) == before
    assert child_pids() == children_before


# --- commands without a shell -------------------------------------------------------------------


def test_plain_words_run_without_a_shell(perform: Perform) -> None:
    """The parent of the program is the llc process."""
    code = perform("shell", command="sleep 0")["exit_code"]
    assert code == 0
    output = perform("shell", command="cat /proc/self/stat")["output"]
    assert int(output.rpartition(")")[2].split()[1]) == os.getpid()


def test_keywords_and_builtins_are_not_plain_words() -> None:
    """The exceptions are `true` and `false`, whose programs do the same as the builtins."""
    listed = subprocess.run(
        ["bash", "-c", "compgen -k; compgen -b"], capture_output=True, text=True, check=True
    )
    plain = {word for word in listed.stdout.split() if plain_words(f"{word} x")}
    assert plain == {"true", "false"}


WORDS = st.text("ab/.-_=:,@%+~*?[]{}!#$&|;<>()'\"\\` \t\n0^é", min_size=1, max_size=6)


@settings(deadline=None, max_examples=tried(100))
@given(st.lists(WORDS, min_size=1, max_size=4))
def test_plain_words_are_split_as_bash_does(words: list[str]) -> None:
    """If a command counts as plain, bash splits it into the same words."""
    command = "printf-words " + " ".join(words)
    argv = plain_words(command)
    if argv:
        script = f"printf-words() {{ printf '%s\\n' \"$@\"; }}; {command}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == argv[1:] or (argv[1:] == [] and done.stdout == "\n")


@pytest.mark.parametrize("first", ["a=b", "a+=b", "~", "%1", "!", "{", "[", ".", "$x", "'x'"])
def test_a_first_word_with_special_meaning_is_not_plain(first: str) -> None:
    """Assignments, job numbers, expansions and quotes need a shell."""
    assert plain_words(f"{first} true") == []


def test_a_script_without_a_shebang_runs(perform: Perform, write_script: Callable[..., Path]) -> None:
    """The kernel cannot execute it; the shell can."""
    path = write_script("bare", "")
    path.write_text('echo "bare $1"\n')
    assert perform("shell", command="bare step")["output"] == "bare step\n"


def test_an_exported_bash_function_overrides_a_program(
    monkeypatch: pytest.MonkeyPatch, perform: Perform
) -> None:
    """bash imports exported functions, so no command is plain while one is set."""
    monkeypatch.setenv("BASH_FUNC_uname%%", "() { echo fake; }")
    assert perform("shell", command="uname -a")["output"] == "fake\n"


def test_a_program_is_found_by_a_relative_path(
    perform: Perform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./tool` needs no PATH."""
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho tool $1\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert perform("shell", command="./tool x")["output"] == "tool x\n"


def test_closed_standard_descriptors_are_harmless(tmp_path: Path) -> None:
    """With `llc run … <&- >&-`, pipes do not get the numbers of the standard descriptors."""
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


def test_pwd_is_the_current_working_folder(perform: Perform, tmp_path: Path) -> None:
    """A stale PWD in the environment is replaced, as a shell does."""
    home = os.getcwd()
    try:
        os.chdir(tmp_path)
        assert Runner().env[b"PWD"] == os.fsencode(tmp_path)
    finally:
        os.chdir(home)


def test_closing_a_shell_leaves_no_descriptor(context: Callable[..., Context]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        shell = Shell()
        shell.perform({"command": "true"}, context())
        shell.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_commands_are_utf_8_in_every_locale(tmp_path: Path, locale: str) -> None:
    """A command in an ASCII locale reaches its program unchanged."""
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


def test_a_timeout_reports_the_limit_without_the_grace_period(perform: Perform) -> None:
    """The message has the timeout, not the longer time until SIGKILL."""
    result = perform("shell", command="trap '' TERM; sleep 3; sleep 3", timeout_s=0.2)
    assert (result["timed_out"], result["limit_ms"]) == ("action", 200)
    verdict = judge_crash(result)
    assert verdict is not None
    assert verdict["details"]["message"] == "timed out after 0.2 s"
