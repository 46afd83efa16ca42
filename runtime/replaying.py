"""`llc replay`: a run told again with no world, with its own program or with a changed one.

Owns which program is told, and how the answer is said.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..vm.image import Image
from . import difference, runs
from .difference import Comparison
from .options import RUN, Values
from .programs import load_program
from .recorded import Recording, find_run

# How many times the ticks of the recorded run a changed program may use before it counts as endless.
_PATIENCE = 20
_LEAST_TICKS = 10_000_000


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

    Raises UserError, CompileError and JournalError.
    """
    files = find_run(target)
    recording, own = files.recording(), files.load_image()
    comparison = difference.compare(recording, own, exact=True)
    if against is None or comparison.difference is not None:
        return Replayed(recording, comparison, own)
    path = runs.resolve(against)
    changed = load_program(path, given_values(recording.about, path), lambda text: None)
    most = comparison.ticks * _PATIENCE + _LEAST_TICKS
    return Replayed(recording, difference.compare(recording, changed, most=most), changed, path)


def given_values(about: dict[str, Any], path: str) -> Values:
    """The options that a run was started with, for another program."""
    overrides = about.get("overrides")
    given = dict(overrides) if isinstance(overrides, dict) else {}
    for name in ("context", "arguments"):
        given[name] = tuple((str(key), str(text)) for key, text in given.get(name) or ())
    return Values(RUN, path, **given)
