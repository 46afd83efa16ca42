"""Command-line parameters as data, and the option values of a run.

Must not contain: the effect of an option, the parsing of a command line (`cli.parse`).
"""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ..host.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Kinds of option values. A PAIR is `K=V`; PAIR and MANY may be repeated.
FLAG, COUNT, TEXT, PAIR, MANY = "flag", "count", "text", "pair", "many"
INTEGER, NUMBER = "integer", "number"

# Options that change the compiled program, with their kinds.
OVERRIDES = {
    "max_iterations": COUNT,
    "no_llm": FLAG,
    "llm_model": TEXT,
    "dialect": TEXT,
    "context": PAIR,
    "arguments": PAIR,
    "declare": MANY,
    "max_expansions": COUNT,
    "max_nesting": COUNT,
}
# Options with pairs as values: name, form and example for error messages.
_PAIRS = {
    "context": ("--context", "K=V", "target=src/"),
    "arguments": ("--arg", "K=V", "target=src/"),
    "budget": ("--budget", "UNIT=N", "usd=2"),
}
_INFINITY = float("inf")


class CommandParameter(LightRecord):
    """An option of a subcommand, or an argument if `names` is empty.

    Args:
        kind: FLAG (no value), INTEGER, NUMBER or TEXT.
        completer: `module:function` below `runtime.cli`, or ''.
        default: the default that the help shows.
        least: minimum of a number; None for no minimum.
        most: maximum of a number; None for no maximum.
        heading: title of the section in the help.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    doc: str
    metavar: str = ""
    completer: str = ""
    default: Any = None
    least: float | None = None
    most: float | None = None
    is_repeated: bool = False
    is_required: bool = False
    heading: str = ""

    def read(self, text: str) -> Any:
        """Parse a word of the command line. Raises ValueError with a noun phrase for a valid value."""
        if self.kind not in (INTEGER, NUMBER):
            return text
        is_integer = self.kind == INTEGER
        try:
            value = int(text) if is_integer else float(text)
        except ValueError:
            value = float("nan")
        if not -_INFINITY < value < _INFINITY:  # avoids the import of `math`
            raise ValueError("a whole number" if is_integer else "a number")
        if self.least is not None and value < self.least:
            raise ValueError(f"at least {self.least}")
        if self.most is not None and value > self.most:
            raise ValueError(f"at most {self.most}")
        return value


class Values:
    """Option values of `run` and related subcommands; an option that is not set has its default.

    target: loop or flow to run; '' if the command runs an `expression` or a task instead.
    """

    target: str
    expression: str | None = None
    dry_run: bool = False
    no_preflight: bool = False
    max_iterations: int | None = None
    no_llm: bool = False
    llm_model: str | None = None
    dialect: str | None = None
    context: tuple[tuple[str, Any], ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    declare: tuple[str, ...] = ()
    links: tuple[tuple[str, str, str], ...] = ()
    max_expansions: int | None = None
    max_nesting: int | None = None
    fuel: int | None = None
    max_depth: int | None = None
    max_size: int | None = None
    tier: str | None = None
    budget: tuple[tuple[str, str], ...] = ()
    jobs: int | None = None
    queue: bool = False
    no_input: bool = False
    background: bool = False
    script: str | None = None
    record: str | None = None
    profile: bool = False
    flame: str | None = None
    on_unknown: str | None = None
    accept_changes: bool = False
    accept_loss: bool = False
    at_once: int | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def __init__(self, target: str, **options: Any) -> None:
        self.target = target
        for name, value in options.items():
            if not hasattr(Values, name):
                raise TypeError(f"no option is named {name}")
            setattr(self, name, value)


def values(target: str, parsed: Mapping[str, Any]) -> Values:
    """The option values of a parsed command line. Raises UserError for a text that is not a pair."""
    return Values(target, **read(parsed))


def read(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a parsed command line, with pairs split and lists as tuples. Raises UserError."""
    options = dict(parsed)
    for name, value in parsed.items():
        if name in _PAIRS:
            options[name] = tuple(_pair(name, text) for text in value or ())
        elif name == "declare":
            options[name] = tuple(value or ())
    return options


def _pair(name: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator):
        option, form, example = _PAIRS[name]
        raise UserError("bad-option", f"{option} takes {form}, not `{text}`", f"such as {option} {example}")
    return key, value


def recorded_options(overrides: Any) -> dict[str, Any]:
    """The options of `OVERRIDES` that a run was started with. overrides: field of its `run_start` event."""
    record = dict(overrides) if isinstance(overrides, dict) else {}
    options: dict[str, Any] = {}
    for name, kind in OVERRIDES.items():
        value = record.get(name)
        if kind == PAIR:
            value = tuple(
                (str(key), text if isinstance(text, dict) else str(text)) for key, text in value or ()
            )
        elif isinstance(value, list):
            value = tuple(map(str, value))
        if value:
            options[name] = value
    return options
