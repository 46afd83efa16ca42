"""`spec/contributing.md`: its paths and tests exist, its lists are short, and its layout is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from spec.blocks import text_of
from test_layers import ORDER

ROOT = Path(__file__).parents[2]
TEXT = text_of("contributing.md")
CHANGES = dict(
    re.findall(r"(?ms)^### (.+?)\n(.+?)(?=^### |\Z)", TEXT.partition("## Twelve changes")[2]),
)
# Paths from the root of the repository; `.venv` and `.loops` are not part of it.
PATHS = sorted(set(re.findall(r"`((?:\w[\w-]*/)+(?:[\w.-]+)?|pyproject\.toml)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
MOST_FILES = 4


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    """A file that moves takes its mention along."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_every_test_exists(path: str, name: str) -> None:
    """A check that names a forgotten file has not been renamed or removed."""
    assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8")


def test_there_are_twelve_changes() -> None:
    """Those that the structure of the packages is measured by."""
    assert len(CHANGES) == 12


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_has_at_most_four_files(change: str) -> None:
    """Each list begins its items with the path of a source file, and a check follows."""
    items = re.findall(r"(?m)^(\d)\. `([^`]+)`", CHANGES[change])
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    assert 1 <= len(items) <= MOST_FILES
    assert all((ROOT / path).is_file() and not path.startswith(("tests", "spec")) for _, path in items)
    assert "\nForgotten: " in CHANGES[change]
    assert "::test_" in CHANGES[change]


@pytest.mark.parametrize("folder", ORDER)
def test_the_layout_has_every_sub_package(folder: str) -> None:
    """In the order in which they may import each other."""
    table = TEXT.partition(f"| `{folder}/` | contents |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"(?m)^\| `([\w.]+)` \|", table) == list(ORDER[folder])


def test_the_layout_has_every_folder() -> None:
    """The folders at the top of the repository that are part of it."""
    table = TEXT.partition("| folder | contents |\n|---|---|\n")[2].partition("\n\n")[0]
    for folder in ("ir", "frontend", "vm", "runtime", "stdlib", "spec", "tests", "examples", "benchmarks"):
        assert f"| `{folder}/` |" in table
