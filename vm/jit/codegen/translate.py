"""Translation of functions of an image to Python functions in direct style: a call becomes a call, a loop a
`while`.

Between two states only slots are live. A Python frame at a call, an effect or a tick therefore represents a
frame of the machine: its locals `s0`, `s1` … are the slots, and its line identifies the state
(`python_text`). A call of a small known function is inlined; the Python frame then represents two frames of
the machine (`function`).

A function has one version for each combination of argument kinds (`type_lattice`): the version for
integers contains no type tests.

Must not contain: the meaning of names in the text (`functions`, `tier`), Python text for primitives
(`inline`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...code.image import Image
from ...code.opcodes import ROWS, decode
from ..analysis.assignment import assigned_slots
from ..analysis.partial_inlining import find_leaves
from ..analysis.range_checks import RangeChecks
from ..analysis.type_inference import KnownTypes, ResultTypes, infer_types
from ..analysis.uniqueness import InPlace
from ..model.control_flow import FlowGraph
from ..model.function import NOWHERE, Function, Operation, operation, tail_callee
from ..model.slots import AssignedSlots
from ..model.type_lattice import INTEGERS, Kind
from .instructions import Instructions, Operand, Optimizations, tuple_display
from .python_text import Statement, Text, grow, mark, tick
from .states import Writer, clear_locals
from .structurer import TooDeep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The reason for not translating a program with an opcode that only the interpreter implements.
ONLY_INTERPRETED = "which only the interpreter runs"
# Functions with more states are not translated, because of the size of their text.
MAX_STATES = 3000
# Limit of versions of a function, besides the generic one.
_MAX_VERSIONS = 8
# Functions with at least this many words of code get no speculative version for integers.
_MAX_SPECULATED_WORDS = 400
# Limits of inlining: words of code of the inlined function and of the whole text, and nesting of a function
# in itself.
_MAX_INLINED_WORDS = 120
_MAX_TEXT_WORDS = 500
_MAX_NESTING = 4
# Limit of operands of a primitive that replaces a call of a function that applies it.
_MAX_OPERANDS = 4
# A call through a table is always at the start of a line (`python_text.mark`); string constants never are.
_TABLES = re.compile(r"(?m)^C(\d+)\[")
_TYPES = {"int": "int", "float": "float", "box": "Box"}


def obstacle(image: Image) -> str | None:
    """The reason why a program cannot be translated; None if it can."""
    interpreted = {row.number for row in ROWS if not row.is_translated}
    for code in image.functions:
        if len(code.states) > MAX_STATES:
            return f"`{code.name}` has {len(code.states):,} states; the limit is {MAX_STATES:,}"
        if interpreted:
            for _, row, _ in decode(code.code):
                if row.number in interpreted:
                    return f"`{code.name}` has {row.name}, {ONLY_INTERPRETED}"
    return None


class Version:
    """A function specialised to the kinds of its arguments and captures.

    is_plain: whether the arguments are used as they are. Otherwise the text is speculative: it tests whether
    the arguments have the expected kinds, and calls the plain version if not.
    """

    def __init__(self, name: str, index: int, given: tuple[Kind, ...], is_plain: bool) -> None:
        self.name = name
        self.index = index
        self.given = given
        self.is_plain = is_plain


class CompiledText:
    """A compiled text.

    tables: the argument counts of the call tables that it refers to.
    """

    def __init__(self, text: Text, title: str) -> None:
        self.name = text.name
        self.code = compile(text.source, f"<{title}>", "exec")
        self.places = text.places
        self.uses = text.uses
        self.tables = {int(number) for number in _TABLES.findall(text.source)}


class Translator:
    """Translator of the functions of one image, shared by all machines that run it.

    compiled: the compiled texts. entered: the (function, state) pairs at which functions have been entered.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self.compiled: dict[Any, CompiledText] = {}
        self.entered: set[tuple[int, int]] = set()
        self.plain_functions: dict[int, tuple[Function, FlowGraph]] = {}
        self.slots: dict[int, AssignedSlots] = {}
        self.operations: dict[tuple[int, int], tuple[Function, AssignedSlots]] = {}
        self.results = ResultTypes(image, lambda index: self.plain(index)[0])
        self.versions: dict[tuple[int, tuple[Kind, ...], bool], Version] = {}
        self.named: dict[str, Version] = {}
        self.counts: dict[int, int] = {}
        self.uses: set[str] = set()
        self.tail_callee_sets: dict[int, set[int]] = {}

    def plain(self, index: int) -> tuple[Function, FlowGraph]:
        """A function without inlined calls, and its control flow graph."""
        found = self.plain_functions.get(index)
        if found is None:
            function = Function(self.image, index)
            found = self.plain_functions[index] = function, FlowGraph(function.edges, function.roots)
        return found

    def unpacked(self, index: int, count: int) -> tuple[Function, AssignedSlots]:
        """A function that applies a primitive, specialised to `count` parameters, and its assigned slots."""
        found = self.operations.get((index, count))
        if found is None:
            function = Operation(self.image, index, count)
            found = self.operations[index, count] = function, assigned_slots(function)
        return found

    def assigned_slots(self, index: int) -> AssignedSlots:
        """The assigned slots of a function without inlined calls."""
        found = self.slots.get(index)
        if found is None:
            found = self.slots[index] = assigned_slots(self.plain(index)[0])
        return found

    # --- versions ---------------------------------------------------------------------------

    def version(self, index: int, given: tuple[Kind, ...], is_plain: bool = False) -> str:
        """The name of a version of a function; it takes the parameters, then the captures."""
        version = self.versions.get((index, given, is_plain))
        if version is None:
            count = self.counts[index] = self.counts.get(index, 0) + 1
            if count > _MAX_VERSIONS and not is_plain:
                given = ("any",) * len(given)
                version = self.versions.get((index, given, is_plain))
            if version is None:
                version = Version(f"V{index}_{count}", index, given, is_plain)
                self.versions[index, given, is_plain] = self.named[version.name] = version
        self.uses.add(version.name)
        return version.name

    def fitting_version(self, index: int, given: tuple[Kind, ...]) -> str:
        """The name of a version of a function for these kinds; an existing one if possible."""
        own = (one for one in self.named.values() if one.index == index and not one.is_plain)
        for version in own:
            if all(kind in ("any", known) for kind, known in zip(version.given, given, strict=True)):
                return version.name
        return self.version(index, given)

    def generic(self, index: int) -> Text:
        """`F<index>`: the function with its captures as a tuple, followed by its parameters."""
        code = self.image.functions[index]
        given = ("any",) * (code.parameters + code.captures)
        name = f"F{index}"
        head: list[Statement] = []
        if not code.parameters:  # a call without arguments may have applied arguments
            head.append((f"if len(c) != {code.captures}", [f"return APPLIED({index}, c)"]))
        own = _names(code.parameters, code.captures)
        if own:
            head.append(f"{''.join(f'{slot}, ' for slot in own)}= c")
        return self.text(Version(name, index, given, False), ["c", *_names(0, code.parameters)], head)

    def specialised(self, name: str) -> Text:
        """The version with this name; it takes the parameters, then the captures."""
        version = self.named[name]
        return self.text(version, _names(0, len(version.given)), [])

    def entry(self, index: int, state: int, given: Sequence[Kind]) -> Text:
        """`E<index>_<state>`: the function from a state on; it takes all slots in a list."""
        function = Function(self.image, index, state)
        function.leave_loops(self.plain(index)[1])
        name = f"E{index}_{state}"
        own = _names(0, len(function.code.slots))
        head: list[Statement] = [f"{''.join(f'{slot}, ' for slot in own)}= slots"] if own else []
        self.uses = set()
        body, _ = self.body(function, given)
        return self.make_text(name, function, [(f"def {name}(slots)", [*head, *body])])

    def text(self, version: Version, parameters: list[str], head: list[Statement]) -> Text:
        index = version.index
        given, known = list(version.given), None
        if not version.is_plain and len(self.image.functions[index].code) < _MAX_SPECULATED_WORDS:
            given, known = self.speculate(index, given)
        self.uses = set()
        speculated = [slot for slot, kind in enumerate(given) if kind != version.given[slot]]
        tests = [f"type(s{slot}) is not {_TYPES[str(given[slot])]}" for slot in speculated]
        function = Function(self.image, index)
        function.parts[0].assigned_slots = self.assigned_slots(index)
        tail_call_cycle = self.tail_call_cycle(index)
        if tail_call_cycle:
            function.merge(
                (self.plain(partner)[0], self.assigned_slots(partner)) for partner in tail_call_cycle
            )
            known = None
        growing: list[int] = []
        below: set[int] = set()
        if not version.is_plain and not tail_call_cycle:
            growing = sorted(InPlace(function).growing)
            tests += [
                f"type(s{slot}) is not tuple and type(s{slot}) is not Pair"
                for slot in growing
                if given[slot] not in ("array", "pair")
            ]
            indices = RangeChecks(function)
            if all(given[items] == "array" and given[end] in INTEGERS for items, end in indices.limits):
                below = indices.below
                tests += [f"len(s{items}) < s{end}" for items, end in sorted(indices.limits)]
        body, rising_index = self.body(function, given, growing, below, known)
        tests += [f"{rising_index} < 0"] if rising_index else []
        if tests:
            other = self.version(index, version.given, True)
            call = f"{other}({', '.join(_names(0, len(given)))})"
            head = [*head, (f"if {' or '.join(tests)}", [f"return ({mark(NOWHERE)}{call})"])]
        head = [*head, *(grow(f"s{slot}", f"s{slot}") for slot in growing)]
        title = f"def {version.name}({', '.join(parameters)})"
        return self.make_text(version.name, function, [(title, [*head, *body])])

    def make_text(self, name: str, function: Function, statements: list[Statement]) -> Text:
        text = Text(name, function, statements)
        text.uses = self.uses
        return text

    def speculate(self, index: int, given: list[Kind]) -> tuple[list[Kind], KnownTypes | None]:
        """Speculate on argument kinds: an argument of unknown kind is expected to have the kind that the
        function needs.

        Returns the kinds, and the resulting inference if it was computed.
        """
        function = self.plain(index)[0]
        if self.image.functions[index].handlers:
            return given, None
        known = infer_types(function, given, self.results)
        speculated = {
            slot: kind for slot, kind in known.wanted.items() if slot < len(given) and given[slot] == "any"
        }
        if not speculated:
            return given, known
        wanted = [speculated.get(slot, kind) for slot, kind in enumerate(given)]
        known = infer_types(function, wanted, self.results)
        before = known.at_entry[0]
        lasting = [kind if before[slot] == kind else given[slot] for slot, kind in enumerate(wanted)]
        return lasting, known if lasting == wanted else None

    def tail_call_cycle(self, index: int) -> list[int]:
        """The functions that are mutually reachable with a function by tail calls.

        In separate texts, each of these tail calls would leave a dead frame.
        """
        onward = self.tail_reachable(index)
        found = [other for other in sorted(onward) if other != index and index in self.tail_reachable(other)]
        codes = [self.image.functions[other] for other in (index, *found)]
        if any(code.handlers for code in codes) or sum(len(code.code) for code in codes) > _MAX_TEXT_WORDS:
            return []
        exits = {state[-1][1].name for other in found for state in self.plain(other)[0].states}
        return [] if exits & {"PERFORM", "PARALLEL"} else found

    def tail_reachable(self, index: int) -> set[int]:
        """The functions that are reachable from a function by tail calls."""
        found: set[int] = set()
        todo = [index]
        while todo:
            for other in self.tail_callees(todo.pop()):
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found

    def tail_callees(self, index: int) -> set[int]:
        """The functions that a function calls in tail position."""
        found = self.tail_callee_sets.get(index)
        if found is None:
            states = self.plain(index)[0].states
            callees = {tail_callee(self.image, state) for state in states}
            found = self.tail_callee_sets[index] = callees - {-1}
        return found

    # --- texts ------------------------------------------------------------------------------

    def body(
        self,
        function: Function,
        given: Sequence[Kind],
        growing: Iterable[int] = (),
        below: Iterable[int] = (),
        known: KnownTypes | None = None,
    ) -> tuple[list[Statement], str]:
        """The statements of a function after its slots have their names; and the local that must be at
        least 0 at its start.

        `growing` and `below` are results of `uniqueness` and `range_checks`; `known` are inferred types, if
        available.
        """
        # An entry in the middle of a function without a loop runs once.
        if function.is_entry and not FlowGraph(function.text_edges, function.roots).has_loop:
            known = infer_types(function, given, self.results)
        else:
            known = self.inline_calls(function, given, known)
        inplace = InPlace(function)
        lists = {*growing, *inplace.inlined_lists}
        begun: list[Statement] = []
        for slot, is_given in sorted(inplace.loop_lists.items()):
            kind = known.at_entry[function.start][slot]
            if not is_given:
                lists.add(slot)
            elif kind in ("array", "pair", "null"):
                lists.add(slot)
                begun.append(grow(f"s{slot}", "None" if kind == "null" else f"s{slot}"))
        optimizations = Optimizations(lists, inplace, below)
        while True:
            graph = FlowGraph(function.text_edges, function.roots)
            writer = Writer(function, graph, known, self.version, optimizations)
            try:
                written = writer.write_all()
            except TooDeep as nested:
                # A state that would be nested too deep becomes a root.
                function.roots.add(nested.state)
                continue
            break
        head = [*clear_locals(function.parts[0]), *begun]
        if not function.is_entry and not writer.charges_entry:
            head += tick(function.offsets[0])
        if writer.has_single_entry:
            return [*head, *written], writer.rising_index
        return [
            *head,
            f"at = {function.start}",
            ("while True", _guarded(function, written)),
        ], writer.rising_index

    def inline_calls(self, function: Function, given: Sequence[Kind], known: KnownTypes | None) -> KnownTypes:
        """Inline calls of small functions; return the inferred types afterwards."""
        known = known or infer_types(function, given, self.results)
        # Tail calls come last, because a call may be in a loop and the size of the text is limited. A handler
        # is found through the frame that it belongs to, which an inlined tail call would remove.
        exits = ("CALL",) if function.code.handlers else ("CALL", "TAILCALL")
        while True:
            before = len(function.parts)
            for exit_ in exits:
                for state, (callee, arguments) in known.calls.items():
                    if isinstance(callee, tuple) and function.states[state][-1][1].name == exit_:
                        self.inline_call(function, state, callee[1], (*arguments, *callee[2]))
            if len(function.parts) == before:
                return known
            known = infer_types(function, given, self.results)

    def inline_call(self, function: Function, state: int, index: int, given: Sequence[Kind]) -> None:
        """Inline a function at the call that ends a state, completely or partially, if this is worthwhile."""
        _, row, words = function.states[state][-1]
        code = self.image.functions[index]
        around = [part.index for part in function.enclosing_parts(state)]
        if (
            len(around) > _MAX_NESTING
            or function.size + len(code.code) > _MAX_TEXT_WORDS
            or state in function.fallback_calls
        ):
            return
        if 0 < words[0] <= _MAX_OPERANDS and operation(self.image, index, words[0]) is not None:
            function.inline(state, *self.unpacked(index, words[0]))
            return
        if code.handlers or code.rest or words[0] != code.parameters:
            return
        other, graph = self.plain(index)
        if row.name == "TAILCALL":
            # A loop is faster as a separate function, which is specialised to its arguments.
            if is_small(other, graph) and not graph.has_loop and index not in around:
                function.inline(state, other, self.assigned_slots(index))
            return
        if is_small(other, graph) and around.count(index) < 2:
            function.inline(state, other, self.assigned_slots(index))
            return
        found = find_leaves(other, infer_types(other, given, self.results), self.results.constants)
        if found is not None:
            function.inline(state, other, self.assigned_slots(index), *found)

    def unpacked_adapter(self, index: int, count: int) -> Text | None:
        """`A<index>_<count>_0`: a function that only applies a primitive to its argument list, for `count`
        items.
        """
        name = operation(self.image, index, count)
        if name is None:
            return None
        function = self.plain(index)[0]
        given = [f"a{number}" for number in range(count)]
        writer = Instructions(function, KnownTypes(), self.version)
        writer.stack = [Operand(text, "any", True) for text in given]
        writer.primitive(function.states[0][2][0], name, count)
        statements: list[Statement] = [
            f"s0 = {tuple_display(given)}",
            *tick(function.offsets[0]),
            *writer.out,
            f"return {writer.stack[0].text}",
        ]
        title = f"A{index}_{count}_0"
        return Text(title, function, [(f"def {title}({', '.join(['c', *given])})", statements)])


