"""Common mistakes in loops (YAML, keys of other tools, look-alike letters) give one diagnostic each."""

from __future__ import annotations

import pytest

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError, Diagnostic, nearest, suggest

STATES = "states:\n  a: {action: make, next: done}\n  done: {terminal: true}\n"


def findings(text: str) -> list[Diagnostic]:
    try:
        return list(compile_text(text, "x.yaml").diagnostics)
    except CompileError as error:
        return list(error.diagnostics)


def loop(state: str = "action: make, next: done", more: str = "") -> str:
    return f"name: x\ninitial: a\n{more}states:\n  a: {{{state}}}\n  done: {{terminal: true}}\n"


# A loop with one mistake, the line of its only diagnostic, and words of its message or help.
MISTAKES = {
    "states at the left": (
        "name: x\ninitial: a\nstates:\na: {action: make, next: done}\ndone: {terminal: true}\n",
        3,
        "further than `states`: `a`, `done`",
    ),
    "keys of a state at its level": (
        "name: x\ninitial: a\nstates:\n  a:\n  action: make\n  next: done\n  done: {terminal: true}\n",
        4,
        "further than `a`: `action`, `next`",
    ),
    "a list of states": ("name: x\ninitial: a\nstates:\n  - name: a\n    action: x\n", 4, "`check: {action"),
    "a list of keys": (
        "name: x\ninitial: a\nstates:\n  a:\n    - action: x\n    - next: a\n",
        5,
        "without `- `",
    ),
    "no space after a key": (f"name:x\ninitial: a\n{STATES}", 1, "write a space after `:`"),
    "a wide colon": (f"name： x\ninitial: a\n{STATES}", 1, "`：` is not a YAML colon"),
    "a text that is not indented": (
        "name: x\ninitial: a\nstates:\n  a:\n    action: |\n    echo hi\n    next: a\n",
        6,
        "further than the key of line 5",
    ),
    "no colon": (
        "name: x\ninitial: a\nstates:\n  a:\n    action: x\n    next done\n",
        6,
        "a key ends in `:`",
    ),
    "an escape": (loop('action: "grep \\d+ f", next: done'), 4, "write the text in single quotes"),
    "a test of the shell": (
        "name: x\ninitial: a\nstates:\n  a:\n    action: [ -f x ] && make\n    next: a\n",
        5,
        "in quotes",
    ),
    "a group of the shell": (loop("action: {make}, next: done"), 4, "put the text in quotes"),
    "commands as a list": (
        "name: x\ninitial: a\nstates:\n  a: {next: b}\n  b:\n    terminal: true\n    action:\n      - x\n",
        8,
        "lines below `|`",
    ),
    "a time with a unit": (loop(more="timeout: 10m\n"), 3, "write the seconds, without a unit: 600"),
    "a price with a unit": (loop(more="budget: {usd: 5usd}\n"), 3, "write only the number: 5"),
    "a budget that is a number": (loop(more="budget: 5\n"), 3, "such as `{usd: 5}`"),
    "a list of hooks": (loop(more="hooks: [echo]\n"), 3, "such as `{before: "),
    "a key that is a number": (
        'name: x\ninitial: "1"\nstates:\n  1: {terminal: true}\n',
        4,
        "this is a number",
    ),
    "a name with a blank": (
        "name: x\ninitial: a b\nstates:\n  a b: {terminal: true}\n",
        4,
        "write `a_b`",
    ),
    "an end that is not there": (
        "name: x\ninitial: a\nstates:\n  a: {action: make, next: end}\n",
        4,
        "add a state that ends the loop: `end: {terminal: true}`",
    ),
    "nowhere to go": ("name: x\ninitial: a\nstates:\n  a: {}\n", 4, "add `next`"),
    "a letter that looks alike": (
        loop().replace("initial: a", "initial: \u0430"),
        2,
        "cyrillic small letter a",
    ),
    "a letter without width": (loop().replace("initial: a", "initial: a\u200b"), 2, "zero width space"),
    "an invisible indentation": (
        loop("action: make, next: done").replace("  done:", "  \u00a0done:"),
        5,
        "U+00A0",
    ),
    "quotation marks of texts": (loop("action: “make”, next: done"), 4, "part of the text"),
    "a command": (loop("command: make, next: done"), 4, "write `action`"),
    "a step of CI": (loop("run: make, next: done"), 4, "write `action`"),
    "goto": (loop("action: make, goto: done"), 4, "write `next`"),
    "transitions": (loop("action: make, transitions: {a: b}"), 4, "write `on_success` and `on_failure`"),
    "on": (loop("action: make, on: {yes: done}"), 4, "write `on_success` and `on_failure`"),
    "a condition": (loop("action: make, if: always(), next: done"), 4, "write `evaluate`"),
    "a folder": (loop("action: make, working-directory: src, next: done"), 4, "write `cd FOLDER && …`"),
    "variables of the environment": (loop(more="env: {A: b}\n"), 3, "`NAME=value command`"),
    "a final state": (loop().replace("{terminal: true}", "{type: final}"), 5, "write `terminal: true`"),
    "an operator": (
        loop("action: make, evaluate: {type: output_numeric, operator: '<=', target: 3}, next: done"),
        4,
        "write `le`",
    ),
    "an expression of CI": (
        loop('action: "echo ${{ github.sha }}", next: done'),
        4,
        "write `${context.NAME}`",
    ),
    "braces": (
        loop('action: "echo {{ context.who }}", next: done', "context: {who: a}\n"),
        5,
        "`${context.who}`",
    ),
    "no braces": (
        loop('action: "echo $context.who", next: done', "context: {who: a}\n"),
        5,
        "`${context.who}`",
    ),
    "no namespace": (loop('action: "echo ${who}", next: done', "context: {who: a}\n"), 5, "`${context.who}`"),
    "a goal in parts": ("paradigm: goal\ngoal: g\ntools: [make]\ncheck: make\n", 4, "write `tools`"),
    "a target": (
        "paradigm: convergence\nname: x\ncheck: make\ntoward: 0\nusing: make\ntarget: 0\n",
        6,
        "write `toward`",
    ),
    "a check alone": (
        "paradigm: imperative\nname: x\nsteps: [make]\nuntil: make\n",
        4,
        "such as `{check: pytest}`",
    ),
    "a name of a step": (
        "paradigm: imperative\nname: x\nsteps: [{name: a, run: make}]\nuntil: {check: make}\n",
        3,
        "remove it",
    ),
    "constraints by name": (
        "paradigm: invariants\nname: x\nconstraints: {a: {check: make, fix: make}}\n",
        3,
        "each item is `- name: NAME`",
    ),
    "constraints that are commands": (
        "paradigm: invariants\nname: x\nconstraints: [make]\n",
        3,
        "such as `{name: tests",
    ),
    "a key that is missing": ("paradigm: goal\ngoal: g\n", 1, "`tools`: The first tool checks"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_common_mistake_is_one_diagnostic_with_a_fix(mistake: str) -> None:
    text, line, words = MISTAKES[mistake]
    diagnostics = findings(text)
    shown = [f"{one.id}: {one.message}; {one.label}; {one.help}" for one in diagnostics]
    diagnostics = [one for one in diagnostics if one.id != "unreachable-state"]
    assert len(diagnostics) == 1, shown
    assert diagnostics[0].span is not None
    assert (diagnostics[0].span.line, words in shown[0]) == (line, True), shown


@pytest.mark.parametrize(
    "action",
    [
        "for who in a b; do echo ${who}; done",
        "who=me; echo ${who}",
        "read -r who < f; echo ${who}",
        "docker ps --format '{{.Names}}'",
        "echo $contextual.x $${context.who}",
    ],
)
def test_shell_variables_and_foreign_templates_are_accepted(action: str) -> None:
    assert findings(loop(f'action: "{action}", next: done', "context: {who: a}\n")) == []


def test_homoglyph_is_named() -> None:
    assert nearest("d\u043ene", ["done", "dune"]) == "done"
    # In lower case each of these is two letters, neither of which is a homoglyph.
    assert str(suggest("İ" * 100, ["i\u0307" * 60])).startswith("did you mean `i")
    assert suggest("d\u043ene", ["done"]) == "did you mean `done`? `\u043e` is cyrillic small letter o"
