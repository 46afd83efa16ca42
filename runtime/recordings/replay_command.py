"""`llc replay`: replay of a recorded run without performing effects, and the first difference.

Owns the choice of the program, and the output.
"""

from __future__ import annotations

from typing import Any

from ...ir.compile_options import LOOP_SUFFIXES
from ...ir.records import frozen
from ...vm.code.image import Image
from ..host.screen import counted
from ..project.load import load_program
from ..project.options import Values, recorded_options
from ..runs.loop_names import resolve_loop
from . import case_reader, diff, diff_text
from .cases import Case, is_case
from .diff import MIN_TICKS, TICK_FACTOR, Comparison
from .excerpt import timeline_around
from .find import find_run
from .lockstep import replay_in_lockstep
from .make_case import compile_case
from .recording import Recording
from .timeline import Timeline


@frozen
class ReplayResult:
    """Result of a replay.

    Args:
        name: the name of the run.
        results: the number of results that its program got.
        end: its `run_end`; None for an unfinished run.
        left_out: as in `Recording`.
        comparison: the comparison with the recording.
        image: the program of the replay.
        against: the path of the changed program; None for the run's own program.
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
    ) -> ReplayResult:
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
        subject = f"{self.against} with the results of {name}" if self.against else name
        if comparison.difference is not None:
            shown = diff_text.as_text(comparison, diff_text.sources_of(self.image), color)
            return f"{shown}\n{subject} differs\n"
        effects = self.results
        events = counted(comparison.total, "event")
        count = f"{events}, {counted(effects, 'result')}"
        if self.left_out:
            return f"{subject} is identical up to the damage: {count}\n"
        if not comparison.is_ended:
            return f"{subject} is identical up to the end of its record: {count}; the run is unfinished\n"
        end = diff_text.describe(diff.ending(self.end or {}))
        return f"{subject} is identical: {count}; {end}\n"


def replay(target: str, against: str | None = None) -> ReplayResult:
    """Replay a run or a case, with its own program or with the program `against`.

    A case is replayed with its current source. Raises UserError, CompileError and JournalError.
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
            identical = replay_in_lockstep(files, image)
            if identical is not None:
                return ReplayResult(
                    files.name, identical.results, identical.end, "", identical.comparison, image
                )
        recording = files.recording()
        overrides = recording.about.get("overrides")
    if case is None or against is None:
        own = compile_case(case) if case is not None else files.load_image()
        max_ticks = ticks * TICK_FACTOR + MIN_TICKS if case is not None else None
        comparison = diff.compare(recording, own, case is None, max_ticks)
        if against is None or comparison.difference is not None:
            return ReplayResult.of(recording, comparison, own)
        ticks = comparison.ticks
    path = resolve_loop(against)
    changed = load_program(path, Values(path, **recorded_options(overrides)), lambda text: None)
    max_ticks = ticks * TICK_FACTOR + MIN_TICKS
    return ReplayResult.of(
        recording, diff.compare(recording.with_one_program(), changed, max_ticks=max_ticks), changed, path
    )


def load(target: str) -> tuple[Recording, Image]:
    """The recording of a run or a case, and its program."""
    case = read_case(target)
    if case is not None:
        return case.recording, compile_case(case)
    files = find_run(target)
    return files.recording(), files.load_image()


def load_around(target: str, word: str) -> Timeline | None:
    """A timeline of a run around the effect with the number `word`.

    None if the whole record must be read. Raises UserError and CompileError.
    """
    if not (word.isascii() and word.isdigit()) or read_case(target) is not None:
        return None
    return timeline_around(find_run(target), int(word))


def read_case(target: str) -> Case | None:
    """The case at the path `target`; None if `target` is not the path of a case. Raises CompileError."""
    return case_reader.read(target) if target.endswith(LOOP_SUFFIXES) and is_case(target) else None
