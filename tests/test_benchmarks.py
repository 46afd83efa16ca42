"""Every benchmark runs and reports plausible figures; speed is not tested."""

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
    result = run("--json", "--output", str(folder / "results.md"), "--folder", str(folder))
    assert result.returncode == 0, result.stderr
    assert [path.name for path in folder.iterdir()] == ["results.md"], "something was left behind"
    return json.loads(result.stdout), (folder / "results.md").read_text()


def test_every_section_is_measured(report: tuple[dict[str, Any], str]) -> None:
    """Without a section name all of them are measured, in order."""
    assert tuple(section["name"] for section in report[0]["sections"]) == SECTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_figures_are_plausible(report: tuple[dict[str, Any], str], name: str) -> None:
    """Times and sizes are positive, and there is a ratio if there is a peer."""
    section = next(section for section in report[0]["sections"] if section["name"] == name)
    assert section["rows"]
    for row in section["rows"]:
        # The difference of two runs of nearly equal duration may be negative.
        is_difference = any(
            part in row["what"] for part in ("of whole runs", "resume time due to", "time for each of")
        )
        assert row["figure"] > 0 or is_difference, row
        assert (row["peer_figure"] is None) == (row["peer"] == ""), row
        assert (row["ratio"] is None) == (row["peer"] == ""), row
        if row["peer_figure"] is not None:
            assert row["peer_figure"] > 0 or is_difference, row


def test_every_aim_has_a_figure(report: tuple[dict[str, Any], str]) -> None:
    """Steps, start-up, compiling, stepping and memory have aims."""
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
    rows_with_aim = [
        row for section in report[0]["sections"] for row in section["rows"] if row["aim"] is not None
    ]
    assert all(row["reached"] in (True, False) for row in rows_with_aim)


def test_the_report_has_a_table_for_each_section(report: tuple[dict[str, Any], str]) -> None:
    """The Markdown has every section title, and each line of a table has as many cells as its header."""
    found, text = report
    for section in found["sections"]:
        assert f"## {section['title']}" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len(tables) == sum(len(section["rows"]) + 2 for section in found["sections"])
    assert {line.count("|") for line in tables} == {8}


def test_unknown_section_is_an_error() -> None:
    """The message lists the sections."""
    result = run("steps", "stpes")
    assert result.returncode == 2
    assert "no section stpes" in result.stderr
    assert "steps" in result.stderr


def test_cluster_is_measured_on_request() -> None:
    """On its own server: effects, take-over, many runs and their bytes."""
    result = run("cluster", "--json")
    assert result.returncode == 0, result.stderr
    (section,) = json.loads(result.stdout)["sections"]
    assert len(section["rows"]) == 19
    assert all(isinstance(row["figure"], float) for row in section["rows"])


@pytest.fixture(scope="module")
def report_without_peers(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The sections with peers, with no peer installed and no installation allowed: the JSON and the
    Markdown.
    """
    folder = tmp_path_factory.mktemp("peerless")
    cache, results = folder / "cache", folder / "results.md"
    words = ("peers", "--no-install", "--json", "--output", str(results))
    result = run(*words, XDG_CACHE_HOME=str(cache))
    assert result.returncode == 0, result.stderr
    assert not cache.exists(), "an environment was made"
    return json.loads(result.stdout), results.read_text()


def test_peers_are_measured_on_request(report_without_peers: tuple[dict[str, Any], str]) -> None:
    """`peers` means all of its sections, in order; they are not measured by default (above)."""
    assert tuple(section["name"] for section in report_without_peers[0]["sections"]) == PEERS


@pytest.mark.parametrize("name", PEERS)
def test_an_absent_peer_is_reported_as_absent(
    report_without_peers: tuple[dict[str, Any], str], name: str
) -> None:
    """Each row has the figure of llc and the name of the peer without a figure; the notes have the reason."""
    section = next(section for section in report_without_peers[0]["sections"] if section["name"] == name)
    peer_rows = [row for row in section["rows"] if row["peer"] != "llc as it is"]
    assert peer_rows
    for row in peer_rows:
        assert row["peer"], row
        assert row["peer_figure"] is None, row
        assert row["ratio"] is None, row
    assert section["notes"]
    assert all("(not installed)" in note for note in section["notes"])
    part = report_without_peers[1].partition(f"## {section['title']}\n")[2].partition("\n## ")[0]
    assert part.count("| absent |") == len(peer_rows)
    assert all(note in part for note in section["notes"])


def test_failed_installation_of_a_peer(tmp_path: Path) -> None:
    """Without a package index the benchmark continues, prints the error of pip, and leaves no partial
    environment.
    """
    without_index = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    result = run("peers-events", "--json", XDG_CACHE_HOME=str(tmp_path), **without_index)
    assert result.returncode == 0, result.stderr
    (section,) = json.loads(result.stdout)["sections"]
    assert [row["peer_figure"] for row in section["rows"]] == [None]
    (note,) = section["notes"]
    assert "transitions 0.9.3" in note
    assert "No matching distribution" in note
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_two_checkouts_are_compared() -> None:
    """The same commands run alternately in both; here both are the same checkout."""
    result = run("--json", "--against", sys.executable)
    assert result.returncode == 0, result.stderr
    (section,) = json.loads(result.stdout)["sections"]
    assert section["name"] == "against"
    assert len(section["rows"]) == 2
    assert all(row["figure"] > 0 and row["ratio"] > 0 for row in section["rows"])
