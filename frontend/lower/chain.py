"""Writer of consecutive states of a loop, and detection of states on cycles.

Must not contain: the meaning of the states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ...ir.analysis import components
from ...ir.builder import FunctionBuilder, record
from ...ir.nodes import Branch, Exit, Expr, Handler, Instruction, Perform
from ...ir.records import define
from ...ir.spans import Span
from ..loop.schema import CURRENT, Loop, StateSpec


@define
class Chain:
    """Writes consecutive states: the open state receives instructions until it gets its exit."""

    builder: FunctionBuilder
    handler: Handler | None = None
    span: Span | None = None
    name: str = ""
    body: list[Instruction] = attrs.Factory(list)

    def open(self, name: str) -> None:
        self.name, self.body = name, []

    def add(self, *instructions: Instruction) -> None:
        self.body.extend(instructions)

    def close(self, exit: Exit) -> None:
        self.builder.state(self.name, self.body, exit, handler=self.handler, span=self.span)

    def perform(self, kind: str, args: dict[str, Any], slot: str, then: str) -> None:
        """End the open state with an effect and open the state that receives the result."""
        self.close(Perform(kind, record(args), slot, then, span=self.span))
        self.open(then)

    def unless(self, condition: Expr, away: str, then: str) -> None:
        """End the open state: go to `away` if the condition holds, otherwise continue in a new state."""
        self.close(Branch(condition, away, then, span=self.span))
        self.open(then)


def states_on_cycles(loop: Loop, error_route: Callable[[StateSpec], str | None]) -> set[str]:
    """The author's states to which control can return within a cycle of the loop."""
    states = loop.states
    index = {name: number for number, name in enumerate(states)}
    anywhere = len(states)  # the node for targets that are computed at run time
    ways: list[list[int]] = []
    for name, state in states.items():
        targets = [error_route(state)]
        if not state.is_terminal:
            targets += [state.next, *state.routes.values(), state.on_retry_exhausted, state.on_throttle_hard]
        if state.action is not None and loop.kind_of(state) == "slash":
            targets += [loop.on_stall, loop.quota_target(state)]
        named = {name if target == CURRENT else target for target in targets if target is not None}
        dynamic = any("${" in target for target in named)
        ways.append([anywhere] if dynamic else [index[target] for target in named])
    ways.append(list(index.values()))
    names = [*states, ""]
    return {
        names[number]
        for component in components(ways)
        for number in component
        if len(component) > 1 or number in ways[number]
    }
