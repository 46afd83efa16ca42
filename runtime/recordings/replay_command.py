"""`llc replay`: replay of a recorded run without executing anything, and the differences.

Owns which program is executed, and how the result is shown.
"""

from __future__ import annotations

from typing import Any

from ...ir.records import frozen
from ...vm.code.image import Image
from ..project.load import load_program
from ..project.options import Values, recorded_options
from ..runs.loop_names import resolve_loop
from . import case_reader, cases, diff, diff_text
from .cases import Case, is_case
from .diff import LEAST_TICKS, PATIENCE, Comparison
from .excerpt import timeline_around
from .find import find_run
from .lockstep import follow
from .make_case import compile_case
from .recording import Recording
from .timeline import Timeline


@frozen
class Replayed:
    """What came of it. name: of the run. results: how many it got. end: its `run_end`, None without one.

    left_out: see `Recording`. against: the changed program's path, if it is one.
    """

    name: str
    results: int
    end: dict[str, Any] | None
    left_out: str
    comparison: Comparison
    image: Image
    against: str | None = None

    @classmethod
    def of(
        cls, recording: Recording, comparison: Comparison, image: Image, against: str | None = None
    ) -> Replayed:
        results = len(recording.answers)
        return cls(recording.name, results, recording.end, recording.left_out, comparison, image, against)

    @property
    def is_identical(self) -> bool:
        """Whether there is no difference; False for a damaged journal."""
        return self.comparison.difference is None and not self.left_out

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.name,
            "program": self.image.name,
            "against": self.against,
            **diff_text.as_json(self.comparison),
            "identical": self.is_identical,
            "left_out": self.left_out or None,
        }

    def as_text(self, color: bool) -> str:
        name, comparison = self.name, self.comparison
        whom = f"{self.against}, told {name}," if self.against else name
        if comparison.difference is not None:
            shown = diff_text.as_text(comparison, diff_text.sources_of(self.image), color)
            return f"{shown}\n{whom} differs\n"
        effects = self.results
        events = f"{comparison.total} event{'' if comparison.total == 1 else 's'}"
        count = f"{events}, {effects} result{'' if effects == 1 else 's'}"
        if self.left_out:
            return f"{whom} is identical as far as its record is sound: {count}\n"
        if not comparison.is_ended:
            return f"{whom} is identical as far as it is recorded: {count}; it had not ended\n"
        end = diff_text.describe(diff.ending(self.end or {}))
        return f"{whom} is identical: {count}; {end}\n"


def replay(target: str, against: str | None = None) -> Replayed:
    """Tell the run that `target` means again, with its own program or the one in `against`.

    A recorded case is executed with the program that its source is now. Raises UserError, CompileError and
    JournalError.
    """
    case = read_case(target)
    ticks = 0
    if case is not None:
        recording, ticks = case.recording, case.ticks
        overrides: Any = case.options
    else:
        files = find_run(target)
        if against is None:
            image = files.load_image()
            found = follow(files, image)
            if found is not None:
                return Replayed(files.name, found.results, found.end, "", found.comparison, image)
        recording = files.recording()
        overrides = recording.about.get("overrides")
    if case is None or against is None:
        own = compile_case(case) if case is not None else files.load_image()
        most = ticks * PATIENCE + LEAST_TICKS if case is not None else None
        comparison = diff.compare(recording, own, case is None, most)
        if against is None or comparison.difference is not None:
            return Replayed.of(recording, comparison, own)
        ticks = comparison.ticks
    path = resolve_loop(against)
    changed = load_program(path, Values(path, **recorded_options(overrides)), lambda text: None)
    most = ticks * PATIENCE + LEAST_TICKS
    return Replayed.of(recording, diff.compare(recording.as_one(), changed, most=most), changed, path)


def load(target: str) -> tuple[Recording, Image]:
    """The record that `target` means, a run's or a case's, and its program."""
    case = read_case(target)
    if case is not None:
        return case.recording, compile_case(case)
    files = find_run(target)
    return files.recording(), files.load_image()


def load_around(target: str, word: str) -> Timeline | None:
    """A timeline of the run that `target` means with the effect that `word` is the number of.

    None where that takes the whole record. Raises UserError and CompileError.
    """
    if not (word.isascii() and word.isdigit()) or read_case(target) is not None:
        return None
    return timeline_around(find_run(target), int(word))


def read_case(target: str) -> Case | None:
    """The case that is meant by its path; None where `target` means a run. Raises CompileError."""
    return case_reader.read(target) if target.endswith(cases.SUFFIXES) and is_case(target) else None
