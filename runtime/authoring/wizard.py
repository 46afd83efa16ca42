"""Questions of `llc create`: the dialogue for each paradigm, and the loop made from the answers.

An `Asker` (`menus`) puts the questions. Values that options set are not asked for. Must not contain access to
a terminal, YAML and files (`drafts`), or models (`generation`).
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...ir.scalars import read_scalar
from ...stdlib import READY_LOOPS
from ..host import environment, files
from . import drafts
from .ready_loops import check_of, load

Data = dict[str, Any]
# Returns the problem of an answer; None if it is valid.
Check = Callable[[str], str | None]


class Choice(NamedTuple):
    """An entry of a menu: its value and its text."""

    value: Any
    label: str


class Asker(Protocol):
    """Puts questions to the user. Raises KeyboardInterrupt or EOFError if the user leaves."""

    def choose(self, question: str, choices: Sequence[Choice]) -> Any: ...

    def choose_many(self, question: str, choices: Sequence[Choice]) -> list[Any]: ...

    def text(self, question: str, default: str = "", check: Check | None = None) -> str: ...

    def confirm(self, question: str, default: bool = True) -> bool: ...

    def tell(self, text: str) -> None: ...


class CommonCheck(NamedTuple):
    """A common check. prompt: for the agent that repairs it. files: a project with one of them uses it."""

    label: str
    name: str
    check: str
    prompt: str
    files: tuple[str, ...] = ()

    def constraint(self, name: str) -> Data:
        return {"name": name, "check": check_of(self.check), "fix": {"prompt": self.prompt}}


_TYPES, _LINT, _TESTS = "Fix the type errors", "Fix the lint errors", "Make the tests pass"
# Python checks first; the others only in projects with their file.
CHECKS = (
    CommonCheck("Type errors (mypy)", "types-valid", "mypy src/", _TYPES),
    CommonCheck("Lint errors (ruff)", "lint-clean", "ruff check src/", _LINT),
    CommonCheck("Test failures (pytest)", "tests-pass", "pytest", _TESTS),
    CommonCheck("Type errors (tsc)", "types-valid", "npx tsc --noEmit", _TYPES, ("tsconfig.json",)),
    CommonCheck("Lint errors (eslint)", "lint-clean", "npx eslint .", _LINT, ("package.json",)),
    CommonCheck("Test failures (npm test)", "tests-pass", "npm test", _TESTS, ("package.json",)),
    CommonCheck("Compiler errors (cargo)", "builds", "cargo check", "Make it compile", ("Cargo.toml",)),
    CommonCheck("Test failures (cargo)", "tests-pass", "cargo test", _TESTS, ("Cargo.toml",)),
    CommonCheck("Vet errors (go)", "vet-clean", "go vet ./...", "Fix the vet errors", ("go.mod",)),
    CommonCheck("Test failures (go)", "tests-pass", "go test ./...", _TESTS, ("go.mod",)),
)
# Patterns of test files, by the command that runs the tests.
_TEST_FILES = (
    ("pytest", ("tests/**", "**/test_*.py", "**/*_test.py", "**/conftest.py")),
    ("npm test", ("test/**", "tests/**", "**/__tests__/**", "**/*.test.*", "**/*.spec.*")),
    ("cargo test", ("tests/**",)),
    ("go test", ("**/*_test.go",)),
)
_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
OTHER = "other"
DESCRIBED = "described"
READY = "ready"
# The last entry leads to `OTHER_KINDS`.
KINDS = (
    Choice("fix", "Fix errors until clean (Recommended)"),
    Choice("maintain", "Maintain code quality continuously"),
    Choice("convergence", "Drive a metric toward a target"),
    Choice("imperative", "Run a sequence of steps"),
    Choice(OTHER, "Other..."),
)
OTHER_KINDS = (
    Choice("goal", "Reach a goal: a check and its repair"),
    Choice("fsm", "Define states and transitions"),
    Choice(DESCRIBED, "Describe the loop; a model writes it"),
    Choice("natural", "Keep the description as the loop; a model translates it once"),
    Choice(READY, "A ready loop, such as lint, tests or coverage"),
)
ATTEMPTS = (Choice(10, "10 (Recommended)"), Choice(20, "20"), Choice(50, "50"), Choice(None, "Custom..."))
_SENTENCE = "a command, or a sentence for the agent"
_WORDS = "What should the loop do?"
_NEXT_STEP = "What is the next step? (Enter: no more steps)"


def ask(asker: Asker, paradigm: str | None, data: Data) -> Data:
    """Complete the data of a loop by questions.

    Returns `{"described": words}` for a loop that a model writes, `{"ready": name}` for a ready loop.
    """
    kind = paradigm or asker.choose("What kind of automation loop do you want to create?", KINDS)
    if kind == OTHER:
        kind = asker.choose("Which form should the loop have?", OTHER_KINDS)
    if kind == DESCRIBED:
        return {**data, DESCRIBED: data.get("description") or asker.text(_WORDS, check=_required_text)}
    if kind == READY:
        choices = [Choice(name, f"{name}: {load(name).summary}") for name in READY_LOOPS]
        return {READY: asker.choose("Which one?", choices)}
    question = _QUESTIONS[kind]
    data = question(asker, {**data, "paradigm": _PARADIGMS.get(kind, kind)})
    if not data.get("name"):
        proposed = drafts.fit_name(propose_name(data))
        data["name"] = asker.text("What should the loop be called?", proposed, drafts.problem_of_name)
    return data


def propose_name(data: Data) -> str:
    """A name derived from the purpose of the loop."""
    match data.get("paradigm"):
        case "goal":
            return str(data.get("goal") or "")
        case "invariants":
            constraints = data.get("constraints") or ()
            names = [str(constraint.get("name", "")).partition("-")[0] for constraint in constraints]
            verb = "keep" if data.get("maintain") else "fix"
            return f"{verb}-{'-and-'.join(names[:4])}" if names else ""
        case "convergence":
            return f"converge-{_program(data.get('check'))}"
        case "imperative":
            until = data.get("until")
            return f"until-{_program(until.get('check') if isinstance(until, dict) else '')}"
        case "natural":
            return " ".join(str(data.get("description") or "").split()[:6])
    return str(data.get("initial") or "") + "-loop"


def _program(command: Any) -> str:
    """The program of a check, which is a command or a mapping with a command; `it` if there is none."""
    words = str((command.get("run") if isinstance(command, dict) else command) or "").split()
    return os.path.basename(words[0]) if words else "it"


# --- the paradigms ----------------------------------------------------------------------------


def _fix(asker: Asker, data: Data) -> Data:
    """Constraints: common checks of the project and others, with their repairs."""
    if "constraints" not in data:
        question = "What should the loop keep?" if data.get("maintain") else "What should the loop fix?"
        choices = [Choice(check, check.label) for check in common_checks()]
        constraints: list[Data] = []
        while not constraints:
            chosen = asker.choose_many(question, [*choices, Choice(OTHER, "Other...")])
            names: set[str] = set()
            for check in chosen:
                if check == OTHER:
                    constraints += _ask_constraints(asker, names)
                else:
                    constraints.append(check.constraint(_unique(check.name, names)))
            if not constraints:
                asker.tell("choose at least one entry, with the space bar")
        data["constraints"] = constraints
        data |= _guard(asker, [(constraint["check"], constraint["fix"]) for constraint in constraints])
    return _attempts(asker, data)


def _guard(asker: Asker, pairs: list[tuple[Any, Any]]) -> Data:
    """A `guard` for tests that an agent repairs, if the user wants it. pairs: checks and their repairs."""
    paths: dict[str, None] = {}
    for check, repair in pairs:
        is_agent = isinstance(repair, dict) or repair.startswith("/")
        words = f" {check['run'] if isinstance(check, dict) else check} "
        for runner, patterns in _TEST_FILES if is_agent else ():
            if f" {runner} " in words:
                paths |= dict.fromkeys(patterns)
    if not paths:
        return {}
    asker.tell("An agent may change the tests instead of making them pass.")
    if not asker.confirm("Should changes of the agent to the tests be reverted?"):
        return {}
    return {"guard": {"paths": list(paths)}}


def _ask_constraints(asker: Asker, names: set[str]) -> list[Data]:
    constraints = []
    while True:
        check = asker.text("Which command checks it? Exit code 0 means success.", check=_required_text)
        fix = action_of(asker.text(f"What repairs it: {_SENTENCE}?", check=_required_text))
        proposed = _unique(drafts.fit_name(_program(check)) or "check", set(names))
        name = asker.text("What is the check called?", proposed, _constraint_name(names))
        names.add(name)
        constraints.append({"name": name, "check": check_of(check), "fix": fix})
        if not asker.confirm("Another check?", default=False):
            return constraints


def action_of(text: str) -> str | Data:
    """A command unchanged; a sentence, which begins with a capital, as a prompt for the agent."""
    first, _, more = text.strip().partition(" ")
    is_sentence = first[:1].isupper() and more and "=" not in first and environment.which(first) is None
    return {"prompt": text.strip()} if is_sentence else text


def state_of(text: str, routes: Data) -> Data:
    """A state with its routes. text: its action, a command or a sentence."""
    action, check = action_of(text), check_of(text)
    if isinstance(action, dict):
        return {"action": action["prompt"], "action_type": "prompt", "feedback": True, **routes}
    if isinstance(check, dict) and "next" not in routes:
        return {"action": text, "evaluate": {"type": "exit_code", "failure": check["failure"]}, **routes}
    return {"action": text, **routes}


def _maintain(asker: Asker, data: Data) -> Data:
    data = _fix(asker, {**data, "maintain": True})
    if "maintain_delay" not in data:
        delay = asker.text("How many seconds should pass between two rounds?", "60", _number_from(0))
        data["maintain_delay"] = read_scalar(delay)
    return data


def _convergence(asker: Asker, data: Data) -> Data:
    if "check" not in data:
        data["check"] = asker.text("Which command prints the metric, as a number?", check=_required_text)
    if "toward" not in data:
        data["toward"] = read_scalar(asker.text("Which number is the target?", "0", _number_from(None)))
    if "using" not in data:
        data["using"] = action_of(asker.text(f"What changes the metric: {_SENTENCE}?", check=_required_text))
    if "tolerance" not in data:
        tolerance = read_scalar(asker.text("Which distance from the target is enough?", "0", _number_from(0)))
        data |= {"tolerance": tolerance} if tolerance else {}
    if "direction" not in data:
        directions = (Choice(None, "Less (Recommended)"), Choice("maximize", "More"))
        direction = asker.choose("Which direction is progress?", directions)
        data |= {"direction": direction} if direction else {}
    return _attempts(asker, data)


def _imperative(asker: Asker, data: Data) -> Data:
    if "steps" not in data:
        data["steps"] = [*map(action_of, _list(asker, "What is the first step?", _NEXT_STEP))]
    if "until" not in data:
        check = asker.text("Which command checks that the work is done?", check=_required_text)
        data["until"] = {"check": check_of(check)}
        data |= _guard(asker, [(data["until"]["check"], step) for step in data["steps"]])
    return _attempts(asker, data)


def _goal(asker: Asker, data: Data) -> Data:
    if "goal" not in data:
        data["goal"] = asker.text("What should be true in the end?", check=_required_text)
    if "tools" not in data:
        first = "Which command checks it? Exit code 0 means success."
        check, *repairs = _list(asker, first, "What repairs it? (Enter: no more repairs)")
        data["tools"] = [check_of(check), *map(action_of, repairs)]
        data |= _guard(asker, [(data["tools"][0], repair) for repair in data["tools"][1:]])
    return _attempts(asker, data)


def _natural(asker: Asker, data: Data) -> Data:
    if "description" not in data:
        data["description"] = asker.text(_WORDS, check=_required_text)
    if "tools" not in data:
        first = "Which command or slash command may it use? (Enter: any)"
        tools = _list(asker, first, "Which other one? (Enter: no more)", is_required=False)
        data |= {"tools": tools} if tools else {}
    return _attempts(asker, data)


def _fsm(asker: Asker, data: Data) -> Data:
    """The states one after another; a state named in a route is asked for next."""
    if "states" in data:
        return _attempts(asker, data)
    states: Data = {}
    pending = [asker.text("What is the first state called?", "check", _state_name)]
    data["initial"] = pending[0]
    while pending:
        name = pending.pop(0)
        if name in states:
            continue
        states[name] = state = _state(asker, name, [*states, name, *pending])
        targets = (state.get("next"), state.get("on_success"), state.get("on_failure"))
        pending += [target for target in targets if target and target not in states and target not in pending]
    data["states"] = states
    return _attempts(asker, data)


def _state(asker: Asker, name: str, known: list[str]) -> Data:
    action = asker.text(f"What does `{name}` do: {_SENTENCE}? (Enter: the loop ends here)")
    if not action.strip():
        statuses = (Choice(None, "success"), Choice("failure", "failure"))
        status = asker.choose(f"How does the loop end in `{name}`?", statuses)
        return {"terminal": True, **({"status": status} if status else {})}
    success = asker.text(
        f"Which state follows success? (states: {', '.join(known)}; or a new one)", "done", _state_name
    )
    failure = asker.text("Which state follows failure? (Enter: the same)", "", _optional(_state_name))
    if not failure or failure == success:
        return state_of(action, {"next": success})
    return state_of(action, {"on_success": success, "on_failure": failure})


_PARADIGMS = {"fix": "invariants", "maintain": "invariants"}
_QUESTIONS: dict[str, Callable[[Asker, Data], Data]] = {
    "fix": _fix,
    "invariants": _fix,
    "maintain": _maintain,
    "convergence": _convergence,
    "imperative": _imperative,
    "goal": _goal,
    "natural": _natural,
    "fsm": _fsm,
}


# --- parts ------------------------------------------------------------------------------------


def common_checks() -> list[CommonCheck]:
    """The common checks for the project's files; the Python checks if no file is known."""
    others = [check for check in CHECKS if check.files and any(map(files.exists, check.files))]
    has_python = any(map(files.exists, _PYTHON))
    return [check for check in CHECKS if not check.files and (has_python or not others)] + others


