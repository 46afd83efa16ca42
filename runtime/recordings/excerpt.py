"""The part of a long run around one effect, read from the nearest waypoint before it or from the beginning.

Owns the decision whether a point can be shown without reading the whole journal. A waypoint and the history
in the checkpoints of the run replace the events that are not read.
"""

from __future__ import annotations

from ...vm.machine.snapshot import SnapshotError
from ..host.errors import UserError
from ..host.paths import ROOT
from ..journal.events import EffectFinished
from ..journal.journal import BlobError, Blobs
from ..journal.reader import Damage, EventFile, ReadError, read
from ..journal.run_folder import RunFolder
from ..runs import checkpoint_reader
from .find import RunFiles
from .recording import RecordingBuilder, bounded
from .timeline import Timeline


def timeline_around(files: RunFiles, seq: int) -> Timeline | None:
    """A timeline that contains the point of effect `seq`; None if the whole journal must be read."""
    try:
        return _timeline(files, seq)
    except (SnapshotError, BlobError, ReadError, UserError):
        return None  # reading the whole journal reports the error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None  # a malformed waypoint


def _timeline(files: RunFiles, seq: int) -> Timeline | None:
    run = RunFolder.at(ROOT, files.folder)
    waypoint = checkpoint_reader.waypoint_before(run, seq)
    history = checkpoint_reader.history(run)
    if history.checkpoint is None:
        return None
    for entry in read(files.journal, history.checkpoint.offset, history.checkpoint.lines):
        history.add(entry)
    if history.damage or seq > history.last_seq:
        return None
    fetch = Blobs(files.outputs).fetch
    offset, lines, results = (0, 0, 0) if waypoint is None else waypoint.place
    builder = RecordingBuilder(files.name, EventFile(files.journal), fetch, results)
    recording = builder.recording
    recording.about = recording.value(run.start(), "the start of the run")
    for entry in read(files.journal, offset, lines):
        if isinstance(entry, Damage):
            return None
        builder.add(entry)
        if isinstance(entry, EffectFinished) and entry.seq == seq:
            break
    recording.end = None if history.end is None else history.end.wire
    recording.programs = files.load_program
    start = None
    if waypoint is not None:
        snapshot = checkpoint_reader.unpacked(run, waypoint.facts["snapshot"])
        start = results, (files.load_program(waypoint.facts["image"]), snapshot, waypoint.facts["progress"])
    with bounded(recording.about):
        timeline = Timeline(recording, files.load_image(), start, is_part=True)
    timeline.count = history.results + 1
    return timeline if timeline.find_place(str(seq)) is not None else None
