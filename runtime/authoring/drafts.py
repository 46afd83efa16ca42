"""Loops that are being made: plain data as YAML, checked, shown and saved; `spec/create.md`.

Owns the order of the keys, what a new loop may be called, and that nothing is overwritten which was
not meant to be. Where the data come from is the business of `creating`.
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

LONGEST_NAME = 80
_NAME = re.compile(r"\w[\w.-]*")
_RESERVED = ("config", "tools")
# Words of the schema, which need no quotation marks.
_BLOCKS: tuple[type[Spec], ...] = (StateSpec, *EVALUATORS.values())
_WORDS = {"type"}.union(
    key for block in _BLOCKS for key, field in fields_of(block).items() if field.type.kind == "choice"
)
_FIRST = ("paradigm", "name", "description")
_NOTHING_RUN = "Nothing was run."


class Draft(LightRecord):
    """A loop that is not saved. name: what it is called, and its file."""

    name: str
    paradigm: str
    text: str
    compiled: Compiled | None

    @property
    def path(self) -> str:
        return path_of(self.name)

    def states(self) -> str:
        """The states that it compiles to, for people."""
        if self.compiled is None:
            return ""
        return as_text(plan_of(self.compiled.program)).rstrip().removesuffix(_NOTHING_RUN).rstrip() + "\n"


def draft(data: Mapping[str, Any]) -> Draft:
    """The draft of plain data. Raises CompileError where it is no loop, UserError for its name."""
    name = str(data.get("name") or "")
    check_name(name)
    return of_text(name, yaml_of(data))


def of_text(name: str, text: str) -> Draft:
    """The draft of the YAML of a loop. Raises CompileError where it is no loop."""
    compiled = compile_text(text, path_of(name), compile_options())
    return Draft(name, compiled.program.meta.paradigm or "fsm", text, compiled)


def path_of(name: str) -> str:
    """The file of the loop that is called so."""
    return os.path.join(LOOPS, f"{name}.yaml")


def yaml_of(data: Mapping[str, Any]) -> str:
    """The data as YAML, as a person would write it: what it is first, its settings last."""
    lines: list[str] = []
    for key in ordered(data):
        value = data[key]
        if value is None:
            continue
        is_word = key == "paradigm" and isinstance(value, str)
        lines += entry(key, Word(value) if is_word and value in PARADIGMS else _worded(key, value), 0)
    return "\n".join(lines) + "\n"


def ordered(data: Mapping[str, Any]) -> Iterator[str]:
    """The keys in the order of the schema; those that it does not know last."""
    cls = PARADIGMS.get(str(data.get("paradigm") or "fsm"), LoopSettings)
    known = list(fields_of(cls))
    settings = [key for key in fields_of(LoopSettings) if key not in _FIRST]
    own = [key for key in known if key not in settings and key not in _FIRST]
    order = dict.fromkeys((*_FIRST, *own, *settings, *data))
    return (key for key in order if key in data)


def _worded(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _worded(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_worded("", item) for item in value]
    return as_word(value) if key in _WORDS and isinstance(value, str) else value


# --- names ------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """UserError where no loop's file can have this name."""
    problem = problem_of_name(name)
    if problem is not None:
        better = fit_name(name)
        help = f"such as `{better}`" if better else "such as `fix-types`"
        raise UserError("bad-name", problem, help)


def problem_of_name(name: str) -> str | None:
    """What is wrong with a name, None if nothing is."""
    shown = name if len(name) <= 40 else name[:40] + "…"
    if not name:
        return "the loop has no name"
    if len(name) > LONGEST_NAME or len(name.encode("utf-8", "replace")) > 2 * LONGEST_NAME:
        return f"the name `{_printable(shown)}` is longer than {LONGEST_NAME} characters"
    if not _NAME.fullmatch(name) or not name.isprintable() or name.endswith("."):
        return f"a loop cannot be called `{_printable(shown)}`: a name is letters, digits and `_ . -`"
    if name in _RESERVED:
        return f"a loop cannot be called `{name}`: {LOOPS}/{name}.yaml is the project's own"
    if name.endswith((".fsm", *SOURCE_SUFFIXES, *COMPILED_SUFFIXES)):
        return f"a loop cannot be called `{name}`: the name is written without its ending"
    return None


def fit_name(text: str) -> str:
    """A name made of a text's words; '' where it has none."""
    name = slug(text)
    return "" if problem_of_name(name) else name


def _printable(text: str) -> str:
    return "".join(ch if ch.isprintable() else "�" for ch in text)


# --- files ------------------------------------------------------------------------------------


def taken(name: str) -> str | None:
    """The file that has a loop of this name already."""
    for suffix in SOURCE_SUFFIXES:
        path = os.path.join(LOOPS, name + suffix)
        if files.lexists(path):
            return path
    return None


def refuse_taken(name: str, may_replace: bool) -> None:
    """UserError where saving a loop would replace one, or hide one of another kind."""
    path = taken(name)
    own = path_of(name)
    if path is None or (may_replace and path == own and files.isfile(path)):
        return
    if path != own or not files.isfile(path):
        raise Failure("loop-exists", f"{path} has this name", "choose another: --name NAME")
    help = "--force replaces it; --name NAME gives another name"
    raise Failure("loop-exists", f"{path} is there already", help)


def save(made: Draft, may_replace: bool = False) -> str:
    """Write a draft to its file; its path. UserError where that is taken or cannot be written."""
    refuse_taken(made.name, may_replace)
    try:
        files.makedirs(LOOPS, exist_ok=True)
        if not may_replace:
            # A file that another process created meanwhile is kept.
            files.close(files.open_handle(made.path, files.O_WRONLY | files.O_CREAT | files.O_EXCL, 0o666))
    except FileExistsError:
        if files.isdir(LOOPS):
            refuse_taken(made.name, may_replace)
        raise Failure("cannot-write", f"{LOOPS} is no folder") from None
    except OSError as error:
        message = f"cannot write {made.path}: {reason(error)}"
        raise Failure("cannot-write", message) from None
    write_file(made.path, made.text.encode())
    return made.path
