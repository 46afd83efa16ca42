"""`llc replay`: a run told again with no world, with its own program or with a changed one.

Owns which program is told, and how the answer is said.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..vm.image import Image
from . import cases, difference, runs
from .cases import is_case
from .difference import LEAST_TICKS, PATIENCE, Comparison
from .making import compile_case
from .options import RUN, Values
from .programs import load_program
from .recorded import Recording, find_run, given_options


@attrs.frozen
class Replayed:
    """What came of it. against: the changed program's path, if it is one."""

    recording: Recording
    comparison: Comparison
    image: Image
    against: str | None = None

    @property
    def is_identical(self) -> bool:
        return self.comparison.difference is None

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.recording.name,
            "program": self.image.name,
            "against": self.against,
            **difference.as_json(self.comparison),
        }

    def as_text(self, color: bool) -> str:
        name, comparison = self.recording.name, self.comparison
        whom = f"{self.against}, told {name}," if self.against else name
        if comparison.difference is not None:
            shown = difference.as_text(comparison, difference.sources_of(self.image), color)
            return f"{shown}\n{whom} differs\n"
        effects = len(self.recording.answers)
        count = f"{comparison.total} events, {effects} result{'' if effects == 1 else 's'}"
        if not comparison.is_ended:
            return f"{whom} is identical as far as it is recorded: {count}; it had not ended\n"
        end = difference.describe(difference.ending(self.recording.end or {}))
        return f"{whom} is identical: {count}; {end}\n"


def replay(target: str, against: str | None = None) -> Replayed:
    """Tell the run that `target` means again, with its own program or the one in `against`.

    A recorded case is told with the program that its source is now. Raises UserError, CompileError and
    JournalError.
    """
    case = None
    if target.endswith(cases.SUFFIXES) and is_case(target):
        case = cases.read(target)
        recording, about = case.recording, {"overrides": case.options}
        own = compile_case(case) if against is None else None
        ticks = case.ticks
    else:
        files = find_run(target)
        recording, own = files.recording(), files.load_image()
        about = recording.about
    if own is not None:
        comparison = difference.compare(recording, own, exact=case is None)
        if against is None or comparison.difference is not None:
            return Replayed(recording, comparison, own)
        ticks = comparison.ticks
    path = runs.resolve(against or "")
    changed = load_program(
        path, Values(RUN, path, **given_options(about.get("overrides"))), lambda text: None
    )
    most = ticks * PATIENCE + LEAST_TICKS
    return Replayed(recording, difference.compare(recording, changed, most=most), changed, path)
