"""History: totals and listings of finished runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_process import run_llc

from llc.ir.diagnostics import CompileError
from llc.runtime.host.paths import HISTORY, KEPT, ROOT
from llc.runtime.inspection import history
from llc.runtime.journal import journal
from llc.runtime.journal.exposition import gauge
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.project import configuration, settings
from llc.runtime.runs import retention, runs

Llc = Callable[..., subprocess.CompletedProcess[str]]

FLIPS = """
name: flips
initial: check
context: {code: "0"}
states:
  check: {action: "exit ${context.code}", on_success: done, on_failure: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
"""
ASKS = """
name: asks
initial: ask
states:
  ask: {action: "/do it", on_success: done, on_failure: ask}
  done: {terminal: true}
"""
ASKS_WORLD = """
rules:
  - {kind: agent, output: did, duration_ms: 2000, usage: {usd: 0.25, tokens: 100}}
  - {kind: evaluate, verdict: failure, confidence: 0.9, reason: no, usage: {usd: 0.01, tokens: 20}, times: 1}
  - {kind: evaluate, verdict: success, confidence: 0.9, reason: yes, usage: {usd: 0.01, tokens: 20}}
"""


@pytest.fixture
def llc(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project with a few loops, with files as its streams."""
    (project_dir / ".loops" / "flips.yaml").write_text(FLIPS)
    (project_dir / ".loops" / "asks.yaml").write_text(ASKS)
    (project_dir / "world.yaml").write_text(ASKS_WORLD)

    return run_llc


def finished_run(name: str, seconds: float, root: str = "") -> RunFolder:
    """A finished run that started at the given time."""
    runs.make_running_folder(root)
    run = RunFolder.create(root, name, seconds)
    start = {
        "event": "run_start",
        "run": run.id,
        "program": name,
        "path": "",
        "ts": "2024-01-15T10:30:00.000Z",
    }
    end = {"event": "run_end", "status": "success", "ts": "2024-01-15T10:30:01.000Z", "duration_ms": 1000}
    Path(run.journal).write_bytes(journal.seal(start) + journal.seal(end))
    run.finish()
    return run


def run_ids() -> list[str]:
    return [run.id for run in runs.runs_in("", HISTORY)]


# --- history ------------------------------------------------------------------------------------


def test_history_without_runs_says_how_to_start_one(llc: Llc) -> None:
    """An empty history is not an error."""
    done = llc("history")
    assert (done.returncode, done.stdout) == (
        0,
        "no run has ended yet; start one with: llc run LOOP, or see `llc list --running`\n",
    )
    assert json.loads(llc("history", "--json").stdout)["runs"] == []


def test_history_lists_runs_with_totals(llc: Llc) -> None:
    """Each run with its outcome; the success rate; counts of state entries and verdicts."""
    for code in "001":
        llc("run", "flips", "-q", "--context", f"code={code}")
    report = json.loads(llc("history", "flips", "--json").stdout)
    assert [row["status"] for row in report["runs"]] == ["failure", "success", "success"]
    assert report["success_rate"] == 0.6667
    assert report["states"]["check"]["entered"] == 3
    assert report["states"]["check"]["verdicts"] == {"success": 2, "failure": 1}
    shown = llc("history", "flips").stdout
    assert "3 runs: 1 failure, 2 success (67% success)" in shown
    assert "check   3" in shown


def test_history_adds_up_cost_by_state(llc: Llc) -> None:
    """The cost of agent and model calls is counted for the run and for its state."""
    llc("run", "asks", "-q", "--script", "world.yaml")
    (row,) = json.loads(llc("history", "--json").stdout)["runs"]
    assert (row["usd"], row["tokens"], row["iterations"]) == (0.52, 240, 2)
    assert row["states"]["ask"]["usd"] == 0.52
    assert (row["calls"], row["unpriced"]) == (4, 0)
    assert row["verdicts"] == {"failure": 1, "success": 1}
    assert "0.5200 USD and 240 tokens in all" in llc("history").stdout


def test_an_unknown_price_is_reported(llc: Llc, tmp_path: Path) -> None:
    """The known cost is then a lower bound."""
    (tmp_path / "world.yaml").write_text(ASKS_WORLD.replace("usd: 0.25", "usd: null"))
    llc("run", "asks", "-q", "--script", "world.yaml")
    report = json.loads(llc("history", "--json").stdout)
    assert (report["usd"], report["unpriced"]) == (0.02, 2)
    assert "0.0200+ USD and 240 tokens in all" in llc("history").stdout


def test_a_stale_summary_is_computed_again(llc: Llc) -> None:
    """A summary is read from its file unless it is damaged or belongs to another journal."""
    run = finished_run("x", 1000)
    first = history.facts(run)
    path = Path(run.path) / history.CACHE_FILE
    assert first is not None
    assert json.loads(path.read_text())["status"] == "success"
    path.write_text(path.read_text().replace('"success"', '"kept"'))
    assert (history.facts(run) or {})["status"] == "kept"
    for damage in ("", "[]", "{}", path.read_text().replace('"journal_size": ', '"journal_size": 1')):
        path.write_text(damage)
        assert history.facts(run) == first


def test_the_number_of_shown_runs_is_bounded(llc: Llc) -> None:
    """`-n` limits the runs that are read; the total number is shown."""
    for number in range(5):
        finished_run("x", 1000 + number)
    report = json.loads(llc("history", "-n", "2", "--json").stdout)
    assert (len(report["runs"]), report["total"]) == (2, 5)
    assert "3 earlier not shown" in llc("history", "-n", "2").stdout


# --- cleaning -----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=20, unique=True),
    st.none() | st.integers(0, 6),
    st.none() | st.integers(0, 40),
)
def test_a_removed_run_exceeds_both_bounds(
    ages: list[tuple[str, int]], keep: int | None, days: int | None
) -> None:
    """A run is removed if its loop has `keep` later runs and is old enough; no bounds, no removal."""
    now = time.time()
    folders = []
    for name, age in sorted(ages, key=lambda row: row[1]):
        started_at = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now - age * 86400 - 3600))
        folders.append(RunFolder("", f"{HISTORY}/{name}-{started_at}-0000"))
    removed = {run.id for run in retention.surplus(folders, keep, None if days is None else days * 86400.0)}
    for run, (name, age) in zip(folders, sorted(ages, key=lambda row: row[1]), strict=True):
        later = sum(other == name and other_age < age for other, other_age in ages)
        may_be_removed = (keep is not None or days is not None) and (keep is None or later >= keep)
        assert (run.id in removed) == (may_be_removed and (days is None or age >= days))


