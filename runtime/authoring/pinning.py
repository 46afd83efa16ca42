"""`llc create --pin`: a model translates loops written in words, and the answers are stored next to them.

Owns when the model is asked and the contents of a lock file; `frontend.loop.natural` owns its format. Nothing
else in llc asks a model in order to compile.
"""

from __future__ import annotations

import contextlib
import json
import os.path
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ...frontend.loop.natural import Pin, key_of, lock_path, pins_in, print_lock
from ...frontend.loop.paradigms import NaturalSpec
from ...frontend.loop.reader import read_loop
from ...frontend.source.document import Document
from ...frontend.source.files import read_source
from ...ir.diagnostics import CompileError
from ...ir.light_records import LightRecord
from ..host import files
from ..host.effect_context import Interrupted
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.paths import LOOPS
from ..host.screen import Screen, is_attended, printable
from ..host.secrets import masked
from ..journal.journal import write_file
from ..runs.loop_names import loop_files, resolve_loop
from .author import Author
from .describing import Described


class Words(LightRecord):
    """A loop in words, and its file."""

    path: str
    spec: NaturalSpec
    document: Document

    @property
    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    @property
    def lock(self) -> str:
        lock = lock_path(self.path)
        assert lock is not None
        return lock

    def is_pinned(self) -> bool:
        key = key_of(self.spec)
        return any(pin.key == key for pin in pins_in(self.lock))


def words_in(targets: Sequence[str]) -> list[Words]:
    """The loops in words among those named; without names, all of `.loops/`. UserError, CompileError."""
    paths = [resolve_loop(target) for target in targets] or list(loop_files().values())
    found = []
    for path in dict.fromkeys(paths):
        if not targets and path.endswith(".sexp"):
            continue
        source = read_source(path)
        spec, document, diagnostics = read_loop(source)
        if isinstance(spec, NaturalSpec):
            found.append(Words(path, spec, document))
        elif targets and spec is None:
            raise CompileError(diagnostics, [source])
        elif targets:
            raise UserError("not-natural", f"{path} is no loop in `paradigm: natural`", "it needs no pin")
    return found


def run(given: dict[str, Any]) -> int:
    """The verb with `--pin`; the exit code."""
    errors = Screen(sys.stderr)
    rows: list[dict[str, Any]] = []
    code = EXIT_OK
    author = Author(given["model"], errors)
    try:
        for words in words_in(given["loops"] or []):
            row = {"file": words.path, "lock": words.lock, "pinned": True, "model": None, "yaml": None}
            rows.append(row)
            if words.is_pinned() and not given["force"]:
                continue
            row["pinned"] = False
            made = _ask(words, author)
            if not given["json"]:
                shown = f"{words.path} reads as:\n\n{made.draft.text}\n{made.draft.states()}\n"
                errors.write(masked("\n".join(map(printable, shown.split("\n")))))
            if not _is_wanted(words, given):
                code = EXIT_FAILURE
                continue
            keep(words.path, made)
            row |= {"pinned": True, "model": made.model, "yaml": made.draft.text}
    except (KeyboardInterrupt, Interrupted):
        errors.write("\ninterrupted\n")
        code = EXIT_INTERRUPTED
    except EOFError:
        code = EXIT_FAILURE
    finally:
        author.close()
    out = Screen(sys.stdout)
    text = json.dumps(rows, indent=2, ensure_ascii=False) + "\n" if given["json"] else _as_text(rows)
    out.deliver(out.encode(masked(text)))
    return code


def _as_text(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"there is no loop in `paradigm: natural` in {LOOPS}/\n"
    lines = []
    for row in rows:
        what = "is not pinned"
        if row["pinned"]:
            what = f"pinned in {row['lock']}" if row["yaml"] else f"is pinned in {row['lock']} already"
        lines.append(f"{row['file']} {what}\n")
    return "".join(lines)


def _ask(words: Words, author: Author) -> Described:
    spec = words.spec
    name = spec.name or words.name
    return author.write(spec.description, f"{words.path}: ", name=name, tools=spec.tools or ())


def _is_wanted(words: Words, given: dict[str, Any]) -> bool:
    if given["yes"]:
        return True
    if not is_attended():
        raise UserError(
            "not-confirmed",
            f"{words.path} is not pinned: no terminal to confirm it",
            "--yes pins it",
        )
    from .menus import Menus

    return Menus().confirm(f"Pin this in {words.lock}?")


def keep(path: str, made: Described) -> None:
    """Pin what was made of the words in a file; what was pinned for them before goes. CompileError."""
    spec, document, found = read_loop(read_source(path))
    if not isinstance(spec, NaturalSpec):
        raise CompileError(found, [document.source])
    words = Words(path, spec, document)
    pin = Pin(key_of(spec), words.name, made.model, made.draft.text)
    with _alone(words.lock):
        others = [one for one in pins_in(words.lock) if one.key != pin.key and one.loop != words.name]
        pins = sorted((*others, pin), key=lambda one: (one.loop, one.key))
        write_file(words.lock, print_lock(pins).encode())


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Exclusive lock on the folder of a file, so that concurrent pins do not overwrite each other."""
    folder = files.open_handle(os.path.dirname(path) or ".", files.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system that has no locks
            files.flock(folder, files.LOCK_EX)
        yield
    finally:
        files.close(folder)
