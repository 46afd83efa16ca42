"""Untrusted images: an image that passes the verifier runs without a crash, whatever its origin."""

from __future__ import annotations

import contextlib
import hashlib
import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_programs import programs
from laws import tried

from llc.ir.nodes import Program
from llc.ir.text import parse_program
from llc.ir.verify import verify
from llc.vm.code.disassembly import disassemble
from llc.vm.code.emit import emit
from llc.vm.code.image import Image, ImageError
from llc.vm.code.lift import lift
from llc.vm.code.opcodes import BY_NAME, ROWS
from llc.vm.code.verify import MAX_STACK, verify_image
from llc.vm.machine.machine import Done, Effect, OutOfFuel
from llc.vm.tiered import Machine
from llc.vm.values.faults import Fault

SMALL = """
program p entry main
function main() locals(x, y)
  state s on fault -> t(y)
    x = add(1, 2)
    note cycle map("cycle", x)
    setbox box(1) x
    switch "a" {"a" -> t, else -> u}
  state t
    call closure g(x)(y) -> x then u
  state u
    perform clock {} -> x then v
  state v
    branch x s w
  state w
    tailcall closure g(x)(x)
function g(a) captures(c)
  state s
    return list(a, c)
"""


def small() -> Image:
    return emit(parse_program(SMALL, "x.ir"))


def ids(image: Image) -> set[str]:
    return {diagnostic.id for diagnostic in verify_image(image)}


def check_image(image: Image) -> None:
    """List an image, and if the verifier accepts it, lift, prove and run it."""
    disassemble(image)
    if not list(verify_image(image)):
        list(verify(lift(image)))
        run(image)


def run(image: Image) -> None:
    """Run a verified image for a while with unusual answers; only outcomes of the machine may occur."""
    entry = image.functions[image.entry]
    machine = Machine(image, [None] * entry.parameters, fuel=50)
    answers: list[Any] = [{}, None, {"output": "x", "exit_code": 0}, [1], "text"]
    outcome: Any = machine.resume()
    for turn in range(20):
        assert isinstance(outcome, Effect | Done | Fault | OutOfFuel)
        if not isinstance(outcome, Effect):
            break
        outcome = machine.resume(answers[turn % len(answers)])
    machine.take_notes()


@given(programs())
def test_emitted_image_is_accepted(program: Program) -> None:
    """No image of a valid program is rejected."""
    assert list(verify_image(emit(program))) == []


@given(programs())
def test_emitted_image_runs(program: Program) -> None:
    """It ends, faults, performs an effect or runs out of fuel."""
    run(emit(program))


# --- bytes ------------------------------------------------------------------------------------


@settings(max_examples=tried(66))
@given(st.data())
def test_changed_byte_is_an_error(data: st.DataObject) -> None:
    """Any changed or truncated image is an ImageError."""
    good = small().to_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = bytearray(good)
    damaged[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[at]))
    for bad in (bytes(damaged), good[:at], good[:at] + good[at + 1 :], good + good[at:]):
        with pytest.raises(ImageError):
            Image.from_bytes(bad)


def signed(image: bytes, program: bytes, debug: bytes) -> bytes:
    """The header of an image with other sections and matching digests."""
    lengths = len(program).to_bytes(4, "little") + len(debug).to_bytes(4, "little")
    digests = hashlib.sha256(program).digest() + hashlib.sha256(debug).digest()
    return image[:10] + lengths + digests + program + debug


def forge(section: bytes, draw: Any) -> bytes:
    """A section of an image with one changed byte, word, or part of its JSON."""
    length = int.from_bytes(section[:4], "little")
    text, body = section[4 : 4 + length], bytearray(section[4 + length :])
    kind = draw(st.sampled_from(["bytes", "word", "json", "json"]))
    if kind == "bytes":
        at = draw(st.integers(0, len(section) - 1))
        new = draw(st.binary(max_size=4) | st.sampled_from([b'"', b"[", b"1", b"\\"]))
        return section[:at] + new + section[at + draw(st.integers(0, 4)) :]
    if kind == "word" and body:
        at = 4 * draw(st.integers(0, len(body) // 4 - 1))
        body[at : at + 4] = draw(st.integers(0, 24) | st.integers(0, (1 << 32) - 1)).to_bytes(4, "little")
    content = json.loads(text)
    if kind == "json":
        pending, locations = [content], []
        while pending:
            node = pending.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node))
            locations += [(node, key) for key in keys]
            pending += [node[key] for key in keys if isinstance(node[key], dict | list)]
        node, key = draw(st.sampled_from(locations))
        near = [other[k] for other, k in locations if type(other[k]) is type(node[key])]
        unusual = [None, True, -1, 0, 1, 2, 7, 1 << 32, 1.5, "", "box", [], [0], {}, {"int": "0x1"}]
        node[key] = draw(st.sampled_from(near) | st.sampled_from(unusual))
    text = json.dumps(content).encode("ascii")
    return len(text).to_bytes(4, "little") + text + bytes(body)