def test_clean_options_select_the_removed_runs(llc: Llc) -> None:
    """`--dry-run` lists the runs; `--keep` keeps the latest runs of each loop; a loop can be named."""
    ids = [finished_run(name, 1000 + number).id for number in range(3) for name in ("x", "y")]
    done = llc("clean", "--keep", "2", "--dry-run")
    assert [line.split()[0] for line in done.stdout.splitlines()[:2]] == ids[:2]
    assert len(run_ids()) == 6
    assert json.loads(llc("clean", "x", "--keep", "1", "--json").stdout)["removed"] == [ids[0], ids[2]]
    assert llc("clean", "--keep", "3", "--older-than", "1d").stdout == "nothing to remove\n"
    assert llc("clean", "--older-than", "90m").stdout.startswith("removed 4 runs (")
    assert run_ids() == []


def test_clean_of_an_unknown_name_is_an_error(llc: Llc) -> None:
    """A mistyped name is not treated as a loop without runs."""
    llc("run", "flips", "-q")
    done = llc("clean", "filps", "--keep", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[unknown-run]: no run of `filps`" in done.stderr
    assert "did you mean `flips`?" in done.stderr
    assert llc("clean", "asks", "--keep", "0").stdout == "nothing to remove\n"
    assert llc("clean", "flips", "--keep", "0").stdout.startswith("removed 1 run")


def test_clean_keeps_unfinished_runs(llc: Llc, tmp_path: Path) -> None:
    """Unfinished runs of any age, other folders and targets of links stay."""
    runs.make_running_folder("")
    unfinished = RunFolder.create("", "x", 1000)
    Path(unfinished.journal).write_text("")
    finished = finished_run("x", 1000)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / HISTORY / "x-20200101-000000-0000").symlink_to(outside)
    (tmp_path / HISTORY / "notes").mkdir()
    llc("clean", "--keep", "0")
    assert os.path.isdir(unfinished.path)
    assert not os.path.exists(finished.path)
    assert (outside / "precious").exists()
    assert (tmp_path / HISTORY / "notes").is_dir()


