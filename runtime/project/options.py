"""What the verbs take: options and arguments as rows, and how plain words are read by them.

The options of `run` and its kin stand here, each declared once; those of other verbs stand with them
(`commands`). `entry` reads words by the rows at once, so that a command need not wait for the command-line
library, which makes its parameters, help and completion from the same rows. Must not be in here: what the
options do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    # What a word may go on with. One that takes two things gets the values that stand before it first.
    Complete = Callable[[str], list[str]] | Callable[[dict[str, Any], str], list[str]]

FLAG, COUNT, TEXT, PAIR, MANY = "flag", "count", "text", "pair", "many"
NUMBER, SECONDS = "number", "seconds"
ONE, MAYBE, SOME, ANY = "one", "maybe", "some", "any"


class Option:
    """kind: FLAG takes no value, COUNT a number ≥ 1, NUMBER a number and SECONDS a time between `least` and
    `most`, TEXT any text, PAIR a `K=V`, MANY any text.

    The last two may be repeated. A metavar such as `fast|slow` lists all there are.
    """

    __slots__ = ("complete", "default", "doc", "kind", "least", "metavar", "most", "name", "names")

    def __init__(
        self,
        name: str,
        names: str,
        kind: str,
        doc: str,
        metavar: str | None = None,
        *,
        default: Any = None,
        least: int | None = None,
        most: int | None = None,
        complete: Complete | None = None,
    ) -> None:
        self.name = name
        self.names = tuple(names.split())
        self.kind = kind
        self.doc = doc
        self.metavar = metavar
        self.default = {FLAG: False, PAIR: (), MANY: ()}.get(kind, default)
        self.least = 1 if kind == COUNT else least
        self.most = most
        self.complete = complete or _one_of(metavar or "")

    def value(self, text: str) -> Any:
        """What a text says that is plainly right; None for any other."""
        if self.kind not in (COUNT, NUMBER, SECONDS):
            return text
        digits = text.replace(".", "", 1) if self.kind == SECONDS else text
        if not (digits.isascii() and digits.isdigit() and len(text) < 10):
            return None
        number = float(text) if self.kind == SECONDS else int(text)
        is_within = (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )
        return number if is_within else None


def _one_of(metavar: str) -> Complete | None:
    """What completes a value whose metavar lists all there are."""
    if "|" not in metavar or not metavar.islower():
        return None
    return lambda start: [word for word in metavar.split("|") if word.startswith(start)]


class Argument:
    """What stands by its place. count: ONE of it, MAYBE one, SOME (one or more) or ANY number."""

    __slots__ = ("complete", "count", "doc", "metavar", "name")

    def __init__(
        self, name: str, count: str, doc: str, metavar: str, complete: Complete | None = None
    ) -> None:
        self.name = name
        self.count = count
        self.doc = doc
        self.metavar = metavar
        self.complete = complete


_SHOWING = (
    Option("json", "--json", FLAG, "Write one JSON object to stdout when the run ends; progress to stderr."),
    Option("quiet", "--quiet -q", FLAG, "Show no progress."),
    Option("verbose", "--verbose -v", FLAG, "Show more: waits, model calls, reasons, all output."),
)
QUEUE = Option(
    "queue", "--queue", FLAG, "Wait for the runs that hold the same paths, first come first served."
)
JOBS = Option("jobs", "--jobs", COUNT, "Perform so many actions at once at most (default 8).", "N")
BACKGROUND = Option(
    "background", "--background", FLAG, "Run without a terminal: print the run's id and return."
)
ARGUMENTS = Option(
    "arguments", "--arg", PAIR, "Set a variable of a flow, JSON or text; may be repeated.", "K=V"
)
DECLARE = Option(
    "declare",
    "--declare",
    MANY,
    "A tool, or `task NAME`, that flows may call, with its parameters if known; may be repeated.",
    "NAME[(X,Y)]",
)
FUEL = Option("fuel", "--fuel", COUNT, "Stop a program after so many ticks (default 10,000,000,000).", "N")
BUDGET = Option(
    "budget",
    "--budget",
    PAIR,
    "Let models and agents use no more usd, tokens, calls or seconds; may be repeated.",
    "UNIT=N",
)
TIER = Option(
    "tier",
    "--tier",
    TEXT,
    "How to run the program; only time tells the ways apart (default auto).",
    "interpreter|direct|auto",
)
PROFILING = (
    Option("profile", "--profile", FLAG, "Show at the end where the time went."),
    Option(
        "flame",
        "--flame",
        TEXT,
        "Write where the time went for a flame graph: FILE.json for speedscope, else collapsed stacks.",
        "FILE",
    ),
)
LIMITS = (
    FUEL,
    Option(
        "max_depth", "--max-depth", COUNT, "Allow so many calls inside one another (default 1048576).", "N"
    ),
    Option(
        "max_size",
        "--max-size",
        COUNT,
        "Allow so many items in a list, and in proportion longer texts and integers (default 8388608).",
        "N",
    ),
)
OVERRIDES = (
    Option("max_iterations", "--max-iterations", COUNT, "Override the loop's limit of iterations.", "N"),
    Option("no_llm", "--no-llm", FLAG, "Judge slash commands by their exit code, without a model."),
    Option("llm_model", "--llm-model", TEXT, "Override the model that judges output.", "MODEL"),
    Option("context", "--context", PAIR, "Set a context variable of the loop; may be repeated.", "K=V"),
    ARGUMENTS,
    DECLARE,
    Option(
        "max_expansions", "--max-expansions", COUNT, "Expand macros so many times (default 250,000).", "N"
    ),
    Option("max_nesting", "--max-nesting", COUNT, "Allow brackets so deep in a flow (default 1,000).", "N"),
)
RUN = (
    Option("expression", "--expression -e", TEXT, "Run this expression instead of a file.", "EXPR"),
    Option("dry_run", "--dry-run", FLAG, "Show what would be run, and run nothing."),
    *OVERRIDES,
    *LIMITS,
    TIER,
    BUDGET,
    JOBS,
    QUEUE,
    BACKGROUND,
    Option("script", "--script", TEXT, "Perform nothing: take all results from this file.", "WORLD.yaml"),
    Option(
        "record", "--record", TEXT, "Make a test case of the run: a path, or a name in .loops/tests/.", "CASE"
    ),
    *PROFILING,
    *_SHOWING,
)
# What a task is not asked: it is no file, and no loop.
_NOT_OF_TASKS = ("expression", "dry_run", "max_iterations", "no_llm", "llm_model", "context")
TASK = tuple(row for row in RUN if row.name not in _NOT_OF_TASKS)
RESUME = (
    Option(
        "on_unknown",
        "--on-unknown",
        TEXT,
        "What to do with an action that was cut off: rerun it, let it fail, or ask.",
        "rerun|fail|ask",
    ),
    FUEL,
    TIER,
    BUDGET,
    Option(
        "accept_changes",
        "--accept-changes",
        FLAG,
        "Go on with the program as its file has it now, if the run fits into it.",
    ),
    JOBS,
    QUEUE,
    BACKGROUND,
    *PROFILING,
    *_SHOWING,
)
AT_ONCE = Option(
    "at_once", "--at-once", COUNT, "Perform so many actions at once over all runs (default 8).", "N"
)
BATCH = (
    AT_ONCE,
    *OVERRIDES,
    *LIMITS,
    TIER,
    BUDGET,
    *(row for row in (*RUN, *RESUME) if row.name in ("script", "on_unknown")),
    Option("json", "--json", FLAG, "Write a JSON object to stdout for each run that is over, one in a line."),
    Option("quiet", "--quiet -q", FLAG, "Show nothing but errors."),
)


class Values:
    """Option values by name, and the one argument ('' where an expression stands for it)."""

    def __init__(self, options: Sequence[Option], target: str, **given: Any) -> None:
        self.target = target
        for option in options:
            setattr(self, option.name, given.get(option.name, option.default))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def given(overrides: Any) -> dict[str, Any]:
    """The options a run was started with, by its `overrides`, as `read` gives them."""
    found = dict(overrides) if isinstance(overrides, dict) else {}
    options: dict[str, Any] = {}
    for row in OVERRIDES:
        value = found.get(row.name)
        if row.kind == PAIR:
            value = tuple(
                (str(key), text if isinstance(text, dict) else str(text)) for key, text in value or ()
            )
        elif isinstance(value, list):
            value = tuple(map(str, value))
        if value:
            options[row.name] = value
    return options


def read(options: Sequence[Option], words: Sequence[str]) -> Values | None:
    """The values in the words of a verb that takes one thing, or an expression instead.

    None where they are not plainly right.
    """
    from ..host.errors import UserError

    found = parse(options, (Argument("target", MAYBE, "", ""),), words)
    if found is None:
        return None
    target = found.pop("target")
    if (target is None) == (found.get("expression") is None):
        return None
    try:
        return values(options, target or "", found)
    except UserError:
        return None


def parse(
    options: Iterable[Option], arguments: Iterable[Argument], words: Sequence[str], is_open: bool = False
) -> dict[str, Any] | None:
    """The values in a verb's words, by name; None where they are not plainly right.

    Then the full parser reads them, which knows `--help` and says what is wrong. is_open: what stands behind
    the first argument is all arguments.
    """
    by_name = {name: option for option in options for name in option.names}
    given: dict[str, Any] = {option.name: option.default for option in by_name.values()}
    placed: list[str] = []
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if word == "--" or (is_open and placed):
            placed += reversed(queue if word == "--" else [*queue, word])
            break
        if not word.startswith("-") or word == "-":
            placed.append(word)
            continue
        name, has_value, text = word.partition("=")
        option = by_name.get(name)
        if option is None or (has_value and (option.kind == FLAG or not name.startswith("--"))):
            return None
        if option.kind == FLAG:
            given[option.name] = True
            continue
        if not has_value:
            if not queue or queue[-1].startswith("-"):
                return None
            text = queue.pop()
        value = option.value(text)
        if value is None:
            return None
        is_repeated = option.kind in (PAIR, MANY)
        given[option.name] = (*given[option.name], value) if is_repeated else value
    return _place(arguments, placed, given)


def _place(arguments: Iterable[Argument], placed: list[str], given: dict[str, Any]) -> dict[str, Any] | None:
    for argument in arguments:
        is_list = argument.count in (SOME, ANY)
        if not placed and argument.count in (ONE, SOME):
            return None
        given[argument.name] = placed if is_list else placed.pop(0) if placed else None
        placed = [] if is_list else placed
    return None if placed else given


def values(rows: Iterable[Option], target: str, given: dict[str, Any]) -> Values:
    """What was given for the options of a verb, as `Values`. Raises UserError for what is no `K=V`."""
    rows = tuple(rows)
    found = dict(given)
    for row in rows:
        if row.kind == PAIR:
            found[row.name] = tuple(_pair(row, text) for text in given.get(row.name) or ())
        elif row.kind == MANY:
            found[row.name] = tuple(given.get(row.name) or ())
    return Values(rows, target, **found)


def _pair(option: Option, text: str) -> tuple[str, str]:
    from ..host.errors import UserError

    key, sign, value = text.partition("=")
    if not (key and sign):
        name, form = option.names[0], option.metavar
        such = "usd=2" if option is BUDGET else "target=src/"
        raise UserError("bad-option", f"{name} takes {form}, not `{text}`", f"such as {name} {such}")
    return key, value