def is_small(function: Function, graph: FlowGraph) -> bool:
    """Whether a function is small enough to be inlined completely."""
    if len(function.code.code) > _MAX_INLINED_WORDS:
        return False
    exits = {state[-1][1].name for state in function.states}
    if exits & {"PERFORM", "PARALLEL"}:
        return False
    # A loop that also calls itself recursively gains nothing from inlining.
    return not (graph.headers or any(function.restarts)) or function.index not in function.closures()


def _names(first: int, count: int) -> list[str]:
    return [f"s{slot}" for slot in range(first, first + count)]


def _guarded(function: Function, body: list[Statement]) -> list[Statement]:
    """The body with fault handling: control goes to a handler's state if there is one."""
    handlers = function.code.handlers
    if not handlers:
        return body
    caught: list[Statement] = [
        f"found = CAUGHT({function.index}, error)",
        ("if found is None", ["raise"]),
        "at, slot, value, is_back = found",
    ]
    for slot in sorted({slot for _, slot in handlers.values()}):
        caught.append((f"if slot == {slot}", [f"s{slot} = value"]))
    caught.append("found = value = None")
    for target in sorted({target for target, _ in handlers.values()}):
        caught.append((f"if is_back and at == {target}", tick(function.offsets[target])))
    return [("try", body), ("except PrimitiveFault as error", caught)]
