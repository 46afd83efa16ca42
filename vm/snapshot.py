"""Snapshots: a stopped machine as JSON-able data, and a machine from one.

The format is `spec/snapshot.md`. A snapshot names functions, states and slots, never offsets, and
is keyed by the program's hash. It is untrusted input: `restore` raises `SnapshotError` for whatever
`take` does not write, and what it accepts runs on without surprising the machine, though a forged
snapshot may of course say that a loop has only begun.
"""

from __future__ import annotations

from .heap import HeapError, HeapReader, HeapWriter
from .machine import STEPS, Effect, Frame, Machine
from .values import from_host, to_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .image import FunctionCode, Image
    from .machine import LoadedFunction

FORMAT = 1
OLDEST = 1


class SnapshotError(Exception):
    """Data is no snapshot, or none of this program; the message says why."""


def take(machine: Machine) -> dict[str, Any]:
    """All there is to a machine that has not ended. RuntimeError if it has."""
    if machine.ended:
        raise RuntimeError("the program has ended")
    heap = HeapWriter(lambda function: machine.image.functions[function].name)
    frames = []
    for frame in machine.calls:
        code = frame.function.code
        slots = {
            name: heap.write(value)
            for name, value in zip(code.slots, frame.slots, strict=True)
            if value is not None
        }
        frames.append({"function": code.name, "state": code.states[frame.state], "slots": slots})
    effect = machine.effect
    return {
        "format": FORMAT,
        "program": machine.image.name,
        "program_hash": machine.image.program_hash,
        "seq": machine.seq,
        "ticks": machine.ticks,
        "effect": None
        if effect is None
        else {"kind": effect.kind, "args": heap.write(from_host(effect.args))},
        "notes": [[kind, heap.write(from_host(fields))] for kind, fields in machine.notes],
        "frames": frames,
        "heap": heap.nodes,
    }


def restore(image: Image, data: Any, fuel: int | None = None) -> Machine:
    """The machine a snapshot was taken of; see `Machine.restore`."""
    version: Any = data.get("format") if type(data) is dict else None
    if type(version) is not int:
        raise SnapshotError("this is not a snapshot")
    if not OLDEST <= version <= FORMAT:
        raise SnapshotError(f"the snapshot has format {version}; this llc reads {OLDEST} to {FORMAT}")
    if data.get("program_hash") != image.program_hash:
        raise SnapshotError("the snapshot was taken of another program, or of another version of it")
    try:
        return _Restoring(image, data).machine(fuel)
    except HeapError as error:
        raise SnapshotError(f"the snapshot is malformed: {error}") from None


class _Restoring:
    """One restoration: names resolved against the image, values read from the snapshot's heap."""

    def __init__(self, image: Image, data: dict[str, Any]) -> None:
        self.image = image
        self.data = data
        self.functions = {code.name: index for index, code in enumerate(image.functions)}
        # By function: names to indices, made for the functions that have frames.
        self.names: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self.heap = HeapReader(data.get("heap"), self.find_function)

    def find_function(self, name: Any, captures: int) -> int:
        index = self.functions.get(name) if type(name) is str else None
        if index is None or captures < self.image.functions[index].captures:
            raise HeapError("a function value fits no function of the program")
        return index

    def count(self, key: str) -> int:
        value = self.data.get(key)
        if type(value) is not int or value < 0:
            raise HeapError(f"`{key}` is missing or no count")
        return value

    def rows(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if type(value) is not list:
            raise HeapError(f"`{key}` is missing or no list")
        return value

    def machine(self, fuel: int | None) -> Machine:
        entry = self.image.functions[self.image.entry]
        machine = Machine(self.image, [None] * entry.parameters)
        machine.seq = self.count("seq")
        machine.ticks = self.count("ticks")
        rows = self.rows("frames")
        if not rows:
            raise HeapError("there are no frames")
        machine.calls = [self.frame(row, machine.functions) for row in rows]
        for frame in machine.calls[:-1]:
            if frame.function.block(frame.state)[-1][0] is not STEPS["CALL"]:
                raise HeapError("a frame stands in a state that calls nothing")
        machine.notes = [self.note(row) for row in self.rows("notes")]
        machine.effect = self.effect(machine)
        machine.refuel(fuel)
        return machine

    def frame(self, row: Any, functions: list[LoadedFunction]) -> Frame:
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

    def effect(self, machine: Machine) -> Effect | None:
        row = self.data.get("effect")
        if row is None:
            return None
        frame = machine.calls[-1]
        step, operands = frame.function.block(frame.state)[-1]
        if type(row) is not dict or machine.seq < 1:
            raise HeapError("the effect is malformed")
        kind = row.get("kind")
        if step is not STEPS["PERFORM"] or kind != operands[0]:
            raise HeapError("the effect is not the one its state performs")
        place = frame.function.exit_place(frame.state)
        return Effect(machine.seq, kind, self.plain_map(row.get("args")), place)
