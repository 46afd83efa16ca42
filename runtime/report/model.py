"""Model of a run as steps with deltas, for reports and live pages: `RunModel`.

The model is plain data (`spec/report.md`). A report reads it once; a live page reads updates. The slots come
from a re-execution of the recorded machine (`recordings.timeline`), up to the first damage of the journal.
"""

from __future__ import annotations

import json
import os.path
from typing import Any

import attrs

from ...ir.diagnostics import CompileError
from ...vm.code.disassembly import disassemble
from ...vm.code.image import Image
from ...vm.code.opcodes import decode
from ...vm.values.text_form import duration_text
from ..graph import picture
from ..graph.commands import graph_of_run
from ..graph.model import Graph
from ..host import clock, files
from ..host.errors import UserError
from ..host.paths import HISTORY, ROOT
from ..host.screen import counted
from ..host.secrets import masked
from ..journal.journal import Blobs, JournalError
from ..journal.quantities import amount_text
from ..journal.reader import EventFile, JournalReader, synced_length
from ..journal.run_folder import RunFolder
from ..journal.run_history import RunHistory
from ..project.limits import budget_limits
from ..recordings import diff_text
from ..recordings.find import RunFiles
from ..recordings.recording import Recording, RecordingBuilder, bounded
from ..recordings.timeline import Timeline, View
from ..runs.run_lock import is_live
from ..trees.recorder import FOLDER
from ..trees.stores import open_recorded
from ..trees.tree import NoTree
from .axis import Axis
from .lanes import Lanes, Strand
from .steps import Step, Steps
from .values import Values

FORMAT = 1
# Interval of positions with all slots; the others have only the changed slots.
_FULL_SLOTS_INTERVAL = 100
# Limit of file differences in a report, and limit of bytes of each.
_MAX_DIFFS = 500
_MAX_DIFF_BYTES = 200_000
# Minimum interval between two drawings of the diagram of a live run: in seconds, and as a multiple of the
# duration of a drawing.
_DRAWING_INTERVAL_S = 1.0
_DRAWING_INTERVAL_FACTOR = 20

# Slots of the active functions: function, state and slots of each, innermost last; and the items of the
# parallel calls.
Frames = list[tuple[str, str, dict[str, int]]]
Slots = tuple[Frames, tuple[int, ...]]


