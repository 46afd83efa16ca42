"""The part of a long run around one effect, from the nearest waypoint before it, or from its beginning.

Owns when a point can be shown without the whole journal: a waypoint, and the history in the checkpoints of
the run, stand for what is not read.
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
    """A timeline that has the point of effect `seq`; None where it takes the whole journal."""
    try:
        return _timeline(files, seq)
    except (SnapshotError, BlobError, ReadError, UserError):
        return None  # the whole journal is what counts, also for what is wrong
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None  # a waypoint that is malformed


def _timeline(files: RunFiles, seq: int) -> Timeline | None:
    run = RunFolder.at(ROOT, files.folder)
    waypoint = checkpoint_reader.waypoint_before(run, seq)
    whole = checkpoint_reader.history(run)
    if whole.checkpoint is None:
        return None
    for entry in read(files.journal, whole.checkpoint.offset, whole.checkpoint.lines):
        whole.add(entry)
    if whole.damage or seq > whole.last_seq:
        return None
    fetch = Blobs(files.outputs).fetch
    offset, lines, results = (0, 0, 0) if waypoint is None else waypoint.place
    builder = RecordingBuilder(files.name, EventFile(files.journal), fetch, results)
    recording = builder.recording
    recording.about = recording.value(run.start(), "how the run began")
    for entry in read(files.journal, offset, lines):
        if isinstance(entry, Damage):
            return None
        builder.add(entry)
        if isinstance(entry, EffectFinished) and entry.seq == seq:
            break
    recording.end = None if whole.end is None else whole.end.wire
    recording.programs = files.load_program
    begin = None
    if waypoint is not None:
        snapshot = checkpoint_reader.unpacked(run, waypoint.facts["snapshot"])
        begin = results, (files.load_program(waypoint.facts["image"]), snapshot, waypoint.facts["progress"])
    with bounded(recording.about):
        timeline = Timeline(recording, files.load_image(), begin, is_part=True)
    timeline.count = whole.results + 1
    return timeline if timeline.find_place(str(seq)) is not None else None
