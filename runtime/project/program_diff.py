"""Differences between the program of an unfinished run and its source as it is now.

Owns the comparison, state by state, and the files of the programs that a run continued with. Whether a
run can migrate to a new program is decided by `vm.machine.migration`.
"""

from __future__ import annotations

import os.path

from ...ir.light_records import LightRecord, field
from ...ir.python_internals import sha256
from ...vm.code.image import Image
from ..host import files
from ..host.errors import Failure, UserError
from ..host.paths import COMPILED_SUFFIXES, IR_SUFFIX, ROOT, read_regular
from ..journal.run_folder import RunFolder
from ..runs import program_file
from . import run_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ...vm.machine.machine import Machine


_LIBRARY = "stdlib/"
_OTHERWISE = "without --accept-changes it continues with the program it has"


class Change(LightRecord):
    """What became of a run's source. image: the program that it makes now, None where it makes none.

    added, removed, changed: states of a loop or functions of a flow, by name, the changed ones with what
    is different about them. settings: what else of the loop changed. trouble: why there is no image.
    """

    path: str
    image: Image | None
    trouble: str = ""
    added: list[str] = field(factory=list)
    removed: list[str] = field(factory=list)
    changed: dict[str, list[str]] = field(factory=dict)
    settings: list[str] = field(factory=list)

    def compare(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Note the differences between the parts of two programs, each a map of its properties."""
        self.added = [name for name in new if name not in old]
        self.removed = [name for name in old if name not in new]
        for name in new:
            if name in old and old[name] != new[name]:
                self.changed[name] = [key for key in new[name] if old[name].get(key) != new[name][key]]

    def text(self, run: str, state: str | None, is_accepted: bool) -> str:
        """The report for the user; `state`: the current state of the run."""
        if self.image is None:
            return f"note: {self.path} {self.trouble}; {run} continues with the program it has"
        lines = [f"note: {self.path} has changed since {run} took its program from it"]
        lines += [f"  + {name}" for name in self.added]
        lines += [f"  - {name}" for name in self.removed]
        for name, keys in self.changed.items():
            lines.append(f"  ~ {name}" + (f": {', '.join(keys)}" if keys else ""))
        if self.settings:
            lines.append(f"  ~ the loop's {', '.join(self.settings)}")
        if state is not None:
            there = "is not there any more" if state in self.removed else "is still there"
            lines.append(f"  the run is in `{state}`, which {there}")
        if is_accepted:
            lines.append("  --accept-changes: it is to continue with the new program")
        else:
            lines.append("  it continues with the program it has; with the new one: --accept-changes")
        return "\n".join(lines)


def find(
    start: Mapping[str, Any],
    image: Image,
    outputs: str,
    links: Callable[[], run_programs.Links] = tuple,
) -> Change | None:
    """How the source of a run that began with `start` differs from its program; None where it does not.

    outputs: where long texts of the run are. links(): the loops that it has linked (`run_programs.links`);
    called only where the source is not what it was.
    """
    path = start.get("path")
    if not isinstance(path, str) or not path:
        return None
    if not files.isfile(os.path.join(ROOT, path)):
        return Change(path, None, "is not there any more")
    if not path.endswith(COMPILED_SUFFIXES) and edited(image) is None:
        return None
    from ...ir.diagnostics import CompileError

    try:
        new = run_programs.source_now(start, outputs, links())
    except (CompileError, UserError):
        return Change(path, None, "has changed and is not valid now (`llc validate` says why)")
    if new.program_hash == image.program_hash:
        return None
    change = Change(path, new)
    loops = _loop(image), _loop(new)
    if loops[0] is not None and loops[1] is not None:
        change.compare(_states(loops[0]), _states(loops[1]))
        old, now = (loop.properties() for loop in loops)
        change.settings = [name for name in now if name != "states" and old.get(name) != now[name]]
    else:
        change.compare(_functions(image), _functions(new))
    return change


def edited(image: Image) -> str | None:
    """The path of a source of a program that is not what it was; None where all are."""
    return next((source.path for source in image.sources if not _is_as_it_was(source)), None)


def accept(run: RunFolder, machine: Machine, change: Change) -> tuple[Machine, list[str]]:
    """The machine in the changed program, and which of its variables are not in that. Raises UserError."""
    from ...vm.machine.migration import RenewalError, renew

    if change.image is None:
        raise Failure("no-program", f"{change.path} {change.trouble}", _OTHERWISE)
    try:
        return renew(machine, change.image)
    except RenewalError as error:
        raise Failure(
            "incompatible-program",
            f"{run.id} cannot continue with {change.path} as it is now: {error}",
            _OTHERWISE,
        ) from None


def keep(run: RunFolder, image: Image) -> None:
    """Write a program that a run continues with to its folder. Raises JournalError."""
    number = 2
    while run.has(f"program-{number}.llb"):
        number += 1
    run.image_name = f"program-{number}.llb"
    run.write(run.image_name, program_file.of(image))


def scopes(run: RunFolder, first: Image, start: Mapping[str, Any] | None) -> list[str]:
    """All paths that the programs of a run work on; with `start`, one that it may take on included."""
    own = run.start().get("scope")
    found = set(own if isinstance(own, list) else first.meta["scope"])
    number = 2
    while run.has(name := f"program-{number}.llb"):
        found.update(run_programs.load(run.id, run.journal, name).meta["scope"])
        number += 1
    change = None
    if start is not None:
        change = find(start, first, run.outputs, lambda: run_programs.links(run.journal))
    if change is not None and change.image is not None:
        found.update(change.image.meta["scope"])
    return sorted(found)


def _is_as_it_was(source: Any) -> bool:
    if source.path.startswith(_LIBRARY):
        return True  # ours, and not in the project
    try:
        data = read_regular(os.path.join(ROOT, source.path))
        return bool(sha256(data).hexdigest() == source.sha256)
    except OSError:
        return False


def _loop(image: Image) -> Any:
    """The loop that an image was made from, None where it was not or cannot be read again."""
    source = image.sources[0] if image.sources else None
    if (
        image.meta["kind"] != "loop"
        or source is None
        or source.text is None
        or source.path.endswith(IR_SUFFIX)
    ):
        return None
    from ...frontend.loop.load import loop_of
    from ...frontend.loop.reader import read_loop
    from ...frontend.source.files import text_source

    spec, document, _ = read_loop(text_source(source.text, source.path))
    return None if spec is None else loop_of(spec, document)[0]


def _states(loop: Any) -> dict[str, dict[str, Any]]:
    return {name: state.properties() for name, state in loop.states.items()}


def _functions(image: Image) -> dict[str, dict[str, Any]]:
    """The functions of a program, each with its states."""
    from ...vm.code.lift import lift

    return {function.name: {"states": function.states} for function in lift(image).functions}
