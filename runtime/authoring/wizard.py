"""The questions of `llc create`: what the seed asks for each paradigm, and the loop the answers make.

Knows no terminal: an `Asker` puts the questions (`menus`). What was given by options is not asked.
Must not be in here: YAML, files (`drafts`), models (`describing`).
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
# What is wrong with an answer, None if nothing is.
Check = Callable[[str], str | None]


class Choice(NamedTuple):
    """An answer that can be chosen: its value and its text."""

    value: Any
    label: str


class Asker(Protocol):
    """Puts questions to a person. Raises KeyboardInterrupt and EOFError where they leave."""

    def choose(self, question: str, choices: Sequence[Choice]) -> Any: ...

    def choose_many(self, question: str, choices: Sequence[Choice]) -> list[Any]: ...

    def text(self, question: str, default: str = "", check: Check | None = None) -> str: ...

    def confirm(self, question: str, default: bool = True) -> bool: ...

    def tell(self, text: str) -> None: ...


class Known(NamedTuple):
    """A check that projects have: what the agent is asked where it fails, and the file that says so."""

    label: str
    name: str
    check: str
    prompt: str
    files: tuple[str, ...] = ()

    def constraint(self, name: str) -> Data:
        return {"name": name, "check": check_of(self.check), "fix": {"prompt": self.prompt}}


_TYPES, _LINT, _TESTS = "Fix the type errors", "Fix the lint errors", "Make the tests pass"
# The seed's three first; the others where their project's file is.
CHECKS = (
    Known("Type errors (mypy)", "types-valid", "mypy src/", _TYPES),
    Known("Lint errors (ruff)", "lint-clean", "ruff check src/", _LINT),
    Known("Test failures (pytest)", "tests-pass", "pytest", _TESTS),
    Known("Type errors (tsc)", "types-valid", "npx tsc --noEmit", _TYPES, ("tsconfig.json",)),
    Known("Lint errors (eslint)", "lint-clean", "npx eslint .", _LINT, ("package.json",)),
    Known("Test failures (npm test)", "tests-pass", "npm test", _TESTS, ("package.json",)),
    Known("Compiler errors (cargo)", "builds", "cargo check", "Make it compile", ("Cargo.toml",)),
    Known("Test failures (cargo)", "tests-pass", "cargo test", _TESTS, ("Cargo.toml",)),
    Known("Vet errors (go)", "vet-clean", "go vet ./...", "Fix the vet errors", ("go.mod",)),
    Known("Test failures (go)", "tests-pass", "go test ./...", _TESTS, ("go.mod",)),
)
# The files of tests, by the command that runs them.
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
# As the seed words them; the last leads to the others.
KINDS = (
    Choice("fix", "Fix errors until clean (Recommended)"),
    Choice("maintain", "Maintain code quality continuously"),
    Choice("convergence", "Drive a metric toward a target"),
    Choice("imperative", "Run a sequence of steps"),
    Choice(OTHER, "Other..."),
)
OTHER_KINDS = (
    Choice("goal", "Reach a goal: a check, and what repairs it"),
    Choice("fsm", "States and transitions of your own"),
    Choice(DESCRIBED, "Describe it in words, and have a model write it"),
    Choice("natural", "Words that stay: a model says once what they mean"),
    Choice(READY, "A ready loop, such as lint, tests or coverage"),
)
ATTEMPTS = (Choice(10, "10 (Recommended)"), Choice(20, "20"), Choice(50, "50"), Choice(None, "Custom..."))
_SENTENCE = "a command, or a sentence for the agent"
_WORDS = "What should the loop do?"
_MORE = "And then? (Enter: that is all)"


def ask(asker: Asker, paradigm: str | None, data: Data) -> Data:
    """A loop, from what was given and what is asked.

    `{"described": words}` for a model to write, `{"ready": name}` for a ready loop.
    """
    kind = paradigm or asker.choose("What kind of automation loop do you want to create?", KINDS)
    if kind == OTHER:
        kind = asker.choose("What should it be like?", OTHER_KINDS)
    if kind == DESCRIBED:
        return {**data, DESCRIBED: data.get("description") or asker.text(_WORDS, check=_something)}
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
    """A name by what a loop is about."""
    match data.get("paradigm"):
        case "goal":
            return str(data.get("goal") or "")
        case "invariants":
            names = [str(one.get("name", "")).partition("-")[0] for one in data.get("constraints") or ()]
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
    """The program of a check, which is a command or a mapping with one; `it` if there is none."""
    words = str((command.get("run") if isinstance(command, dict) else command) or "").split()
    return os.path.basename(words[0]) if words else "it"


# --- the paradigms ----------------------------------------------------------------------------


def _fix(asker: Asker, data: Data) -> Data:
    """Checks with their repairs, from those that are usual here and others."""
    if "constraints" not in data:
        what = "What should the loop keep?" if data.get("maintain") else "What should the loop fix?"
        known = usual()
        choices = [Choice(row, row.label) for row in known]
        constraints: list[Data] = []
        while not constraints:
            chosen = asker.choose_many(what, [*choices, Choice(OTHER, "Other...")])
            names: set[str] = set()
            for row in chosen:
                if row == OTHER:
                    constraints += _others(asker, names)
                else:
                    name = _distinct(row.name, names)
                    constraints.append(row.constraint(name))
            if not constraints:
                asker.tell("choose at least one, with the space bar")
        data["constraints"] = constraints
        data |= _guard(asker, [(one["check"], one["fix"]) for one in constraints])
    return _attempts(asker, data)


def _guard(asker: Asker, pairs: list[tuple[Any, Any]]) -> Data:
    """`guard` for the tests that an agent is to make pass, if that is wanted. pairs: checks and repairs."""
    paths: dict[str, None] = {}
    for check, repair in pairs:
        is_agent = isinstance(repair, dict) or repair.startswith("/")
        words = f" {check['run'] if isinstance(check, dict) else check} "
        for runner, found in _TEST_FILES if is_agent else ():
            if f" {runner} " in words:
                paths |= dict.fromkeys(found)
    if not paths:
        return {}
    asker.tell("An agent may change the tests instead of making them pass.")
    if not asker.confirm("Should changes of the agent to the tests be reverted?"):
        return {}
    return {"guard": {"paths": list(paths)}}


def _others(asker: Asker, names: set[str]) -> list[Data]:
    found = []
    while True:
        check = asker.text("Which command checks it? It exits with 0 where all is well.", check=_something)
        fix = action_of(asker.text(f"What repairs it: {_SENTENCE}?", check=_something))
        proposed = _distinct(drafts.fit_name(_program(check)) or "check", set(names))
        name = asker.text("What is the check called?", proposed, _constraint_name(names))
        names.add(name)
        found.append({"name": name, "check": check_of(check), "fix": fix})
        if not asker.confirm("Another check?", default=False):
            return found


def action_of(text: str) -> str | Data:
    """A command as it is; a sentence, which begins with a capital, is a prompt for the agent."""
    first, _, more = text.strip().partition(" ")
    is_sentence = first[:1].isupper() and more and "=" not in first and environment.which(first) is None
    return {"prompt": text.strip()} if is_sentence else text


def state_of(text: str, routes: Data) -> Data:
    """A state with an action, a command or a sentence, and its routes."""
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
        data["check"] = asker.text("Which command prints the metric, as a number?", check=_something)
    if "toward" not in data:
        data["toward"] = read_scalar(asker.text("Toward which number?", "0", _number_from(None)))
    if "using" not in data:
        data["using"] = action_of(asker.text(f"What moves it: {_SENTENCE}?", check=_something))
    if "tolerance" not in data:
        near = read_scalar(asker.text("How near is near enough?", "0", _number_from(0)))
        data |= {"tolerance": near} if near else {}
    if "direction" not in data:
        ways = (Choice(None, "Less (Recommended)"), Choice("maximize", "More"))
        way = asker.choose("Which way is progress?", ways)
        data |= {"direction": way} if way else {}
    return _attempts(asker, data)


def _imperative(asker: Asker, data: Data) -> Data:
    if "steps" not in data:
        data["steps"] = [*map(action_of, _list(asker, "What is the first step?", _MORE))]
    if "until" not in data:
        check = asker.text("Which command tells that it is done?", check=_something)
        data["until"] = {"check": check_of(check)}
        data |= _guard(asker, [(data["until"]["check"], step) for step in data["steps"]])
    return _attempts(asker, data)


def _goal(asker: Asker, data: Data) -> Data:
    if "goal" not in data:
        data["goal"] = asker.text("What should be true in the end?", check=_something)
    if "tools" not in data:
        first = "Which command checks it? It exits with 0 where it is true."
        check, *repairs = _list(asker, first, "What repairs it? (Enter: that is all)")
        data["tools"] = [check_of(check), *map(action_of, repairs)]
        data |= _guard(asker, [(data["tools"][0], repair) for repair in data["tools"][1:]])
    return _attempts(asker, data)


def _natural(asker: Asker, data: Data) -> Data:
    if "description" not in data:
        data["description"] = asker.text(_WORDS, check=_something)
    if "tools" not in data:
        first = "Which command or slash command may it use? (Enter: any)"
        tools = _list(asker, first, "And which else? (Enter: that is all)", is_needed=False)
        data |= {"tools": tools} if tools else {}
    return _attempts(asker, data)


def _fsm(asker: Asker, data: Data) -> Data:
    """State after state; those that are named and not yet there are asked for next."""
    if "states" in data:
        return _attempts(asker, data)
    states: Data = {}
    waiting = [asker.text("What is the first state called?", "check", _state_name)]
    data["initial"] = waiting[0]
    while waiting:
        name = waiting.pop(0)
        if name in states:
            continue
        states[name] = state = _state(asker, name, [*states, name, *waiting])
        targets = (state.get("next"), state.get("on_success"), state.get("on_failure"))
        waiting += [target for target in targets if target and target not in states and target not in waiting]
    data["states"] = states
    return _attempts(asker, data)


def _state(asker: Asker, name: str, known: list[str]) -> Data:
    action = asker.text(f"What does `{name}` do: {_SENTENCE}? (Enter: the loop ends here)")
    if not action.strip():
        ways = (Choice(None, "success"), Choice("failure", "failure"))
        status = asker.choose(f"How does the loop end in `{name}`?", ways)
        return {"terminal": True, **({"status": status} if status else {})}
    success = asker.text(
        f"Where does success lead? (states: {', '.join(known)}; or a new one)", "done", _state_name
    )
    failure = asker.text("And failure? (Enter: the same)", "", _optional(_state_name))
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


def usual() -> list[Known]:
    """The checks that fit the project's files; the seed's, where no file says what it is."""
    found = [row for row in CHECKS if row.files and any(map(files.exists, row.files))]
    has_python = any(map(files.exists, _PYTHON))
    return [row for row in CHECKS if not row.files and (has_python or not found)] + found


def _attempts(asker: Asker, data: Data) -> Data:
    if "max_iterations" not in data:
        what = "What's the maximum number of fix attempts?"
        if data["paradigm"] in ("imperative", "fsm"):
            what = "What's the maximum number of iterations?"
        most = asker.choose(what, ATTEMPTS)
        if most is None:
            most = read_scalar(asker.text("How many?", "10", _count))
        data["max_iterations"] = most
    return data


def _list(asker: Asker, first: str, more: str, is_needed: bool = True) -> list[str]:
    found: list[str] = []
    while text := asker.text(more if found else first, check=_something if is_needed and not found else None):
        found.append(text)
    return found


def _distinct(name: str, names: set[str]) -> str:
    free, number = name, 2
    while free in names:
        free, number = f"{name}-{number}", number + 1
    names.add(free)
    return free


# --- answers ----------------------------------------------------------------------------------

LONGEST_ANSWER = 20_000


def _something(text: str) -> str | None:
    if not text.strip():
        return "write something"
    return f"at most {LONGEST_ANSWER:,} characters" if len(text) > LONGEST_ANSWER else None


def _optional(check: Check) -> Check:
    return lambda text: check(text) if text else None


def _number_from(least: float | None) -> Check:
    def check(text: str) -> str | None:
        try:
            value = read_scalar(text.strip())
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
            return "write a number"
        return f"write a number from {least:g} on" if least is not None and value < least else None

    return check


def _count(text: str) -> str | None:
    if not (text.isascii() and text.isdigit() and int(text[:12]) > 0 and len(text) <= 12):
        return "write a whole number from 1 on"
    return None


def _state_name(text: str) -> str | None:
    if not text or len(text) > drafts.LONGEST_NAME:
        return f"write a name, of {drafts.LONGEST_NAME} characters at most"
    is_good = text.isprintable() and not any(ch.isspace() or ch in "/$" for ch in text)
    return None if is_good else "a state's name has no spaces, no `/` and no `$`"


def _constraint_name(names: set[str]) -> Check:
    return lambda text: _state_name(text) or ("another check is called so" if text in names else None)
