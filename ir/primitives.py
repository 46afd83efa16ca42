"""The signatures of the VM's pure primitives: one row each, name, operands, meaning.

The verifier checks calls against this table, `vm/primitives.py` pairs every row with its code and
`spec/primitives.md` is printed from it. A primitive never touches the world, never changes a value
and always gives the same answer for the same operands; it may fault.
"""

from __future__ import annotations


class Signature:
    """`least`..`most` operands (`most` None: any number), as written in `operands`.

    A plain class: a run of a compiled image reads these rows and must not pay for `typing`.
    """

    __slots__ = ("doc", "least", "most", "name", "operands")

    def __init__(self, name: str, least: int, most: int | None, operands: str, doc: str) -> None:
        self.name = name
        self.least = least
        self.most = most
        self.operands = operands
        self.doc = doc

    def __repr__(self) -> str:
        return f"<primitive {self.name}({self.operands})>"


def _row(name: str, operands: str, doc: str) -> Signature:
    words = operands.split()
    rest = bool(words) and words[-1].endswith("…")
    optional = sum(word.endswith("?") for word in words)
    least = len(words) - optional - rest
    return Signature(name, least, None if rest else len(words), operands, doc)


ROWS = (
    # values
    _row("list", "item…", "The list of its operands."),
    _row("map", "key-value…", "A map from operands taken in pairs: a string key, then its value."),
    _row("get", "map key", "The value under a key, null where there is none or the map is null."),
    _row("put", "map key value", "The map with one entry added or replaced; null counts as an empty map."),
    _row("without_nulls", "map", "The map without the entries whose value is null."),
    _row("is_null", "value", "Whether a value is null."),
    _row("select", "condition then otherwise", "One of two values, both evaluated."),
    _row("not", "value", "Whether a value is false (`spec/ir.md`, Truth)."),
    _row("and", "value…", "The first false operand, else the last; all are evaluated."),
    _row("or", "value…", "The first true operand, else the last; all are evaluated."),
    _row("box", "value", "A new box that holds a value; `setbox` replaces its content."),
    _row("unbox", "box", "What a box holds."),
    _row("unset_box", "", "A new box that nothing has been put in yet."),
    _row(
        "unbox_set",
        "box variable",
        "What a box holds; fault `uninitialised`, which names `variable`, where nothing was put in it yet.",
    ),
    # functions
    _row(
        "applied",
        "function list",
        "A function whose last arguments are filled in: those of the list, after the ones it is called with.",
    ),
    _row("operate", "primitive list", "The primitive of this name, but `operate`, on the operands of a list."),
    # numbers and order
    _row("add", "number…", "The sum."),
    _row("sub", "number number", "The difference."),
    _row("mul", "number…", "The product."),
    _row(
        "div",
        "number number",
        "The quotient, an integer where both are and it is whole; fault `division-by-zero`.",
    ),
    _row("min", "number number", "The smaller number."),
    _row("max", "number number", "The larger number."),
    _row("eq", "value value", "Equality by value; a boolean never equals a number."),
    _row("lt", "number number", "Whether the first is less."),
    _row("le", "number number", "Whether the first is less or equal."),
    _row("gt", "number number", "Whether the first is greater."),
    _row("ge", "number number", "Whether the first is greater or equal."),
    # text
    _row("concat", "value…", "The texts of the operands, joined; see `text`."),
    _row(
        "text",
        "value",
        "A value as interpolation shows it: strings bare, null empty, lists and maps as JSON.",
    ),
    _row("trim_newline", "text", "A text without its final newline, as `$(…)` in a shell gives it."),
    _row("tail", "text count", "The last `count` characters of a text."),
    _row("duration", "milliseconds", "A duration for people, such as `2m 34s`."),
    _row("shell_word", "value", "The text as one bare word of a shell; fault `unsendable-text` for a NUL."),
    _row("shell_single", "value", "The text for a place inside single quotes; fault `unsendable-text`."),
    _row("shell_double", "value", "The text for a place inside double quotes; fault `unsendable-text`."),
    _row(
        "shell_heredoc",
        "value",
        "The text for a here-document with an unquoted delimiter; fault `unsendable-text`.",
    ),
    _row(
        "shell_number",
        "value",
        "A whole number's digits, for a place where nothing can be quoted; else fault `not-a-number`.",
    ),
    # variables
    _row(
        "lookup",
        "value path variable",
        "The field of a value at a list of keys; fault `undefined-variable`, which names `variable`.",
    ),
    _row("lookup_or", "value path default", "The field of a value at a list of keys, else the default."),
    # verdicts: each gives a result map {verdict, details}
    _row(
        "judge_exit",
        "action success failure",
        "`exit_code`: verdict by an action result's exit code; null lists mean [0] and [1].",
    ),
    _row(
        "judge_numeric",
        "text operator target",
        "`output_numeric`: a text read as a number, compared with a target.",
    ),
    _row(
        "judge_contains",
        "text pattern match negate truncated",
        "`output_contains`: a substring or an RE2 expression searched in a text.",
    ),
    _row(
        "judge_json",
        "reply path operator target",
        "`output_json`: a jq reply {value} or {error} compared with a target.",
    ),
    _row(
        "judge_convergence",
        "text target tolerance previous last direction",
        "`convergence`: a measurement against target and predecessor.",
    ),
    _row(
        "judge_model",
        "reply min_confidence uncertain_suffix",
        "`llm_structured`: a model's reply {reply} or {error} as a result.",
    ),
    _row(
        "judge_crash",
        "action",
        "The `error` result of an action that crashed, was ended or could not start; null where it ran.",
    ),
    _row("unrouted", "state result", "The fault to fail with where nothing routes the verdict of a result."),
    _row("judge_fault", "fault", "The `error` result for a fault caught in a state."),
)

PRIMITIVES = {row.name: row for row in ROWS}

if len(PRIMITIVES) != len(ROWS):
    raise AssertionError("a primitive is declared twice")
