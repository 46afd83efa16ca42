"""A function of an image as a Python function in direct style: a call is a call, a loop a `while`.

Between two states nothing lives but slots, so a Python frame that stands at a call, an effect or a tick
is a frame of the machine: its locals `s0`, `s1` … are the slots, and its line tells the state (`text`).

Must not be in here: what the names in the text mean (`library`, `tier`), Python for primitives
(`inline`).
"""

from __future__ import annotations

from ...ir.primitives import PRIMITIVES
from .flow import FlowGraph
from .function import Function, unset
from .instructions import Instructions, Operand
from .known import Known, types
from .text import Text, tick
from .writer import Nested, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..image import Image
    from .text import Statement

# A function with more states is not translated: its text would be too large to be worth it.
MOST_STATES = 3000
# From this many words on there is no second text for integer parameters.
_LONG = 400


def obstacle(image: Image) -> str | None:
    """Why a program cannot be translated, in words; None where it can."""
    for code in image.functions:
        if len(code.states) > MOST_STATES:
            return f"`{code.name}` has {len(code.states):,} states, and {MOST_STATES:,} are the most"
    return None


class Translator:
    """Translates functions of one image."""

    def __init__(self, image: Image) -> None:
        self.image = image

    def function(self, index: int) -> Text:
        """`F<index>`: the function as one that takes its captures, as a tuple, and its parameters."""
        return _deepest(Function(self.image, index), _whole)

    def entry(self, index: int, state: int) -> Text:
        """`E<index>_<state>`: the function from a state on, as one that takes all its slots in a list."""
        return _deepest(Function(self.image, index, state), _from_state)

    def spread(self, index: int, count: int) -> Text | None:
        """`A<index>_<count>_0`: a function that only applies a primitive to its list, for so many items."""
        return _spread(Function(self.image, index), count)


def _deepest(function: Function, write: Callable[[Function], Text]) -> Text:
    """The text of a function; where a state would stand too deep in it, that becomes a root."""
    while True:
        try:
            return write(function)
        except Nested as nested:
            function.roots.add(nested.state)


def _whole(function: Function) -> Text:
    code, index = function.code, function.index
    graph = FlowGraph(function.edges, function.roots)
    given = ", ".join(["c", *(f"s{slot}" for slot in range(code.parameters))])
    statements: list[Statement] = []
    if not code.parameters:  # who calls it with no arguments may have filled some in
        statements.append((f"if len(c) != {code.captures}", [f"return APPLIED({index}, c)"]))
    if function.own:
        statements.append(f"{''.join(f's{slot}, ' for slot in function.own)}= c")
    statements += tick(function.offsets[0])
    empty = sorted(unset(function, graph))
    if empty:
        statements.append(" = ".join([*(f"s{slot}" for slot in empty), "None"]))
    if len(code.code) < _LONG and graph.roots == {function.start} and not code.handlers:
        statements += _for_integers(function, graph)
    return Text(f"F{index}", [(f"def F{index}({given})", [*statements, *_body(function, graph)])])


def _from_state(function: Function) -> Text:
    graph = FlowGraph(function.edges, function.roots)
    name = f"E{function.index}_{function.start}"
    slots = "".join(f"s{slot}, " for slot in range(len(function.code.slots)))
    begin = [f"{slots}= slots"] if slots else []
    return Text(name, [(f"def {name}(slots)", [*begin, *_body(function, graph)])])


def _body(function: Function, graph: FlowGraph) -> list[Statement]:
    body = Writer(function, graph, types(function, graph, {})).whole()
    if graph.roots == {function.start} and not function.code.handlers:
        return body
    return [f"at = {function.start}", ("while True", _guarded(function, body))]


def _for_integers(function: Function, graph: FlowGraph) -> list[Statement]:
    """The body once more, for the case that the parameters it computes with are integers."""
    parameters = set(range(function.code.parameters))
    wanted = types(function, graph, {}).wanted & parameters
    known = types(function, graph, dict.fromkeys(wanted, "int"))
    sure = [slot for slot in sorted(wanted) if known.before[0][slot] == "int"]
    if not sure:
        return []
    tests = " and ".join(f"type(s{slot}) is int" for slot in sure)
    return [(f"if {tests}", Writer(function, graph, known).whole())]


def _guarded(function: Function, body: list[Statement]) -> list[Statement]:
    """The body with what happens to faults in it: control goes to a handler's state, if there is one."""
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


def _spread(function: Function, count: int) -> Text | None:
    code, constants = function.code, function.image.constants
    words = [(row.name, operands) for _, row, operands in function.states[0]]
    if len(function.states) != 1 or [name for name, _ in words] != ["CONST", "LOAD", "PRIM", "RETURN"]:
        return None
    if not code.rest or code.parameters != 1 or code.captures or words[1][1][0] != 0:
        return None
    name = constants[words[0][1][0]]
    signature = PRIMITIVES.get(name) if type(name) is str else None
    if constants[words[2][1][0]] != "operate" or signature is None or name == "operate":
        return None
    if count < signature.least or (signature.most is not None and count > signature.most):
        return None
    given = [f"a{number}" for number in range(count)]
    writer = Instructions(function, Known())
    writer.stack = [Operand(text, "any", True) for text in given]
    writer.primitive(function.states[0][2][0], name, count)
    statements: list[Statement] = [
        f"s0 = ({''.join(f'{text}, ' for text in given)})",
        *tick(function.offsets[0]),
        *writer.out,
        f"return {writer.stack[0].text}",
    ]
    title = f"A{function.index}_{count}_0"
    return Text(title, [(f"def {title}({', '.join(['c', *given])})", statements)])
