"""The verb that makes loops: create."""

from __future__ import annotations

from ..project.options import FLAG, MANY, NUMBER, SECONDS, TEXT, Option
from .declare import ANY, JSON, Argument, command, complete_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PARADIGMS = ("goal", "convergence", "invariants", "imperative", "fsm", "natural")


def _text(name: str, help: str, metavar: str = "TEXT") -> Option:
    return Option(name, f"--{name.replace('_', '-')}", TEXT, help, metavar)


def _many(name: str, help: str, metavar: str) -> Option:
    return Option(name, f"--{name}", MANY, help + "; may be repeated.", metavar)


def _flag(name: str, *names: str, help: str) -> Option:
    return Option(name, " ".join((f"--{name.replace('_', '-')}", *names)), FLAG, help)


def _seconds(name: str, help: str) -> Option:
    return Option(name, f"--{name.replace('_', '-')}", SECONDS, help, "SECONDS", least=0)


_LOOPS = Argument(
    "loops", ANY, "With --pin: the loops; without any, all of .loops/.", "[LOOP]…", complete_loop
)


@command(
    (),
    _LOOPS,
    Option(
        "paradigm",
        "--paradigm -p",
        TEXT,
        "What the loop is; without it, questions are asked.",
        "|".join(PARADIGMS),
    ),
    _text("name", "What the loop is called, and its file.", "NAME"),
    _text("describe", "Have a model write the loop from this description."),
    _text("description", "What the loop is for."),
    _text("goal", "goal: what should be true."),
    _many("tool", "goal: an action, the first one checks; natural: one that may be used", "ACTION"),
    _text("check", "convergence: the command that prints the metric.", "COMMAND"),
    _text("toward", "convergence: the target.", "NUMBER"),
    _text("using", "convergence: what moves the metric.", "ACTION"),
    _text("tolerance", "convergence: how near is near enough.", "NUMBER"),
    _text("direction", "convergence: which way is progress.", "minimize|maximize"),
    _many("constraint", "invariants: a check and its name", "NAME=COMMAND"),
    _many("fix", "invariants: what repairs the check of that name", "NAME=ACTION"),
    _many("step", "imperative: a step", "ACTION"),
    _text("until", "imperative: the check that ends the loop.", "COMMAND"),
    _flag("until_fails", help="imperative: that check ends the loop where it fails."),
    _many("state", "fsm: a state; without a command the loop ends there", "NAME=[ACTION]"),
    _many("route", "fsm: where a verdict leads, `next` for any of them", "STATE.VERDICT=STATE"),
    _text("initial", "fsm: the state to begin in, by default the first.", "STATE"),
    Option("max_iterations", "--max-iterations", NUMBER, "Iterations at most.", "N", least=1),
    _seconds("timeout", "Seconds for the whole run."),
    _seconds("backoff", "Seconds between two iterations."),
    _flag("maintain", help="Begin again when it is done."),
    _seconds("maintain_delay", "Seconds between two such rounds."),
    _many("scope", "A path that the loop works on", "PATH"),
    _text("model", "The model to ask.", "MODEL"),
    _flag("pin", help="Ask a model what loops in `paradigm: natural` mean, and keep the answers."),
    _flag("no_pin", help="natural: save the words alone."),
    _flag("yes", "-y", help="Save without asking."),
    _flag("force", help="Replace what is there; with --pin, ask anew."),
    _flag("print", help="Only print the YAML."),
    JSON,
    examples=(
        "llc create",
        "llc create -p goal --goal 'No type errors' --tool 'mypy src/' --tool '/ll:fix types' --yes",
        "llc create -p invariants --constraint tests=pytest --fix tests='/ll:manage_issue bug fix' --print",
        "llc create --describe 'run the tests until they pass, at most 5 times'",
        "llc create --pin --yes",
    ),
)
def create(given: dict[str, Any]) -> int:
    from ..authoring import creating

    return creating.run(given)
