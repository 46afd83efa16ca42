"""The `llc create` wizard in a pseudo-terminal: answers, cancellation, hostile input, plain terminals."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from terminals import Dialogue

from llc.frontend.compile import compile_file
from llc.runtime.authoring import creation, drafts, menus, wizard
from llc.runtime.authoring.wizard import Choice
from llc.runtime.cli import dispatch

DOWN = "\x1b[B"
SAVE = r"Save to .*\?.* \[Y/n\]"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "project"


def create(*words: str, **env: str) -> Dialogue:
    return Dialogue("create", *words, **env)


def read_loop(project: Path, name: str) -> str:
    path = project / ".loops" / f"{name}.yaml"
    compile_file(str(path))
    return path.read_text()


def test_session_of_the_seed(project: Path) -> None:
    """Fix errors until clean, types and lint, ten attempts: gives the YAML of the seed."""
    t = create()
    t.answer("What kind of automation loop")
    t.answer("What should the loop fix", f" {DOWN} \r")
    t.answer("maximum number of fix attempts")
    t.answer("called", "\r")
    t.answer(SAVE, "\r")
    assert t.end() == 0
    assert read_loop(project, "fix-types-and-lint") == (
        'paradigm: invariants\nname: "fix-types-and-lint"\nconstraints:\n'
        '  - name: "types-valid"\n    check:\n      run: "mypy src/"\n      failure: [1, 2]\n'
        '    fix:\n      prompt: "Fix the type errors"\n'
        '  - name: "lint-clean"\n    check: "ruff check src/"\n'
        '    fix:\n      prompt: "Fix the lint errors"\n'
        "max_iterations: 10\n"
    )
    assert "It compiles to:" in t.plain
    assert "check_types-valid\n  shell: mypy src/" in t.plain
    assert "saved .loops/fix-types-and-lint.yaml" in t.plain


def test_maintaining_loop_with_an_own_check(project: Path) -> None:
    """The wizard asks for a command, its repair, a name and the delay between rounds."""
    t = create()
    t.answer("What kind", f"{DOWN}\r")
    t.answer("What should the loop keep", f"{DOWN * 3} \r")
    t.answer("Which command checks", "make docs\r")
    t.answer("What repairs", "/ll:fix docs\r")
    t.answer("What is the check called", "\r")
    t.answer("Another check", "\r")
    t.answer("maximum number", f"{DOWN * 3}\r")
    t.answer("How many", "\x15x\r")
    t.wait("enter a whole number")
    t.child.send("\x157\r")
    t.answer("seconds", "\r")
    t.answer("called", "\x15keep-docs\r")
    t.answer(SAVE, "y\r")
    assert t.end() == 0
    text = read_loop(project, "keep-docs")
    assert '  - name: "make"\n    check: "make docs"\n    fix: "/ll:fix docs"\n' in text
    assert "max_iterations: 7\nmaintain: true\nmaintain_delay: 60\n" in text


def test_metric(project: Path) -> None:
    """ "Drive a metric toward a target" repeats the question until the answer is a number."""
    t = create()
    t.answer("What kind", f"\x1b[96;14M{DOWN * 2}\r")
    t.answer("prints the metric", "\x1b[;Mwc -l < todo\r")
    t.answer("Which number is the target", "\x15none\r")
    t.wait("enter a number")
    t.child.send("\x150\r")
    t.answer("What changes the metric", "/ll:fix one\r")
    t.answer("distance from the target", "\r")
    t.answer("Which direction", "\r")
    t.answer("maximum number", "\r")
    t.answer("called", "\x15fewer\r")
    t.answer(SAVE)
    assert t.end() == 0
    assert 'check: "wc -l < todo"\ntoward: 0\nusing: "/ll:fix one"\n' in read_loop(project, "fewer")


def test_steps(project: Path) -> None:
    """ "Run a sequence of steps" asks for further steps until an empty answer."""
    t = create()
    t.answer("What kind", f"{DOWN * 3}\r")
    t.answer("first step", "make one\r")
    t.answer("next step", "make two\r")
    t.answer("next step", "\r")
    t.answer("checks that the work is done", "test -e done\r")
    t.answer("maximum number", f"{DOWN}\r")
    t.answer("called", "\r")
    t.answer(SAVE)
    assert t.end() == 0
    assert 'steps: ["make one", "make two"]\n' in read_loop(project, "until-test")


def test_own_states(project: Path) -> None:
    """ "Other…" asks for each state that has been named."""
    t = create()
    t.answer("What kind", f"{DOWN * 4}\r")
    t.answer("Which form should the loop have", f"{DOWN}\r")
    t.answer("first state", "\r")
    t.answer("What does `check` do", "make\r")
    t.answer("follows success", "\r")
    t.answer("follows failure", "fix\r")
    t.answer("What does `done` do", "\r")
    t.answer("How does the loop end", "\r")
    t.answer("What does `fix` do", "/ll:fix it\r")
    t.answer("follows success", "\x15check\r")
    t.answer("follows failure", "\r")
    t.answer("maximum number", "\r")
    t.answer("called", "\x15own\r")
    t.answer(SAVE)
    assert t.end() == 0
    assert '  fix:\n    action: "/ll:fix it"\n    next: "check"\n' in read_loop(project, "own")


def test_values_of_options_are_not_asked_for(project: Path) -> None:
    t = create("--paradigm", "goal", "--goal", "All is well", "--name", "well")
    t.answer("Which command checks", "true\r")
    t.answer("What repairs", "\r")
    t.answer("maximum number", "\r")
    t.answer(SAVE)
    assert t.end() == 0
    assert read_loop(project, "well").startswith('paradigm: goal\nname: "well"\ngoal: "All is well"\n')


@pytest.mark.parametrize(("step", "keys"), [(0, "\x03"), (1, "\x04"), (2, "\x04"), (3, "\x03")])
def test_cancelled_wizard_saves_nothing(project: Path, keys: str, step: int) -> None:
    """Ctrl-C and Ctrl-D in a menu, a multiple choice and a text line leave no file and no folder."""
    t = create()
    prompts = [("What kind", "\r"), ("What should the loop fix", " \r"), ("maximum", "\r"), ("called", "\r")]
    for question, answer in prompts[:step]:
        t.answer(question, answer)
    t.answer(prompts[step][0], keys)
    assert t.end() == (130 if keys == "\x03" else 1)
    assert "nothing was saved" in t.plain
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("keys", ["\x03", "\x04", "n\r"])
def test_unconfirmed_loop_is_not_saved(project: Path, keys: str) -> None:
    """Ctrl-C, Ctrl-D and "n" at the preview."""
    t = create("--paradigm", "goal", "--goal", "x", "--tool", "true", "--name", "x")
    t.answer(SAVE, keys)
    assert t.end() in (1, 130)
    assert list(project.iterdir()) == []


def test_existing_loop_is_replaced_only_on_confirmation(project: Path) -> None:
    """The default is no; the wizard offers another name; "y" replaces the file."""
    (project / ".loops").mkdir()
    path = project / ".loops" / "x.yaml"
    path.write_text("mine")
    words = ("--paradigm", "goal", "--goal", "x", "--tool", "true", "--name", "x")
    t = create(*words)
    t.answer(SAVE)
    t.answer("Replace it", "\r")
    t.answer("Another name", "y\r")
    assert t.end() == 0
    assert (path.read_text(), 'name: "y"\n' in read_loop(project, "y")) == ("mine", True)
    t = create(*words)
    t.answer(SAVE)
    t.answer("Replace it", "y\r")
    assert t.end() == 0
    assert path.read_text().startswith("paradigm: goal")


def test_hostile_answers(project: Path) -> None:
    """Names that are paths are refused; terminal control characters and YAML syntax are text."""
    t = create("--paradigm", "goal")
    t.answer("true in the end", "a: [b\\n] # {{x}} 'y' \"z\"\r")
    t.answer("Which command checks", "echo 'a: b' # c\r")
    t.answer("What repairs", "\r")
    t.answer("maximum", "\r")
    t.answer("called", "\x15../../etc/passwd\r")
    t.wait("a loop cannot be called")
    t.child.send("\x15" + "n" * 500 + "\r")
    t.wait("longer than 80")
    t.child.send("\x15\x1b[200~" + "n" * 100_000 + "\x1b[201~\r")
    t.wait("longer than 80")
    t.child.send("\x15fine\r")
    t.answer(SAVE)
    assert t.end() == 0
    loop = compile_file(".loops/fine.yaml").loop
    assert loop is not None
    assert loop.states["evaluate"].action == "echo 'a: b' # c"
    assert sorted(path.name for path in project.iterdir()) == [".loops"]


def test_no_color(project: Path) -> None:
    """NO_COLOR disables colours."""
    t = create("--paradigm", "goal", "--goal", "x", "--tool", "true", "--name", "x", NO_COLOR="1")
    t.answer(SAVE)
    assert t.end() == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", t.seen)


def test_dumb_terminal_gets_numbered_lists(project: Path) -> None:
    """The same questions are answered with numbers."""
    t = create(TERM="dumb")
    t.wait("1. Fix errors until clean")
    t.answer("Which one", "\r")
    t.answer("Which ones", "9\r")
    t.wait("enter numbers from 1")
    t.child.send("1 3\r")
    t.answer("tests be reverted", "\r")
    t.answer("Which one", "\r")
    t.answer("called", "\r")
    t.answer(SAVE)
    assert t.end() == 0
    assert 'name: "types-valid"' in read_loop(project, "fix-types-and-tests")


def test_description_needs_a_key(project: Path) -> None:
    """A description needs a model; without a key that is reported."""
    t = create()
    t.answer("What kind", f"{DOWN * 4}\r")
    t.answer("Which form should the loop have", f"{DOWN * 2}\r")
    t.answer("What should the loop do", "make it green\r")
    assert t.end() == 1
    assert "there is no API key" in t.plain
    assert list(project.iterdir()) == []


def test_ctrl_c_during_a_model_call_saves_nothing(project: Path, messages_server: Any, answers: Any) -> None:
    """The call ends at once."""
    messages_server.then(answers.stall())
    t = create("--describe", "make it green")
    t.wait("asking")
    deadline = time.monotonic() + 60
    while not messages_server.requests and time.monotonic() < deadline:
        time.sleep(0.05)
    t.child.sendintr()
    assert t.end() == 130
    assert "nothing was saved" in t.plain
    assert list(project.iterdir()) == []


# --- without a terminal ---------------------------------------------------------------------------


class Scripted:
    """Answers from a list: the label of a choice, a text or a boolean; an exception is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def next(self, question: str) -> object:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def choose(self, question: str, choices: list[Choice]) -> object:
        wanted = self.next(question)
        return next(choice.value for choice in choices if str(wanted) in choice.label)

    def choose_many(self, question: str, choices: list[Choice]) -> list[object]:
        wanted = self.next(question)
        return [choice.value for choice in choices if any(w in choice.label for w in wanted)]  # type: ignore[attr-defined]

    def text(self, question: str, default: str = "", check: wizard.Check | None = None) -> str:
        answer = str(self.next(question) or default)
        assert check is None or check(answer) is None, (question, answer)
        return answer

    def confirm(self, question: str, default: bool = True) -> bool:
        return bool(self.next(question))

    def tell(self, text: str) -> None:
        pass


