"""Counted loops: the record of a loop whose trip count is known when it begins.

`analysis/counted_loops.py` finds them; `codegen/states.py` writes batches of their iterations.
"""

from __future__ import annotations

from .function import PrepaidTicks

# Up to this number of iterations, a batch is slower than single iterations.
MIN_BATCH = 16


class CountedLoop:
    """A counted loop.

    Attributes:
        states: its states without the header.
        first: the successor of the header within the loop.
        index, name: the slot that counts, and its Python local.
        step: the change of the index in each iteration.
        bound: the final index, as Python text.
        limit: the final index as a number, if it is constant.
        ticks: ticks per iteration.
        ticks_before: the ticks used at the start of each state, within the iteration.
        derived: other slots with a known difference to the next index after an iteration.
        unused: instructions that only compute the next index.
        next_index: the last of these in each state with a back edge.
        sums: instructions that compute the index plus a constant.
        items: the local of the list, if the index is only used to read its items.
        uses: the number of these reads.
    """

    def __init__(self, header: int, first: int, states: set[int]) -> None:
        self.header = header
        self.first = first
        self.states = states
        self.index = self.step = self.ticks = 0
        self.name = self.bound = ""
        self.limit: int | None = None
        self.ticks_before: dict[int, int] = {}
        self.derived: dict[int, int] = {}
        self.unused: set[int] = set()
        self.next_index: set[int] = set()
        self.sums: set[int] = set()
        self.items = ""
        self.uses = 0

    def unused_ticks(self, state: int) -> str:
        """Python text for the unused ticks at the end of a state. `e` is the final index of the batch,
        `r` the remaining items.
        """
        iterations, used = "LEFT(r) + 1" if self.items else self.iterations("e"), self.ticks_before[state] + 1
        return f"{iterations} - {used}" if self.ticks == 1 else f"({iterations}) * {self.ticks} - {used}"

    def iterations(self, end: str) -> str:
        """Python text for the number of iterations until the index is `end`."""
        return f"{end} - {self.name}" if self.step > 0 else f"{self.name} - ({end})"

    def is_worthwhile(self) -> str:
        """Condition that enough iterations remain for a batch to be faster."""
        if self.limit is None:
            return f"{self.iterations(self.bound)} > {MIN_BATCH}"
        return (
            f"{self.name} < {self.limit - MIN_BATCH}"
            if self.step > 0
            else f"{self.name} > {self.limit + MIN_BATCH}"
        )

    def prepaid_ticks(self, state: int) -> PrepaidTicks:
        """The ticks charged in advance, for faults."""
        return PrepaidTicks("" if self.items else self.name, self.ticks, self.ticks_before[state] + 1)

    def is_within(self, state: int, target: int) -> bool:
        """Whether a jump stays within an iteration."""
        return target in self.states and (state in self.states or state == self.header)
