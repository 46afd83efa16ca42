"""The disassembly shows every instruction by name, next to its source."""

from __future__ import annotations

import json
import re
from array import array

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_programs import programs

from llc.ir.nodes import Program
from llc.ir.text import parse_program
from llc.vm.code.disassembly import disassemble, disassemble_json
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.opcodes import BY_NAME, decode

LINT = """
program lint entry main
meta {"kind": "loop", "limits": {"max_iterations": 5}}
source 0 "lint.yaml" sha256:00
function main() locals(last, fault)
  state check on fault -> check/error(fault) @0:2:1-2:5
    last = add(1, 2)
    perform shell map("command", "ruff") -> last then check/route @0:3:3-3:9
  state check/route
    switch get(last, "verdict") {"done" -> /done, "b" -> check, "c" -> check, "d" -> check}
  state check/error
    call closure helper(last)() -> last then /done
  state /done
    branch last check /end
  state /end
    return null
function helper() captures(c)
  state s
    return c
"""


def image_of(text: str = LINT, source: str | None = "name: lint\ncheck:\n  action: ruff\n") -> Image:
    program = parse_program(text, "x.ir")
    sources = tuple(attrs.evolve(item, text=source) for item in program.sources)
    return emit(attrs.evolve(program, sources=sources))


def test_format_of_the_listing() -> None:
    """One label per state, one line per instruction, source lines in between; long tables at the end."""
    listing = disassemble(image_of())
    assert listing.replace(image_of().program_hash, "<hash>") == LISTING


LISTING = """\
image lint
  hash <hash>
  kind "loop"
  paradigm null
  scope ["."]
  maintain false
  limits {"max_iterations": 5}
  source lint.yaml

function main() (entry), stack 2
  locals last, fault
  check:  on fault -> check/error(fault)
          ; lint.yaml:2 | check:
      0  CONST    1                                         ( -- value )  1
      2  CONST    2                                         ( -- value )  2
      4  PRIM     add 2                                     ( number… -- value )  1
      7  STORE    last                                      ( value -- )  0
          ; lint.yaml:3 |   action: ruff
      9  CONST    "command"                                 ( -- value )  1
     11  CONST    "ruff"                                    ( -- value )  2
     13  PRIM     map 2                                     ( key-value… -- value )  1
     16  PERFORM  shell last check/route                    ( arguments -- )  0
  check/route:
     20  LOAD     last                                      ( -- value )  1
     22  CONST    "verdict"                                 ( -- value )  2
     24  PRIM     get 2                                     ( map key -- value )  1
     27  SWITCH   table 0 -                                 ( subject -- )  0
                  "done" -> /done
                  "b" -> check
                  "c" -> check
                  "d" -> check
  check/error:
     30  LOAD     last                                      ( -- value )  1
     32  CLOSURE  helper 1                                  ( capture… -- function )  1
     35  CALL     0 last /done                              ( callee argument… -- )  0
  /done:
     39  LOAD     last                                      ( -- value )  1
     41  BRANCH   check /end                                ( condition -- )  0
  /end:
     44  CONST    null                                      ( -- value )  1
     46  RETURN                                             ( value -- )  0

function helper(), stack 1
  captures c
  s:
      0  LOAD     c                                         ( -- value )  1
      2  RETURN                                             ( value -- )  0
"""


def test_places_are_shown_without_sources() -> None:
    """Without sources the listing shows the line of each instruction."""
    assert "          ; lint.yaml:3\n" in disassemble(image_of(source=None))


@given(programs())
def test_every_instruction_is_listed(program: Program) -> None:
    """The JSON form has each state with its offset and each instruction with its words."""
    image = emit(program)
    listed = disassemble_json(image)
    for function, row in zip(image.functions, listed["functions"], strict=True):
        assert [state["name"] for state in row["states"]] == list(function.states)
        assert [state["offset"] for state in row["states"]] == list(function.offsets)
        instructions = [
            (i["offset"], i["op"], tuple(i["words"])) for state in row["states"] for i in state["code"]
        ]
        assert instructions == [(offset, op.name, words) for offset, op, words in decode(function.code)]
        assert {state["code"][-1]["depth"] for state in row["states"]} == {0}


@given(programs())
def test_the_json_form_is_json(program: Program) -> None:
    """The form is unchanged after a JSON round trip, for any names and constants."""
    listed = disassemble_json(emit(program))
    assert json.loads(json.dumps(listed, allow_nan=False)) == json.loads(json.dumps(listed))


@given(programs())
def test_the_listing_can_be_printed(program: Program) -> None:
    """The text is UTF-8 without control characters, one line per listed item."""
    listing = disassemble(emit(program))
    listing.encode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", listing)
    image = emit(program)
    lines = sum(len(list(decode(function.code))) for function in image.functions)
    assert listing.count("\n") >= lines


@settings(deadline=None)
@given(programs(max_states=2), st.data())
def test_invalid_image_is_listed(program: Program, data: st.DataObject) -> None:
    """Arbitrary code words are listed; unknown operands are numbers."""
    image = emit(program)
    function = image.functions[0]
    word = st.integers(0, 24) | st.integers(0, (1 << 32) - 1)
    function.code[:] = array("I", data.draw(st.lists(word, max_size=30)))
    function.offsets[:] = array("I", [data.draw(st.integers(0, 40)) for _ in function.states])
    function.handlers[0] = (data.draw(word), data.draw(word))
    disassemble(image)
    json.dumps(disassemble_json(image))


def test_unknown_operand_is_marked() -> None:
    """A wrong operand is its number with a question mark, a wrong opcode its word."""
    image = image_of()
    code = image.functions[1].code
    code[:] = array("I", [BY_NAME["LOAD"].number, 77, 99])
    listing = disassemble(image)
    assert "      0  LOAD     77? " in listing
    assert "      2  .word    99 " in listing


def test_constants_are_literals() -> None:
    """The JSON form has constants in the syntax of the IR text."""
    text = 'program p entry f function f() state s return {"a": [1.0, nan, 0x10]}'
    assert disassemble_json(image_of(text))["constants"] == ['{"a": [1.0, nan, 16]}']


def test_the_json_form_has_sources_and_places() -> None:
    """Sources have their text, instructions their span."""
    listed = disassemble_json(image_of())
    assert listed["sources"] == [
        {"path": "lint.yaml", "sha256": "00", "text": "name: lint\ncheck:\n  action: ruff\n"}
    ]
    span = {"file": "lint.yaml", "line": 3, "column": 3, "end_line": 3, "end_column": 9}
    assert listed["functions"][0]["states"][0]["code"][-1]["span"] == span