ATTEMPTS = ("What's the maximum number of fix attempts?", "10")
ITERATIONS = ("What's the maximum number of iterations?", "20")
NAME = ("What should the loop be called?", "own")
SAVE_IT = ("Save to .loops/own.yaml?", True)
KIND = "What kind of automation loop do you want to create?"
OTHER = (KIND, "Other...")
FORM = "Which form should the loop have?"
CHECK = "Which command checks it? Exit code 0 means success."
# Questions for each kind of loop, each with an answer.
DIALOGUES: dict[str, list[tuple[str, object]]] = {
    "fix": [
        (KIND, "Fix errors until clean (Recommended)"),
        ("What should the loop fix?", ["mypy", "Other"]),
        (CHECK, "make docs"),
        ("What repairs it: a command, or a sentence for the agent?", "/ll:fix docs"),
        ("What is the check called?", "docs"),
        ("Another check?", False),
        ATTEMPTS,
    ],
    "maintain": [
        (KIND, "Maintain code quality continuously"),
        ("What should the loop keep?", ["ruff"]),
        ATTEMPTS,
        ("How many seconds should pass between two rounds?", "5"),
    ],
    "convergence": [
        (KIND, "Drive a metric toward a target"),
        ("Which command prints the metric, as a number?", "wc -l < todo"),
        ("Which number is the target?", "0"),
        ("What changes the metric: a command, or a sentence for the agent?", "Do one of them"),
        ("Which distance from the target is enough?", "1"),
        ("Which direction is progress?", "More"),
        ATTEMPTS,
    ],
    "imperative": [
        (KIND, "Run a sequence of steps"),
        ("What is the first step?", "make"),
        ("What is the next step? (Enter: no more steps)", ""),
        ("Which command checks that the work is done?", "test -e done"),
        ITERATIONS,
    ],
    "goal": [
        OTHER,
        (FORM, "Reach a goal"),
        ("What should be true in the end?", "All is well"),
        (CHECK, "make check"),
        ("What repairs it? (Enter: no more repairs)", "/ll:fix it"),
        ("What repairs it? (Enter: no more repairs)", ""),
        ATTEMPTS,
    ],
    "fsm": [
        OTHER,
        (FORM, "Define states"),
        ("What is the first state called?", "check"),
        ("What does `check` do: a command, or a sentence for the agent? (Enter: the loop ends here)", "make"),
        ("Which state follows success? (states: check; or a new one)", "done"),
        ("Which state follows failure? (Enter: the same)", ""),
        ("What does `done` do: a command, or a sentence for the agent? (Enter: the loop ends here)", ""),
        ("How does the loop end in `done`?", "success"),
        ITERATIONS,
    ],
    "natural": [
        OTHER,
        (FORM, "Keep the description"),
        ("What should the loop do?", "Make it green"),
        ("Which command or slash command may it use? (Enter: any)", "make"),
        ("Which other one? (Enter: no more)", ""),
        ATTEMPTS,
    ],
}


