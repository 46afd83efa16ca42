"""`spec/dialect.md` lists the keys of little-loops, and the compiler accepts each of them."""

from __future__ import annotations

import pytest
from spec.tables import compare, keys

from llc.frontend.compile import compile_text
from llc.frontend.loop import dialect_schema, evaluator_schema
from llc.frontend.loop.agent_schema import AgentOptions
from llc.frontend.loop.dialect_schema import LOOP_KEYS, STATE_KEYS
from llc.frontend.loop.evaluator_schema import OutputEvaluator
from llc.frontend.source.schema import Type, fields_of
from llc.ir.diagnostics import CompileError

HEAD = "name: x\ninitial: a\n"
STATES = "states:\n  a: {action: make, on_yes: done, on_no: a, on_error: done%s}\n  done: {terminal: true}\n"


def test_tables_are_printed_from_the_schema(update: bool) -> None:
    """The tables of keys are generated from the classes."""

    def lines_of(name: str) -> list[str]:
        if hasattr(dialect_schema, name):
            return keys(getattr(dialect_schema, name), AgentOptions)
        return keys(getattr(evaluator_schema, name), OutputEvaluator)

    compare("dialect.md", lines_of, update)


def value_of(key: str, type: Type) -> str:
    """A valid value of a key."""
    match type.kind:
        case "boolean":
            return "true"
        case "integer" | "number":
            return "3"
        case "choice":
            return type.choices[0]
        case "list":
            return "[]" if type.item is None else f"[{value_of(key, type.item)}]"
        case "map":
            return "{p: {type: string}}"
        case "spec":
            key, field = next(iter(fields_of(type.specs[0]).items()))
            return f"{{{key}: {value_of(key, field.type)}}}"
        case "target":
            return "done"
    return "word"


def ids(text: str) -> set[str]:
    """Ids of the errors of a loop."""
    try:
        compile_text(text)
    except CompileError as error:
        return {diagnostic.id for diagnostic in error.diagnostics if diagnostic.is_error}
    return set()


@pytest.mark.parametrize("key", LOOP_KEYS)
def test_a_key_of_a_loop_is_accepted(key: str) -> None:
    """With a value of its type, the loop has at most warnings."""
    assert ids(f"{HEAD}{key}: {value_of(key, LOOP_KEYS[key].type)}\n{STATES % ''}") == set()


@pytest.mark.parametrize("key", STATE_KEYS)
def test_a_key_of_a_state_is_accepted(key: str) -> None:
    """With a value of its type. Errors only for `loop`: no file, and a state with an action."""
    more = {"max_retries": ", on_retry_exhausted: done", "loop": ", with: {a: 1}"}.get(key, "")
    text = f"{HEAD}{STATES}" % f", {key}: {value_of(key, STATE_KEYS[key].type)}{more}"
    assert ids(text) == ({"action-and-call", "file-not-found"} if key == "loop" else set())


@pytest.mark.parametrize("key", ["append_to_messages"])
def test_an_unsupported_key_is_one_diagnostic(key: str) -> None:
    """The diagnostic names the key and its replacement."""
    with pytest.raises(CompileError) as error:
        compile_text(f"{HEAD}{STATES}" % f", {key}: [a]")
    (found,) = error.value.diagnostics
    assert (found.id, f"`{key}` is a key of" in str(found.help)) == ("unknown-key", True)
