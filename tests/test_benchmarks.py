"""The benchmarks run, each of them, and what they report makes sense; how fast anything is, is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SECTIONS = (
    *("steps", "start", "subcommands", "scale", "compiling", "iterations", "output", "storage"),
    *(
        "reading",
        "resuming",
        "context",
        "graphs",
        "reports",
        "pages",
        "programs",
        "general",
        "building",
        "many",
    ),
)
PEERS = (
    *("peers-steps", "peers-growing", "peers-events", "peers-programs", "peers-start", "peers-many"),
    "peers-histories",
)


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--tiny", "--here", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """All sections with tiny sizes: the JSON and the Markdown."""
    folder = tmp_path_factory.mktemp("benchmarks")
    done = run("--json", "--output", str(folder / "results.md"), "--folder", str(folder))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results.md"], "something was left behind"
    return json.loads(done.stdout), (folder / "results.md").read_text()


def test_every_section_is_measured(report: tuple[dict[str, Any], str]) -> None:
    """A run without a section's name measures all of them, in order."""
    assert tuple(section["name"] for section in report[0]["sections"]) == SECTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_figures_make_sense(report: tuple[dict[str, Any], str], name: str) -> None:
    """Times and sizes are positive, and a ratio is there where there is a peer."""
    section = next(section for section in report[0]["sections"] if section["name"] == name)
    assert section["rows"]
    for row in section["rows"]:
        # A difference of two runs that are hardly longer than each other may come out below zero.
        is_difference = any(
            part in row["what"] for part in ("of whole runs", "resume time due to", "time for each of")
        )
        assert row["figure"] > 0 or is_difference, row
        assert (row["peer_figure"] is None) == (row["peer"] == ""), row
        assert (row["ratio"] is None) == (row["peer"] == ""), row
        if row["peer_figure"] is not None:
            assert row["peer_figure"] > 0 or is_difference, row


def test_every_aim_of_the_issue_is_held_against_a_figure(report: tuple[dict[str, Any], str]) -> None:
    """What is promised is measured: steps, start-up, compiling, stepping and memory have their aims."""
    aims = {
        section["name"]: {row["aim"] for row in section["rows"] if row["aim"] is not None}
        for section in report[0]["sections"]
    }
    assert aims["steps"] == {1.05, 1.3}
    assert aims["start"] == {5, 8}
    assert {2, 1.1, 1.25} == aims["scale"]
    assert aims["iterations"]
    assert aims["output"]
    assert aims["reading"] == {1}
    assert aims["resuming"] == {0.06, 50e-6, 0.5, 0.2, 2_000_000}
    held = [row for section in report[0]["sections"] for row in section["rows"] if row["aim"] is not None]
    assert all(row["reached"] in (True, False) for row in held)


def test_the_report_has_a_table_for_each_section(report: tuple[dict[str, Any], str]) -> None:
    """The Markdown has every section's title, and each line of a table has as many cells as its head."""
    found, text = report
    for section in found["sections"]:
        assert f"## {section['title']}" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) == sum(len(section["rows"]) + 2 for section in found["sections"])
    assert {line.count("|") for line in tables} == {8}


def test_an_unknown_section_is_refused() -> None:
    """A slip in a section's name says which sections there are."""
    done = run("steps", "stpes")
    assert done.returncode == 2
    assert "no section stpes" in done.stderr
    assert "steps" in done.stderr


def test_a_cluster_is_measured_when_it_is_named() -> None:
    """With a server of its own: effects, takeover, many runs and their bytes."""
    done = run("cluster", "--json")
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    assert len(section["rows"]) == 19
    assert all(isinstance(row["figure"], float) for row in section["rows"])


@pytest.fixture(scope="module")
def peerless(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The sections beside peers where no peer is installed and none may be: the JSON and the Markdown."""
    folder = tmp_path_factory.mktemp("peerless")
    cache, results = folder / "cache", folder / "results.md"
    words = ("peers", "--no-install", "--json", "--output", str(results))
    done = run(*words, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done.stderr
    assert not cache.exists(), "an environment was made"
    return json.loads(done.stdout), results.read_text()


def test_peers_are_measured_only_when_they_are_asked_for(peerless: tuple[dict[str, Any], str]) -> None:
    """`peers` stands for all of its sections, in order; a run without a name has none of them (above)."""
    assert tuple(section["name"] for section in peerless[0]["sections"]) == PEERS


@pytest.mark.parametrize("name", PEERS)
def test_an_absent_peer_is_reported_as_absent(peerless: tuple[dict[str, Any], str], name: str) -> None:
    """llc's own figure stands in each row, beside the peer's name without one, and the reason is told."""
    section = next(section for section in peerless[0]["sections"] if section["name"] == name)
    beside = [row for row in section["rows"] if row["peer"] != "llc as it is"]
    assert beside
    for row in beside:
        assert row["peer"], row
        assert row["peer_figure"] is None, row
        assert row["ratio"] is None, row
    assert section["notes"]
    assert all("(not installed)" in note for note in section["notes"])
    part = peerless[1].partition(f"## {section['title']}\n")[2].partition("\n## ")[0]
    assert part.count("| absent |") == len(beside)
    assert all(note in part for note in section["notes"])


def test_a_peer_that_cannot_be_installed_is_absent(tmp_path: Path) -> None:
    """Without a package index the bench goes on, says what pip said, and leaves no half environment."""
    without_index = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    done = run("peers-events", "--json", XDG_CACHE_HOME=str(tmp_path), **without_index)
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    assert [row["peer_figure"] for row in section["rows"]] == [None]
    (note,) = section["notes"]
    assert "transitions 0.9.3" in note
    assert "No matching distribution" in note
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_two_checkouts_are_compared() -> None:
    """The same commands of both, in turns; here of the same one."""
    done = run("--json", "--against", sys.executable)
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    assert section["name"] == "against"
    assert len(section["rows"]) == 2
    assert all(row["figure"] > 0 and row["ratio"] > 0 for row in section["rows"])
