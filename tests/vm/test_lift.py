"""Lifting: an image contains the whole program, so proofs about the program hold for the image."""

from __future__ import annotations

from hypothesis import given
from ir_programs import programs

from llc.ir.nodes import Function, Limits, Meta, Prim, Program, Return, Slot, State
from llc.ir.text import parse_program, print_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift
from llc.vm.code.verify import verify_image

LOOP = """
program p entry main
meta {"kind": "loop", "limits": {"max_iterations": 5}}
function main() locals(iteration, lap, seen.a)
  state /start
    iteration = 1
    lap = 1
    goto a
  state a
    branch eq(seen.a, lap) a/again a/enter
  state a/again
    branch ge(iteration, 5) /done a/next
  state a/next
    iteration = add(iteration, 1)
    lap = add(lap, 1)
    goto a/enter
  state a/enter
    seen.a = lap
    goto a
  state /done
    return iteration
"""


@given(programs())
def test_lifting_undoes_emitting(program: Program) -> None:
    """The lifted image equals the original program."""
    assert lift(emit(program)) == program


@given(programs())
def test_lifting_undoes_emitting_through_a_file(program: Program) -> None:
    """Also after writing and reading the image; the sources are kept."""
    lifted_again = lift(Image.from_bytes(emit(program).to_bytes()))
    assert lifted_again == program
    assert print_program(lifted_again, spans=False) == print_program(program, spans=False)
    assert lifted_again.sources == program.sources


@given(programs())
def test_spans_may_be_omitted(program: Program) -> None:
    """The program is the same, and the verifier reports the same without spans."""
    image = emit(program)
    bare = lift(image, places=False)
    assert bare == program
    assert all(state.span is None for function in bare.functions for state in function.states)
    diagnostics = [
        [(diagnostic.id, diagnostic.message) for diagnostic in verify(lifted)]
        for lifted in (bare, lift(image))
    ]
    assert diagnostics[0] == diagnostics[1]


def test_equal_expressions_with_equal_spans_are_shared() -> None:
    """A traversal may visit each expression once."""
    states = lift(emit(parse_program(LOOP, "x.ir")), places=False).functions[0].states
    counted = [part.value for state in states for part in state.body if state.name == "a/next"]  # type: ignore[union-attr]
    compared = states[1].exit.condition  # type: ignore[union-attr]
    assert counted[1].args[0] is compared.args[1]
    assert counted[0].args[1] is counted[1].args[1]


@given(programs())
def test_a_lifted_program_emits_the_same_image(program: Program) -> None:
    """The program hash is the same."""
    image = emit(program)
    assert emit(lift(image)).program_hash == image.program_hash


def test_spans_are_lifted() -> None:
    """The span of an expression is the one that a fault shows."""
    text = 'program p entry f source 0 "a.yaml" function f() state s return not(1)^0:2:3-2:9 @0:1:1-3:1'
    state = lift(emit(parse_program(text, "x.ir"))).functions[0].states[0]
    assert isinstance(state.exit, Return)
    assert str(state.exit.span) == "a.yaml:1:1"
    assert str(state.exit.value.span) == "a.yaml:2:3"


def test_limits_are_verified_for_images() -> None:
    """An image with a bypassed limit is valid code, but rejected."""
    for text, ids in [
        (LOOP, set()),
        (LOOP.replace("ge(iteration, 5)", "ge(iteration, 6)"), {"uncounted-way", "unbounded-cycle"}),
        (LOOP.replace("branch eq(seen.a, lap) a/again a/enter", "goto a/enter"), {"unbounded-cycle"}),
    ]:
        image = Image.from_bytes(emit(parse_program(text, "x.ir")).to_bytes())
        assert list(verify_image(image)) == []
        assert {diagnostic.id for diagnostic in verify(lift(image)) if diagnostic.is_error} == ids


def test_deep_expressions_are_lifted() -> None:
    """Deeply nested code is lifted without recursion, and rejected by the verifier."""
    value = Slot("x")
    for _ in range(50_000):
        value = Prim("list", (value,))  # type: ignore[assignment]
    program = Program(
        "p", "f", (Function("f", ("x",), (State("s", (), Return(value)),)),), Meta(limits=Limits())
    )
    image = emit(program)
    assert list(verify_image(image)) == []
    assert [diagnostic.id for diagnostic in verify(lift(image))] == ["nested-too-deep"]