@settings(max_examples=tried(40), deadline=None)
@given(programs(max_states=2), st.data())
def test_forged_image_is_rejected_or_harmless(program: Program, data: st.DataObject) -> None:
    """Changes with matching digests are rejected, or the image can be lifted and run."""
    good = emit(program).to_bytes(packed=False)
    first = 82 + int.from_bytes(good[10:14], "little")
    sections = [good[82:first], good[first:]]
    which = data.draw(st.sampled_from([0, 0, 0, 1]))
    # After the first change the section may be unreadable for a second one.
    with contextlib.suppress(ValueError):
        for _ in range(data.draw(st.integers(1, 2))):
            sections[which] = forge(sections[which], data.draw)
    try:
        image = Image.from_bytes(signed(good, *sections))
    except ImageError:
        return
    check_image(image)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_error(data: bytes) -> None:
    """With and without a valid header."""
    header = small().to_bytes(packed=False)
    for bad in (data, header[:10] + data, signed(header, data, b""), signed(header, header[82:], data)):
        with pytest.raises(ImageError):
            Image.from_bytes(bad)


# --- structure --------------------------------------------------------------------------------


@settings(max_examples=tried(40), deadline=None)
@given(programs(max_states=2), st.data())
def test_changed_code_is_rejected_or_harmless(program: Program, data: st.DataObject) -> None:
    """Changed words, tables, handlers and frames are rejected, or the image can be lifted and run."""
    image = emit(program)
    function = data.draw(st.sampled_from(image.functions))
    word = st.integers(0, 24) | st.sampled_from([row.number for row in ROWS]) | st.integers(0, (1 << 32) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(
            st.sampled_from(["word", "word", "word", "insert", "delete", "offset", "handler", "frame"])
        )
        code = function.code
        at = data.draw(st.integers(0, len(code)))
        if kind == "word" and at < len(code):
            code[at] = data.draw(word)
        elif kind == "insert":
            code.insert(at, data.draw(word))
        elif kind == "delete" and at < len(code):
            del code[at]
        elif kind == "offset":
            state = data.draw(st.integers(0, len(function.offsets) - 1))
            function.offsets[state] = data.draw(st.integers(0, len(code) + 1))
        elif kind == "handler":
            small_word = st.integers(0, 6)
            function.handlers[data.draw(small_word)] = (data.draw(small_word), data.draw(small_word))
        else:
            function.max_stack = data.draw(st.integers(0, 9))
            function.captures = data.draw(st.integers(0, 4))
            function.parameters = data.draw(st.integers(0, 4))
    check_image(image)


def patched(image: Image, opcode: str, *operands: int) -> Image:
    """The image with other operands in its first instruction of an opcode."""
    for function in image.functions:
        at = 0
        while at < len(function.code):
            row = next(row for row in ROWS if row.number == function.code[at])
            if row.name == opcode:
                function.code[at + 1 : at + 1 + len(operands)] = array("I", operands)
                return image
            at += 1 + len(row.operands)
    raise AssertionError(opcode)


@pytest.mark.parametrize(
    ("opcode", "operands"),
    [
        ("CONST", (99,)),
        ("STORE", (2,)),
        ("LOAD", (2,)),
        ("PRIM", (99, 2)),
        ("PRIM", (0, 2)),
        ("CLOSURE", (2, 1)),
        ("CLOSURE", (1, 0)),
        ("NOTE", (0,)),
        ("NOTE", (99,)),
        ("JUMP", (9,)),
        ("SWITCH", (1, 0)),
        ("SWITCH", (0, 9)),
        ("BRANCH", (9, 0)),
        ("BRANCH", (0, 9)),
        ("CALL", (1, 2, 0)),
        ("CALL", (1, 0, 9)),
        ("PERFORM", (0, 0, 0)),
        ("PERFORM", (99, 0, 0)),
    ],
)
def test_operands_are_in_range(opcode: str, operands: tuple[int, ...]) -> None:
    """An index out of range, or of a constant of the wrong type, is an error."""
    image = small()
    if opcode == "JUMP":
        image = emit(parse_program("program p entry f function f() state s goto s", "x.ir"))
    assert "bad-operand" in ids(patched(image, opcode, *operands))


def one_state(*code: int, max_stack: int = 9) -> Image:
    image = emit(parse_program("program p entry f function f() locals(x) state s return x", "x.ir"))
    image.functions[0].code[:] = array("I", code)
    image.functions[0].max_stack = max_stack
    return image


LOAD, STORE, RETURN, JUMP = (BY_NAME[name].number for name in ("LOAD", "STORE", "RETURN", "JUMP"))


@pytest.mark.parametrize(
    ("code", "id"),
    [
        ((RETURN,), "stack-underflow"),
        ((STORE, 0, LOAD, 0, RETURN), "stack-underflow"),
        ((LOAD, 0, LOAD, 0, RETURN), "stack-leftover"),
        ((LOAD, 0, JUMP, 0), "stack-leftover"),
        ((LOAD, 0, STORE, 0), "no-exit"),
        ((LOAD, 0), "no-exit"),
        ((LOAD,), "bad-opcode"),
        ((LOAD, 0, RETURN, RETURN), "code-after-exit"),
        ((0,), "bad-opcode"),
        ((99,), "bad-opcode"),
        ((), "bad-image"),
    ],
)
def test_state_is_straight_line_code_with_one_exit(code: tuple[int, ...], id: str) -> None:
    """The stack never underflows, is empty at the exit, and the code ends there."""
    assert ids(one_state(*code)) == {id}


def test_the_stack_stays_below_its_declared_height() -> None:
    """Code that exceeds the declared height is an error, and so is an absurd height."""
    code = (LOAD, 0, LOAD, 0, STORE, 0, RETURN)
    assert ids(one_state(*code, max_stack=2)) == set()
    assert ids(one_state(*code, max_stack=1)) == {"stack-overflow"}
    assert ids(one_state(*code, max_stack=MAX_STACK + 1)) == {"bad-image"}


def test_operand_count_of_primitives_is_verified() -> None:
    """Although the stack may have enough values."""
    source = "program p entry f function f(x) state s return {}"
    for call, name, count in [("add(x, x)", "not", 2), ("list(x, x, x)", "map", 3), ("not(x)", "lookup", 1)]:
        image = emit(parse_program(source.format(call), "x.ir"))
        index = next(i for i, constant in enumerate(image.constants) if type(constant) is str)
        image.constants = tuple(name if i == index else c for i, c in enumerate(image.constants))
        assert ids(image) == {"bad-operand"}, (name, count)


def test_constants_are_values() -> None:
    """An invalid constant in memory is rejected before its use."""
    image = small()
    image.constants = (*image.constants, [1], {1: 2})
    assert ids(image) == {"bad-constant"}


def test_shared_constants_are_counted_each_time() -> None:
    """An image of a few hundred bytes that stands for 2^60 items is rejected quickly."""
    image = one_state(LOAD, 0, RETURN)
    value: Any = ()
    for _ in range(60):
        value = (value, value)
    image.constants = (value,)
    assert ids(Image.from_bytes(image.to_bytes())) == {"bad-constant"}


def test_names_are_unique() -> None:
    """Two functions, states or slots of one name would lift to another program."""
    for change in ("functions", "states", "slots"):
        image = small()
        main = image.functions[0]
        if change == "functions":
            image.functions[1].name = main.name
        elif change == "states":
            main.states = (main.states[0],) * len(main.states)
        else:
            main.slots = (main.slots[0],) * len(main.slots)
        assert ids(image) == {"bad-image"}


def test_the_entry_exists_and_needs_no_captures() -> None:
    """Otherwise a machine could not start."""
    for entry in (1, 2):
        image = small()
        image.entry = entry
        assert ids(image) == {"bad-image"}


def test_tables_and_handlers_lead_to_states() -> None:
    """Also those that no code uses."""
    image = small()
    image.functions[0].tables[0]["z"] = 99
    assert ids(image) == {"bad-image"}
    for handler in [(99, (0, 0)), (0, (99, 0)), (0, (0, 99))]:
        image = small()
        image.functions[0].handlers[handler[0]] = handler[1]
        assert ids(image) == {"bad-image"}


def test_diagnostic_has_a_span() -> None:
    """If the image has spans."""
    text = 'program p entry f source 0 "a.yaml" function f(x) state s return x @0:3:5-3:6'
    image = emit(parse_program(text, "x.ir"))
    image.functions[0].code[1] = 7
    assert [str(diagnostic.span) for diagnostic in verify_image(image)] == ["a.yaml:3:5"]


def test_many_states_are_verified() -> None:
    """A large function is verified in one pass."""
    states = "".join(f" state s{n} goto s{n + 1}" for n in range(5_000))
    image = emit(parse_program(f"program p entry f function f() {states} state s5000 return 1", "x.ir"))
    assert ids(image) == set()