def _attempts(asker: Asker, data: Data) -> Data:
    if "max_iterations" not in data:
        question = "What's the maximum number of fix attempts?"
        if data["paradigm"] in ("imperative", "fsm"):
            question = "What's the maximum number of iterations?"
        limit = asker.choose(question, ATTEMPTS)
        if limit is None:
            limit = read_scalar(asker.text("How many?", "10", _count))
        data["max_iterations"] = limit
    return data


def _list(asker: Asker, first: str, more: str, is_required: bool = True) -> list[str]:
    """Answers to a question that is repeated until an empty answer. more: the question after the first."""
    answers: list[str] = []
    while True:
        check = _required_text if is_required and not answers else None
        answer = asker.text(more if answers else first, check=check)
        if not answer:
            return answers
        answers.append(answer)


def _unique(name: str, names: set[str]) -> str:
    """The name, with a number if `names` has it; added to `names`."""
    unique, number = name, 2
    while unique in names:
        unique, number = f"{name}-{number}", number + 1
    names.add(unique)
    return unique


# --- checks of answers ------------------------------------------------------------------------

_MAX_ANSWER_CHARS = 20_000


def _required_text(text: str) -> str | None:
    if not text.strip():
        return "enter a text"
    return f"enter at most {_MAX_ANSWER_CHARS:,} characters" if len(text) > _MAX_ANSWER_CHARS else None


def _optional(check: Check) -> Check:
    return lambda text: check(text) if text else None


def _number_from(least: float | None) -> Check:
    def check(text: str) -> str | None:
        try:
            value = read_scalar(text.strip())
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
            return "enter a number"
        return f"enter a number of at least {least:g}" if least is not None and value < least else None

    return check


def _count(text: str) -> str | None:
    if not (text.isascii() and text.isdigit() and int(text[:12]) > 0 and len(text) <= 12):
        return "enter a whole number of at least 1"
    return None


def _state_name(text: str) -> str | None:
    if not text or len(text) > drafts.MAX_NAME_CHARS:
        return f"enter a name of at most {drafts.MAX_NAME_CHARS} characters"
    is_valid = text.isprintable() and not any(ch.isspace() or ch in "/$" for ch in text)
    return None if is_valid else "a state name cannot contain spaces, `/` or `$`"


def _constraint_name(names: set[str]) -> Check:
    return lambda text: _state_name(text) or ("another check has this name" if text in names else None)
