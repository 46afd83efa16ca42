"""The signatures of the VM's pure primitives: one row each, name, operands, meaning.

The verifier checks calls against this table, `vm/primitives/handlers.py` pairs every row with its code and
`spec/primitives.md` is printed from it. A primitive never touches the world, never changes a value
and always gives the same answer for the same operands; it may fault.
"""

from __future__ import annotations


class Signature:
    """`least`..`most` operands (`most` None: any number), as written in `operands`.

    A plain class, because every run makes all of these rows.
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
    rest = operands.endswith("…")
    most = len(operands.split())
    return Signature(name, most - operands.count("?") - rest, None if rest else most, operands, doc)


ROWS = (
    # values
    _row("is_null", "value", "Whether a value is null."),
    _row("is_boolean", "value", "Whether a value is true or false."),
    _row("is_number", "value", "Whether a value is an integer or a float."),
    _row("is_integer", "value", "Whether a value is a whole number, such as 2 or 2.0."),
    _row("is_float", "value", "Whether a value is a float."),
    _row("is_string", "value", "Whether a value is a string."),
    _row("is_symbol", "value", "Whether a value is a symbol."),
    _row("is_list", "value", "Whether a value is a list."),
    _row("is_map", "value", "Whether a value is a map."),
    _row("is_function", "value", "Whether a value is a function."),
    _row("eq", "value value…", "Equality of the first with all others by value; a boolean equals no number."),
    _row(
        "plain",
        "value",
        "The value as it leaves the program: symbols as their names; a fault where a function is in it.",
    ),
    _row("select", "condition then otherwise", "One of two values, both evaluated."),
    _row("not", "value", "Whether a value is false (`spec/ir.md`, Truth)."),
    _row("and", "value…", "The first false operand, else the last; all are evaluated."),
    _row("or", "value…", "The first true operand, else the last; all are evaluated."),
    _row("box", "value", "A new box that holds a value; `setbox` replaces its content."),
    _row("dynamic_box", "value", "A new box with a value for each strand; a strand inherits it."),
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
    _row(
        "operate", "primitive list", "The primitive of this name, but `operate`, on the operands of a list."
    ),
    # numbers and order
    _row("add", "number…", "The sum."),
    _row("sub", "number number…", "The first less all others; the negative of one alone."),
    _row("mul", "number…", "The product."),
    _row(
        "div",
        "number number…",
        "The first divided by all others, 1 by one alone: an integer where all are and it is whole, else a "
        "float; fault `division-by-zero`.",
    ),
    _row("quotient", "number number", "The quotient of whole numbers, rounded towards 0."),
    _row("remainder", "number number", "What `quotient` leaves over; it has the sign of the first."),
    _row("modulo", "number number", "What division rounded down leaves over; it has the sign of the second."),
    _row("gcd", "number…", "The greatest common divisor of whole numbers."),
    _row("lcm", "number…", "The least common multiple of whole numbers."),
    _row("abs", "number", "The number without its sign."),
    _row("min", "number number…", "The smallest; a float where one of them is and that is exact."),
    _row("max", "number number…", "The largest; a float where one of them is and that is exact."),
    _row("round", "number", "The nearest whole number, of two the even one; an integer or float as given."),
    _row("floor", "number", "The next whole number below, an integer or float as given."),
    _row("ceiling", "number", "The next whole number above, an integer or float as given."),
    _row("truncate", "number", "The next whole number towards 0, an integer or float as given."),
    _row("exact", "number", "The integer that equals a number; a fault where none does."),
    _row("inexact", "number", "The nearest float."),
    _row("expt", "number number", "The power, an integer where both are and it is whole."),
    _row("sqrt", "number", "The square root, an integer where it is one; fault `no-real-number`."),
    _row("num_eq", "number number…", "Whether all are the same number."),
    _row("lt", "number number…", "Whether each is less than the next."),
    _row("le", "number number…", "Whether each is less than the next or equal."),
    _row("gt", "number number…", "Whether each is greater than the next."),
    _row("ge", "number number…", "Whether each is greater than the next or equal."),
    _row("is_zero", "number", "Whether a number is 0."),
    _row("is_positive", "number", "Whether a number is greater than 0."),
    _row("is_negative", "number", "Whether a number is less than 0."),
    _row("is_even", "number", "Whether a whole number is even."),
    _row("is_odd", "number", "Whether a whole number is odd."),
    # lists
    _row("list", "item…", "The list of its operands."),
    _row("cons", "item list", "The list with an item put before it."),
    _row("first", "list", "The first item; fault `empty-list`."),
    _row("rest", "list", "All but the first item; fault `empty-list`."),
    _row("second", "list", "The second item; fault `out-of-range`."),
    _row("third", "list", "The third item; fault `out-of-range`."),
    _row("rest_of_rest", "list", "All but the first two items; fault `out-of-range`."),
    _row("last", "list", "The last item; fault `empty-list`."),
    _row("array", "list", "The same list, kept so that each of its items is found in constant time."),
    _row("nth", "index list", "The item at an index from 0, operands in either order; fault `out-of-range`."),
    _row("length", "list", "How many items a list has."),
    _row("append", "list…", "The items of all the lists."),
    _row("reverse", "list", "The items from last to first."),
    _row("take", "count list", "The first items, all where there are fewer; operands in either order."),
    _row("drop", "count list", "All but the first items; operands in either order."),
    _row("list_tail", "list count", "All but the first items; fault `out-of-range` where there are fewer."),
    _row(
        "range",
        "start end? step?",
        "Numbers from `start` in steps of 1 or `step` up to `end`, left out. "
        "With one operand that is the end and 0 the start.",
    ),
    _row("member", "item list", "The part of a list that begins with an item equal to this one, else false."),
    _row("index_of", "item list", "The index of the first item equal to this one, else null."),
    _row("assoc", "key list", "The first item that is itself a list and begins with `key`, else false."),
    _row("unique", "list", "The items without those equal to an earlier one."),
    _row("flatten", "list", "The items, and those of lists in it however deep, in one list."),
    _row("zip", "list list…", "The list of all first items, of all second items, and so on to the shortest."),
    _row("sorted", "list", "Numbers, or strings, in ascending order."),
    _row("is_pair", "value", "Whether a value is a list with items."),
    _row("is_nil", "value", "Whether a value is null or the empty list."),
    _row("is_empty", "value", "Whether a list, map or string has nothing in it."),
    # maps
    _row("map", "key-value…", "A map from operands taken in pairs: a string key, then its value."),
    _row("get", "map key", "The value under a key, null where there is none or the map is null."),
    _row("get_or", "map key default?", "The value under a key, string or symbol, else the default or null."),
    _row("put", "map key value", "The map with one entry added or replaced; null counts as an empty map."),
    _row("remove", "map key", "The map without the entry of a key."),
    _row("has_key", "map key", "Whether a map has an entry of this key."),
    _row("keys", "map", "The keys in order."),
    _row("values", "map", "The values in order."),
    _row("entries", "map", "The list of the lists of key and value."),
    _row("from_entries", "list", "The map of a list of lists of key and value; later ones win."),
    _row("merge", "map…", "The entries of all the maps; later ones win."),
    _row("without_nulls", "map", "The map without the entries whose value is null."),
    _row(
        "get_field",
        "value path",
        "The field of a map or association list, or item of a list, by names with dots between; null where "
        "there is none.",
    ),
    # text
    _row("concat", "value…", "The texts of the operands, joined; see `text`."),
    _row(
        "text",
        "value",
        "A value as interpolation shows it: strings bare, null empty, lists and maps as JSON.",
    ),
    _row("to_string", "value", "A value as the language writes it, but strings bare."),
    _row("string_append", "value…", "Strings, symbols, numbers, booleans and null (nothing), joined."),
    _row(
        "join",
        "list separator?",
        "The items of a list as `string_append` takes them, with a separator or "
        "a blank between; operands in either order.",
    ),
    _row(
        "format",
        "template value…",
        "A template with values in it: `~a` as `to_string`, `~s` with strings in "
        "quotes, `~%` a line end, `~~` a tilde; faults `bad-format`, `arity`.",
    ),
    _row("trim_newline", "text", "A text without its final newline, as `$(…)` in a shell gives it."),
    _row("tail", "text count", "The last `count` characters of a text."),
    _row("head_lines", "text count", "The first `count` lines of a text."),
    _row("tail_lines", "text count", "The last `count` lines of a text."),
    _row("head_bytes", "text count", "The first `count` bytes of a text in UTF-8, cut between characters."),
    _row("tail_bytes", "text count", "The last `count` bytes of a text in UTF-8, cut between characters."),
    _row(
        "check_report",
        "action",
        "A check for the prompt of an agent: its command, exit code and the end of its output, bounded, "
        "each line marked as data, without control characters; empty for null.",
    ),
    _row("duration", "milliseconds", "A duration for people, such as `2m 34s`."),
    _row("string_length", "string", "How many characters a string has."),
    _row(
        "substring", "string start end?", "The characters from one index up to another; fault `out-of-range`."
    ),
    _row(
        "split",
        "string separator?",
        "The parts between separators, white space where none is given; the characters where it is empty.",
    ),
    _row("lines", "string", "The lines without their ends."),
    _row("trim", "string", "A string without white space at its ends."),
    _row("replace", "string old new", "A string with every `old` replaced."),
    _row("upper", "string", "A string in upper case."),
    _row("lower", "string", "A string in lower case."),
    _row(
        "contains", "string part", "Whether a string contains another, or a list an item equal to this one."
    ),
    _row("starts_with", "string prefix", "Whether a string begins with another."),
    _row("ends_with", "string suffix", "Whether a string ends with another."),
    _row("string_eq", "string string…", "Whether all are the same string."),
    _row("string_lt", "string string…", "Whether each comes before the next, by code points."),
    _row("to_symbol", "string", "The symbol of a name."),
    _row("symbol_name", "symbol", "The name of a symbol."),
    _row("parse_number", "string", "The number that a string spells in decimal, else null."),
    _row("json_parse", "string", "The value that a JSON text says; fault `bad-json`."),
    _row(
        "json_format",
        "value indent?",
        "A value as JSON, in one line or indented by that many spaces; a symbol is its name.",
    ),
    _row(
        "regex_match",
        "pattern string",
        "The first match of an RE2 expression and its groups, else null; fault `bad-pattern`.",
    ),
    _row("regex_find_all", "pattern string", "All matches; each with its groups where there are any."),
    _row("regex_replace", "pattern string replacement", "All matches replaced; `\\1` inserts a group."),
    # words of a shell
    _row("shell_word", "value", "The text as one bare word of a shell; fault `unsendable-text` for a NUL."),
    _row("shell_single", "value", "The text for a place inside single quotes; fault `unsendable-text`."),
    _row("shell_double", "value", "The text for a place inside double quotes; fault `unsendable-text`."),
    _row(
        "shell_heredoc",
        "value",
        "The text for a here-document with an unquoted delimiter; fault `unsendable-text`.",
    ),
    _row(
        "shell_quoted_heredoc",
        "value delimiter before after",
        "The text for a here-document with a quoted delimiter, as it is; fault `unsendable-text` if a line "
        "of it, with what is before and after it (null: another value), could be the delimiter.",
    ),
    _row(
        "shell_plain",
        "value blanks",
        "The text, if all its characters are ASCII letters, digits, of `_./:@%+,=-` or of `blanks`, for a "
        "place that is code; else fault `unsendable-text`.",
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
        "text operator target stderr?",
        "`output_numeric`: the number of an output, compared with a target.",
    ),
    _row(
        "judge_contains",
        "text pattern match negate truncated",
        "`output_contains`: a substring or an RE2 expression searched in a text.",
    ),
    _row("number_after", "text key", "The last number that follows `key=` in a text, as text; else null."),
    _row(
        "judge_error_text",
        "result text texts",
        "`output_contains`: `error` instead of `failure` where a text contains one of some texts.",
    ),
    _row("judge_line", "text line", "`classify`: a line of a text as verdict."),
    _row(
        "judge_history",
        "text most epsilon is_falling",
        "`score_stall`: whether the last `most` numbers of a text are no better than the best before.",
    ),
    _row("judge_failed_exit", "action", "The `error` result of an action that did not exit with 0."),
    _row(
        "judge_json",
        "reply path operator target",
        "`output_json`: a jq reply {value} or {error} compared with a target.",
    ),
    _row(
        "judge_convergence",
        "text target tolerance previous last direction stderr?",
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
    _row("digest", "text", "The SHA-256 of a text in UTF-8, in hexadecimal digits."),
)

PRIMITIVES = {row.name: row for row in ROWS}

if len(PRIMITIVES) != len(ROWS):
    raise AssertionError("a primitive is declared twice")
