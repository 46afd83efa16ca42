"""Linking of images: stable indexes and omitted functions."""

from __future__ import annotations

import pytest

from llc.ir.text import parse_program
from llc.vm.code.emit import EmitError
from llc.vm.code.linking import Linker, functions_in
from llc.vm.code.verify import verify_image
from llc.vm.machine.machine import Done
from llc.vm.tiered import start
from llc.vm.values.values import Box, FunctionValue

FIRST = """
program first entry one
function one()
  state start
    return "one"
function two()
  state start
    tailcall closure one()()
"""
SECOND = """
program second entry three
function three() captures(box)
  state start
    return list(unbox(box), "three")
"""


def linked(*texts: str) -> Linker:
    linker = Linker("test")
    for text in texts:
        linker.add(parse_program(text, "test.ir").functions)
    return linker


def result(linker: Linker, function: FunctionValue) -> object:
    stop = start(linker.image, function).resume()
    assert isinstance(stop, Done)
    return stop.value


def test_existing_functions_keep_working() -> None:
    """A function value created before further linking calls the same function."""
    linker = linked(FIRST)
    two = linker.function("two")
    before = linker.image
    linker.add(parse_program(SECOND, "test.ir").functions)
    assert result(linker, two) == "one"
    assert result(linker, linker.function("three", [Box(5)])) == [5, "three"]
    assert len(before.functions) == 3
    assert list(verify_image(linker.image)) == []


def test_unreachable_functions_are_omitted() -> None:
    """Function values are renumbered once each, wherever they are; functions in captures are kept."""
    linker = linked(FIRST, SECOND)
    three = linker.function("three", [Box(7)])
    box = Box((three, {"again": three}))
    box.value = (*box.value, box)
    linker.forget([box])
    assert linker.names == {"session", "three"}
    assert result(linker, three) == [7, "three"]
    linker.add(parse_program(FIRST, "test.ir").functions)
    assert result(linker, linker.function("two")) == "one"
    assert list(verify_image(linker.image)) == []


def test_functions_named_by_kept_code_are_kept() -> None:
    linker = linked(FIRST, SECOND)
    two = linker.function("two")
    linker.forget([two])
    assert linker.names == {"session", "one", "two"}
    assert result(linker, two) == "one"


def test_failed_linking_leaves_the_image_unchanged() -> None:
    """Nothing of a program with an unknown function is added."""
    linker = linked(FIRST)
    bad = FIRST.replace("closure one()", "closure nobody()").replace("one()", "other()").replace("two", "bad")
    with pytest.raises(EmitError):
        linker.add(parse_program(bad, "test.ir").functions)
    assert linker.names == {"session", "one", "two"}
    assert result(linker, linker.function("one")) == "one"


def test_function_values_are_found_once() -> None:
    """In lists, maps, captures and boxes, including cycles."""
    inner = FunctionValue(1, ())
    outer = FunctionValue(2, (inner,))
    box = Box()
    box.value = ((outer, {"k": inner}), box)
    assert sorted(value.function for value in functions_in([box])) == [1, 2]