def dialogue(kind: str) -> tuple[list[str], list[object]]:
    """The questions for a kind of loop, and their answers."""
    rows = [*DIALOGUES[kind], NAME, SAVE_IT]
    return [question for question, _ in rows], [answer for _, answer in rows]


def create_with(asker: Scripted, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `llc create` with a person who gives these answers."""
    monkeypatch.setattr(menus, "Menus", lambda: asker)
    monkeypatch.setattr(creation, "is_attended", lambda: True)
    return dispatch.command("llc", ["create", "--no-pin"])


@pytest.mark.parametrize("kind", DIALOGUES)
def test_every_kind_of_loop_has_its_questions(
    project: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No other questions are asked; the loop is shown as YAML and as states before it is saved."""
    questions, answers = dialogue(kind)
    asker = Scripted(*answers)
    assert create_with(asker, monkeypatch) == 0, capfd.readouterr().err
    assert asker.asked == questions
    assert asker.answers == []
    shown = capfd.readouterr().err
    text = (project / ".loops" / "own.yaml").read_text()
    assert text in shown
    if kind != "natural":  # a description has no states until it is pinned
        states = re.findall(r"^(\S+)(?: \(ends.*\))?$", shown.partition("It compiles to:\n")[2], re.MULTILINE)
        loop = compile_file(".loops/own.yaml").loop
        assert loop is not None
        assert states == list(loop.states)


@pytest.mark.parametrize("kind", DIALOGUES)
def test_cancelling_any_question_saves_nothing(
    project: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and Ctrl-D at each question."""
    questions, answers = dialogue(kind)
    for step in range(len(questions)):
        for cancellation, code in ((KeyboardInterrupt(), 130), (EOFError(), 1)):
            assert create_with(Scripted(*answers[:step], cancellation), monkeypatch) == code
            assert list(project.iterdir()) == [], questions[step]


def test_checks_fit_the_project(project: Path) -> None:
    """Checks for Python are the default; files of the project select those of other languages."""
    assert [row.check for row in wizard.common_checks()] == ["mypy src/", "ruff check src/", "pytest"]
    (project / "Cargo.toml").touch()
    assert [row.check for row in wizard.common_checks()] == ["cargo check", "cargo test"]
    (project / "pyproject.toml").touch()
    assert len(wizard.common_checks()) == 5


@pytest.mark.parametrize("is_wanted", [True, False])
def test_wizard_offers_to_guard_tests(project: Path, is_wanted: bool) -> None:
    """The wizard offers it if an agent has to make tests pass."""
    asker = Scripted("Fix errors", ["mypy", "pytest"], is_wanted, "20", "")
    data = wizard.ask(asker, None, {})  # type: ignore[arg-type]
    assert asker.asked[2] == "Should changes of the agent to the tests be reverted?"
    assert ("guard" in data) is is_wanted
    text = drafts.draft(data).text
    assert ("**/conftest.py" in text) is is_wanted


@pytest.mark.parametrize(("check", "repair"), [("pytest -q", "make generated"), ("mypy", "/ll:fix")])
def test_no_guard_without_agent_and_test_suite(project: Path, check: str, repair: str) -> None:
    """A repair by a command and a check that is not a test suite need no guard."""
    asker = Scripted("Other...", "Reach a goal", "All is well", check, repair, "", "20", "")
    assert "guard" not in wizard.ask(asker, None, {})  # type: ignore[arg-type]
    guarded = Scripted(
        "Other...", "Reach a goal", "All is well", "go test ./...", "Repair it", "", True, "20", ""
    )
    assert wizard.ask(guarded, None, {})["guard"] == {"paths": ["**/*_test.go"]}  # type: ignore[arg-type]


def test_checks_of_the_same_kind_have_different_names(project: Path) -> None:
    """States are named after the checks."""
    (project / "pyproject.toml").touch()
    (project / "Cargo.toml").touch()
    asker = Scripted("Fix errors", ["pytest", "cargo)"], True, "20", "")
    data = wizard.ask(asker, None, {})  # type: ignore[arg-type]
    names = [constraint["name"] for constraint in data["constraints"]]
    assert len(set(names)) == len(names) == 3
    assert drafts.draft(data).states()
