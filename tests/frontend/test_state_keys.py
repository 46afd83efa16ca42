"""Every key of a state has checks, a template and lowering; a failure names the file to change."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest

from llc.frontend import lower
from llc.frontend.loop import checks, key_checks
from llc.frontend.loop.agent_schema import AGENT_OPTIONS
from llc.frontend.loop.dialect_schema import STATE_KEYS
from llc.frontend.loop.schema import Loop, StateSpec
from llc.frontend.loop.texts import texts_of_state
from llc.frontend.source.schema import fields_of

# Those of little-loops are in tests/spec/test_dialect_spec.py.
KEYS = {key: field for key, field in fields_of(StateSpec).items() if key not in STATE_KEYS}
# Keys that this list makes effective: those of agents, which `project_checks` compares with the capabilities
# of an agent.
LISTED = set(AGENT_OPTIONS)


def names(source: str) -> set[str]:
    """The attributes and string constants of a source."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(source))))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {value for value in constants if isinstance(value, str)}


def methods(cls: type) -> str:
    """The source of the methods of a class, without its fields."""
    members = [getattr(value, "fget", getattr(value, "func", value)) for value in vars(cls).values()]
    own = [
        method for method in members if inspect.isfunction(method) and not method.__name__.startswith("__")
    ]
    return "\n".join(textwrap.dedent(inspect.getsource(method)) for method in own)


@pytest.fixture(scope="module")
def checked() -> set[str]:
    """The names in the checks."""
    return names(inspect.getsource(checks)) | names(inspect.getsource(key_checks))


@pytest.fixture(scope="module")
def lowered() -> set[str]:
    """The names in the lowering and in the methods of the schema."""
    sources = (path.read_text("utf-8") for path in Path(lower.__path__[0]).glob("*.py"))
    return names("\n".join(sources)) | names(f"{methods(StateSpec)}\n{methods(Loop)}")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_checked_and_lowered(key: str, checked: set[str], lowered: set[str]) -> None:
    """A key of the schema that no other module reads would have no effect."""
    assert key in lowered | LISTED, f"`{key}` has no effect: lower it in frontend/lower/actions.py or loop.py"
    assert key in checked | LISTED, f"add the rules of `{key}` to frontend/loop/key_checks.py"


@pytest.mark.parametrize("key", [key for key, field in KEYS.items() if field.type.kind == "template"])
def test_a_key_with_variables_is_a_text_of_its_state(key: str) -> None:
    """Variables in a text that `texts` omits would be neither checked nor substituted."""
    keys: dict[str, Any] = {"action": "what?", "action_type": "ask", key: "${env.X}"}
    state = StateSpec(name="a", **keys)
    loop = Loop(name="x", initial="a", states={"a": state})
    places = {place for place, _, _ in texts_of_state(loop, state)}
    assert key in places, f"add `{key}` to frontend/loop/texts.py"
