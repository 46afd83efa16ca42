"""Parser of task lines: `user:review diff=… --strict`, or an expression; `spec/task.md`.

Owns the syntax of a task line, from a shell or in a session, and its conversion to a call in the language,
which is compiled like any program. Must not contain: execution (`launch.task`).
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...frontend.sexp.completeness import Pending
from ...frontend.tasks.mcp_servers import PREFIX
from ...frontend.tasks.names import is_parameter_name
from ...frontend.tasks.registry import TaskRegistry
from ...frontend.tasks.signature import TYPES, Parameter, Signature, fits
from ...ir.diagnostics import CompileError, clean, suggest
from ...ir.light_records import LightRecord, field
from ...ir.spelling import spell_string
from ..host.errors import UserError
from ..host.paths import LOOPS
from ..project.options import FLAG, CommandParameter
from .tool_listing import as_text

# Options of llc that may follow a task's name in a session.
SESSION_OPTIONS = (CommandParameter("json", ("--json",), FLAG, "Write JSON."),)
HELP = ("--help", "-h")
_JSON_BEGINS = ("[", "{", '"')
_KEY = re.compile(r"([^\s=\"'\[{(]+)=")
_BOOLEAN_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_MAX_SHOWN_CHARACTERS = 60
_NOTHING: Mapping[str, Any] = {}


class Call(LightRecord):
    """A parsed task line.

    name: the name of the run. text: the call as a program. llc_options: llc's own options. signature: of the
    task; None for an expression. wants_help: whether the line has `--help`.
    """

    name: str
    text: str
    llc_options: dict[str, Any] = field(factory=dict)
    signature: Signature | None = None
    wants_help: bool = False


def is_expression(text: str) -> bool:
    """Whether a line is an S-expression: it begins with `(` or `'(`."""
    return text.lstrip().startswith(("(", "'("))


def expression(text: str) -> str:
    """The program of an expression line: without surrounding quotation marks, columns unchanged."""
    rest = text.lstrip()
    if not rest.startswith("'("):
        return text
    space = text[: len(text) - len(rest)]
    body = rest[1:].rstrip()
    return f"{space} {body.removesuffix(chr(39))}"


def read(
    words: Sequence[str],
    declared: TaskRegistry | None = None,
    declarations: Iterable[str] = (),
    own: Mapping[str, Any] = _NOTHING,
    options: Sequence[CommandParameter] = (),
) -> Call:
    """Parse the words of a shell.

    Args:
        words: the name of a task, or an expression, and its arguments.
        declared: the known tools and tasks; by default those of the project and of the files `sides`.
        declarations: texts of `--declare`.
        own: the definitions of a session.
        options: options of llc that are accepted unless the task has a parameter of the same name.

    Raises UserError, and CompileError for errors in the project's files.
    """
    first, rest = words[0], list(words[1:])
    if not is_expression(first):
        if declared is None:
            declared = TaskRegistry(LOOPS, [*declarations, *_declared_in(rest)])
        if declared.wrong:
            raise CompileError(declared.wrong)
        signature = find(first, declared, own.get(first))
        return _named(signature, *_split(rest, signature, options), options)
    more, llc_options, wants_help = _split(rest, None, options)
    if more:
        raise _refused(
            f"unexpected argument `{_short(more[0][0])}` after an expression",
            "an expression is one argument; put it in quotation marks, as in llc task '(+ 1 2)'",
        )
    call = Call("expression", expression(first))
    call.llc_options, call.wants_help = llc_options, wants_help
    return call


def read_text(text: str, declared: TaskRegistry, own: Mapping[str, Any] = _NOTHING) -> Call:
    """Parse a line of a session, without `/task`."""
    if is_expression(text):
        return Call("expression", expression(text))
    return read(split(text), declared, own=own, options=SESSION_OPTIONS)


def is_complete(text: str) -> bool:
    """Whether a line of a session, without `/task`, is complete. A call by name is always one line."""
    return not is_expression(text) or Pending(expression(text)).is_complete


# --- words ------------------------------------------------------------------------------------


def split(text: str) -> list[str]:
    """Split a line into words like a shell, but JSON after `=` needs no quotation marks."""
    words: list[str] = []
    at = 0
    decoder = json.JSONDecoder()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        key = _KEY.match(text, at)
        if key is not None and text.startswith(_JSON_BEGINS, key.end()):
            try:
                _, end = decoder.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                end = 0
            if end and (end == len(text) or text[end].isspace()):
                words.append(text[at:end])
                at = end
                continue
        word, at = _word(text, at)
        words.append(word)
    return words


def _word(text: str, at: int) -> tuple[str, int]:
    """The word at a position, without quotation marks, and the position of its end."""
    end = at
    quote = ""
    while end < len(text) and (quote or not text[end].isspace()):
        ch = text[end]
        if quote:
            end += 1 if ch != "\\" or quote == "'" else 2
            quote = "" if ch == quote else quote
        else:
            quote = ch if ch in "\"'" else ""
            end += 2 if ch == "\\" else 1
    if quote or end > len(text):
        raise _refused(f"`{_short(text[at:])}` has an unclosed quotation mark", None)
    return "".join(shlex.split(text[at:end])), end


def _declared_in(words: list[str]) -> list[str]:
    """The values of `--declare`: they determine the parameters that the other words may have."""
    name = "--declare"
    pairs = [after for word, after in itertools.pairwise(words) if word == name]
    return pairs + [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def _split(
    words: list[str], signature: Signature | None, options: Sequence[CommandParameter]
) -> tuple[list[tuple[str, str | None]], dict[str, Any], bool]:
    """Split the arguments: those of the task as (key, text), llc's own options, whether help is requested.

    The text of a flag is None. A flag that both the task and llc have belongs to the task.
    """
    own: list[tuple[str, str | None]] = []
    known = {name: row for row in options for name in row.names}
    llc_options: dict[str, Any] = {}
    wants_help = False
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, sign, value = word.partition("=")
        row = known.get(name)
        if word in HELP:
            wants_help = True
        elif row is None or (signature is not None and signature.parameter(name.lstrip("-")) is not None):
            own.append((name, value if sign else None))
        elif row.kind == FLAG:
            llc_options[row.name] = True
        else:
            if not sign and not queue:
                raise _refused(f"{name} needs a value", None)
            found = _read(row, value if sign else queue.pop(0))
            llc_options[row.name] = [*llc_options.get(row.name, ()), found] if row.is_repeated else found
    return own, llc_options, wants_help


def _read(row: CommandParameter, text: str) -> Any:
    try:
        return row.read(text)
    except ValueError as error:
        raise _refused(f"{row.names[0]} must be {error}, not `{_short(text)}`", None) from None


# --- a call by name ---------------------------------------------------------------------------


def find(name: str, declared: TaskRegistry, own: Any = None) -> Signature:
    """The signature of a task or tool. Raises UserError for an unknown name, or CompileError if a file with
    errors may declare it.
    """
    signature = declared.find(name, own if isinstance(own, Signature) else None)
    if signature is None and declared.found is not None and declared.is_broken:
        raise CompileError(declared.found.diagnostics, declared.found.sources)
    if signature is None and name.startswith(PREFIX):
        message, help = declared.mcp.explain_missing(clean(name, _MAX_SHOWN_CHARACTERS))
        raise UserError("unknown-mcp-tool", message, help)
    if signature is None:
        help = suggest(name, declared.names(), "there are")
        raise UserError("unknown-task", f"no task or tool is called `{_short(name)}`", help)
    return signature


def usage(signature: Signature) -> str:
    """The usage of a task on one line."""
    parts = [signature.name]
    for parameter in signature.order:
        shown = f"{parameter.name}=…" if parameter.type != "boolean" else f"--{parameter.name}"
        parts.append(shown if parameter.is_required else f"[{shown}]")
    if signature.parameters is None:
        parts.append("[name=value]…")
    return " ".join(parts)


def help_text(call: Call, command: str) -> str:
    """The output of `--help` after a name: the usage with this command, and the parameters."""
    if call.signature is None:
        return "An expression takes no parameters; see `llc task --help`.\n"
    return f"Usage: {command} {usage(call.signature)}\n\n" + as_text([call.signature], True)


def _named(
    signature: Signature,
    words: list[tuple[str, str | None]],
    llc_options: dict[str, Any],
    wants_help: bool,
    options: Sequence[CommandParameter],
) -> Call:
    call = Call(signature.name, "")
    call.signature, call.llc_options, call.wants_help = signature, llc_options, wants_help
    if wants_help:
        return call
    values: dict[str, Any] = {}
    for word, text in words:
        key = _key(word, text, signature, options)
        if key in values:
            raise _refused(f"duplicate argument `{key}`", None)
        values[key] = _value(key, text, signature)
    missing = [p.name for p in signature.order if p.is_required and p.name not in values]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise _refused(f"`{signature.name}` needs {names}", f"write {usage(signature)}")
    parts = [f"({key} {written(value)})" for key, value in values.items()]
    call.text = f"({' '.join([signature.name, *parts])})"
    return call


def _key(word: str, text: str | None, signature: Signature, options: Sequence[CommandParameter]) -> str:
    """The parameter for a word: `key` or `--key`; `-` matches `_`."""
    is_flag = word.startswith("-")
    if not is_flag and text is None:
        first = next((p.name for p in signature.order), "name")
        raise _refused(f"`{_short(word)}` has no `=`", f"write {first}={_short(word)}")
    bare = word.lstrip("-") if is_flag else word
    for key in (bare, bare.replace("-", "_")):
        if is_parameter_name(key) and signature.takes(key):
            return key
    known = [p.name for p in signature.order]
    if is_flag:
        known = [*(f"--{name}" for name in known), *(name for row in options for name in row.names)]
    help = suggest(word, known, "it has") or f"write {usage(signature)}"
    raise UserError("unknown-parameter", f"`{signature.name}` has no parameter `{_short(bare)}`", help)


def _value(key: str, text: str | None, signature: Signature) -> Any:
    parameter = signature.parameter(key)
    type = parameter.type if parameter is not None else "any"
    if parameter is None and signature.is_reserved(key):
        type = "list" if key == "files" else "map"
    value = True if text is None else _read_value(key, text, type)
    if type == "list" and isinstance(value, str):
        value = [value]
    if not fits(value, type):
        shown = "a flag" if text is None else f"`{_short(text)}`"
        raise _refused(f"`{key}` is {TYPES[type]}, not {shown}", _type_help(key, type))
    _check_choice(parameter, value)
    return value


def _read_value(key: str, text: str, type: str) -> Any:
    """The value of a text: as JSON if it begins like JSON, otherwise by the type of the parameter."""
    if text.startswith(_JSON_BEGINS):
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except RecursionError:
            raise _refused(f"`{key}` is nested too deep", None) from None
        except ValueError as error:
            help = f"write a text that begins with `{text[0]}` as JSON: {key}='{json.dumps(text[:20])}'"
            raise _refused(f"`{key}` is not valid JSON: {error}", help) from None
    match type:
        case "number" | "integer":
            try:
                number = json.loads(text, parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                return text
            return text if isinstance(number, bool) or not isinstance(number, int | float) else number
        case "boolean":
            return _BOOLEAN_WORDS.get(text.lower(), text)
    return text


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _type_help(key: str, type: str) -> str | None:
    examples = {
        "string": f"write {key}=text",
        "number": f"write {key}=1.5",
        "integer": f"write {key}=3",
        "boolean": f"write --{key}, {key}=true or {key}=false",
        "list": f"""write {key}='["a", "b"]'""",
        "map": f"""write {key}='{{"a": 1}}'""",
    }
    return examples.get(type)


def _check_choice(parameter: Parameter | None, value: Any) -> None:
    if parameter is not None and not parameter.allows(value):
        help = suggest(str(value), parameter.choices, "it may be")
        raise _refused(f"`{parameter.name}` cannot be `{_short(str(value))}`", help)


# --- values in the language -------------------------------------------------------------------


def written(value: Any) -> str:
    """An expression whose value is this plain data. Raises UserError if the language cannot represent it."""
    try:
        return _written(value)
    except RecursionError:
        raise _refused("a value is nested too deep", None) from None


def _written(value: Any) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _refused(f"`{_short(value)}` is not UTF-8", None) from None
        return spell_string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"({' '.join(['list', *map(_written, value)])})"
    if isinstance(value, dict):
        pairs = [f"({_written(key)} {_written(item)})" for key, item in value.items()]
        return f"({' '.join(['dict', *pairs])})"
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused("a number is too large", None)
    return repr(value)


def _short(text: str) -> str:
    return clean(text, _MAX_SHOWN_CHARACTERS)


def _refused(message: str, help: str | None) -> UserError:
    return UserError("bad-task", message, help)


# --- completion -------------------------------------------------------------------------------


def words_after(words: Sequence[str], declared: TaskRegistry, own: Mapping[str, Any] = _NOTHING) -> list[str]:
    """The candidates for the next word of a line: names of tasks, or the remaining parameters of its task."""
    if not words:
        return [*own_tasks(own), *declared.names()]
    mine = own.get(words[0])
    signature = declared.find(words[0], mine if isinstance(mine, Signature) else None)
    named = {word.partition("=")[0].lstrip("-") for word in words[1:]}
    found = []
    for parameter in signature.order if signature is not None else ():
        if parameter.name not in named:
            is_flag = parameter.type == "boolean"
            found.append(f"--{parameter.name}" if is_flag else f"{parameter.name}=")
    return found


def own_tasks(own: Mapping[str, Any]) -> list[str]:
    return [name for name, meaning in own.items() if isinstance(meaning, Signature)]


def completions(
    text: str, declared: TaskRegistry, own: Mapping[str, Any] = _NOTHING
) -> Iterator[tuple[str, int]]:
    """Completions of the last word of a session's line, each with the negative offset of the word."""
    if is_expression(text):
        word = re.split(r"[\s()\[\]'\"`,;]", text)[-1]
        known = [*own_tasks(own), *declared.names()] if word else []
    else:
        *words, word = [*text.split(), ""] if not text or text[-1].isspace() else text.split()
        known = words_after(words, declared, own)
    for candidate in known:
        if candidate.startswith(word):
            yield candidate, -len(word)
