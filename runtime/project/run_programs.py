"""The programs of a run: the images in its folder, or what its sources make of them again.

Owns what is trusted to be a run's program: the one with the hash that its journal tells. Where an image
is missing, damaged or another one, the run's source takes its place if it still makes that program.
"""

from __future__ import annotations

import contextlib
import os.path
import re

from ...vm.code.image import Image
from ..host import files
from ..host.errors import Failure, UserError
from ..host.paths import FIRST_IMAGE, ROOT, open_regular
from ..host.secrets import masked
from ..journal import journal as journals
from ..journal.codec import KIND, to_json
from ..journal.events import ProgramChanged, RunStart
from ..journal.journal import Blobs, JournalError
from ..journal.run_folder import start_of
from ..runs import program_file
from .load import load_expression, load_image, load_program
from .options import Values, given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    # File, state and name of each.
    Links = tuple[tuple[str, str, str], ...]

_NAME = re.compile(r"program(-\d{1,9})?\.llb")
# How the line of a change of the program begins, after the line before.
_CHANGED = b"\n" + to_json({KIND: ProgramChanged.name})[:-1]
# Bytes of a journal that are searched at once; the line of a change is never longer.
_BLOCK = 1 << 20


def load(run: str, journal: str, name: str = FIRST_IMAGE, warn: Callable[[str], None] | None = None) -> Image:
    """The program of a run in the file `name`, restored from the source if it is missing or damaged.

    warn: receives a note about that. Raises UserError if there is no program.
    """
    from ...ir.diagnostics import CompileError

    if not _NAME.fullmatch(name):
        raise Failure("no-program", f"{run} went on with a program of no usable name", None)
    path = os.path.join(os.path.dirname(journal), name)
    wanted = _hash(journal, name)
    try:
        image = load_image(path, root=ROOT)
        if wanted in (None, image.program_hash):
            return image
        trouble = UserError("wrong-program", f"{path} is not the program that the run had")
    except UserError as error:
        if error.id == "changed-secret":
            raise
        trouble = error if files.exists(path) else UserError("no-program", f"{run} has no {name}")
    except CompileError as error:
        trouble = UserError("bad-image", f"{path}: {error.diagnostics[0].message}")
    source, found = _made_again(journal, wanted)
    if isinstance(found, str):
        raise Failure(
            trouble.id,
            f"{trouble.message}, and {found}",
            f"bring back {path} or {source} as it was; {journal} is untouched",
        )
    if warn is not None:
        warn(f"note: {trouble.message}; made it again from {source}, which makes the same program")
    with contextlib.suppress(JournalError):
        journals.write_file(path, program_file.of(found), mode=0o600)
    return found


def source_now(start: Mapping[str, Any], outputs: str, links: Links = ()) -> Image:
    """What the source that a run began with (`run_start`) makes now, with the options of then.

    outputs: where its long texts are. links: loops that it has linked since. Raises UserError and
    CompileError.
    """
    try:
        told = [start.get(name) for name in ("overrides", "expression")]
        overrides, expression = journals.unpack(told, Blobs(outputs).fetch)
    except journals.BlobError as error:
        raise Failure("damaged-record", str(error)) from None
    path = str(start.get("path"))
    values = Values(path, **given(overrides), links=links)
    if expression is not None:
        return load_expression(str(expression), values, lambda text: None)
    return load_program(path, values, lambda text: None)


def _made_again(journal: str, wanted: str | None) -> tuple[str, Image | str]:
    """The path of a run's source, and the wanted program made from it; or why it cannot be."""
    from ...ir.diagnostics import CompileError

    start = start_of(journal)
    is_expression = "expression" in start
    path = "its expression" if is_expression else start.get("path")
    if not isinstance(path, str) or not path:
        return "its source", "its journal does not say what it was made from"
    if wanted is None:
        return path, "its journal does not say which program that was"
    if not is_expression and not files.isfile(os.path.join(ROOT, path)):
        return path, f"{path} is not there any more"
    try:
        image = source_now(start, os.path.join(os.path.dirname(journal), "outputs"), links(journal, wanted))
    except CompileError:
        return path, f"{path} is not valid now"
    except UserError as error:
        return path, f"{path} cannot be compiled: {masked(error.message)}"
    if image.program_hash != wanted:
        return path, f"{path} makes another program now"
    return path, image


def _hash(journal: str, name: str) -> str | None:
    """The hash of a run's program as its journal tells it."""
    told: Any = None
    if name == FIRST_IMAGE:
        told = RunStart.of(start_of(journal)).program_hash or None
    else:
        for event in _changes(journal):
            if event.image == name:
                told = event.program_hash
    return told if isinstance(told, str) else None


def links(journal: str, program_hash: str | None = None) -> Links:
    """The loops that a run linked, in order, until it had the program with that hash."""
    found: dict[tuple[str, str, str], None] = {}
    if RunStart.of(start_of(journal)).program_hash == program_hash is not None:
        return ()
    for event in _changes(journal):
        if isinstance(event.link, list) and list(map(type, event.link)) == [str, str, str]:
            found[tuple(event.link)] = None
        if event.program_hash == program_hash is not None:
            break
    return tuple(found)


def _changes(journal: str) -> Iterator[ProgramChanged]:
    """The changes of a run's program. The other lines, of which there may be very many, are passed over."""
    with contextlib.suppress(OSError), open_regular(journal) as file:
        rest = b""
        while block := file.read(_BLOCK):
            data = rest + block
            at = data.find(_CHANGED)
            while at >= 0 and (end := data.find(b"\n", at + 1)) >= 0:
                wire = journals.unseal(data[at + 1 : end])
                if wire is not None:
                    yield ProgramChanged.of(wire)
                at = data.find(_CHANGED, end)
            is_whole = at < 0 or len(data) - at > _BLOCK
            rest = data[1 - len(_CHANGED) :] if is_whole else data[at:]