def test_the_end_of_a_run_applies_the_retention_policy(llc: Llc, tmp_path: Path) -> None:
    """The default keeps 100 runs per loop; the project can change this; runs of other loops stay."""
    (tmp_path / ".loops" / "config.yaml").write_text("history: {keep: 2}\n")
    old = [finished_run("flips", 1000 + number).id for number in range(3)]
    others = [finished_run("y", 1000 + number).id for number in range(3)]
    llc("run", "flips", "-q")
    remaining = run_ids()
    assert len([name for name in remaining if name.startswith("flips")]) == 2
    assert old[2] in remaining
    assert set(others) <= set(remaining)


def test_a_backlog_of_old_runs_is_removed_gradually(llc: Llc, tmp_path: Path) -> None:
    """The end of a run removes only a few runs, so it does not become slower."""
    (tmp_path / ".loops" / "config.yaml").write_text("history: {keep: 1}\n")
    for number in range(10):
        finished_run("flips", 1000 + number)
    llc("run", "flips", "-q")
    assert len(run_ids()) == 11 - retention.MAX_REMOVED_AT_END


@pytest.fixture
def sized_run_ids(tmp_path: Path) -> list[str]:
    """Ids of two runs of `x`, one of `y` and one of `x`, each with 1,000 bytes."""
    finished = [finished_run(name, 1000 + number) for number, name in enumerate("xxyx")]
    for run in finished:
        (Path(run.path) / "outputs").mkdir(exist_ok=True)
        (Path(run.path) / "outputs" / "1").write_bytes(b"x" * (1000 - retention.size_of(run.path)))
    return [run.id for run in finished]


@pytest.mark.parametrize(
    ("size", "gone"), [("4kB", []), ("3999B", [0]), ("2.5 kB", [0, 1]), ("1.9KB", [0, 1]), ("0B", [0, 1])]
)
def test_clean_bounds_the_size_of_the_history(
    llc: Llc, sized_run_ids: list[str], size: str, gone: list[int]
) -> None:
    """The oldest runs go first, but never the last run of a loop; --dry-run shows the size of each."""
    preview = llc("clean", "--size", size, "--dry-run").stdout
    assert preview.splitlines()[:-2] == [f"{sized_run_ids[index]}  1.0 KB" for index in gone]
    assert json.loads(llc("clean", "--size", size, "--json").stdout)["removed"] == [
        sized_run_ids[i] for i in gone
    ]
    assert sorted(run_ids()) == sorted(name for i, name in enumerate(sized_run_ids) if i not in gone)


def test_the_policy_may_bound_the_size(llc: Llc, tmp_path: Path, sized_run_ids: list[str]) -> None:
    """At the end of a run, the size limit counts all loops, the number limit only its own loop."""
    (tmp_path / ".loops" / "config.yaml").write_text("history: {keep: {runs: 50, size: 1.5kB}}\n")
    assert llc("clean", "--dry-run").stdout.splitlines()[-2:] == [
        "kept: the last 50 runs of each loop, of these at most 1.5 KB, but always the last run of each loop",
        "would remove 2 runs (2.0 KB)",
    ]
    shown = llc("clean", "--dry-run", "--older-than", "2d").stdout
    assert "kept: all runs started in the last 48h 0m\n" in shown
    assert "kept: nothing\n" in llc("clean", "--dry-run", "--unfinished").stdout
    llc("run", "flips", "-q")
    assert {name for name in run_ids() if not name.startswith("flips")} == set(sized_run_ids[2:])


def test_an_invalid_size_is_an_error(llc: Llc, tmp_path: Path) -> None:
    """On the command line and in the configuration."""
    done = llc("clean", "--size", "lots")
    assert done.returncode == 2
    assert "error[bad-option]: `lots` is not a size" in done.stderr
    (tmp_path / ".loops" / "config.yaml").write_text("history: {keep: {size: 2 apples}}\n")
    done = llc("clean")
    assert done.returncode == 2
    assert "`size` should be a size such as `2GB`" in done.stderr


