"""Counted loops: the record of a loop whose trip count is known when it begins.

`analysis/counted_loops.py` finds them; `codegen/states.py` writes batches of their iterations.
"""

from __future__ import annotations

from .function import Ahead

# Up to this number of iterations, a batch is slower than single iterations.
FEW = 16


class Count:
    """A loop that counts.

    states: its states without the header; first: the one that the header leads to. index: the slot that
    counts, name: its local; step: by what. bound: what it reaches in the end, as text; limit: as a number, if
    it is one. ticks: how many a round uses. passed: by state, how many a round has used when it begins. ends:
    slots besides the index that are known after a round, by how much more than the next index they are.
    unread: instructions that only say what the next index is; nexts: the last of those in each state that
    leads back. sums: instructions that give the index and a number. items: where the index is only used for
    the items of a list by it, the local that is the list; uses: how often.
    """

    def __init__(self, header: int, first: int, states: set[int]) -> None:
        self.header = header
        self.first = first
        self.states = states
        self.index = self.step = self.ticks = 0
        self.name = self.bound = ""
        self.limit: int | None = None
        self.passed: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.unread: set[int] = set()
        self.nexts: set[int] = set()
        self.sums: set[int] = set()
        self.items = ""
        self.uses = 0

    def left(self, state: int) -> str:
        """The ticks that are not used yet where a state ends, as text. `e` is where the index ends, `r` the
        items that are left."""
        rounds, used = "LEFT(r) + 1" if self.items else self.rounds("e"), self.passed[state] + 1
        return f"{rounds} - {used}" if self.ticks == 1 else f"({rounds}) * {self.ticks} - {used}"

    def rounds(self, end: str) -> str:
        """How many there are until the index is `end`."""
        return f"{end} - {self.name}" if self.step > 0 else f"{self.name} - ({end})"

    def are_many(self) -> str:
        """The condition for more rounds to be left than are done quicker one by one."""
        if self.limit is None:
            return f"{self.rounds(self.bound)} > {FEW}"
        return f"{self.name} < {self.limit - FEW}" if self.step > 0 else f"{self.name} > {self.limit + FEW}"

    def ahead(self, state: int) -> Ahead:
        """The same as what a fault goes by."""
        return Ahead("" if self.items else self.name, self.ticks, self.passed[state] + 1)

    def is_within(self, state: int, target: int) -> bool:
        """Whether a jump stays within a round."""
        return target in self.states and (state in self.states or state == self.header)
