"""Programs of a run: loads the images in its folder, or rebuilds them from the run's source.

Owns the trust in a program: it must have the hash that the journal records. If an image is missing, damaged
or has another hash, the source is compiled instead, provided that it still gives the recorded program.
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
from .options import Values, recorded_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    # (file, state, name) of each linked loop.
    Links = tuple[tuple[str, str, str], ...]

_IMAGE_NAME = re.compile(r"program(-\d{1,9})?\.llb")
# Prefix of the line of a `ProgramChanged` event, with the preceding newline.
_CHANGE_PREFIX = b"\n" + to_json({KIND: ProgramChanged.name})[:-1]
# Bytes of a journal that are searched at once; the line of a `ProgramChanged` event is never longer.
_BLOCK_BYTES = 1 << 20


def load(run: str, journal: str, name: str = FIRST_IMAGE, warn: Callable[[str], None] | None = None) -> Image:
    """Load the program of a run from the file `name`; rebuild it from the source if necessary.

    warn: receives a note about a rebuilt program. Raises UserError if there is no program.
    """
    from ...ir.diagnostics import CompileError

    if not _IMAGE_NAME.fullmatch(name):
        raise Failure("no-program", f"the journal of {run} names a program file with an invalid name", None)
    path = os.path.join(os.path.dirname(journal), name)
    wanted = _recorded_hash(journal, name)
    try:
        image = load_image(path, root=ROOT)
        if wanted in (None, image.program_hash):
            return image
        problem = UserError("wrong-program", f"{path} is not the program of this run")
    except UserError as error:
        if error.id == "changed-secret":
            raise
        problem = error if files.exists(path) else UserError("no-program", f"{run} has no {name}")
    except CompileError as error:
        problem = UserError("bad-image", f"{path}: {error.diagnostics[0].message}")
    source, rebuilt = _rebuild(journal, wanted)
    if isinstance(rebuilt, str):
        raise Failure(
            problem.id,
            f"{problem.message}, and {rebuilt}",
            f"restore {path}, or {source} as it was; {journal} is unchanged",
        )
    if warn is not None:
        warn(f"note: {problem.message}; rebuilt it from {source}, which gives the same program")
    with contextlib.suppress(JournalError):
        journals.write_file(path, program_file.encode(rebuilt), mode=0o600)
    return rebuilt


def compile_source(start: Mapping[str, Any], outputs: str, links: Links = ()) -> Image:
    """Compile the current source of a run with the run's options. Raises UserError and CompileError.

    start: the `run_start` event. outputs: folder of the run's long texts. links: loops that the run has
    linked.
    """
    try:
        fields = [start.get(name) for name in ("overrides", "expression")]
        overrides, expression = journals.unpack(fields, Blobs(outputs).fetch)
    except journals.BlobError as error:
        raise Failure("damaged-record", str(error)) from None
    path = str(start.get("path"))
    values = Values(path, **recorded_options(overrides), links=links)
    if expression is not None:
        return load_expression(str(expression), values, lambda text: None)
    return load_program(path, values, lambda text: None)


def _rebuild(journal: str, wanted: str | None) -> tuple[str, Image | str]:
    """The path of a run's source and the program with the hash `wanted`, or an error message instead."""
    from ...ir.diagnostics import CompileError

    start = start_of(journal)
    is_expression = "expression" in start
    path = "its expression" if is_expression else start.get("path")
    if not isinstance(path, str) or not path:
        return "its source", "its journal does not name its source"
    if wanted is None:
        return path, "its journal does not state the hash of its program"
    if not is_expression and not files.isfile(os.path.join(ROOT, path)):
        return path, f"{path} does not exist any more"
    try:
        outputs = os.path.join(os.path.dirname(journal), "outputs")
        image = compile_source(start, outputs, links(journal, wanted))
    except CompileError:
        return path, f"{path} is not valid now"
    except UserError as error:
        return path, f"{path} cannot be compiled: {masked(error.message)}"
    if image.program_hash != wanted:
        return path, f"{path} gives another program now"
    return path, image


def _recorded_hash(journal: str, name: str) -> str | None:
    """The hash that the journal records for the program in the file `name`; None if it records none."""
    digest: Any = None
    if name == FIRST_IMAGE:
        digest = RunStart.of(start_of(journal)).program_hash or None
    else:
        for event in _program_changes(journal):
            if event.image == name:
                digest = event.program_hash
    return digest if isinstance(digest, str) else None


def links(journal: str, program_hash: str | None = None) -> Links:
    """The loops that a run linked, in order; with `program_hash`, only up to the program with this hash."""
    linked: dict[tuple[str, str, str], None] = {}
    if RunStart.of(start_of(journal)).program_hash == program_hash is not None:
        return ()
    for event in _program_changes(journal):
        if isinstance(event.link, list) and list(map(type, event.link)) == [str, str, str]:
            linked[tuple(event.link)] = None
        if event.program_hash == program_hash is not None:
            break
    return tuple(linked)


def _program_changes(journal: str) -> Iterator[ProgramChanged]:
    """Yield the `ProgramChanged` events of a journal; does not parse its other lines, which may be many."""
    with contextlib.suppress(OSError), open_regular(journal) as file:
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            data = rest + block
            start = data.find(_CHANGE_PREFIX)
            while start >= 0 and (end := data.find(b"\n", start + 1)) >= 0:
                wire = journals.unseal(data[start + 1 : end])
                if wire is not None:
                    yield ProgramChanged.of(wire)
                start = data.find(_CHANGE_PREFIX, end)
            has_no_partial_line = start < 0 or len(data) - start > _BLOCK_BYTES
            rest = data[1 - len(_CHANGE_PREFIX) :] if has_no_partial_line else data[start:]
