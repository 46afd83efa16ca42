"""`spec/interpolation.md`: its tables match the code. `test_spec_yaml` tests its loops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell_programs import filled_with
from spec.blocks import text_of

from llc.frontend.template.nodes import NAMESPACES, Namespace
from llc.frontend.template.template import parse

ROOT = Path(__file__).parents[2]
TEXT = text_of("interpolation.md")
MODULES = [*(ROOT / "frontend" / "template").glob("*.py"), *(ROOT / "frontend" / "shell").glob("*.py")]


def rows(heading: str) -> list[tuple[str, str]]:
    """The code in the two columns of every table with the header `| heading |`."""
    found = []
    for table in TEXT.split(f"| {heading} |\n|---|---|\n")[1:]:
        for line in table.partition("\n\n")[0].splitlines():
            left, right = line.strip("| ").split(" | ")
            found.append((left.strip("` "), right.strip("` ")))
    return found


def fields(space: Namespace) -> str:
    names = ", ".join(f"`{name}`" for name in space.fields or ())
    if not space.is_keyed:
        return names
    return f"`<name>`, then {names}" if names else "any `<name>`"


def test_the_namespaces_match_the_code() -> None:
    """The table is generated from `NAMESPACES`."""
    printed = [
        f"| `{space.name}` | {fields(space)} | {space.doc} | {'quoted' if space.is_data else 'as written'} |"
        for space in NAMESPACES.values()
    ]
    table = TEXT.partition("<!-- table: namespaces -->\n")[2].partition("\n<!-- end -->")[0]
    assert table.splitlines()[2:] == printed


@pytest.mark.parametrize(("action", "command"), rows("in the action | becomes"))
def test_a_value_is_quoted_as_shown(action: str, command: str) -> None:
    """With the value `it's $HOME`."""
    template = parse(action, kind="shell")
    assert template.problems == ()
    assert filled_with(template, "it's $HOME") == command


@pytest.mark.parametrize(("refused", "instead"), rows("instead of | write"))
def test_the_alternative_is_accepted(refused: str, instead: str) -> None:
    """The action in the left column is an error, the one in the right column is accepted."""
    assert [problem.severity for problem in parse(refused, kind="shell").problems] == ["error"]
    assert parse(instead, kind="shell").problems == ()


def test_every_diagnostic_is_listed() -> None:
    """The table lists exactly the ids that the code uses."""
    table = TEXT.partition("## Diagnostics")[2]
    listed = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|(.*?)\|", table, re.MULTILINE))))
    given: set[str] = set()
    for module in MODULES:
        code = module.read_text("utf-8")
        given |= set(re.findall(r"(?:problem|Problem|Hazard)\(\s*\"([a-z]+-[a-z-]+)\"", code))
    assert listed == given
