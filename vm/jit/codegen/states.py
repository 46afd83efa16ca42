"""Translation of states and their exits. The states of a counted loop are written twice: as an iteration of
a batch (`analysis/counted_loops.py`), and as ordinary states.

Must not contain: control structure (`structurer`), instructions other than exits (`instructions`).
"""

from __future__ import annotations

import re

from ...code.opcodes import NO_STATE
from ..analysis.counted_loops import by_items, counted
from ..analysis.liveness import BatchLiveness, Liveness
from ..analysis.type_inference import KnownTypes, operands_of
from ..model.control_flow import FlowGraph
from ..model.counted_loop import CountedLoop
from ..model.function import NOWHERE, Function, Part
from ..model.trees import trees
from .instructions import Liberties, Operand, Version, effects, listed
from .python_text import AHEAD, Statement, grow, mark, tick
from .structurer import Loop, Regions

# The first assignment of an iteration over the items of a list.
_FROM_ITEM = re.compile(r"(s\d+) = i")


class Writer(Regions):
    """Writes the states of a function for the inferred types.

    rising: the slot that must be at least 0 when the function begins.
    """

    def __init__(
        self, function: Function, graph: FlowGraph, known: KnownTypes, version: Version, liberties: Liberties
    ) -> None:
        super().__init__(function, graph, known, version, liberties)
        self.live: Liveness | None = None
        # The counted loops by header, with the liveness within their batches; and the loop whose batch is
        # being written.
        self.counted: dict[int, tuple[CountedLoop, BatchLiveness]] = {}
        self.counting: CountedLoop | None = None
        if not function.code.handlers:
            self.live = live = Liveness(function, graph, known)
            self.plans = live.plans
            nodes = trees(function)
            counts = counted(function, graph, known, live, nodes)
            self.counted = {header: (count, BatchLiveness(live, count)) for header, count in counts.items()}
            without = {f"s{slot}" for count in counts.values() for slot in count.ends}
            without |= {count.name for count in counts.values()} | self.liberties.growing
            self.flags.find(live, nodes, without)
            if function.start in counts and self.liberties.below:
                count, rounds = self.counted[function.start]
                if count.step > 0:
                    self.rising = count.name
                    by_items(count, rounds, self.liberties.below, nodes)

    def jump(self, state: int, target: int) -> tuple[list[Statement], set[int]]:
        """Write a jump from a state to a target."""
        graph, function = self.graph, self.function
        written: list[Statement] = []
        count = self.count(state)
        if count is not None and target != count.header and target not in count.states:
            if count.items:
                written.append(f"{count.name} = e - LEFT(r) - 1")
            written.append(f"GIVE({count.left(state)})")
        if count is not None and count.is_within(state, target):
            pass  # the tick has been charged
        elif function.ticks(state, target) and not self.is_counted(state, target):
            written += tick(function.tick_offset(state, target))
        if (state, target) in function.left:
            names = [f"s{slot}" for slot in range(len(function.code.slots))]
            slots = listed([f"GROWN({name})" if name in self.liberties.growing else name for name in names])
            return [*written, f"return ({mark(NOWHERE)}ENTER({function.index}, {target}, {slots}))"], set()
        is_below = not graph.is_back(state, target) and target not in graph.roots
        if is_below and not any(isinstance(one, list) and target in one for one in self.around):
            body, falls = self.region(target)
            return [*written, *body], falls
        for one in reversed(self.around):
            if isinstance(one, Loop) and target in one.states:
                if one.is_root and not self.is_plain:
                    written.append(f"at = {target}")
                break
            if isinstance(one, list) and target in one:
                break
        words = self.onward(target)
        if words is None:
            return [*written, self.arrive(target)], {target}
        if words == "break":
            written.append(self.arrive(target))
        return [*written, words], set()

    # --- states -----------------------------------------------------------------------------

    def state(self, state: int) -> tuple[list[Statement], set[int]]:
        self.enter(state)
        self.ahead = self.marked(state)
        count = self.count(state)
        self.items = "" if count is None else count.items
        self.has_room = self.roomy(count)
        if self.live is not None:
            self.plans = self.lives(state).plans
        outer = self.function.outer.get(state)
        if outer is not None:
            self.stack = self.operands_of(outer)
        else:
            for offset, row, operands in self.function.states[state][:-1]:
                self.work(offset, row.name, operands)
                if count is not None and offset in count.nexts:
                    self.stack[-1] = Operand(count.name, "int", True)
        return self.leave(state)

    def marked(self, state: int) -> int:
        """The value that is added to the offsets of a state's marks."""
        count = self.count(state)
        if count is None:
            return 0
        self.function.ahead.append(count.ahead(state))
        return AHEAD * len(self.function.ahead)

    def operands_of(self, part: Part) -> list[Operand]:
        """The operands of a call of a function whose slots are already set."""
        callee, *kinds = operands_of(part, self.kinds)
        names = self.function.names[part.slot :]
        given = part.code.parameters
        captures = names[given : given + part.code.captures]
        arguments = [Operand(name, kind, True) for name, kind in zip(names, kinds, strict=False)]
        return [Operand("", callee, False, captures), *arguments]

    def leave(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write the exit of a state and the states that follow it."""
        offset, row, operands = self.function.states[state][-1]
        if row.name == "BRANCH":
            condition = self.stack.pop().text
            written = self.out
            self.nested += 1
            then, falls = self.enter_way(state, operands[0])
            self.nested -= 1
            otherwise, more = self.enter_way(state, operands[1])
            if not falls:
                return [*written, (f"if {condition}", then), *otherwise], more
            if not more:
                return [*written, (f"if not {condition}", otherwise), *then], falls
            return [*written, (f"if {condition}", then), ("else", otherwise)], falls | more
        if row.name == "SWITCH":
            return self.switch(state, offset, operands)
        function = self.function
        if function.again[state]:
            return self.begin_again(state)
        if state in function.called:
            return self.begin(state)
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
            if row.name == "RETURN" and self.is_asked(state, slot):
                self.asked = slot, text
            elif self.live is None or self.lives(state).is_result(state):
                written.append(f"s{slot} = {text}")
                written += self.flags.after(f"s{slot}", "any")
                written += self.released(state, [(text[1:-1], f"s{slot}")])
            else:
                written += effects(text)
        body, falls = self.jump(state, function.edges[state][0])
        return [*written, *body], falls

    # --- counted loops ---------------------------------------------------------------------------

    def enter_way(self, state: int, target: int) -> tuple[list[Statement], set[int]]:
        """Write one branch of a state; if it enters a counted loop, write a batch of iterations."""
        if state not in self.counted or target != self.counted[state][0].first:
            return self.jump(state, target)
        count, _ = self.counted[state]
        # Inside a batch ticks are already charged, and no frame can be inspected.
        outer, self.counting = self.counting, count
        loop = Loop([state])
        self.around.append(loop)
        body, falls = self.jump(state, target)
        self.around.pop()
        if falls:
            body = [*body, "break"]
        portion, falls = self.portion(count, body, loop.breaks | falls)
        self.counting = outer
        written, more = self.jump(state, target)
        rest: list[Statement] = [("else", written)] if falls else written
        return [(f"if {count.are_many()}", portion), *rest], falls | more

    def count(self, state: int) -> CountedLoop | None:
        """The counted loop whose batch contains a state, if any."""
        count = self.counting
        return count if count is not None and state in count.states else None

    def lives(self, state: int) -> Liveness:
        assert self.live is not None
        count = self.count(state)
        return self.live if count is None else self.counted[count.header][1]

    def roomy(self, count: CountedLoop | None) -> set[str]:
        """The lists that have room for the items of a whole batch."""
        return self.liberties.once if count is not None and count.header == self.function.start else set()

    def portion(
        self, count: CountedLoop, body: list[Statement], leaves: set[int]
    ) -> tuple[list[Statement], set[int]]:
        """Write a batch of iterations, and the states that follow it."""
        name, sign = count.name, "+" if count.step > 0 else "-"
        given = [count.rounds(count.bound), str(count.ticks)]
        given += [f"m{one[1:]} + 1 - len({one})" for one in sorted(self.roomy(count))]
        written: list[Statement] = [
            f"e = {name} {sign} ({mark(self.function.offsets[count.header])}PORTION({', '.join(given)}))"
        ]
        rounds = f"for {name} in range({name}, e{'' if count.step > 0 else ', -1'})"
        if count.items:
            item = "i"
            if count.uses == 1 and (found := _FROM_ITEM.fullmatch(str(body[0]))):
                item, body = found[1], body[1:]
            written.append(f"r = iter({count.items}[{name}:e])")
            rounds = f"for {item} in r"
        written += [(rounds, body), ("else", [*self.ends(count), "continue"])]
        return self.after(written, leaves)

    def ends(self, count: CountedLoop) -> list[Statement]:
        """Assign the slots with known values at the end of a batch."""
        assert self.live is not None
        seen = self.live.before[count.header] | self.live.visible(count.header, count.header)
        found: list[Statement] = [f"{count.name} = e"]
        for slot, more in sorted(count.ends.items()):
            if seen >> slot & 1:
                found.append(f"s{slot} = e + {more}" if more else f"s{slot} = e")
        return found

    def is_asked(self, state: int, slot: int) -> bool:
        """Whether the result of a state is used only for the branch of the next state."""
        function, (target, *_) = self.function, self.function.edges[state]
        count = self.count(state)
        return (
            self.live is not None
            and [(row.name, words[:1]) for _, row, words in function.states[target][:1]]
            == [("LOAD", (slot,))]
            and function.states[target][1][1].name == "BRANCH"
            and self.graph.before[target] == [state]
            and not {target} & (self.graph.roots | self.graph.headers)
            and (not function.ticks(state, target) or (count is not None and count.is_within(state, target)))
            and not self.lives(target).after[target] >> slot & 1
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
            self.nested += 1
            body, falls = self.jump(state, target)
            self.nested -= 1
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

    def begin_again(self, state: int) -> tuple[list[Statement], set[int]]:
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
            written += self.flags.after(name, one.kind)
        written += self.released(
            state, [(one.text, name) for name, one in moved if one.kind in ("any", "map")]
        )
        # A jump to the first state charges its tick itself.
        body, falls = self.jump(state, part.state)
        return [*written, *emptied(part), *body], falls

    def begin(self, state: int) -> tuple[list[Statement], set[int]]:
        """Write an inlined call."""
        part = self.function.called[state]
        arguments = self.take(part.code.parameters, False)
        callee = self.stack.pop()
        written = self.out
        names = self.function.names[part.slot :]
        texts = [one.text for one in arguments] + self.captures(callee)
        known = [one.kind for one in arguments] + ["any"] * part.code.captures
        for name, text, kind in zip(names, texts, known, strict=False):
            if name in self.liberties.growing:
                written.append(grow(name, text))
            elif name != text:
                written += [f"{name} = {text}", *self.flags.after(name, kind)]
        written += self.released(
            state, [(one, to) for one, to in zip(texts, names, strict=False) if one != to]
        )
        body, falls = self.jump(state, part.state)
        return [*written, *emptied(part), *body], falls

    def released(self, state: int, moved: list[tuple[str, str]]) -> list[Statement]:
        """Clear the sources of moves that are not read again, where maps may be changed in place."""
        if self.live is None or not self.liberties.maps:
            return []
        after, slots = self.lives(state).after[state], self.function.names
        gone = {text for text, _ in moved if text in slots} - {name for _, name in moved}
        return [f"{text} = None" for text in sorted(gone) if not after >> slots.index(text) & 1]


def emptied(part: Part) -> list[Statement]:
    """Clear the local slots of an inlined function."""
    slots = part.emptied
    return [" = ".join([*(f"s{slot}" for slot in slots), "None"])] if slots else []
