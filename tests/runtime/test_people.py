"""Questions to people: in a terminal, by `llc answer`, with timeouts, scripted; and killed runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest
import terminals
from keepers import wait_suspended
from terminals import exit_code

import llc
from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError
from llc.runtime.effects.ask import pick
from llc.runtime.effects.script_reader import read_world
from llc.runtime.host.errors import UserError
from llc.runtime.inspection import answer as answering
from llc.runtime.inspection import stop

CONFIRM = """
name: confirm
initial: ask
states:
  ask:
    action: "Deploy?"
    action_type: ask
    choices: [yes, no, not now]
    capture: reply
    route: {yes: go, no: done, not now: done}
  go:
    action: "echo ${captured.reply.output} > went"
    next: done
  done:
    terminal: true
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "project"
    (folder / ".loops").mkdir(parents=True)
    (folder / ".loops" / "confirm.yaml").write_text(CONFIRM)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield folder
    stop.stop(stop.live_runs(None), 1.0)


def flow(project: Path, text: str) -> None:
    (project / ".loops" / "flow.sexp").write_text(text)


def run_llc(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    if not more:
        return fork_server.programs().run(*words)
    return subprocess.run(
        [sys.executable, "-m", "llc", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **more,
    )


def start(*words: str) -> subprocess.Popen[str]:
    """A run without a terminal, as in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "llc", "run", *words, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def wait_for_questions(count: int = 1) -> list[dict[str, Any]]:
    """Wait until this number of questions is open; returns the questions."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        questions = [question.to_json() for question in answering.questions(None)]
        if len(questions) == count:
            return questions
        time.sleep(0.05)
    raise AssertionError(f"expected {count} questions: {questions}")


@pytest.fixture
def terminal() -> Iterator[Callable[..., Any]]:
    children = []

    def spawn(*words: str) -> Any:
        children.append(terminals.spawn(*words))
        return children[-1]

    yield spawn
    for child in children:
        child.close(force=True)


# --- in a terminal ------------------------------------------------------------------------------


def test_an_answer_is_typed(project: Path, terminal: Callable[..., Any]) -> None:
    """An answer that is not a choice is asked again; a number selects the choice with that number."""
    child = terminal("run", "confirm")
    child.expect("yes / no / not now: ")
    child.sendline("perhaps")
    child.expect("please answer with one of: yes, no, not now")
    child.expect("not now: ")
    child.sendline("1")
    child.expect("Loop completed")
    assert exit_code(child) == 0
    assert (project / "went").read_text() == "yes\n"


def test_an_interrupted_question_is_asked_again(project: Path, terminal: Callable[..., Any]) -> None:
    """Ctrl-C at a question leaves a run that can be resumed, with exit code 130."""
    child = terminal("run", "confirm")
    child.expect("not now: ")
    child.sendintr()
    child.expect("Resume with")
    assert exit_code(child) == 130
    child = terminal("resume", "confirm")
    child.expect("Deploy")
    child.expect("not now: ")
    child.sendline("Not")
    child.expect("Loop completed")


def test_a_quiet_run_still_asks(project: Path, terminal: Callable[..., Any]) -> None:
    """`--quiet` hides progress, not questions."""
    child = terminal("run", "confirm", "--quiet")
    child.expect("Deploy")
    child.expect("not now: ")
    child.sendline("no")
    assert exit_code(child) == 0


def test_a_question_in_a_terminal_can_be_answered_from_elsewhere(
    project: Path, terminal: Callable[..., Any]
) -> None:
    """`llc answer` ends the wait."""
    child = terminal("run", "confirm")
    child.expect("not now: ")
    assert run_llc("answer", "confirm", "yes").returncode == 0
    child.expect("yes .answered from elsewhere")
    child.expect("Loop completed")


def test_an_empty_line_selects_the_default(project: Path, terminal: Callable[..., Any]) -> None:
    """Standard input may be closed: `llc answer` still works."""
    flow(project, '(list (ask "a?" (default "x")) (ask "b?"))')
    child = terminal("run", "flow", "--json")
    child.expect(r"\[x\]: ")
    child.sendline("")
    child.expect("answer: ")
    child.sendeof()
    child.expect("to answer: llc answer flow-")
    assert run_llc("answer", "flow", " y ").returncode == 0
    child.expect('"value": ."x", "y"')


def test_a_truncated_line_is_not_an_answer(project: Path, terminal: Callable[..., Any]) -> None:
    """A terminal truncates a line at 4,095 bytes, so the question is asked again."""
    flow(project, '(ask "well?")')
    child = terminal("run", "flow", "--json")
    child.expect("answer: ")
    for _ in range(25):
        child.send("y" * 400)
    child.send("\r")
    child.expect("a terminal delivers only 4,095 bytes")
    child.expect("answer: ")
    child.send("short\r")
    child.expect('"value": "short"')


def test_the_limit_of_a_line_counts_typed_bytes(project: Path, terminal: Callable[..., Any]) -> None:
    """Invalid UTF-8 is replaced by longer text, which does not make the line too long."""
    flow(project, '(string-length (ask "well?"))')
    child = terminal("run", "flow", "--json")
    child.expect("answer: ")
    child.setecho(False)
    os.write(child.child_fd, b"\xff" * 1500 + b"\r")
    child.expect('"value": 1500')


def test_a_question_cannot_control_the_terminal(project: Path, terminal: Callable[..., Any]) -> None:
    """Question and choices are escaped, also in `llc answer`; the answer is the original choice."""
    flow(project, r"""(ask "w\u001b]0;title\u0007hich\u001b[2J?\nx" (choices "a\u001b[32mb" "c"))""")
    child = terminal("run", "flow", "--json")
    child.expect("ab / c: ")
    shown = child.before + run_llc("answer").stdout + run_llc("status", "flow").stdout
    assert "which?" in shown
    assert not {"\x07", "\x1b[2J", "\x1b[32m"} & set(re.findall(r"\x07|\x1b\[2J|\x1b\[32m", shown))
    child.send("1\r")
    child.expect_exact(r'"value": "a\u001b[32mb"')


def test_concurrent_questions_use_the_terminal_in_turn(project: Path, terminal: Callable[..., Any]) -> None:
    """One question is read at a time."""
    flow(project, """(parallel-map (ask (string-append item "?")) '("a" "b"))""")
    child = terminal("run", "flow", "--json")
    for _ in range(2):
        child.expect("#([12]) answer: ")
        child.sendline({"1": "one", "2": "two"}[child.match[1]])
    child.expect('"value": ."one", "two"')


# --- by `llc answer` ----------------------------------------------------------------------------


def test_a_run_without_a_terminal_waits_for_llc_answer(project: Path) -> None:
    """The question is listed, an invalid answer refused, a valid answer accepted once."""
    run = start("confirm")
    (question,) = wait_for_questions()
    assert (question["text"], question["choices"]) == ("Deploy?", ["yes", "no", "not now"])
    assert (question["state"], question["running"]) == ("ask", True)
    assert "Deploy?" in run_llc("status", "confirm").stdout
    refused = run_llc("answer", "confirm", "maybe")
    assert refused.returncode == 2
    assert "error[bad-answer]" in refused.stderr
    assert "not one of the choices" in refused.stderr
    assert run_llc("answer", "confirm", "yes").stdout.startswith("answered confirm-")
    output, _ = run.communicate(timeout=20)
    assert json.loads(output)["status"] == "success"
    late = run_llc("answer", "confirm", "yes")
    assert late.returncode == 1
    assert "has ended" in late.stderr


def test_an_answer_given_while_the_run_is_dead_is_found_on_resume(project: Path) -> None:
    """After kill -9 at a question the run asks again unless an answer exists."""
    run = start("confirm")
    wait_for_questions()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    (question,) = wait_for_questions()
    assert question["running"] is False
    assert "llc resume" in run_llc("answer", "confirm", "yes").stdout
    twice = run_llc("answer", "confirm", "no")
    assert "error[nothing-asked]" in twice.stderr
    assert "has no open question" in twice.stderr
    resumed = run_llc("resume", "confirm", "--json")
    assert json.loads(resumed.stdout)["status"] == "success"
    assert (project / "went").read_text() == "yes\n"


def test_a_killed_run_asks_again(project: Path) -> None:
    """Also with the policy `fail` for effects in doubt: asking again has no side effects."""
    run = start("confirm")
    wait_for_questions()
    run.kill()
    run.communicate()
    again = subprocess.Popen(
        [sys.executable, "-m", "llc", "resume", "confirm", "--on-unknown", "fail"], stdin=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not any(question["running"] for question in wait_for_questions()) and time.monotonic() < end:
        time.sleep(0.05)
    run_llc("answer", "confirm", "no")
    assert again.wait(20) == 0


def test_one_of_several_questions_must_be_named(project: Path) -> None:
    """`--question` selects one; without it the answer is refused and the questions are listed."""
    flow(project, """(parallel-map (ask (string-append item "?")) '("a" "b"))""")
    run = start("flow")
    first, second = wait_for_questions(2)
    unclear = run_llc("answer", "flow", "x")
    assert "error[several-questions]: 2 open questions" in unclear.stderr
    for question, text in ((second, "two"), (first, "one")):
        assert run_llc("answer", "flow", text, "-q", str(question["question"])).returncode == 0
    output, _ = run.communicate(timeout=20)
    assert json.loads(output)["value"] == ["one", "two"]


def test_only_the_first_answer_counts(project: Path) -> None:
    """The answer file is created exclusively, so a run gets one answer."""
    run = start("confirm")
    wait_for_questions()
    question = answering.find_question("confirm", None)
    os.kill(run.pid, signal.SIGSTOP)
    wait_suspended(run.pid)
    assert answering.answer(question, "no") == "no"
    with pytest.raises(UserError, match="has an answer already") as refused:
        answering.answer(question, "yes")
    assert refused.value.id == "answered-already"
    os.kill(run.pid, signal.SIGCONT)
    run.communicate(timeout=20)
    assert not (project / "went").exists()


def test_concurrent_answers(project: Path) -> None:
    """One process reports success, the other a refusal; the run has the first answer."""
    flow(project, '(ask "well?")')
    run = start("flow")
    wait_for_questions()
    command = [sys.executable, "-m", "llc", "answer", "flow"]
    both = [subprocess.Popen([*command, text], stderr=subprocess.DEVNULL) for text in ("one", "two")]
    codes = [answer.wait(30) for answer in both]
    assert sorted(codes) == [0, 1]
    output, _ = run.communicate(timeout=20)
    assert json.loads(output)["value"] == ("one", "two")[codes.index(0)]


def test_questions_take_no_slot_of_the_pool(project: Path) -> None:
    """Open questions do not count as jobs."""
    flow(
        project,
        """
        (parallel-map
          (if (= item 0)
              (get (system:execute_shell_command (command "touch done")) "exit_code")
              (ask "well?"))
          '(1 2 0))
        """,
    )
    run = start("flow", "--jobs", "1")
    wait_for_questions(2)
    end = time.monotonic() + 60
    while not (project / "done").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert (project / "done").exists()
    for question in wait_for_questions(2):
        run_llc("answer", "flow", "ok", "-q", str(question["question"]))
    output, _ = run.communicate(timeout=20)
    assert json.loads(output)["value"] == ["ok", "ok", 0]


# --- timeouts -----------------------------------------------------------------------------------


def test_a_question_takes_its_default_after_the_timeout(project: Path) -> None:
    """In a run without a terminal."""
    flow(project, '(ask "well?" (choices "a" "b") (default "b") (timeout 0.3))')
    output, _ = start("flow").communicate(timeout=20)
    assert json.loads(output)["value"] == "b"


def test_a_question_without_a_default_times_out_with_a_fault(project: Path) -> None:
    """The fault kind is `timeout`."""
    flow(project, '(try (ask "well?" (timeout 0.1)) (catch e (get e "kind")))')
    output, _ = start("flow").communicate(timeout=20)
    assert json.loads(output)["value"] == "timeout"


def test_the_loop_timeout_comes_before_a_default(project: Path) -> None:
    """The loop ends by its timeout; the default is not used as an answer."""
    text = CONFIRM.replace("    capture: reply\n", "    default: yes\n    capture: reply\n")
    (project / ".loops" / "confirm.yaml").write_text(text + "timeout: 0.3\n")
    output, _ = start("confirm").communicate(timeout=20)
    assert json.loads(output)["terminated_by"] == "timeout"
    assert not (project / "went").exists()


def test_a_question_without_terminal_and_run_is_a_fault() -> None:
    """`llc.evaluate` has neither; a default is used as the answer."""
    assert llc.evaluate('(ask "well?" (default "x"))') == "x"
    with pytest.raises(llc.FlowError, match="no person can be asked"):
        llc.evaluate('(ask "well?")')


@pytest.mark.parametrize("words", [("run", "confirm"), ("batch", "confirm")])
def test_without_input_a_question_is_an_error(project: Path, words: tuple[str, ...]) -> None:
    """`--no-input` does not wait for ever; a default is used as the answer."""
    done = run_llc(*words, "--no-input", timeout=30)
    assert done.returncode == 1
    output = done.stderr if words[0] == "run" else run_llc("logs", "confirm").stdout
    assert "no person can be asked: the run was started with `--no-input`; give the question a" in output
    text = CONFIRM.replace("    capture: reply\n", "    default: yes\n    capture: reply\n")
    (project / ".loops" / "confirm.yaml").write_text(text)
    assert run_llc(*words, "--no-input", timeout=30).returncode == 0
    assert (project / "went").read_text() == "yes\n"


def test_without_input_a_terminal_asks_nothing(project: Path, terminal: Callable[..., Any]) -> None:
    """The process ends without an answer."""
    assert exit_code(terminal("run", "confirm", "--no-input")) == 1


# --- checks of questions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("yes", "yes"), (" YES ", "yes"), ("y", "yes"), ("2", "no"), ("n", None), ("4", None), ("", None)],
)
def test_typed_text_selects_a_choice(text: str, chosen: str | None) -> None:
    """Exactly, in another case, by number, or by an unambiguous prefix."""
    assert pick(text, ["yes", "no", "never"]) == chosen


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('(ask "a?" (choices "x" "x"))', "repeated-choice"),
        ('(ask "a?" (choices "x") (default "y"))', "unknown-choice"),
        ('(ask "a?" (choice "x"))', "bad-clause"),
        ('(ask "a?" (timeout 0))', "wrong-type"),
        ("(ask 3)", "wrong-type"),
        ('(ask "a?" (default "x") (default "y"))', "repeated-clause"),
    ],
)
def test_a_question_is_checked_at_compile_time(text: str, finding: str) -> None:
    """Errors are reported before execution."""
    with pytest.raises(CompileError, match=finding):
        llc.evaluate(text)


