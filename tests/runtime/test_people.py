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
    capture: said
    route: {yes: go, no: done, not now: done}
  go:
    action: "echo ${captured.said.output} > went"
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


def llc_(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
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


def asked(count: int = 1) -> list[dict[str, Any]]:
    """What is asked here, once there are so many questions."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [question.to_json() for question in answering.questions(None)]
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{count} questions were awaited: {found}")


@pytest.fixture
def terminal() -> Iterator[Callable[..., Any]]:
    children = []

    def spawn(*words: str) -> Any:
        children.append(terminals.spawn(*words))
        return children[-1]

    yield spawn
    for child in children:
        child.close(force=True)


# --- in the terminal ----------------------------------------------------------------------------


def test_an_answer_is_typed(project: Path, terminal: Callable[..., Any]) -> None:
    """What is not one of the choices is asked again; a number is the choice of that number."""
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
    """`llc answer` wakes it."""
    child = terminal("run", "confirm")
    child.expect("not now: ")
    assert llc_("answer", "confirm", "yes").returncode == 0
    child.expect("yes .answered from elsewhere")
    child.expect("Loop completed")


def test_enter_alone_is_the_default(project: Path, terminal: Callable[..., Any]) -> None:
    """And the input may be closed: others can still answer."""
    flow(project, '(list (ask "a?" (default "x")) (ask "b?"))')
    child = terminal("run", "flow", "--json")
    child.expect(r"\[x\]: ")
    child.sendline("")
    child.expect("answer: ")
    child.sendeof()
    child.expect("to answer: llc answer flow-")
    assert llc_("answer", "flow", " y ").returncode == 0
    child.expect('"value": ."x", "y"')


def test_a_line_that_the_terminal_cuts_is_no_answer(project: Path, terminal: Callable[..., Any]) -> None:
    """What stands behind 4,095 bytes of a line never comes here, so it is asked again."""
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


def test_a_question_steers_no_terminal(project: Path, terminal: Callable[..., Any]) -> None:
    """Neither the question nor its choices, here and in `llc answer`; the answer is what was offered."""
    flow(project, r"""(ask "w\u001b]0;title\u0007hich\u001b[2J?\nx" (choices "a\u001b[32mb" "c"))""")
    child = terminal("run", "flow", "--json")
    child.expect("ab / c: ")
    shown = child.before + llc_("answer").stdout + llc_("status", "flow").stdout
    assert "which?" in shown
    assert not {"\x07", "\x1b[2J", "\x1b[32m"} & set(re.findall(r"\x07|\x1b\[2J|\x1b\[32m", shown))
    child.send("1\r")
    child.expect_exact(r'"value": "a\u001b[32mb"')


def test_questions_that_wait_at_once_have_the_terminal_in_turn(
    project: Path, terminal: Callable[..., Any]
) -> None:
    """Of several one is read, then the next."""
    flow(project, """(parallel-map (ask (string-append item "?")) '("a" "b"))""")
    child = terminal("run", "flow", "--json")
    for _ in range(2):
        child.expect("#([12]) answer: ")
        child.sendline({"1": "one", "2": "two"}[child.match[1]])
    child.expect('"value": ."one", "two"')


# --- from elsewhere -----------------------------------------------------------------------------


def test_a_run_without_a_terminal_waits_for_llc_answer(project: Path) -> None:
    """What is asked is listed, a wrong answer refused, the right one taken once."""
    run = start("confirm")
    (question,) = asked()
    assert (question["text"], question["choices"]) == ("Deploy?", ["yes", "no", "not now"])
    assert (question["state"], question["running"]) == ("ask", True)
    assert "Deploy?" in llc_("status", "confirm").stdout
    refused = llc_("answer", "confirm", "maybe")
    assert refused.returncode == 2
    assert "error[bad-answer]" in refused.stderr
    assert "not one of the choices" in refused.stderr
    assert llc_("answer", "confirm", "yes").stdout.startswith("answered confirm-")
    told, _ = run.communicate(timeout=20)
    assert json.loads(told)["status"] == "success"
    late = llc_("answer", "confirm", "yes")
    assert late.returncode == 1
    assert "has ended" in late.stderr


def test_an_answer_given_while_the_run_is_dead_is_found_on_resume(project: Path) -> None:
    """After kill -9 at a question the run asks again, unless it was answered meanwhile."""
    run = start("confirm")
    asked()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    (question,) = asked()
    assert question["running"] is False
    assert "llc resume" in llc_("answer", "confirm", "yes").stdout
    twice = llc_("answer", "confirm", "no")
    assert "error[nothing-asked]" in twice.stderr
    assert "has no open question" in twice.stderr
    resumed = llc_("resume", "confirm", "--json")
    assert json.loads(resumed.stdout)["status"] == "success"
    assert (project / "went").read_text() == "yes\n"


def test_a_run_that_was_killed_asks_again(project: Path) -> None:
    """Also where it should fail what it does not know the outcome of: a question changes nothing."""
    run = start("confirm")
    asked()
    run.kill()
    run.communicate()
    again = subprocess.Popen(
        [sys.executable, "-m", "llc", "resume", "confirm", "--on-unknown", "fail"], stdin=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not any(question["running"] for question in asked()) and time.monotonic() < end:
        time.sleep(0.05)
    llc_("answer", "confirm", "no")
    assert again.wait(20) == 0


def test_of_several_questions_one_is_named(project: Path) -> None:
    """`--question` says which; without it the answer is refused and they are told."""
    flow(project, """(parallel-map (ask (string-append item "?")) '("a" "b"))""")
    run = start("flow")
    first, second = asked(2)
    unclear = llc_("answer", "flow", "x")
    assert "error[several-questions]: 2 open questions" in unclear.stderr
    for question, text in ((second, "two"), (first, "one")):
        assert llc_("answer", "flow", text, "-q", str(question["question"])).returncode == 0
    told, _ = run.communicate(timeout=20)
    assert json.loads(told)["value"] == ["one", "two"]


def test_of_two_who_answer_one_is_heard(project: Path) -> None:
    """The file of an answer is made once, so a run cannot be told two things."""
    run = start("confirm")
    asked()
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


def test_two_may_answer_at_once(project: Path) -> None:
    """One is told that it was heard, the other that it was not; the run has what the first said."""
    flow(project, '(ask "well?")')
    run = start("flow")
    asked()
    command = [sys.executable, "-m", "llc", "answer", "flow"]
    both = [subprocess.Popen([*command, text], stderr=subprocess.DEVNULL) for text in ("one", "two")]
    codes = [answer.wait(30) for answer in both]
    assert sorted(codes) == [0, 1]
    told, _ = run.communicate(timeout=20)
    assert json.loads(told)["value"] == ("one", "two")[codes.index(0)]


def test_many_questions_leave_room_for_work(project: Path) -> None:
    """People who take their time do not count as jobs."""
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
    asked(2)
    end = time.monotonic() + 60
    while not (project / "done").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert (project / "done").exists()
    for question in asked(2):
        llc_("answer", "flow", "ok", "-q", str(question["question"]))
    told, _ = run.communicate(timeout=20)
    assert json.loads(told)["value"] == ["ok", "ok", 0]


# --- time ---------------------------------------------------------------------------------------


def test_a_question_nobody_answers_in_time_has_its_default(project: Path) -> None:
    """In a run without a terminal."""
    flow(project, '(ask "well?" (choices "a" "b") (default "b") (timeout 0.3))')
    told, _ = start("flow").communicate(timeout=20)
    assert json.loads(told)["value"] == "b"


def test_without_a_default_a_late_answer_is_a_fault(project: Path) -> None:
    """It is called `timeout`."""
    flow(project, '(try (ask "well?" (timeout 0.1)) (catch e (get e "kind")))')
    told, _ = start("flow").communicate(timeout=20)
    assert json.loads(told)["value"] == "timeout"


def test_the_loops_own_time_comes_before_a_default(project: Path) -> None:
    """The loop ends by its timeout; nobody said what the default says."""
    text = CONFIRM.replace("    capture: said\n", "    default: yes\n    capture: said\n")
    (project / ".loops" / "confirm.yaml").write_text(text + "timeout: 0.3\n")
    told, _ = start("confirm").communicate(timeout=20)
    assert json.loads(told)["terminated_by"] == "timeout"
    assert not (project / "went").exists()


def test_where_nobody_can_hear_it_a_question_is_a_fault() -> None:
    """`llc.evaluate` has neither a terminal nor a run; a default is the answer."""
    assert llc.evaluate('(ask "well?" (default "x"))') == "x"
    with pytest.raises(llc.FlowError, match="no person can be asked"):
        llc.evaluate('(ask "well?")')


@pytest.mark.parametrize("words", [("run", "confirm"), ("batch", "confirm")])
def test_without_input_a_question_is_an_error(project: Path, words: tuple[str, ...]) -> None:
    """Instead of waiting for ever where nobody is; with a default it has that answer."""
    done = llc_(*words, "--no-input", timeout=30)
    assert done.returncode == 1
    told = done.stderr if words[0] == "run" else llc_("logs", "confirm").stdout
    assert "no person can be asked: the run was started with `--no-input`; give the question a" in told
    text = CONFIRM.replace("    capture: said\n", "    default: yes\n    capture: said\n")
    (project / ".loops" / "confirm.yaml").write_text(text)
    assert llc_(*words, "--no-input", timeout=30).returncode == 0
    assert (project / "went").read_text() == "yes\n"


def test_without_input_a_terminal_asks_nothing(project: Path, terminal: Callable[..., Any]) -> None:
    """The process needs no answer to end."""
    assert exit_code(terminal("run", "confirm", "--no-input")) == 1


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("yes", "yes"), (" YES ", "yes"), ("y", "yes"), ("2", "no"), ("n", None), ("4", None), ("", None)],
)
def test_what_a_person_types_means_a_choice(text: str, chosen: str | None) -> None:
    """As it stands, in another case, by number, by its beginning if that is clear."""
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
def test_a_question_is_checked_when_compiling(text: str, finding: str) -> None:
    """Before anything runs."""
    with pytest.raises(CompileError, match=finding):
        llc.evaluate(text)


def test_choices_may_be_worked_out() -> None:
    """An expression may be a text or a list of texts; what is neither is a fault."""
    world = read_world(_source("- {command: which, answer: b}"))
    assert llc.evaluate('(let ((l (list "b" "c"))) (ask "which?" (choices "a" l)))', world=world) == "b"
    with pytest.raises(llc.FlowError, match="a choice is a string"):
        llc.evaluate('(let ((n (+ 1 2))) (ask "which?" (choices "a" n)))')


def test_a_script_cannot_answer_what_is_no_choice() -> None:
    """The rule is named."""
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
        (("capture: said", "default: maybe"), "unknown-choice"),
        (("capture: said", "on_unknown: fail"), "unused-key"),
        (("route: {yes: go, no: done, not now: done}", "route: {yes: go, no: done}"), "unrouted-verdict"),
        (("route: {yes: go,", "route: {yes: go, yeah: go,"), "unknown-verdict"),
    ],
)
def test_a_state_that_asks_is_checked(change: tuple[str, str], finding: str) -> None:
    """Its choices are the verdicts."""
    try:
        found = compile_text(CONFIRM.replace(*change)).diagnostics
    except CompileError as error:
        found = tuple(error.diagnostics)
    assert finding in [diagnostic.id for diagnostic in found]
