"""`llc create --pin`: have a model translate loops in paradigm `natural`, and store the results next to them.

Owns the requests and the contents of a lock file; `frontend.loop.natural` owns its format. No other part of
llc uses a model to compile a loop.
"""

from __future__ import annotations

import contextlib
import json
import os.path
import sys
from collections.abc import Callable, Iterator, Sequence
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
from .generation import GeneratedLoop
from .wizard import Asker


class NaturalLoop(LightRecord):
    """A loop in paradigm `natural`, with its file."""

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
        return any(entry.key == key for entry in pins_in(self.lock))


def _find_loops(targets: Sequence[str]) -> list[NaturalLoop]:
    """The named loops; without names, all natural loops of `.loops/`. Raises UserError and CompileError."""
    paths = [resolve_loop(target) for target in targets] or list(loop_files().values())
    loops = []
    for path in dict.fromkeys(paths):
        if not targets and path.endswith(".sexp"):
            continue
        source = read_source(path)
        spec, document, diagnostics = read_loop(source)
        if isinstance(spec, NaturalSpec):
            loops.append(NaturalLoop(path, spec, document))
        elif targets and spec is None:
            raise CompileError(diagnostics, [source])
        elif targets:
            raise UserError(
                "not-natural",
                f"{path} is not a loop in `paradigm: natural`",
                "only such a loop can be pinned",
            )
    return loops


def run(options: dict[str, Any], open_menus: Callable[[], Asker]) -> int:
    """Execute `llc create --pin`; return the exit code.

    options: the options by name. open_menus: returns menus for questions.
    """
    errors = Screen(sys.stderr)
    rows: list[dict[str, Any]] = []
    code = EXIT_OK
    author = Author(options["model"], errors)
    try:
        for loop in _find_loops(options["loops"] or []):
            row = {"file": loop.path, "lock": loop.lock, "pinned": True, "model": None, "yaml": None}
            rows.append(row)
            if loop.is_pinned() and not options["force"]:
                continue
            row["pinned"] = False
            generated = _generate(loop, author)
            if not options["json"]:
                text = f"{loop.path} reads as:\n\n{generated.draft.text}\n{generated.draft.states()}\n"
                errors.write(masked("\n".join(map(printable, text.split("\n")))))
            if not _is_confirmed(loop, options, open_menus):
                code = EXIT_FAILURE
                continue
            pin(loop.path, generated)
            row |= {"pinned": True, "model": generated.model, "yaml": generated.draft.text}
    except (KeyboardInterrupt, Interrupted):
        errors.write("\ninterrupted\n")
        code = EXIT_INTERRUPTED
    except EOFError:
        code = EXIT_FAILURE
    finally:
        author.close()
    out = Screen(sys.stdout)
    text = json.dumps(rows, indent=2, ensure_ascii=False) + "\n" if options["json"] else _as_text(rows)
    out.deliver(out.encode(masked(text)))
    return code


def _as_text(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"there is no loop in `paradigm: natural` in {LOOPS}/\n"
    lines = []
    for row in rows:
        status = "is not pinned"
        if row["pinned"]:
            status = f"pinned in {row['lock']}" if row["yaml"] else f"is already pinned in {row['lock']}"
        lines.append(f"{row['file']} {status}\n")
    return "".join(lines)


def _generate(loop: NaturalLoop, author: Author) -> GeneratedLoop:
    spec = loop.spec
    name = spec.name or loop.name
    return author.write(spec.description, f"{loop.path}: ", name=name, tools=spec.tools or ())


def _is_confirmed(loop: NaturalLoop, options: dict[str, Any], open_menus: Callable[[], Asker]) -> bool:
    if options["yes"]:
        return True
    if not is_attended():
        raise UserError(
            "not-confirmed", f"{loop.path} is not pinned: no terminal to confirm it", "--yes pins it"
        )
    return open_menus().confirm(f"Pin this in {loop.lock}?")


def pin(path: str, generated: GeneratedLoop) -> None:
    """Store the loop generated for a natural loop, in place of its previous pins. Raises CompileError."""
    spec, document, diagnostics = read_loop(read_source(path))
    if not isinstance(spec, NaturalSpec):
        raise CompileError(diagnostics, [document.source])
    loop = NaturalLoop(path, spec, document)
    new = Pin(key_of(spec), loop.name, generated.model, generated.draft.text)
    with _folder_lock(loop.lock):
        others = [other for other in pins_in(loop.lock) if other.key != new.key and other.loop != loop.name]
        pins = sorted((*others, new), key=lambda entry: (entry.loop, entry.key))
        write_file(loop.lock, print_lock(pins).encode())


@contextlib.contextmanager
def _folder_lock(path: str) -> Iterator[None]:
    """Exclusive lock on the folder of a file, so that concurrent pins do not overwrite each other."""
    folder = files.open_handle(os.path.dirname(path) or ".", files.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            files.flock(folder, files.LOCK_EX)
        yield
    finally:
        files.close(folder)
