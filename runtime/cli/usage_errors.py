"""Words that cannot be read as a command, as errors like all others: what is wrong, and how it is right.

Owns what is said where the command-line library refuses. It tells why by the class of its error and a
few attributes; in one case, a value that is none of its kind, only by its text.
"""

from __future__ import annotations

import re
from typing import Any

from ...ir.diagnostics import clean, nearest
from ..host.errors import UserError
from ..host.secrets import masked
from .declare import declared
from .help import HELP

_EXTRA = re.compile(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_BOUND = re.compile(r"(?:equal to |>= ?)(-?[\d.]+)")
_LONGEST = 60


def refusal(error: Any, command: Any, words: list[str]) -> UserError:
    """What a usage error of the library says. command: the whole program's; words: what was written."""
    verb = command.commands.get(words[0]) if words else None
    context = error.ctx
    path = context.command_path if context is not None else words[0] if words else "llc"
    own = verb if verb is not None else command
    name = type(error).__name__
    if name == "NoSuchOption":
        return _unknown_option(error.option_name, path, own)
    if name == "BadOptionUsage":
        return _wants_value(error.option_name, own)
    if name == "MissingParameter":
        param = error.param
        what = _name(param)
        return UserError("missing-argument", f"`{path}` needs {what}", _about(param, verb))
    if name == "BadParameter" and error.param is not None:
        option = _name(error.param)
        given = _value(error.param.opts, words)
        shown = f", not `{_shown(given)}`" if given is not None else ""
        return UserError("bad-option", f"{option} {_kind(error.message)}{shown}", _about(error.param, None))
    extra = _EXTRA.search(error.message)
    if extra is not None and context is not None:
        usage = " ".join(context.get_usage().removeprefix("Usage:").split())
        return UserError("bad-argument", f"`{_shown(extra[1])}` is too much", f"it is: {usage}")
    return UserError("bad-usage", clean(masked(error.format_message())), f"see `{path} --help`")


def _unknown_option(name: str, path: str, command: Any) -> UserError:
    known = [one for param in command.params for one in param.opts if one.startswith("-")]
    known += HELP.names
    found = nearest(name, [one for one in known if one.startswith("--") == name.startswith("--")])
    help = f"did you mean `{found}`?" if found is not None else f"`{path} --help` tells which it has"
    return UserError("unknown-option", f"`{path}` has no option `{_shown(name)}`", help)


def _wants_value(name: str, command: Any) -> UserError:
    if name in HELP.names:
        return UserError("bad-option", f"{name} takes no value")
    param = next((param for param in command.params if name in param.opts), None)
    if param is not None and getattr(param, "is_flag", False):
        return UserError("bad-option", f"{name} takes no value", _about(param, None))
    metavar = getattr(param, "metavar", None)
    what = f": {name} {metavar}" if metavar else ""
    return UserError("bad-option", f"{name} needs a value{what}", _about(param, None))


def _kind(message: str) -> str:
    """What a value has to be, by what the library says of one that is not."""
    bound = _BOUND.search(message)
    if bound is not None:
        return f"is at least {bound[1]}"
    if "integer" in message:
        return "is a whole number"
    return "is a number" if "number" in message or "float" in message else "has another kind of value"


def _value(names: list[str], words: list[str]) -> str | None:
    """The last value that the words give to an option."""
    found = None
    for index, word in enumerate(words):
        name, sign, value = word.partition("=")
        if sign and name in names:
            found = value
        elif word in names and index + 1 < len(words):
            found = words[index + 1]
    return found


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar or param.name)
    return str(param.opts[0])


def _about(param: Any, verb: Any) -> str | None:
    """What a parameter is by its help, and how the verb looks with it."""
    text = str(getattr(param, "help", None) or "").rstrip(".")
    example = next(iter(declared[verb.name].examples), None) if verb is not None else None
    such = f"such as `{example}`" if example else ""
    return "; ".join(part for part in (text[:1].lower() + text[1:], such) if part) or None


def _shown(text: str) -> str:
    text = clean(masked(text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
