"""`spec/promises.md`: the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "spec" / "promises.md").read_text()


def test_every_guarantee_names_tests_that_exist() -> None:
    rows = [line for line in TEXT.partition("## What is not")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for row in rows:
        (command,) = re.findall(r"`([^`]+)` \|$", row)
        words = command.removeprefix("LLC_CRASH=1 ").split()
        if words[0] == "make":
            assert words[1] in targets, row
        else:
            assert words[0] == "pytest", row
            assert all((ROOT / word).exists() for word in words[1:]), row


def test_every_link_leads_to_a_heading() -> None:
    for name, anchor in re.findall(r"\]\(([a-z-]+\.md)(?:#([a-z-]+))?\)", TEXT):
        headings = re.findall(r"^#+ (.*)$", (ROOT / "spec" / name).read_text(), re.MULTILINE)
        assert not anchor or anchor in {
            re.sub(r"[^a-z -]", "", line.lower()).replace(" ", "-") for line in headings
        }


def test_the_number_of_changes_that_the_simulation_finds() -> None:
    text = (ROOT / "tests" / "simulation" / "mutants.py").read_text()
    assert f"makes {len(re.findall(r'^    .[a-z-]+.: [(]$', text, re.MULTILINE))} changes" in TEXT
