"""The opcode table, its printed form, and the decoding of code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec.tables import compare

from llc.vm.code import emit, lift
from llc.vm.code.image import Image
from llc.vm.code.opcodes import BY_NAME, NO_STATE, OPERANDS, ROWS, decode
from llc.vm.jit.codegen.translate import obstacle
from llc.vm.machine.steps import STEPS


def table(name: str) -> Iterator[str]:
    if name == "operands":
        yield from ("| operand | meaning |", "|---|---|")
        yield from (f"| {operand} | {doc} |" for operand, doc in OPERANDS.items())
        return
    yield from ("| number | name | operands | stack | meaning |", "|---|---|---|---|---|")
    for row in ROWS:
        if row.is_exit is (name == "exits"):
            yield f"| {row.number} | `{row.name}` | {' '.join(row.operands)} | `{row.picture}` | {row.doc} |"


def test_chapter_matches_the_table(update: bool) -> None:
    compare("opcodes.md", table, update)


def test_every_opcode_has_one_step() -> None:
    """Machine steps and table rows correspond."""
    assert set(STEPS) == {row.name for row in ROWS}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_opcode_is_emitted_and_lifted(name: str) -> None:
    """A failure names the module that lacks the opcode."""
    assert f'"{name}"' in inspect.getsource(emit), f"write {name} in vm/code/emit.py"
    assert f'"{name}"' in inspect.getsource(lift), f"read {name} in vm/code/lift.py"


def test_opcode_without_translation_is_interpreted(
    image_of: Callable[[str], Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = image_of("function main(a)\n state s\n return a")
    assert obstacle(image) is None
    monkeypatch.setattr(BY_NAME["RETURN"], "is_translated", False)
    assert str(obstacle(image)).endswith("has RETURN, which only the interpreter runs")


def test_numbers_are_fixed() -> None:
    """Opcode numbers are part of the image format; 0 is no opcode."""
    assert {row.name: row.number for row in ROWS} == {
        "CONST": 1,
        "LOAD": 2,
        "STORE": 3,
        "PRIM": 4,
        "CLOSURE": 5,
        "SETBOX": 6,
        "NOTE": 7,
        "JUMP": 16,
        "BRANCH": 17,
        "SWITCH": 18,
        "CALL": 19,
        "TAILCALL": 20,
        "PERFORM": 21,
        "RETURN": 22,
        "FAIL": 23,
        "PARALLEL": 24,
    }


def test_stack_effects_follow_from_the_diagrams() -> None:
    """`operand… -- value` pops `count` values, a fixed word pops one."""
    assert BY_NAME["PRIM"].popped((0, 3)) == 3
    assert BY_NAME["CALL"].popped((2, 0, 0)) == 3
    assert BY_NAME["SETBOX"].popped(()) == 2
    assert [BY_NAME[name].pushes for name in ("CONST", "STORE", "CLOSURE")] == [1, 0, 1]


def test_code_is_decoded_to_offsets_opcodes_and_operands() -> None:
    """Each opcode and each operand is one word."""
    code = [1, 7, 4, 2, 1, 18, 0, NO_STATE]
    decoded = [(offset, row.name, operands) for offset, row, operands in decode(code)]
    assert decoded == [(0, "CONST", (7,)), (2, "PRIM", (2, 1)), (5, "SWITCH", (0, NO_STATE))]


@given(st.lists(st.integers(0, 30) | st.integers(0, NO_STATE), max_size=20))
def test_any_words_are_decoded_or_rejected(code: list[int]) -> None:
    """Decoded instructions cover the words without a gap; other words raise ValueError."""
    position = 0
    try:
        for offset, row, operands in decode(code):
            assert offset == position
            position += 1 + len(operands)
            assert len(operands) == len(row.operands)
    except ValueError:
        return
    assert position == len(code)


@pytest.mark.parametrize("code", [[0], [8], [1], [4, 1]])
def test_invalid_words_are_an_error(code: list[int]) -> None:
    """An unknown number and a truncated instruction."""
    with pytest.raises(ValueError, match=r"opcode|incomplete"):
        list(decode(code))