class RunModel:
    """Model of a run; `update` reads the new events of its journal. Must be closed.

    is_bare: omit outputs, texts of agents and file differences. with_graph: include the diagram. Raises
    ReadError if the journal cannot be opened.
    """

    def __init__(self, run: RunFiles, is_bare: bool = False, with_graph: bool = True) -> None:
        self.run = run
        self._is_bare = is_bare
        self._with_graph = with_graph
        self._reader = JournalReader(run.journal)
        self.history = RunHistory()
        self.values = Values(self._fetch, lambda name: os.path.join(self.run.outputs, name), is_bare)
        self.steps = Steps(self.history, self.values, is_bare)
        self._builder = RecordingBuilder(run.name, EventFile(run.journal), self._fetch)
        self._builder.recording.programs = lambda name: self.run.load_program(name)
        self._image: Image | None = None
        self._timeline: Timeline | None = None
        # Reason why slots are not available any more; '' if they are.
        self._slots_error = ""
        self._notes: list[str] = []
        # Node numbers of the diagram by name.
        self._nodes: dict[str, int] = {}
        # State of the last drawing: number of steps, and whether the run was running; time of the next one.
        self._drawn = (0, False)
        self._next_drawing = 0.0
        # Slots at the last position and at the one before it; deltas of all positions, of which the last one
        # is not final.
        self._frames: Slots = ([], ())
        self._frames_before: Slots = ([], ())
        self._deltas: list[dict[str, Any]] = []
        self._lanes = Lanes()
        self._axis = Axis(self.steps)
        # Strands of the effects that the machine has waited for, by effect number.
        self._strands: dict[int, Strand] = {}
        self._sent_values = 0
        self._has_sent_program = False
        self._diffs: dict[int, int] = {}

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> RunModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _fetch(self, name: str, size: int) -> str:
        self._follow()
        return Blobs(self.run.outputs).fetch(name, size)

    def _follow(self) -> None:
        """Use the folder in the history if the run has been moved there."""
        ended = os.path.join(ROOT, HISTORY, self.run.name)
        if not files.isdir(self.run.folder) and files.isdir(ended):
            journal = os.path.join(ended, os.path.basename(self.run.journal))
            self.run = RunFiles(self.run.name, ended, journal)

    def update(self, is_last: bool = False) -> dict[str, Any]:
        """The changes since the last call; the first call returns everything. Raises JournalError.

        `from` is the first position that `steps` replaces, `first_value` the index of the first entry of
        `values`. `program` is only in the first result, `svg` only if the diagram was redrawn; all other
        fields are complete. is_last: the journal is final, so that an incomplete last line is damage.
        """
        synced = synced_length(self.run.journal)
        # Check the lock before reading: a run that has released its lock writes nothing more.
        is_alive = is_live(RunFolder(ROOT, self.run.folder))
        entries = list(self._reader.read())
        for entry in entries:
            self._add(entry)
        self._follow()
        if is_last:
            for damage in self._reader.finish(synced):
                self._add(damage)
        update: dict[str, Any] = {"format": FORMAT}
        is_first = not self._has_sent_program
        if is_first:
            update["program"] = self._program()
            self._has_sent_program = True
        first = self.steps.take()
        deltas = self._machine(first) if entries or is_first else {}
        first = min([first, *deltas])
        for started in self.steps.take_started():
            self._lanes.place(started, self._strands.get(started.seq or 0, ()))
        self._strands.clear()
        update["from"] = first
        steps = []
        for number in range(first, len(self.steps.steps)):
            step = self._step(number, self.steps.steps[number])
            step.update(deltas.get(number, {}))
            steps.append(step)
        update["steps"] = steps
        update["pending"] = [self._step(len(self.steps.steps) - 1, step) for step in self.steps.pending]
        is_running = is_alive and self.history.end is None
        now = clock.time() if is_running else None
        drawing = len(self.steps.steps), is_running
        is_due = not is_running or clock.monotonic() >= self._next_drawing
        if is_first:
            self._drawn = drawing
        elif self._image is not None and self._with_graph and drawing != self._drawn and is_due:
            self._drawn = drawing
            update["svg"] = self._draw(self._graph(self._image))
        update["axis"], waiting_ms = self._axis.until(self.steps.duration(now))
        update["run"] = self._about(is_running, now, waiting_ms)
        update["lanes"] = self._lanes.names
        update["first_value"] = self._sent_values
        update["values"] = self.values.items[self._sent_values :]
        self._sent_values = len(self.values.items)
        return update

    def _add(self, entry: Any) -> None:
        self.steps.add(entry)
        if not self._slots_error:
            try:
                self._builder.add(entry)
            except UserError as error:
                self._disable_slots(error)

    # --- the program ----------------------------------------------------------------------------

    def _program(self) -> dict[str, Any]:
        """Sources, bytecode and diagram of the program, as far as they are available."""
        try:
            self._image = self.run.load_image()
        except (UserError, CompileError, JournalError) as error:
            self._disable_slots(error)
            return {"sources": [], "graph": None, "svg": "", "readers": {}}
        sources = [
            [source.path, self.values.add(source.text)] for source in self._image.sources if source.text
        ]
        program: dict[str, Any] = {"sources": sources, "graph": None, "svg": ""}
        program["readers"] = _readers(self._image)
        if self._is_bare:
            program["sources"] = []
        else:
            program["bytecode"] = self.values.add(disassemble(self._image))
        if self._with_graph:
            try:
                graph = self._graph(self._image)
                program["graph"] = _plain_graph(graph)
                self._number_nodes(graph)
                program["svg"] = self._draw(graph)
            except (UserError, CompileError) as error:
                self._with_graph = False
                self._notes.append(f"no diagram: {_message(error)}")
        return program

    def _graph(self, image: Image) -> Graph:
        return graph_of_run(self.run.name, image, self.history, self.steps.taken)

    def _draw(self, graph: Graph) -> str:
        started_at = clock.monotonic()
        svg = picture.as_svg(graph)
        now = clock.monotonic()
        interval = max(_DRAWING_INTERVAL_S, _DRAWING_INTERVAL_FACTOR * (now - started_at))
        self._next_drawing = now + interval
        return svg

    def _number_nodes(self, graph: Graph) -> None:
        for number, node in enumerate(graph.nodes):
            for name in (node.name, *node.members):
                self._nodes[name] = number

    # --- the machine ----------------------------------------------------------------------------

    def _disable_slots(self, error: Exception) -> None:
        self._slots_error = _message(error)

    def _machine(self, first: int) -> dict[int, dict[str, Any]]:
        """Deltas of the slots from position `first` on, by position; earlier ones too if they changed."""
        recording = self._builder.recording
        if not self._slots_error and self._image is not None and recording.about:
            try:
                with bounded(recording.about):
                    first = min(first, self._add_deltas(recording, self._image))
            except (UserError, JournalError) as error:
                self._disable_slots(error)
            if self._builder.damage is not None:
                self._slots_error = f"the journal is damaged: {self._builder.damage}"
        return dict(enumerate(self._deltas[first:], first))

    def _add_deltas(self, recording: Recording, image: Image) -> int:
        """Execute the recorded machine up to the last position; return the first new or changed position."""
        if self._timeline is None:
            self._timeline = Timeline(recording, image)
        else:
            self._timeline.extend()
        # The last position changes when its result arrives.
        if self._deltas:
            self._deltas.pop()
            self._frames = self._frames_before
        first = len(self._deltas)
        for number in range(first, self._timeline.count):
            point = self._timeline.view(number)
            self._strands.update(point.strands)
            self._deltas.append(self._delta(number, point))
        return first

    def _slots(self, point: View) -> Frames:
        return [
            (
                frame.function,
                frame.state,
                {name: self.values.add(value) for name, value in frame.slots.items()},
            )
            for frame in point.frames
        ]

    def _delta(self, number: int, point: View) -> dict[str, Any]:
        """The slots of a position: all (`frames`), or the changes since the previous position."""
        now, (before, items) = self._slots(point), self._frames
        self._frames_before, self._frames = self._frames, (now, point.items)
        delta: dict[str, Any] = {}
        is_same = number > 0 and [frame[0] for frame in now] == [frame[0] for frame in before]
        # Each of several parallel calls has its own slots.
        is_same = is_same and point.items == items
        if number % _FULL_SLOTS_INTERVAL == 0 or not is_same:
            delta["frames"] = [[function, state, slots] for function, state, slots in now]
            delta["entered"] = not is_same
        if is_same:
            changes = [
                [at, name, slots.get(name)]
                for at, ((_, _, slots), (_, _, old)) in enumerate(zip(now, before, strict=True))
                for name in {**old, **slots}
                if slots.get(name) != old.get(name)
            ]
            if changes:
                delta["slots"] = changes
            states = [state for _, state, _ in now]
            if states != [state for _, state, _ in before]:
                delta["at"] = states
        if point.items:
            delta["items"] = list(point.items)
        if point.place is not None:
            delta["place"] = [point.place.path, point.place.line, point.place.column]
        node = self._node(point)
        if node is not None:
            delta["node"] = node
        return delta

    def _node(self, point: View) -> int | None:
        """The node of a position in a diagram of functions or of IR; `_step` sets the node in a loop."""
        for frame in reversed(point.frames):
            for name in (frame.function, frame.state, f"{frame.function}: {frame.state}"):
                if name in self._nodes:
                    return self._nodes[name]
        return None

    # --- steps ----------------------------------------------------------------------------------

    def _step(self, number: int, step: Step) -> dict[str, Any]:
        """The data of a step, without empty fields."""
        data = {
            name: list(value) if isinstance(value, list) else value
            for name in _STEP_FIELDS
            if (value := getattr(step, name)) or (value == 0 and name in _ZERO_FIELDS)
        }
        if step.activity:
            # In a bare report, `Steps` has already removed the contents.
            data["activity"] = self.values.add([list(entry) for entry in step.activity], is_content=False)
        node = self._nodes.get(step.outer or "")
        if node is not None:
            data["node"] = node
        diff = self._diff(step)
        if diff is not None:
            data["diff"] = diff
        return data

    def _diff(self, step: Step) -> int | None:
        """Index of the file difference of a step; None if there is none."""
        before, after = step.trees.get("before"), step.trees.get("after")
        if before is None or after is None or step.seq is None or self._is_bare or before == after:
            return None
        if step.seq not in self._diffs:
            if len(self._diffs) >= _MAX_DIFFS or before[0] != after[0]:
                return None
            try:
                store = open_recorded(os.path.join(self.run.folder, FOLDER), after[0])
                data = store.diff(before[1], after[1])
            except NoTree as error:
                text = f"[the difference cannot be read: {error}]"
            else:
                text = data[:_MAX_DIFF_BYTES].decode("utf-8", "replace")
                if len(data) > _MAX_DIFF_BYTES:
                    text += f"\n[cut: llc diff {self.run.name} {step.seq} shows all {len(data):,} bytes]"
            self._diffs[step.seq] = self.values.add(text)
        return self._diffs[step.seq]

    # --- the header -----------------------------------------------------------------------------

    def _about(self, is_running: bool, now: float | None, waiting_ms: int) -> dict[str, Any]:
        """Data of the header. now: seconds since 1970 if the run is running, else None."""
        history, steps = self.history, self.steps.steps
        start, end = history.start, history.end
        failed = [number for number, step in enumerate(steps) if step.failed]
        active = history.active_ms(now)
        about: dict[str, Any] = {
            "id": self.run.name,
            "program": start.program if start else "",
            "path": (start.path or start.expression) if start else None,
            "hash": start.program_hash if start else None,
            "llc": start.llc if start else None,
            "scripted": bool(start and start.script),
            "status": "running" if is_running else history.status,
            "sentence": self._sentence(is_running),
            "started": history.started_at,
            "ended": end.ts if end else None,
            "updated": history.last_ts,
            "active_ms": active,
            "active": duration_text(active),
            "waiting": duration_text(waiting_ms) if waiting_ms else "",
            "elapsed": duration_text(self.steps.duration(now)),
            "iterations": end.iterations if end else history.iteration,
            "states_entered": end.steps if end else history.steps,
            "effects": history.results,
            "used": {unit: value for unit, value in history.used.by_unit().items() if value},
            "used_text": self._used(),
            "budget": self._limits(),
            "resumed": history.resumed,
            "forked_from": start.parent if start else None,
            "first_failure": failed[0] if failed else None,
            "failures": len(failed),
            "states": {name: totals.to_json() for name, totals in history.states.items()},
            "files": [[letter, path] for path, letter in history.changed_files.items()],
            "marks": [attrs.asdict(mark) for mark in self.steps.marks],
            "notes": [
                *self._notes,
                *(
                    [f"slots are not shown from this point on: {self._slots_error}"]
                    if self._slots_error
                    else []
                ),
            ],
            "error": None,
            "value": None,
            "journal": self.run.journal,
        }
        if end is not None:
            if end.error:
                about["error"] = self._error(diff_text.shown_map(end.error))
            if end.value is not None:
                about["value"] = self.values.add_packed(end.value)
        # Mask the header and make its numbers exact for JavaScript, as for the values.
        prepared: dict[str, Any] = self.values.prepared(about)
        return prepared

    def _error(self, error: dict[str, Any]) -> dict[str, Any]:
        """The error that ended the run, with the fields and types that the page needs."""
        texts = ("kind", "span") if self._is_bare else ("kind", "span", "message", "help")
        data: dict[str, Any] = {name: str(error[name]) for name in texts if error.get(name)}
        trace, details = error.get("backtrace"), error.get("details")
        data["backtrace"] = [str(line) for line in trace] if isinstance(trace, list) else []
        if isinstance(details, dict) and not self._is_bare:
            data["details"] = details
        return data

    def _sentence(self, is_running: bool) -> str:
        """A sentence that says how the run ended, or where it is."""
        history = self.history
        end, stop = history.end, history.interruption
        name = history.start.program if history.start else self.run.name
        where = f" in `{history.state}`" if history.state else ""
        after = f"after {counted(history.results, 'effect')}"
        if history.iteration:
            after += f" in {counted(history.iteration, 'iteration')}"
        if is_running:
            return f"{name} is running{where} {after}."
        if end is None and stop is not None:
            reason = f" ({stop.reason})" if stop.reason else ""
            return f"{name} was interrupted{where}{reason} {after}; it can be resumed."
        if end is None:
            return f"{name} crashed{where} {after}; it can be resumed."
        ends = {"success": "ended with success", "failure": "ended with failure", "limit": "reached a limit"}
        ending = ends.get(str(end.status), f"ended with {end.status}")
        by = end.terminated_by
        reason = "" if by in (None, "terminal", "return", "error", end.status) else f" ({by})"
        where = f" in `{end.final_state}`" if end.final_state else ""
        sentence = f"{name} {ending}{reason}{where} {after}"
        if isinstance(end.error, dict) and not self._is_bare:
            return f"{sentence}: {diff_text.shown_value(end.error.get('message'))}"
        return f"{sentence}."

    def _limits(self) -> dict[str, float]:
        """Limits of the run's budget by unit."""
        meta = self._image.meta if self._image is not None else {}
        start = self.history.start
        limits = budget_limits(meta, (start.budget if start else None) or {})
        return {unit: limit for unit, limit in limits.items() if limit is not None}

    def _used(self) -> str:
        used = self.history.used
        return ", ".join(
            amount_text(unit, value, None, bool(used.unpriced) and unit == "usd")
            for unit, value in used.by_unit().items()
            if value and unit != "seconds"
        )


