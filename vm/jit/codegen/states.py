"""Translation of states and their exits. The states of a counted loop are written twice: as an iteration of
a batch (`analysis/counted_loops.py`), and as ordinary states.

Must not contain: control structure (`structurer`), instructions other than exits (`instructions`).
"""

from __future__ import annotations

import re

from ...code.opcodes import NO_STATE
from ..analysis.counted_loops import find_counted_loops, iterate_items
from ..analysis.liveness import BatchLiveness, Liveness
from ..analysis.type_inference import KnownTypes, operands_of
from ..model.control_flow import FlowGraph
from ..model.counted_loop import CountedLoop
from ..model.function import NOWHERE, Function, Part
from ..model.trees import trees
from .instructions import Operand, Optimizations, Version, effect_statements, tuple_display
from .python_text import PREPAID, Statement, grow, mark, tick
from .structurer import Loop, Regions

# The first assignment of an iteration over the items of a list.
_FROM_ITEM = re.compile(r"(s\d+) = i")


class Writer(Regions):
    """Writes the states of a function for the inferred types.

    rising_index: the slot that must be at least 0 when the function begins.
    """

    def __init__(
        self,
        function: Function,
        graph: FlowGraph,
        known: KnownTypes,
        version: Version,
        optimizations: Optimizations,
    ) -> None:
        super().__init__(function, graph, known, version, optimizations)
        self.live: Liveness | None = None
        # The counted loops by header, with the liveness within their batches; and the loop whose batch is
        # being written.
        self.batches: dict[int, tuple[CountedLoop, BatchLiveness]] = {}
        self.current_batch: CountedLoop | None = None
        if not function.code.handlers:
            self.live = live = Liveness(function, graph, known)
            self.plans = live.plans
            nodes = trees(function)
            loops = find_counted_loops(function, graph, known, live, nodes)
            self.batches = {header: (batch, BatchLiveness(live, batch)) for header, batch in loops.items()}
            without = {f"s{slot}" for batch in loops.values() for slot in batch.derived}
            without |= {batch.name for batch in loops.values()} | self.optimizations.growing
            self.flags.select(live, nodes, without)
            if function.start in loops and self.optimizations.below:
                batch, live = self.batches[function.start]
                if batch.step > 0:
                    self.rising_index = batch.name
                    iterate_items(batch, live, self.optimizations.below, nodes)

    def jump(self, state: int, target: int) -> tuple[list[Statement], set[int]]:
        """Write a jump from a state to a target."""
        graph, function = self.graph, self.function
        written: list[Statement] = []
        batch = self.batch_of(state)
        if batch is not None and target != batch.header and target not in batch.states:
            if batch.items:
                written.append(f"{batch.name} = e - LEFT(r) - 1")
            written.append(f"GIVE({batch.unused_ticks(state)})")
        if batch is not None and batch.is_within(state, target):
            pass  # the tick has been charged
        elif function.ticks(state, target) and not self.is_ticked_by_loop(state, target):
            written += tick(function.tick_offset(state, target))
        if (state, target) in function.exit_jumps:
            names = [f"s{slot}" for slot in range(len(function.code.slots))]
            slots = tuple_display(
                [f"FINISHED({name})" if name in self.optimizations.growing else name for name in names]
            )
            return [*written, f"return ({mark(NOWHERE)}ENTER({function.index}, {target}, {slots}))"], set()
        is_below = not graph.is_back(state, target) and target not in graph.roots
        if is_below and not any(isinstance(one, list) and target in one for one in self.enclosing):
            body, falls = self.region(target)
            return [*written, *body], falls
        for one in reversed(self.enclosing):
            if isinstance(one, Loop) and target in one.states:
                if one.is_root and not self.has_single_entry:
                    written.append(f"at = {target}")
                break
            if isinstance(one, list) and target in one:
                break
        words = self.path_to(target)
        if words is None:
            return [*written, self.arrival(target)], {target}
        if words == "break":
            written.append(self.arrival(target))
        return [*written, words], set()

    # --- states -----------------------------------------------------------------------------

    def state(self, state: int) -> tuple[list[Statement], set[int]]:
        self.begin_state(state)
        self.mark_shift = self.prepaid_mark(state)
        batch = self.batch_of(state)
        self.items = "" if batch is None else batch.items
        self.has_room = self.with_room(batch)
        if self.live is not None:
            self.plans = self.liveness_at(state).plans
        outer = self.function.fallback_calls.get(state)
        if outer is not None:
            self.stack = self.operands_of(outer)
        else:
            for offset, row, operands in self.function.states[state][:-1]:
                self.emit(offset, row.name, operands)
                if batch is not None and offset in batch.next_index:
                    self.stack[-1] = Operand(batch.name, "int", True)
        return self.end_state(state)

    def prepaid_mark(self, state: int) -> int:
        """The value that is added to the offsets of a state's marks."""
        batch = self.batch_of(state)
        if batch is None:
            return 0
        self.function.prepaid_ticks.append(batch.prepaid_ticks(state))
        return PREPAID * len(self.function.prepaid_ticks)

    def operands_of(self, part: Part) -> list[Operand]:
        """The operands of a call of a function whose slots are already set."""
        callee, *kinds = operands_of(part, self.kinds)
        names = self.function.names[part.slot :]
        given = part.code.parameters
        captures = names[given : given + part.code.captures]
        arguments = [Operand(name, kind, True) for name, kind in zip(names, kinds, strict=False)]
        return [Operand("", callee, False, captures), *arguments]

    def end_state(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write the exit of a state and the states that follow it."""
        offset, row, operands = self.function.states[state][-1]
        if row.name == "BRANCH":
            condition = self.stack.pop().text
            written = self.out
            self.indentation += 1
            then, falls = self.write_branch(state, operands[0])
            self.indentation -= 1
            otherwise, more = self.write_branch(state, operands[1])
            if not falls:
                return [*written, (f"if {condition}", then), *otherwise], more
            if not more:
                return [*written, (f"if not {condition}", otherwise), *then], falls
            return [*written, (f"if {condition}", then), ("else", otherwise)], falls | more
        if row.name == "SWITCH":
            return self.switch(state, offset, operands)
        function = self.function
        if function.restarts[state]:
            return self.write_self_tail_call(state)
        if state in function.inlined_calls:
            return self.write_inlined_call(state)
        text = ""
        match row.name:
            case "CALL" | "TAILCALL":
                text = self.call(offset, operands[0])
            case "PERFORM":
                text = f"({mark(offset)}PERFORM({self.constant(operands[0])[0]}, {self.stack.pop().text}))"
            case "PARALLEL":
                callee, items = (one.text for one in self.take(2, False))
                text = f"({mark(offset)}FORK({callee}, {items}))"
            case "RETURN":
                text = f"({self.stack.pop().text})"
                if function.is_end(state):
                    text = f"({mark(offset)}END{text})"
            case "FAIL":
                return [*self.out, f"({self.mark(offset)}FAIL({self.stack.pop().text}))"], set()
        if row.name in ("RETURN", "TAILCALL") and not function.is_return(state):
            return [*self.out, f"return {text}"], set()
        slot = function.result_slot(state)
        written = self.out
        if slot is not None:
            if row.name == "RETURN" and self.is_forwarded(state, slot):
                self.forwarded = slot, text
            elif self.live is None or self.liveness_at(state).is_result_used(state):
                written.append(f"s{slot} = {text}")
                written += self.flags.update(f"s{slot}", "any")
                written += self.released(state, [(text[1:-1], f"s{slot}")])
            else:
                written += effect_statements(text)
        body, falls = self.jump(state, function.edges[state][0])
        return [*written, *body], falls

    # --- counted loops ---------------------------------------------------------------------------

    def write_branch(self, state: int, target: int) -> tuple[list[Statement], set[int]]:
        """Write one branch of a state; if it enters a counted loop, write a batch of iterations."""
        if state not in self.batches or target != self.batches[state][0].first:
            return self.jump(state, target)
        batch, _ = self.batches[state]
        # Inside a batch ticks are already charged, and no frame can be inspected.
        outer, self.current_batch = self.current_batch, batch
        loop = Loop([state])
        self.enclosing.append(loop)
        body, falls = self.jump(state, target)
        self.enclosing.pop()
        if falls:
            body = [*body, "break"]
        batch_text, falls = self.write_batch(batch, body, loop.breaks | falls)
        self.current_batch = outer
        written, more = self.jump(state, target)
        rest: list[Statement] = [("else", written)] if falls else written
        return [(f"if {batch.is_worthwhile()}", batch_text), *rest], falls | more

    def batch_of(self, state: int) -> CountedLoop | None:
        """The counted loop whose batch contains a state, if any."""
        batch = self.current_batch
        return batch if batch is not None and state in batch.states else None

    def liveness_at(self, state: int) -> Liveness:
        assert self.live is not None
        batch = self.batch_of(state)
        return self.live if batch is None else self.batches[batch.header][1]

    def with_room(self, batch: CountedLoop | None) -> set[str]:
        """The lists that have room for the items of a whole batch."""
        if batch is None or batch.header != self.function.start:
            return set()
        return self.optimizations.once_per_iteration

    def write_batch(
        self, batch: CountedLoop, body: list[Statement], leaves: set[int]
    ) -> tuple[list[Statement], set[int]]:
        """Write a batch of iterations, and the states that follow it."""
        name, sign = batch.name, "+" if batch.step > 0 else "-"
        given = [batch.iterations(batch.bound), str(batch.ticks)]
        given += [f"m{one[1:]} + 1 - len({one})" for one in sorted(self.with_room(batch))]
        written: list[Statement] = [
            f"e = {name} {sign} ({mark(self.function.offsets[batch.header])}PORTION({', '.join(given)}))"
        ]
        iterations = f"for {name} in range({name}, e{'' if batch.step > 0 else ', -1'})"
        if batch.items:
            item = "i"
            if batch.uses == 1 and (found := _FROM_ITEM.fullmatch(str(body[0]))):
                item, body = found[1], body[1:]
            written.append(f"r = iter({batch.items}[{name}:e])")
            iterations = f"for {item} in r"
        written += [(iterations, body), ("else", [*self.assign_derived(batch), "continue"])]
        return self.after_loop(written, leaves)

    def assign_derived(self, batch: CountedLoop) -> list[Statement]:
        """Assign the slots with known values at the end of a batch."""
        assert self.live is not None
        seen = self.live.live_in[batch.header] | self.live.visible_on_edge(batch.header, batch.header)
        found: list[Statement] = [f"{batch.name} = e"]
        for slot, more in sorted(batch.derived.items()):
            if seen >> slot & 1:
                found.append(f"s{slot} = e + {more}" if more else f"s{slot} = e")
        return found

    def is_forwarded(self, state: int, slot: int) -> bool:
        """Whether the result of a state is used only for the branch of the next state."""
        function, (target, *_) = self.function, self.function.edges[state]
        batch = self.batch_of(state)
        return (
            self.live is not None
            and [(row.name, words[:1]) for _, row, words in function.states[target][:1]]
            == [("LOAD", (slot,))]
            and function.states[target][1][1].name == "BRANCH"
            and self.graph.predecessors[target] == [state]
            and not {target} & (self.graph.roots | self.graph.headers)
            and (not function.ticks(state, target) or (batch is not None and batch.is_within(state, target)))
            and not self.liveness_at(target).live_out[target] >> slot & 1
        )

    def switch(self, state: int, offset: int, operands: tuple[int, ...]) -> tuple[list[Statement], set[int]]:
        part = self.function.part_of[state]
        table = part.code.tables[operands[0]]
        subject = self.atom(self.stack.pop()).text
        mark_ = self.mark(offset)
        written = self.out
        all_falls: set[int] = set()
        cases: dict[int, list[str]] = {}
        for case, target in table.items():
            cases.setdefault(target + part.state, []).append(case)
        is_first = True
        for target, names in cases.items():
            if target == operands[1]:
                continue
            test = " or ".join(f"{subject} == {name!r}" for name in names)
            self.indentation += 1
            body, falls = self.jump(state, target)
            self.indentation -= 1
            written.append((f"{'' if is_first else 'el'}if {test}", body))
            all_falls |= falls
            is_first = False
        if operands[1] == NO_STATE:
            body = [f"({mark_}NO_CASE({subject}, {list(table)!r}))"]
        else:
            body, falls = self.jump(state, operands[1])
            all_falls |= falls
        if is_first:
            written += body
        else:
            written.append(("else", body))
        return written, all_falls

    def write_self_tail_call(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write a self tail call."""
        part = self.function.part_of[state]
        arguments = self.take(part.code.parameters, False)
        names = self.function.names[part.slot :]
        written = self.out
        moved = [(name, one) for name, one in zip(names, arguments, strict=False) if one.text != name]
        if moved:
            texts = ", ".join(one.text for _, one in moved)
            written.append(f"{', '.join(name for name, _ in moved)} = {texts}")
        for name, one in moved:
            written += self.flags.update(name, one.kind)
        written += self.released(
            state, [(one.text, name) for name, one in moved if one.kind in ("any", "map")]
        )
        # A jump to the first state charges its tick itself.
        body, falls = self.jump(state, part.state)
        return [*written, *clear_locals(part), *body], falls

    def write_inlined_call(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write an inlined call."""
        part = self.function.inlined_calls[state]
        arguments = self.take(part.code.parameters, False)
        callee = self.stack.pop()
        written = self.out
        names = self.function.names[part.slot :]
        texts = [one.text for one in arguments] + self.captures(callee)
        known = [one.kind for one in arguments] + ["any"] * part.code.captures
        for name, text, kind in zip(names, texts, known, strict=False):
            if name in self.optimizations.growing:
                written.append(grow(name, text))
            elif name != text:
                written += [f"{name} = {text}", *self.flags.update(name, kind)]
        written += self.released(
            state, [(one, to) for one, to in zip(texts, names, strict=False) if one != to]
        )
        body, falls = self.jump(state, part.state)
        return [*written, *clear_locals(part), *body], falls

    def released(self, state: int, moved: list[tuple[str, str]]) -> list[Statement]:
        """Clear the sources of moves that are not read again, where maps may be changed in place."""
        if self.live is None or not self.optimizations.maps:
            return []
        live, slots = self.liveness_at(state).live_out[state], self.function.names
        gone = {text for text, _ in moved if text in slots} - {name for _, name in moved}
        return [f"{text} = None" for text in sorted(gone) if not live >> slots.index(text) & 1]


def clear_locals(part: Part) -> list[Statement]:
    """Clear the local slots of an inlined function."""
    slots = part.slots_to_clear
    return [" = ".join([*(f"s{slot}" for slot in slots), "None"])] if slots else []
