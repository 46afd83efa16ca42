"""The instruction set: one row per opcode. Everything that processes code uses these rows.

Code is a sequence of unsigned 32-bit words: an opcode's number, followed by its operands, one word each. The
code of a state is straight-line and ends in exactly one *exit*, the only kind of instruction that transfers
control. Exits name states, never offsets. Control can therefore enter a state only at its beginning, with an
empty operand stack, and a state can be checked, decoded and understood in isolation.

The tables in `spec/opcodes.md` are printed from these rows.
"""

from __future__ import annotations

from ...ir.python_internals import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Operand for "no state" where a state is optional.
NO_STATE = 0xFFFFFFFF

# The meaning of each kind of operand word.
OPERANDS = {
    "constant": "index of a constant of the image",
    "slot": "index of a slot of the function",
    "primitive": "index of a constant that names a primitive (`spec/primitives.md`)",
    "note": "index of a constant that names a note kind (`spec/effects.md`)",
    "effect": "index of a constant that names an effect kind (`spec/effects.md`)",
    "function": "index of a function of the image",
    "count": "number of values that `…` stands for in the stack effect",
    "table": "index of a switch table of the function, which maps strings to states",
    "state": "index of a state of the function",
    "state?": "index of a state of the function, or 4294967295 for none",
}


class Opcode:
    """Declaration of an opcode. `pops` and `pushes` follow from the stack effect `before -- after`. If it
    contains `…`, the instruction also pops the number of values in its operand `count` (`pops_count`).

    is_translated: whether `vm/jit` can translate it; otherwise the interpreter executes the whole program.
    """

    def __init__(
        self,
        number: int,
        name: str,
        operands: str,
        picture: str,
        doc: str,
        *,
        is_exit: bool,
        is_translated: bool = True,
    ) -> None:
        self.number = number
        self.name = name
        self.operands = tuple(operands.split())
        self.picture = picture
        before, _, after = picture.partition("--")
        words = before.split()
        self.pops = sum(not word.endswith("…") for word in words)
        self.pops_count = self.pops != len(words)
        self._count = self.operands.index("count") if self.pops_count else 0
        self.pushes = len(after.split())
        self.doc = doc
        self.is_exit = is_exit
        self.is_translated = is_translated
        if set(self.operands) - set(OPERANDS) or self.pops_count != ("count" in self.operands):
            raise AssertionError(f"the row of {name} contradicts itself")

    def __repr__(self) -> str:
        return f"<opcode {self.name}>"

    def popped(self, operands: Sequence[int]) -> int:
        """The number of values that the instruction pops with these operands."""
        return self.pops + (operands[self._count] if self.pops_count else 0)


_work, _exit = partial(Opcode, is_exit=False), partial(Opcode, is_exit=True)

# Numbers are part of the image format and are never reused. 0 is unused, so zeroed memory is not valid code.
ROWS = (
    _work(1, "CONST", "constant", "-- value", "Push a constant."),
    _work(2, "LOAD", "slot", "-- value", "Push the value of a slot; null if it was never stored."),
    _work(3, "STORE", "slot", "value --", "Store the value in a slot."),
    _work(4, "PRIM", "primitive count", "operand… -- value", "Apply a primitive, which can fault."),
    _work(5, "CLOSURE", "function count", "capture… -- function", "Push a function value with its captures."),
    _work(6, "SETBOX", "", "box value --", "Replace the content of a box; a fault if it is not a box."),
    _work(7, "NOTE", "note", "fields --", "Emit a note to the host without waiting."),
    _exit(16, "JUMP", "state", "--", "Go to a state."),
    _exit(17, "BRANCH", "state state", "condition --", "Go to the first state if true, else to the second."),
    _exit(
        18,
        "SWITCH",
        "table state?",
        "subject --",
        "Go to the state of a string in the table, else to the given state; a fault if there is none.",
    ),
    _exit(
        19,
        "CALL",
        "count slot state",
        "callee argument… --",
        "Call a function; its result goes to the slot, then control to the state. One tick.",
    ),
    _exit(20, "TAILCALL", "count", "callee argument… --", "Replace this frame by a call. One tick."),
    _exit(
        21,
        "PERFORM",
        "effect slot state",
        "arguments --",
        "Request an effect; its result goes to the slot, then control to the state.",
    ),
    _exit(22, "RETURN", "", "value --", "End this frame; the value goes to the caller, or is the result."),
    _exit(23, "FAIL", "", "error --", "Raise a fault with a message or a fault map."),
    _exit(
        24,
        "PARALLEL",
        "slot state",
        "callee items --",
        "Call a function for each item of a list, concurrently; the list of results goes to the "
        "slot, then control to the state. One tick for each item.",
    ),
)  # fmt: skip

BY_NUMBER = {row.number: row for row in ROWS}
BY_NAME = {row.name: row for row in ROWS}

if len(BY_NUMBER) != len(ROWS) or len(BY_NAME) != len(ROWS):
    raise AssertionError("an opcode is declared twice")


def decode(
    code: Sequence[int], start: int = 0, end: int | None = None
) -> Iterator[tuple[int, Opcode, tuple[int, ...]]]:
    """The instructions of `code[start:end]` as (offset, opcode, operands).

    ValueError at a word that is no opcode's number and at an incomplete instruction.
    """
    end = len(code) if end is None else end
    while start < end:
        row = BY_NUMBER.get(code[start])
        if row is None:
            raise ValueError(f"no opcode has the number {code[start]} (at {start})")
        after = start + 1 + len(row.operands)
        if after > end:
            raise ValueError(f"{row.name} is incomplete (at {start})")
        yield start, row, tuple(code[start + 1 : after])
        start = after
