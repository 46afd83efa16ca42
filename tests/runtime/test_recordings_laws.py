"""Laws of recorded runs, over generated programs with concurrent calls."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from core_programs import Evaluator, Generator, Undefined, by_number
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llc.frontend.core.nodes import Core
from llc.frontend.lower.program import lower_flow
from llc.runtime.journal import codec
from llc.runtime.recordings import case_reader, case_writer, diff, diff_text, make_case, run_cases
from llc.runtime.recordings.cases import Case
from llc.runtime.recordings.re_execution import ReExecution
from llc.runtime.recordings.recording import Answer, EffectRequest, Recording
from llc.runtime.recordings.timeline import Timeline
from llc.vm.code.emit import emit
from llc.vm.code.image import Image

LAWS = settings(
    max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.data_too_large]
)
SEEDS = st.integers(0, 1 << 48)
BUSY = st.builds(lambda seed: Generator(seed, parallel=6, perform=4, fail=0).program(), SEEDS) | st.builds(
    lambda seed: Generator(seed).concurrent_program(), SEEDS
)


def no_library(name: str) -> Any:
    raise AssertionError(f"generated programs do not use the library, nor `{name}`")


def image_of(node: Core) -> Image:
    try:
        Evaluator().run(node)
    except Undefined:
        assume(False)
    return emit(lower_flow(node, "generated", (), no_library))


def recorded(image: Image, chance: random.Random) -> Recording:
    """A run of a program whose effects start and end in random order."""
    recording = Recording("generated", {}, no_blobs)
    execution = ReExecution(image)
    waiting: list[EffectRequest] = []
    for _ in range(60):
        for event in make_case.recorded_events(execution, codec.digest_only):
            if isinstance(event, EffectRequest):
                waiting.append(event)
            else:
                recording.events.append(event)
        started = [event.seq for event in recording.events if isinstance(event, EffectRequest)]
        new = [asked for asked in waiting if asked.seq not in started]
        if execution.stop is not None:
            recording.end = make_case.pack_map(execution.ending(), codec.digest_only)
            recording.events += new
            return recording
        # The first pending requests start; one of the started effects gets its result.
        begin = new[: chance.randint(0 if len(new) < len(waiting) else 1, len(new))]
        recording.events += begin
        ready = [asked for asked in waiting if asked not in new or asked in begin]
        answered = chance.choice(ready)
        waiting.remove(answered)
        answer = Answer(answered.seq, by_number(answered.seq))
        recording.give(answer)
        execution.give(answer.seq, answer.result)
    return recording


def no_blobs(name: str, size: int) -> str:
    raise AssertionError("generated texts are short")


@LAWS
@given(BUSY, SEEDS)
def test_a_recorded_run_is_identical(node: Core, order: int) -> None:
    """In any order of starts and results; another argument of an effect is a difference."""
    image = image_of(node)
    chance = random.Random(order)
    recording = recorded(image, chance)
    assert diff.compare(recording, image, exact=True).difference is None
    requests = [at for at, event in enumerate(recording.events) if isinstance(event, EffectRequest)]
    if requests:
        at = chance.choice(requests)
        event = recording.events[at]
        assert isinstance(event, EffectRequest)
        recording.events[at] = EffectRequest(event.seq, event.kind, {**event.args, "forged": 1})
        assert diff.compare(recording, image).difference is not None


@LAWS
@given(BUSY, SEEDS)
def test_a_case_passes_and_an_update_changes_nothing(node: Core, order: int) -> None:
    """A written case replays identically, and an update keeps the order of the results."""
    image = image_of(node)
    recording = recorded(image, random.Random(order))
    re_executed = make_case.re_execute(recording, image, recording.answers)
    assert re_executed is not None
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "case.yaml")
        case_writer.write(Case(path, "x.sexp", None, {}, (), 0, re_executed))
        reread = case_reader.read(path).recording
    comparison = diff.compare(reread, image)
    assert comparison.difference is None, diff_text.as_text(comparison, {})
    if re_executed.end is not None:
        updated, obstacle = run_cases.update_recording(reread, image)
        assert updated is not None, obstacle
        assert [answer.seq for answer in updated.answers] == [answer.seq for answer in re_executed.answers]
        assert diff.compare(updated, image).difference is None


@LAWS
@given(BUSY, SEEDS)
def test_a_point_does_not_depend_on_earlier_points(node: Core, order: int) -> None:
    """Forwards through all points, and in random order."""
    image = image_of(node)
    chance = random.Random(order)
    recording = recorded(image, chance)
    expected = [point.to_json() for point in Timeline(recording, image)]
    timeline = Timeline(recording, image)
    timeline._stride = chance.choice([1, 2, 3])
    for _ in range(8):
        number = chance.randrange(timeline.count)
        assert timeline.at(number).to_json() == expected[number]