def test_targets_of_links_are_not_removed(llc: Llc, tmp_path: Path) -> None:
    """Links and sub-folders of the run folder are removed; the targets of links stay."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    llc("run", "flips", "-q")
    (run,) = runs.runs_in(ROOT, HISTORY)
    inner = Path(run.path) / "outputs" / "deep"
    inner.mkdir(parents=True)
    (inner / "file").write_text("12345")
    (inner / "to-folder").symlink_to(tmp_path / "kept")
    (inner / "to-file").symlink_to(tmp_path / "kept" / "file")
    assert retention.remove(run) > 5
    assert not os.path.exists(run.path)
    assert run.id not in "".join(os.listdir(os.path.dirname(run.path)))
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def test_an_interrupted_removal_is_finished(llc: Llc, tmp_path: Path) -> None:
    """A partly removed run is not listed and is removed by the next clean."""
    run = finished_run("x", 1000)
    renamed = tmp_path / HISTORY / f".{run.id}.gone"
    os.rename(run.path, renamed)
    assert run_ids() == []
    llc("clean")
    assert not renamed.exists()


# --- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "id", "column"),
    [
        ("secret: [A]\n", "unknown-key", 1),
        ("secrets: A\n", "wrong-type", 10),
        ("secrets: [A, 3]\n", "wrong-type", 14),
        ("secrets: [sk-abc-def]\n", "wrong-type", 11),
        ("history: {keep: -1}\n", "out-of-range", 17),
        ("history: {older_than: soon}\n", "wrong-type", 23),
        ("- 1\n", "wrong-type", 1),
    ],
)
def test_configuration_errors_have_positions(
    llc: Llc, tmp_path: Path, text: str, id: str, column: int
) -> None:
    """Each error is a diagnostic; no run starts, and active runs can still be stopped and inspected."""
    (tmp_path / ".loops" / "config.yaml").write_text(text)
    with pytest.raises(CompileError) as caught:
        configuration.load("")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.id, diagnostic.span.line, diagnostic.span.column) == (id, 1, column)
    assert llc("run", "flips", "-q").returncode == 2
    assert llc("validate").returncode == 2
    assert llc("status").returncode == 0
    assert llc("stop", "--all").returncode == 0


def test_the_configuration_is_not_a_loop(llc: Llc, tmp_path: Path) -> None:
    """`config` is not listed and cannot be run; an empty file changes nothing."""
    (tmp_path / ".loops" / "config.yaml").write_text("")
    assert [row["name"] for row in json.loads(llc("list", "--json").stdout)] == ["asks", "flips"]
    assert llc("run", "config").returncode == 2
    assert configuration.load("").retention == (KEPT, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2592000), ("12h", 43200), ("90m", 5400), ("4w", 2419200), ("x", None), ("3", None)],
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: Any) -> None:
    """The units are m, h, d and w; a number without a unit is ambiguous."""
    assert settings.age(text) == seconds


# --- metrics ------------------------------------------------------------------------------------


def test_metrics_are_by_loop_and_state(llc: Llc) -> None:
    """The table, JSON and Prometheus text have the same figures; two forms at once are refused."""
    for code in "001":
        llc("run", "flips", "-q", "--context", f"code={code}")
    metrics = json.loads(llc("history", "--metrics", "--json").stdout)["loops"]["flips"]
    assert metrics["statuses"] == {"success": 2, "failure": 1}
    check = metrics["states"]["check"]
    assert (check["entered"], check["effects"], check["errors"]) == (3, 3, 0)
    text = llc("history", "flips", "--prometheus").stdout
    assert 'llc_loop_runs{loop="flips",status="success"} 2\n' in text
    assert 'llc_state_verdicts{loop="flips",state="check",verdict="failure"} 1\n' in text
    assert "check" in llc("history", "--metrics").stdout
    refused = llc("history", "--prometheus", "--json")
    assert refused.returncode == 2
    assert "use one of them" in refused.stderr


def test_metric_labels_can_be_any_text() -> None:
    """Line breaks, quotes and backslashes cannot add samples; invalid UTF-8 is replaced."""
    hostile = 'a"} 9\nllc_fake 1\\\ud800\r'
    text = gauge("llc_state_entries", "Help.", [({"state": hostile}, 1)])
    assert text.split("\n")[2:] == ['llc_state_entries{state="a\\"} 9\\nllc_fake 1\\\\?\r"} 1', ""]
