"""Differences between the program of an unfinished run and the current source.

Owns the comparison, state by state, and the files of a run's later programs. `vm.machine.migration` decides
whether a run can migrate to a new program.
"""

from __future__ import annotations

import os.path

from ...ir.compile_options import LIBRARY_FOLDER
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


_HELP = "without --accept-changes, the run continues with its own program"


class Change(LightRecord):
    """A change of a run's source.

    Args:
        path: path of the source.
        image: program of the current source; None if it has none.
        problem: why there is no image; a predicate of `path`.
        added: new states of a loop or functions of a flow, by name.
        removed: names that no longer exist.
        changed: changed properties, by name.
        settings: changed properties of the loop itself.
    """

    path: str
    image: Image | None
    problem: str = ""
    added: list[str] = field(factory=list)
    removed: list[str] = field(factory=list)
    changed: dict[str, list[str]] = field(factory=dict)
    settings: list[str] = field(factory=list)

    def compare(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Record the differences between the parts of two programs. old, new: properties by part name."""
        self.added = [name for name in new if name not in old]
        self.removed = [name for name in old if name not in new]
        for name in new:
            if name in old and old[name] != new[name]:
                self.changed[name] = [key for key in new[name] if old[name].get(key) != new[name][key]]

    def text(self, run: str, state: str | None, is_accepted: bool) -> str:
        """The report for the user; `state`: the current state of the run."""
        if self.image is None:
            return f"note: {self.path} {self.problem}; {run} continues with its own program"
        lines = [f"note: {self.path} has changed since {run} was compiled from it"]
        lines += [f"  + {name}" for name in self.added]
        lines += [f"  - {name}" for name in self.removed]
        for name, keys in self.changed.items():
            lines.append(f"  ~ {name}" + (f": {', '.join(keys)}" if keys else ""))
        if self.settings:
            lines.append(f"  ~ the loop's {', '.join(self.settings)}")
        if state is not None:
            existence = "does not exist any more" if state in self.removed else "still exists"
            lines.append(f"  the run is in `{state}`, which {existence}")
        if is_accepted:
            lines.append("  --accept-changes: the run continues with the new program")
        else:
            lines.append("  the run continues with its own program; to use the new one: --accept-changes")
        return "\n".join(lines)


def find(
    start: Mapping[str, Any], image: Image, outputs: str, links: Callable[[], run_programs.Links] = tuple
) -> Change | None:
    """Compare the current source of a run with its program; None if they are equal.

    Args:
        start: the `run_start` event.
        image: the program of the run.
        outputs: folder of the run's long texts.
        links: returns the loops that the run has linked (`run_programs.links`); called only for a changed
            source.
    """
    path = start.get("path")
    if not isinstance(path, str) or not path:
        return None
    if not files.isfile(os.path.join(ROOT, path)):
        return Change(path, None, "does not exist any more")
    if not path.endswith(COMPILED_SUFFIXES) and edited(image) is None:
        return None
    from ...ir.diagnostics import CompileError

    try:
        new = run_programs.compile_source(start, outputs, links())
    except (CompileError, UserError):
        return Change(path, None, "has changed and is not valid now (see `llc validate`)")
    if new.program_hash == image.program_hash:
        return None
    change = Change(path, new)
    loops = _loop(image), _loop(new)
    if loops[0] is not None and loops[1] is not None:
        change.compare(_states(loops[0]), _states(loops[1]))
        old, current = (loop.properties() for loop in loops)
        change.settings = [name for name in current if name != "states" and old.get(name) != current[name]]
    else:
        change.compare(_functions(image), _functions(new))
    return change


def edited(image: Image) -> str | None:
    """The path of the first edited source of a program; None if no source was edited."""
    return next((source.path for source in image.sources if not _is_unchanged(source)), None)


def accept(run: RunFolder, machine: Machine, change: Change) -> tuple[Machine, list[str]]:
    """Migrate the machine to the changed program; also return its dropped variables. Raises UserError."""
    from ...vm.machine.migration import MigrationError, migrate

    if change.image is None:
        raise Failure("no-program", f"{change.path} {change.problem}", _HELP)
    try:
        return migrate(machine, change.image)
    except MigrationError as error:
        raise Failure(
            "incompatible-program", f"{run.id} cannot continue with the current {change.path}: {error}", _HELP
        ) from None


def keep(run: RunFolder, image: Image) -> None:
    """Write the next program of a run to its folder. Raises JournalError."""
    number = 2
    while run.has(f"program-{number}.llb"):
        number += 1
    run.image_name = f"program-{number}.llb"
    run.write(run.image_name, program_file.encode(image))


def scopes(run: RunFolder, first: Image, start: Mapping[str, Any] | None) -> list[str]:
    """The scope paths of all programs of a run.

    start: the `run_start` event, to include the program of the current source; None to exclude it.
    """
    recorded = run.start().get("scope")
    paths = set(recorded if isinstance(recorded, list) else first.meta["scope"])
    number = 2
    while run.has(name := f"program-{number}.llb"):
        paths.update(run_programs.load(run.id, run.journal, name).meta["scope"])
        number += 1
    change = None
    if start is not None:
        change = find(start, first, run.outputs, lambda: run_programs.links(run.journal))
    if change is not None and change.image is not None:
        paths.update(change.image.meta["scope"])
    return sorted(paths)


def _is_unchanged(source: Any) -> bool:
    if source.path.startswith(LIBRARY_FOLDER):
        return True  # part of llc, not of the project
    try:
        data = read_regular(os.path.join(ROOT, source.path))
        return bool(sha256(data).hexdigest() == source.sha256)
    except OSError:
        return False


def _loop(image: Image) -> Any:
    """Read the loop in an image's source; None if the source is missing, invalid, or not a loop."""
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
    """The functions of a program with their states."""
    from ...vm.code.lift import lift

    return {function.name: {"states": function.states} for function in lift(image).functions}
