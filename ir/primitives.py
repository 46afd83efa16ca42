"""Table of the primitives: name, operands and meaning of each.

The verifier checks calls against this table, `vm/primitives/handlers.py` has the function of each row, and
`spec/primitives.md` is printed from it. A primitive has no effects, changes no operand and returns the same
value for the same operands; it can fault.
"""

from __future__ import annotations


class Signature:
    """A primitive with `least` to `most` operands (`most` None: any number); `operands` is their notation.

    A plain class and not an attrs class, because every run creates all rows.
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
    _row("eq", "value value…", "Whether the first value equals all others; a boolean equals no number."),
    _row(
        "plain",
        "value",
        "The value as it leaves the program: symbols become their names; a fault if it contains a function.",
    ),
    _row("select", "condition then otherwise", "One of two values, which are both evaluated."),
    _row("not", "value", "Whether a value is false (`spec/ir.md`, Truth)."),
    _row("and", "value…", "The first false operand, else the last; all operands are evaluated."),
    _row("or", "value…", "The first true operand, else the last; all operands are evaluated."),
    _row("box", "value", "A new box with a value; `setbox` replaces the value."),
    _row(
        "dynamic_box",
        "value",
        "A new box that has a separate value in each strand; a new strand inherits the value.",
    ),
    _row("unbox", "box", "The content of a box."),
    _row("unset_box", "", "A new box without content."),
    _row(
        "unbox_set",
        "box variable",
        "The content of a box; fault `uninitialised`, which names `variable`, if the box has no content.",
    ),
    # functions
    _row(
        "applied",
        "function list",
        "A function with additional arguments, the items of the list; they follow the arguments of the call.",
    ),
    _row(
        "operate",
        "primitive list",
        "The result of a primitive, given by name, for the items of a list; `operate` itself is not allowed.",
    ),
    # numbers and order
    _row("add", "number…", "The sum."),
    _row("sub", "number number…", "The first number minus all others; with one operand, its negative."),
    _row("mul", "number…", "The product."),
    _row(
        "div",
        "number number…",
        "The first number divided by all others; with one operand, 1 divided by it. An integer if all "
        "operands are integers and the result is whole, else a float; fault `division-by-zero`.",
    ),
    _row("quotient", "number number", "The quotient of two integers, rounded towards 0."),
    _row("remainder", "number number", "The remainder of `quotient`; it has the sign of the first operand."),
    _row(
        "modulo",
        "number number",
        "The remainder of a division that is rounded down; it has the sign of the second operand.",
    ),
    _row("gcd", "number…", "The greatest common divisor of integers."),
    _row("lcm", "number…", "The least common multiple of integers."),
    _row("abs", "number", "The absolute value."),
    _row(
        "min",
        "number number…",
        "The smallest number; a float if one operand is a float and the result is exact as a float.",
    ),
    _row(
        "max",
        "number number…",
        "The largest number; a float if one operand is a float and the result is exact as a float.",
    ),
    _row("round", "number", "The nearest whole number, ties to even; the type of the operand is kept."),
    _row(
        "floor", "number", "The largest whole number not above the operand; the type of the operand is kept."
    ),
    _row(
        "ceiling",
        "number",
        "The smallest whole number not below the operand; the type of the operand is kept.",
    ),
    _row("truncate", "number", "The number rounded towards 0; the type of the operand is kept."),
    _row("exact", "number", "The integer that equals a number; a fault if there is none."),
    _row("inexact", "number", "The nearest float."),
    _row(
        "expt",
        "number number",
        "The first number to the power of the second; an integer if both are integers and the result is "
        "whole.",
    ),
    _row("sqrt", "number", "The square root; an integer if the result is whole; fault `no-real-number`."),
    _row("num_eq", "number number…", "Whether all numbers are equal."),
    _row("lt", "number number…", "Whether each number is less than the next."),
    _row("le", "number number…", "Whether each number is less than or equal to the next."),
    _row("gt", "number number…", "Whether each number is greater than the next."),
    _row("ge", "number number…", "Whether each number is greater than or equal to the next."),
    _row("is_zero", "number", "Whether a number is 0."),
    _row("is_positive", "number", "Whether a number is greater than 0."),
    _row("is_negative", "number", "Whether a number is less than 0."),
    _row("is_even", "number", "Whether an integer is even."),
    _row("is_odd", "number", "Whether an integer is odd."),
    # lists
    _row("list", "item…", "A list of the operands."),
    _row("cons", "item list", "A list with the item before the items of another list."),
    _row("first", "list", "The first item; fault `empty-list`."),
    _row("rest", "list", "All but the first item; fault `empty-list`."),
    _row("second", "list", "The second item; fault `out-of-range`."),
    _row("third", "list", "The third item; fault `out-of-range`."),
    _row("rest_of_rest", "list", "All but the first two items; fault `out-of-range`."),
    _row("last", "list", "The last item; fault `empty-list`."),
    _row("array", "list", "The same list, stored so that access by index takes constant time."),
    _row(
        "nth",
        "index list",
        "The item at an index, counted from 0; operands in either order; fault `out-of-range`.",
    ),
    _row("length", "list", "The number of items."),
    _row("append", "list…", "The concatenation of lists."),
    _row("reverse", "list", "The items in reverse order."),
    _row(
        "take",
        "count list",
        "The first `count` items, or all items if there are fewer; operands in either order.",
    ),
    _row("drop", "count list", "All but the first `count` items; operands in either order."),
    _row(
        "list_tail", "list count", "All but the first `count` items; fault `out-of-range` if there are fewer."
    ),
    _row(
        "range",
        "start end? step?",
        "Numbers from `start` to `end` (exclusive) in steps of `step`, default 1. With one operand, "
        "numbers from 0 to it.",
    ),
    _row(
        "member",
        "item list",
        "The tail of a list that begins with the first item equal to `item`, else false.",
    ),
    _row("index_of", "item list", "The index of the first item equal to `item`, else null."),
    _row("assoc", "key list", "The first item that is a list whose first item equals `key`, else false."),
    _row("unique", "list", "The items without later duplicates."),
    _row("flatten", "list", "The items of a list and of all lists nested in it, in one list."),
    _row(
        "zip",
        "list list…",
        "The list of all first items, of all second items, and so on, to the end of the shortest list.",
    ),
    _row("sorted", "list", "Numbers, or strings, in ascending order."),
    _row("is_pair", "value", "Whether a value is a non-empty list."),
    _row("is_nil", "value", "Whether a value is null or the empty list."),
    _row("is_empty", "value", "Whether a list, map or string is empty."),
    # maps
    _row("map", "key-value…", "A map from alternating keys (strings) and values."),
    _row("get", "map key", "The value of a key; null if the map is null or has no such key."),
    _row(
        "get_or",
        "map key default?",
        "The value of a key, a string or symbol; the default, or null, if there is none.",
    ),
    _row("put", "map key value", "The map with one entry added or replaced; null counts as the empty map."),
    _row("remove", "map key", "The map without the entry of a key."),
    _row("has_key", "map key", "Whether a map has a key."),
    _row("keys", "map", "The keys, in order."),
    _row("values", "map", "The values, in order."),
    _row("entries", "map", "A list with a list of key and value for each entry."),
    _row(
        "from_entries",
        "list",
        "A map from a list of lists of key and value; a later entry replaces an earlier one.",
    ),
    _row("merge", "map…", "The entries of all maps; a later entry replaces an earlier one."),
    _row("without_nulls", "map", "The map without the entries whose value is null."),
    _row(
        "get_field",
        "value path",
        "The field of a map or association list, or the item of a list, by a path of names with dots; "
        "null if there is none.",
    ),
    # text
    _row("concat", "value…", "The concatenation of the texts of the operands; see `text`."),
    _row(
        "text",
        "value",
        "A value as interpolation shows it: a string unchanged, null as empty text, a list or map as JSON.",
    ),
    _row("to_string", "value", "A value in the notation of the language, but a string unchanged."),
    _row(
        "string_append",
        "value…",
        "The concatenation of strings, symbols, numbers, booleans and null (empty).",
    ),
    _row(
        "join",
        "list separator?",
        "The items, converted as by `string_append`, joined with a separator (default: a blank); operands"
        " in either order.",
    ),
    _row(
        "format",
        "template value…",
        "A template with inserted values: `~a` as by `to_string`, `~s` with strings in quotes, `~%` a "
        "line end, `~~` a tilde; faults `bad-format`, `arity`.",
    ),
    _row("trim_newline", "text", "A text without one final newline; other values are unchanged."),
    _row("tail", "text count", "The last `count` characters of a text."),
    _row("head_lines", "text count", "The first `count` lines of a text."),
    _row("tail_lines", "text count", "The last `count` lines of a text."),
    _row(
        "head_bytes", "text count", "The first `count` bytes of a text in UTF-8, cut at a character boundary."
    ),
    _row(
        "tail_bytes", "text count", "The last `count` bytes of a text in UTF-8, cut at a character boundary."
    ),
    _row(
        "check_report",
        "action",
        "Report of a check for the prompt of an agent: its command, exit code and the end of its output, "
        "limited in length, without control characters, each line marked as data; empty for null.",
    ),
    _row("duration", "milliseconds", "A duration in readable form, such as `2m 34s`."),
    _row("string_length", "string", "The number of characters."),
    _row(
        "substring",
        "string start end?",
        "The characters from `start` to `end` (exclusive; default: the end of the string); fault `out-of-"
        "range`.",
    ),
    _row(
        "split",
        "string separator?",
        "The parts between separators; split at white space without a separator, into characters with an "
        "empty one.",
    ),
    _row("lines", "string", "The lines, without line ends."),
    _row("trim", "string", "A string without leading and trailing white space."),
    _row("replace", "string old new", "A string with all occurrences of `old` replaced by `new`."),
    _row("upper", "string", "A string in upper case."),
    _row("lower", "string", "A string in lower case."),
    _row(
        "contains", "string part", "Whether a string contains a substring, or a list contains an equal item."
    ),
    _row("starts_with", "string prefix", "Whether a string begins with another."),
    _row("ends_with", "string suffix", "Whether a string ends with another."),
    _row("string_eq", "string string…", "Whether all strings are equal."),
    _row(
        "string_lt", "string string…", "Whether each string is before the next in the order of code points."
    ),
    _row("to_symbol", "string", "The symbol with a name."),
    _row("symbol_name", "symbol", "The name of a symbol."),
    _row("parse_number", "string", "The number that a string denotes in decimal, else null."),
    _row("json_parse", "string", "The value of a JSON text; fault `bad-json`."),
    _row(
        "json_format",
        "value indent?",
        "A value as JSON, in one line or indented by `indent` spaces; a symbol becomes its name.",
    ),
    _row(
        "regex_match",
        "pattern string",
        "The first match of an RE2 expression and its groups; null if there is none; fault `bad-pattern`.",
    ),
    _row("regex_find_all", "pattern string", "All matches; each with its groups if there are groups."),
    _row(
        "regex_replace",
        "pattern string replacement",
        "A string with all matches replaced; `\\1` in the replacement inserts a group.",
    ),
    # words of a shell
    _row(
        "shell_word",
        "value",
        "The text as one unquoted word of a shell command; fault `unsendable-text` if it contains NUL.",
    ),
    _row("shell_single", "value", "The text for a position inside single quotes; fault `unsendable-text`."),
    _row("shell_double", "value", "The text for a position inside double quotes; fault `unsendable-text`."),
    _row(
        "shell_heredoc",
        "value",
        "The text for a here-document with an unquoted delimiter; fault `unsendable-text`.",
    ),
    _row(
        "shell_quoted_heredoc",
        "value delimiter before after",
        "The text, unchanged, for a here-document with a quoted delimiter; fault `unsendable-text` if a "
        "line of it, together with the text before and after it (null: another value), could be the "
        "delimiter.",
    ),
    _row(
        "shell_plain",
        "value blanks",
        "The text for a position that is code; fault `unsendable-text` unless all characters are ASCII "
        "letters, digits, or among `_./:@%+,=-` and `blanks`.",
    ),
    _row(
        "shell_number",
        "value",
        "The digits of an integer, for a position where quoting is impossible; fault `not-a-number` for "
        "other values.",
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
        "`exit_code`: verdict for the exit code of an action result; null lists mean [0] and [1].",
    ),
    _row(
        "judge_numeric",
        "text operator target stderr?",
        "`output_numeric`: compares the number in an output with a target.",
    ),
    _row(
        "judge_contains",
        "text pattern match negate truncated",
        "`output_contains`: searches a text for a substring or an RE2 expression.",
    ),
    _row(
        "number_after", "text key", "The last number after `key=` in a text, as text; null if there is none."
    ),
    _row(
        "judge_error_text",
        "result text texts",
        "`output_contains`: `error` instead of `failure` if the text contains one of `texts`.",
    ),
    _row("judge_line", "text line", "`classify`: a line of a text as the verdict."),
    _row(
        "judge_history",
        "text most epsilon is_falling",
        "`score_stall`: whether the last `most` numbers of a text are no better than the best number "
        "before them.",
    ),
    _row(
        "judge_failed_exit",
        "action",
        "The `error` result of an action that crashed or exited with a code other than 0; else null.",
    ),
    _row(
        "judge_json",
        "reply path operator target",
        "`output_json`: compares a jq reply {value} or {error} with a target.",
    ),
    _row(
        "judge_convergence",
        "text target tolerance previous last direction stderr?",
        "`convergence`: compares a measurement with the target and the previous measurement.",
    ),
    _row(
        "judge_model",
        "reply min_confidence uncertain_suffix",
        "`llm_structured`: a model's reply {reply} or {error} as a result.",
    ),
    _row(
        "judge_crash",
        "action",
        "The `error` result of an action that crashed, was ended, or could not start; else null.",
    ),
    _row("unrouted", "state result", "The fault map for a result whose verdict has no route."),
    _row("judge_fault", "fault", "The `error` result for a fault caught in a state."),
    _row("digest", "text", "The SHA-256 digest of a text in UTF-8, in hexadecimal digits."),
)

PRIMITIVES = {row.name: row for row in ROWS}

if len(PRIMITIVES) != len(ROWS):
    raise AssertionError("a primitive is declared twice")