def test_choices_can_be_computed() -> None:
    """An expression can give a text or a list of texts; other values are a fault."""
    world = read_world(_source("- {command: which, answer: b}"))
    assert llc.evaluate('(let ((l (list "b" "c"))) (ask "which?" (choices "a" l)))', world=world) == "b"
    with pytest.raises(llc.FlowError, match="a choice must be a string"):
        llc.evaluate('(let ((n (+ 1 2))) (ask "which?" (choices "a" n)))')


def test_a_scripted_answer_must_be_a_choice() -> None:
    """The error names the rule."""
    from llc.runtime.effects.script_reader import read_world
    from llc.runtime.effects.scripted_world import NoRule

    world = read_world(_source("- {kind: ask, answer: z}"))
    with pytest.raises(NoRule, match="not one of the choices"):
        llc.evaluate('(ask "which?" (choices "a" "b"))', world=world)


def _source(text: str) -> Any:
    from llc.frontend.source.files import text_source

    return text_source(text)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (("choices: [yes, no, not now]", "choices: [yes, yes]"), "repeated-choice"),
        (("choices: [yes, no, not now]", "choices: [yes, error]"), "bad-choice"),
        (("capture: reply", "default: maybe"), "unknown-choice"),
        (("capture: reply", "on_unknown: fail"), "unused-key"),
        (("route: {yes: go, no: done, not now: done}", "route: {yes: go, no: done}"), "unrouted-verdict"),
        (("route: {yes: go,", "route: {yes: go, yeah: go,"), "unknown-verdict"),
    ],
)
def test_a_state_that_asks_is_checked(change: tuple[str, str], finding: str) -> None:
    """The choices of its question are its verdicts."""
    try:
        diagnostics = compile_text(CONFIRM.replace(*change)).diagnostics
    except CompileError as error:
        diagnostics = tuple(error.diagnostics)
    assert finding in [diagnostic.id for diagnostic in diagnostics]
