"""The expander reports errors for any data, or its core compiles and is sound."""

from __future__ import annotations

import random

import pytest
from flow_texts import compiled, expansion

from llc.frontend.core.forms import FORMS
from llc.frontend.core.nodes import Recur, Try, walk
from llc.frontend.core.printer import expanded_text
from llc.ir.diagnostics import render_all

_WORDS = [
    *FORMS, "x", "y", "f", "item", "else", "=>", "catch", "finally", "_", "...", "&rest", "&optional",
    "1", "-1", "2.5", '"s"', "true", "null", "nil", "car", "list", "+", "apply", "*loop-config*",
    "unquote", "unquote-splicing", "max-iterations", "executor", "controller", ".",
]  # fmt: skip


def _random_data(chance: random.Random, depth: int) -> str:
    """Random data made of known words."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(_WORDS)
    mark = chance.choice(["", "", "", "", "'", "`", ",", ",@"])
    items = [_random_data(chance, depth - 1) for _ in range(chance.randint(0, 4))]
    if "." in items:
        items = [item for item in items if item != "."]
    return f"{mark}({' '.join(items)})"


@pytest.mark.parametrize("seed", range(60))
def test_random_data_is_rejected_or_compiles(seed: int) -> None:
    """The expander raises nothing but diagnostics, whose number and size are limited."""
    chance = random.Random(seed)
    for _ in range(25):
        text = "\n".join(_random_data(chance, 5) for _ in range(chance.randint(1, 4)))
        result = expansion(text)
        assert all(len(render_all([item], result.sources)) < 4096 for item in result.diagnostics)
        if not any(item.is_error for item in result.diagnostics):
            compiled(text)
            assert expanded_text(result.program)


def _valid_expression(chance: random.Random, names: list[str], depth: int) -> str:
    """A random valid expression over the given variables."""
    if depth == 0:
        return chance.choice([*names, "1", "2", "'a", '"s"', "nil"])

    def inner(*more: str) -> str:
        return _valid_expression(chance, [*names, *more], depth - 1)

    fresh = f"v{chance.randrange(4)}"
    return chance.choice([
        lambda: f"(if {inner()} {inner()} {inner()})",
        lambda: f"(let (({fresh} {inner()})) (list {fresh} {inner(fresh)}))",
        lambda: f"(let* (({fresh} {inner()}) (w {inner(fresh)})) (list w {fresh} {inner(fresh, 'w')}))",
        lambda: f"(begin (bind {fresh} {inner()}) {inner(fresh)})",
        lambda: f"(list {inner()} {inner()})",
        lambda: f"(or {inner()} {inner()})",
        lambda: f"(and {inner()} {inner()})",
        lambda: f"(cond ({inner()} {inner()}) ({inner()} => list) (else {inner()}))",
        lambda: f"(try {inner()} (catch e {inner('e')}) (finally {inner()}))",
        lambda: f"(map (list item {inner('item')}) (list {inner()}))",
        lambda: f"(loop 2 {inner()})",
        lambda: f"(loop (+ 1 1) {inner()})",
        lambda: f"(loop ((i 0)) (if (< i 2) (recur (+ i 1)) {inner('i')}))",
        lambda: f"((lambda ({fresh} &optional (o {inner(fresh)})) (list {fresh} o)) {inner()})",
        lambda: f"(case {inner()} ((1 a) {inner()}) (else {inner()}))",
        lambda: f"`(q ,{inner()} ,@(list {inner()}))",
        lambda: f"(let () (define (g) {inner()}) (g))",
        lambda: f"(dict (k {inner()}))",
    ])()  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_printed_core_expands_to_itself(seed: int) -> None:
    """Printed core without machine operations is a program that expands to the same text."""
    chance = random.Random(seed)
    text = _valid_expression(chance, ["a"], 4)
    diagnostics = expansion(f"(define a 1) {text}")
    assert not [item for item in diagnostics.diagnostics if item.is_error], render_all(
        diagnostics.diagnostics
    )
    compiled(f"(define a 1) {text}")
    printed = expanded_text(diagnostics.program)
    if "op:" not in printed:
        assert expanded_text(expansion(printed).program) == printed


@pytest.mark.parametrize("seed", range(40))
def test_core_invariants(seed: int) -> None:
    """Each node occurs once, and no `Recur` inside a `Try` continues a loop outside it."""
    chance = random.Random(1000 + seed)
    program = expansion(f"(define a 1) {_valid_expression(chance, ['a'], 4)}").program
    nodes = list(walk(program))
    assert len(nodes) == len(set(nodes))
    for node in nodes:
        if isinstance(node, Try):
            assert not isinstance(node.body, Recur)
