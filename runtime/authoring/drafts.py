"""Drafts: new loops before they are saved; conversion of plain data to checked YAML (`spec/create.md`).

Owns the order of the keys, the rules for names of new loops, and the protection of existing files. `creation`
owns where the data come from.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...frontend.compile import Compiled
from ...frontend.loop.evaluator_schema import EVALUATORS
from ...frontend.loop.paradigms import PARADIGMS, slug
from ...frontend.loop.schema import LoopSettings, StateSpec
from ...frontend.source.schema import Spec, fields_of
from ...frontend.source.yaml_writer import Word, as_word, entry
from ...ir.light_records import LightRecord
from ..host import files
from ..host.errors import Failure, UserError, reason
from ..host.paths import COMPILED_SUFFIXES, LOOPS, SOURCE_SUFFIXES
from ..journal.journal import write_file
from ..project.compilation import compile_text
from ..project.dry_run import as_text, plan_of
from ..project.load import compile_options

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NAME_CHARS = 80
_NAME = re.compile(r"\w[\w.-]*")
_RESERVED = ("config", "tools")
# Keys whose values are words of the schema, which need no quotation marks.
_BLOCKS: tuple[type[Spec], ...] = (StateSpec, *EVALUATORS.values())
_WORD_KEYS = {"type"}.union(
    key for block in _BLOCKS for key, field in fields_of(block).items() if field.type.kind == "choice"
)
_FIRST_KEYS = ("paradigm", "name", "description")
_NOTHING_RUN = "Nothing was run."


class Draft(LightRecord):
    """A loop that is not saved. name: name of the loop and of its file. compiled: None if not compiled."""

    name: str
    paradigm: str
    text: str
    compiled: Compiled | None

    @property
    def path(self) -> str:
        return path_of(self.name)

    def states(self) -> str:
        """Text that describes the states of the compiled loop."""
        if self.compiled is None:
            return ""
        return as_text(plan_of(self.compiled.program)).rstrip().removesuffix(_NOTHING_RUN).rstrip() + "\n"


def draft(data: Mapping[str, Any]) -> Draft:
    """The draft of plain data. Raises CompileError for an invalid loop, UserError for an invalid name."""
    name = str(data.get("name") or "")
    check_name(name)
    return of_text(name, yaml_of(data))


def of_text(name: str, text: str) -> Draft:
    """The draft of a YAML text. Raises CompileError for an invalid loop."""
    compiled = compile_text(text, path_of(name), compile_options())
    return Draft(name, compiled.program.meta.paradigm or "fsm", text, compiled)


def path_of(name: str) -> str:
    """The file of a new loop with this name."""
    return os.path.join(LOOPS, f"{name}.yaml")


def yaml_of(data: Mapping[str, Any]) -> str:
    """The data as YAML, with the keys in the order of `_ordered`."""
    lines: list[str] = []
    for key in _ordered(data):
        value = data[key]
        if value is None:
            continue
        is_word = key == "paradigm" and isinstance(value, str)
        lines += entry(key, Word(value) if is_word and value in PARADIGMS else _unquote_words(key, value), 0)
    return "\n".join(lines) + "\n"


def _ordered(data: Mapping[str, Any]) -> Iterator[str]:
    """The keys: name and description, keys of the paradigm, settings, unknown keys; each in schema order."""
    cls = PARADIGMS.get(str(data.get("paradigm") or "fsm"), LoopSettings)
    known = list(fields_of(cls))
    settings = [key for key in fields_of(LoopSettings) if key not in _FIRST_KEYS]
    own = [key for key in known if key not in settings and key not in _FIRST_KEYS]
    order = dict.fromkeys((*_FIRST_KEYS, *own, *settings, *data))
    return (key for key in order if key in data)


def _unquote_words(key: str, value: Any) -> Any:
    """The value, with the words of the schema in it marked to be written without quotation marks."""
    if isinstance(value, dict):
        return {str(name): _unquote_words(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unquote_words("", item) for item in value]
    return as_word(value) if key in _WORD_KEYS and isinstance(value, str) else value


# --- names ------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raise UserError if a new loop cannot have this name."""
    problem = problem_of_name(name)
    if problem is not None:
        better = fit_name(name)
        help = f"such as `{better}`" if better else "such as `fix-types`"
        raise UserError("bad-name", problem, help)


def problem_of_name(name: str) -> str | None:
    """The problem of a name; None if it is valid."""
    shown = name if len(name) <= 40 else name[:40] + "…"
    if not name:
        return "the loop has no name"
    if len(name) > MAX_NAME_CHARS or len(name.encode("utf-8", "replace")) > 2 * MAX_NAME_CHARS:
        return f"the name `{_printable(shown)}` is longer than {MAX_NAME_CHARS} characters"
    if not _NAME.fullmatch(name) or not name.isprintable() or name.endswith("."):
        return f"a loop cannot be called `{_printable(shown)}`: a name is letters, digits and `_ . -`"
    if name in _RESERVED:
        return f"a loop cannot be called `{name}`: {LOOPS}/{name}.yaml is a file of llc"
    if name.endswith((".fsm", *SOURCE_SUFFIXES, *COMPILED_SUFFIXES)):
        return f"a loop cannot be called `{name}`: omit the file suffix"
    return None


def fit_name(text: str) -> str:
    """A valid name made of the words of a text; '' if that is impossible."""
    name = slug(text)
    return "" if problem_of_name(name) else name


def _printable(text: str) -> str:
    return "".join(ch if ch.isprintable() else "�" for ch in text)


# --- files ------------------------------------------------------------------------------------


def file_of(name: str) -> str | None:
    """The existing file with this loop name; None if the name is free."""
    for suffix in SOURCE_SUFFIXES:
        path = os.path.join(LOOPS, name + suffix)
        if files.lexists(path):
            return path
    return None


def refuse_taken(name: str, may_replace: bool) -> None:
    """Raise UserError if saving a loop would replace a file, or hide one with another suffix."""
    path = file_of(name)
    own = path_of(name)
    if path is None or (may_replace and path == own and files.isfile(path)):
        return
    if path != own or not files.isfile(path):
        raise Failure("loop-exists", f"{path} already has this name", "choose another: --name NAME")
    help = "--force replaces it; --name NAME gives another name"
    raise Failure("loop-exists", f"{path} exists", help)


def save(draft: Draft, may_replace: bool = False) -> str:
    """Write a draft to its file; return the path. Raises UserError if this is impossible."""
    refuse_taken(draft.name, may_replace)
    try:
        files.makedirs(LOOPS, exist_ok=True)
        if not may_replace:
            # Do not replace a file that another process has created meanwhile.
            files.close(files.open_handle(draft.path, files.O_WRONLY | files.O_CREAT | files.O_EXCL, 0o666))
    except FileExistsError:
        if files.isdir(LOOPS):
            refuse_taken(draft.name, may_replace)
        raise Failure("cannot-write", f"{LOOPS} is not a folder") from None
    except OSError as error:
        message = f"cannot write {draft.path}: {reason(error)}"
        raise Failure("cannot-write", message) from None
    write_file(draft.path, draft.text.encode())
    return draft.path