# Fields of a step that are not part of the data.
_INTERNAL_FIELDS = ("trees", "after", "until", "agent")
_STEP_FIELDS = tuple(field.name for field in attrs.fields(Step) if field.name not in _INTERNAL_FIELDS)
# Fields in which 0 is a value: times and references.
_ZERO_FIELDS = ("start", "end", "args", "result", "details")


def as_data(update: dict[str, Any]) -> dict[str, Any]:
    """An update as plain data, for JSON."""
    return {**update, "values": [json.loads(value) for value in update["values"]]}


def _readers(image: Image) -> dict[str, dict[str, list[str]]]:
    """By function and slot, the author's states whose code reads the slot, in program order."""
    result: dict[str, dict[str, list[str]]] = {}
    for function in image.functions:
        readers: dict[str, dict[str, None]] = {}
        for number, name in enumerate(function.states):
            author, _, _ = name.partition("/")
            for _, row, words in decode(function.code, *function.bounds(number)):
                if row.name == "LOAD" and author:
                    readers.setdefault(function.slots[words[0]], {})[author] = None
        result[function.name] = {slot: list(states) for slot, states in readers.items()}
    return result


def _plain_graph(graph: Graph) -> dict[str, Any]:
    """The part of a graph that a page needs: nodes, edges and notes."""
    return {
        "level": graph.level,
        "nodes": [
            [node.name, node.kind, node.detail, node.line, node.chips, node.badges] for node in graph.nodes
        ],
        "edges": [[edge.source, edge.target, edge.label, edge.taken] for edge in graph.edges],
        "notes": graph.notes,
    }


def _message(error: Exception) -> str:
    """The message of an error, with secrets masked."""
    if isinstance(error, CompileError):
        return masked(error.diagnostics[0].message)
    return masked(getattr(error, "message", "") or str(error))
