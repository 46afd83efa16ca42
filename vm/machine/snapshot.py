"""Snapshots: a stopped machine as JSON-able data, and restoration of a machine.

`spec/snapshot.md` defines the format. A snapshot names functions, states and slots, never offsets, and
is keyed by the program's hash. It is untrusted input: `restore` raises `SnapshotError` for everything that
`take` does not write. A machine restored from accepted data runs without internal errors, but a forged
snapshot can claim, for example, that a loop has only begun.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..code.image import FunctionCode
from ..values.faults import TRACE_ENDS, PrimitiveFault
from ..values.heap import HeapError, HeapReader, HeapWriter
from ..values.values import DynamicBox, from_host, to_host
from .control import Control
from .frames import Frame, Functions, LoadedFunction
from .outcomes import Effect
from .steps import STEPS
from .strands import Fork, Raised, Strand, Trail, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
OLDEST = 1
# No machine reaches this count; larger counts would overflow in float arithmetic.
_COUNTS = 1 << 53


class SnapshotError(Exception):
    """Data that is not a snapshot, or not one of this program; the message is the reason."""


def take(machine: Control) -> dict[str, Any]:
    """The complete state of a machine. Raises RuntimeError if the program has ended."""
    if machine.ended:
        raise RuntimeError("the program has ended")
    heap = HeapWriter(lambda function: machine.image.functions[function].name)
    first, *others = walk(machine.strand)
    effect = first.effect
    data = {
        "format": FORMAT,
        "program": machine.image.name,
        "program_hash": machine.image.program_hash,
        "seq": machine.seq,
        "ticks": machine.ticks,
        "effect": None,
        "notes": [],
        "frames": _frames(first, heap),
        "heap": heap.nodes,
    }
    if effect is not None:
        data["effect"] = {"kind": effect.kind, "args": heap.write(from_host(effect.args))}
    data["notes"] = [[kind, heap.write(from_host(fields))] for kind, fields in machine.notes]
    if machine.trails:
        data["trails"] = [
            {"place": place, "trace": _trace(trace), "at": at, "omitted": omitted}
            for place, (trace, at, omitted) in [(one, machine.trail_of(one)) for one in machine.trails]
        ]
    if others:
        data |= _strands(machine, [first, *others], heap)
    return data


def _frames(strand: Strand, heap: HeapWriter) -> list[dict[str, Any]]:
    frames = []
    for frame in strand.calls:
        code = frame.function.code
        slots = {
            name: heap.write(value)
            for name, value in zip(code.slots, frame.slots, strict=True)
            if value is not None
        }
        frames.append({"function": code.name, "state": code.states[frame.state], "slots": slots})
    return frames


def _strands(machine: Control, strands: list[Strand], heap: HeapWriter) -> dict[str, Any]:
    """The part of a snapshot that exists only during concurrent calls. Strand 0 is the run itself."""
    numbers = {id(strand): number for number, strand in enumerate(strands)}
    boxes = machine.dynamic

    def held(strand: Strand) -> list[Any]:
        return [heap.write(value) for value in machine.dynamic_of(strand)]

    machine.save_dynamic()

    rows = []
    forks = []
    for strand in strands:
        if strand.within is not None:
            row: dict[str, Any] = {"fork": numbers[id(strand.within.parent)], "item": strand.item}
            row["frames"] = _frames(strand, heap)
            if boxes:
                row["dynamic"] = held(strand)
            if strand.effect is not None:
                effect = strand.effect
                args = heap.write(from_host(effect.args))
                row["effect"] = {"seq": effect.seq, "kind": effect.kind, "args": args}
            rows.append(row)
        if strand.fork is not None:
            fork = strand.fork
            row = {"strand": numbers[id(strand)], "results": [heap.write(value) for value in fork.results]}
            if fork.raised is not None:
                row["fault"] = _raised(fork.raised, heap)
            forks.append(row)
    running = [machine.strand] if machine.strand.effect is None else []
    ready = [numbers[id(strand)] for strand in (*running, *machine.ready)]
    made = {"strands": rows, "forks": forks, "ready": ready}
    if boxes:
        made |= {"dynamic": held(strands[0]), "boxes": [heap.write(box) for box, _ in boxes]}
    return made


def _raised(raised: Raised, heap: HeapWriter) -> dict[str, Any]:
    fault = raised.fault
    return {
        "item": raised.item,
        "kind": heap.write(fault.kind),
        "message": heap.write(fault.message),
        "span": heap.write(fault.place),
        "details": heap.write(fault.details),
        "trace": _trace(raised.trace),
        "omitted": raised.omitted,
        "at": raised.at,
        **({"again": True} if fault.is_again else {}),
    }


def _trace(trace: Sequence[tuple[LoadedFunction, int]]) -> list[list[str]]:
    return [[function.code.name, function.code.states[state]] for function, state in trace]


def restore(machine: Control, data: Any) -> None:
    """Set a new machine to the state of a snapshot. Raises SnapshotError (`Machine.restore`)."""
    version: Any = data.get("format") if type(data) is dict else None
    if type(version) is not int:
        raise SnapshotError("this is not a snapshot")
    if not OLDEST <= version <= FORMAT:
        raise SnapshotError(f"the snapshot has format {version}; this llc reads {OLDEST} to {FORMAT}")
    if data.get("program_hash") != machine.image.program_hash:
        raise SnapshotError("the snapshot was taken of another program, or of another version of it")
    try:
        _Restoring(machine, data).run()
    except HeapError as error:
        raise SnapshotError(f"the snapshot is malformed: {error}") from None


class _Restoring:
    """One restoration: names resolved against the image, values read from the snapshot's heap."""

    def __init__(self, machine: Control, data: dict[str, Any]) -> None:
        self.machine = machine
        self.image = image = machine.image
        self.data = data
        self.functions = {code.name: index for index, code in enumerate(image.functions)}
        # By function: names to indices, for functions that have frames.
        self.names: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self.heap = HeapReader(data.get("heap"), self.find_function)

    def find_function(self, name: Any, captures: int) -> int:
        index = self.functions.get(name) if type(name) is str else None
        if index is None or captures < self.image.functions[index].captures:
            raise HeapError("a function value fits no function of the program")
        return index

    def rows(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if type(value) is not list:
            raise HeapError(f"`{key}` is missing or no list")
        return value

    def run(self) -> None:
        machine = self.machine
        machine.seq = _count(self.data, "seq")
        machine.ticks = _count(self.data, "ticks")
        first = machine.strand = Strand(self.frames(self.data.get("frames"), machine.functions))
        machine.calls = first.calls
        machine.notes = [self.note(row) for row in self.rows("notes")]
        effect = self.data.get("effect")
        if effect is not None:
            self.ask(machine, first, effect, machine.seq)
        for row in self.rows("trails") if "trails" in self.data else ():
            if type(row) is not dict or type(row.get("place")) is not str:
                raise HeapError("a trail is malformed")
            machine.trails[row["place"]] = self.trail(row, machine.functions)
        if "strands" in self.data:
            self.strands(machine, first)

    def strands(self, machine: Control, first: Strand) -> None:
        """Restore the strands other than the first, and the progress of their forks."""
        rows, forks, ready = self.rows("strands"), self.rows("forks"), self.rows("ready")
        results: dict[int, Any] = {}
        for row in forks:
            if type(row) is not dict or type(row.get("results")) is not list or not row["results"]:
                raise HeapError("a fork is malformed")
            results[_count(row, "strand")] = row
        if len(results) != len(forks):
            raise HeapError("a strand has forked twice")
        if "boxes" in self.data:
            machine.dynamic = [(self.heap.read(box), None) for box in self.rows("boxes")]
            if any(type(box) is not DynamicBox for box, _ in machine.dynamic):
                raise HeapError("`boxes` has something else")
        held = [self.held(self.data)]
        strands: list[Strand] = []
        waiting: dict[int, tuple[Strand, Any]] = {}
        for number in range(len(rows) + 1):
            strand = self.strand(rows[number - 1], strands, machine) if number else first
            strands.append(strand)
            if number:
                row = rows[number - 1]
                held.append(self.held(row))
                if row.get("effect") is not None:
                    seq = _count(row["effect"], "seq")
                    if not 1 <= seq <= machine.seq or seq in waiting:
                        raise HeapError("an effect has a number that cannot be")
                    waiting[seq] = strand, row["effect"]
            if number in results:
                strand.fork = self.fork(strand, results.pop(number), machine.functions)
        if results:
            raise HeapError("a fork belongs to no strand")
        for seq in sorted(waiting):
            self.ask(machine, waiting[seq][0], waiting[seq][1], seq)
        for strand in strands:
            fork = strand.fork
            if fork is not None and (not fork.left or (fork.raised and fork.strands[fork.raised.item])):
                raise HeapError("a fork contradicts its strands")
        able = {number for number, strand in enumerate(strands) if not (strand.effect or strand.fork)}
        if len(ready) != len(able) or not all(type(number) is int for number in ready) or {*ready} != able:
            raise HeapError("the strands that can run are not those listed")
        machine.ready.extend(strands[number] for number in ready)
        if not ready:  # displays show the strand with the latest request
            machine.ready.append(next(reversed(machine.asked.values())))
        machine.switch()
        for strand, values in zip(strands, held, strict=True):
            if len(values) != len(machine.dynamic):
                raise HeapError("a strand does not have a value for each dynamic box")
            strand.dynamic = values
        machine.load_dynamic()

    def strand(self, row: Any, strands: list[Strand], machine: Control) -> Strand:
        """A strand of a fork of one of the `strands` before it."""
        place = _count(row, "fork")
        fork = strands[place].fork if place < len(strands) else None
        item = _count(row, "item")
        if fork is None or item >= len(fork.strands) or fork.strands[item] is not None:
            raise HeapError("a strand belongs to no fork")
        strand = fork.strands[item] = Strand(self.frames(row.get("frames"), machine.functions), fork, item)
        fork.left += 1
        machine.outside += len(strand.calls)
        return strand

    def held(self, row: dict[str, Any]) -> list[Any]:
        """The values of the dynamic boxes in a strand."""
        values = row.get("dynamic", [])
        if type(values) is not list:
            raise HeapError("the values of dynamic boxes are malformed")
        return [self.heap.read(value) for value in values]

    def frames(self, rows: Any, functions: Functions) -> list[Frame]:
        """The frames of a strand: all but the innermost are at a call."""
        if type(rows) is not list or not rows:
            raise HeapError("frames are missing")
        frames = [self.frame(row, functions) for row in rows]
        for frame in frames[:-1]:
            if frame.function.block(frame.state)[-1][0] is not STEPS["CALL"]:
                raise HeapError("a frame is in a state that calls nothing")
        return frames

    def fork(self, strand: Strand, row: dict[str, Any], functions: Functions) -> Fork:
        """The pending fork of a strand, without its strands."""
        frame = strand.calls[-1]
        if strand.effect is not None or frame.function.block(frame.state)[-1][0] is not STEPS["PARALLEL"]:
            raise HeapError("a strand has forked in a state that does not")
        fork = Fork(strand, ())
        fork.results = [self.heap.read(result) for result in row["results"]]
        fork.strands = [None] * len(fork.results)
        if row.get("fault") is not None:
            fork.raised = self.raised(row["fault"], functions, len(fork.results))
        return fork

    def raised(self, row: Any, functions: Functions, items: int) -> Raised:
        item = _count(row, "item")
        kind, message, span, details = (
            self.heap.read(row.get(key)) for key in ("kind", "message", "span", "details")
        )
        if item >= items:
            raise HeapError("a fault is malformed")
        if type(kind) is not str or type(message) is not str or type(details) is not dict:
            raise HeapError("a fault is malformed")
        if span is not None and type(span) is not str:
            raise HeapError("a fault is malformed")
        trace, at, omitted = self.trail(row, functions)
        fault = PrimitiveFault(kind, message, details, span)
        fault.is_again = row.get("again") is True
        return Raised(fault, trace, at, omitted, item, is_whole=True)

    def trail(self, row: dict[str, Any], functions: Functions) -> Trail:
        """The frames that a fault left."""
        at, omitted, trace = _count(row, "at"), _count(row, "omitted"), row.get("trace")
        if type(trace) is not list or not 0 < len(trace) <= 2 * TRACE_ENDS:
            raise HeapError("a fault is malformed")
        places = []
        for place in trace:
            if type(place) is not list or len(place) != 2:
                raise HeapError("a fault is malformed")
            frame = self.frame({"function": place[0], "state": place[1], "slots": {}}, functions)
            places.append((frame.function, frame.state))
        function, state = places[-1]
        if at >= len(function.block(state)):
            raise HeapError("a fault happened at no instruction")
        return tuple(places), at, omitted

    def frame(self, row: Any, functions: Functions) -> Frame:
        if type(row) is not dict or type(row.get("slots")) is not dict:
            raise HeapError("a frame is malformed")
        name = row.get("function")
        index = self.functions.get(name) if type(name) is str else None
        if index is None:
            raise HeapError("a frame is of a function that the program does not have")
        frame = Frame(functions[index], ())
        states, slots = self.names_of(frame.function.code)
        state = row.get("state")
        if type(state) is not str or state not in states:
            raise HeapError(f"a frame of `{name}` is in a state that the function does not have")
        frame.state = states[state]
        for slot, reference in row["slots"].items():
            if type(slot) is not str or slot not in slots:
                raise HeapError(f"a frame of `{name}` has a slot that the function does not have")
            frame.slots[slots[slot]] = self.heap.read(reference)
        return frame

    def names_of(self, code: FunctionCode) -> tuple[dict[str, int], dict[str, int]]:
        names = self.names.get(code.name)
        if names is None:
            states = {name: index for index, name in enumerate(code.states)}
            slots = {name: index for index, name in enumerate(code.slots)}
            names = self.names[code.name] = (states, slots)
        return names

    def note(self, row: Any) -> tuple[str, dict[str, Any]]:
        if type(row) is not list or len(row) != 2 or type(row[0]) is not str:
            raise HeapError("a note is malformed")
        return row[0], self.plain_map(row[1])

    def plain_map(self, reference: Any) -> dict[str, Any]:
        value = self.heap.read(reference)
        if type(value) is not dict:
            raise HeapError("a map is missing")
        try:
            host: dict[str, Any] = to_host(value)
        except (TypeError, ValueError) as error:
            raise HeapError(str(error)) from None
        return host

    def ask(self, machine: Control, strand: Strand, row: Any, seq: int) -> None:
        """Restore a pending effect: the one that the strand's state performs."""
        frame = strand.calls[-1]
        step, operands = frame.function.block(frame.state)[-1]
        if type(row) is not dict or seq < 1:
            raise HeapError("the effect is malformed")
        kind = row.get("kind")
        if step is not STEPS["PERFORM"] or kind != operands[0]:
            raise HeapError("the effect is not the one its state performs")
        place = frame.function.exit_place(frame.state)
        strand.effect = Effect(seq, kind, self.plain_map(row.get("args")), place)
        if strand.within is not None:
            machine.asked[seq] = strand


def _count(row: Any, key: str) -> int:
    value = row.get(key) if type(row) is dict else None
    if type(value) is not int or not 0 <= value < _COUNTS:
        raise HeapError(f"`{key}` is missing or no count")
    return value
