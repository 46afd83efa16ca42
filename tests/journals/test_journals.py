"""Runs recorded by this and earlier versions: each can be read, replayed and resumed."""

from __future__ import annotations

import difflib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc

from llc.ir.effects import EFFECTS
from llc.runtime.journal import reader
from llc.runtime.journal.codec import RESERVED
from llc.runtime.journal.events import KINDS, EffectFinished, EffectStarted, Event

HERE = Path(__file__).parent
CASES = sorted(path for path in HERE.glob("*.*/*") if path.is_dir())
RUNS = sorted(path for case in CASES for path in case.glob("*/*-*") if path.is_dir())
# The checksums of the recorded cases of a version.
CHECKSUMS = "SHA256SUMS"
EXPECTED = "expected.json"
TO_UPDATE = "; `pytest --update tests/journals` rewrites what is expected, never what is recorded"
# Options that a case needs to continue.
RESUME_OPTIONS = {"fuel": ("--fuel", "9999"), "spent": ("--budget", "usd=9")}
# Fields that depend on the reading machine.
VOLATILE = {"pid", "background", "age_ms"}


def shortened(line: str) -> str:
    """A long line as its prefix and its checksum."""
    if len(line) <= 80:
        return line
    return f"{line[:40]}… sha256 {hashlib.sha256(line.encode()).hexdigest()[:16]}"


def case_id(path: Path) -> str:
    return "/".join(path.relative_to(HERE).parts[:2])


def events(run: Path) -> Iterator[Event]:
    (journal,) = run.glob("*.events.jsonl")
    return (event for event in reader.read(str(journal)) if isinstance(event, Event))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project in UTC, with the secret of the runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RECORD_API_KEY", "sesame-0123456789")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def command_outputs(project: Path, case: Path) -> dict[str, Any]:
    """Output of each command for the runs of a case."""

    def shown(*words: str) -> Any:
        result = run_llc(*words)
        assert "Traceback" not in result.stderr
        if words[0] in ("trace", "logs"):
            return [shortened(line) for line in result.stdout.splitlines()]
        data = json.loads(result.stdout)
        for row in data if isinstance(data, list) else [data]:
            for name in VOLATILE & row.keys():
                row[name] = None
        return data

    (project / ".loops").mkdir()
    for name in ("running", "history"):
        if (case / name).exists():
            shutil.copytree(case / name, project / ".loops" / f".{name}")
    if (case / "world.yaml").exists():
        shutil.copy(case / "world.yaml", project)
    # The actions that ended their runs do so only once.
    for run in project.glob(".loops/.*/*-*"):
        (project / f"go-{run.name.partition('-')[0]}").touch()
    found: dict[str, Any] = {"history": shown("history", "--json")}
    del found["history"]["states"]  # the sum over the runs
    for run in sorted(project.glob(".loops/.*/*-*")):
        told = found[run.name] = {
            "status": shown("status", run.name, "--json"),
            "logs": shown("logs", run.name, "--json"),
            "trace": shown("trace", run.name, "--json"),
            "replay": shown("replay", run.name, "--json"),
        }
        if run.parent.name == ".running":
            resumed = shown("resume", run.name, "--json", *RESUME_OPTIONS.get(case.name, ()))
            told["resumed"] = {name: resumed[name] for name in ("status", "final_state", "steps", "value")}
            told["replayed"] = shown("replay", run.name, "--json")["identical"]
    return found


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_recorded_run_is_read_and_resumed(case: Path, project: Path, update: bool) -> None:
    """status, logs, trace, replay and history have the expected output; unfinished runs resume and end."""
    found = json.dumps(command_outputs(project, case), indent=1, ensure_ascii=False) + "\n"
    path = case / EXPECTED
    if update:
        path.write_text(found)
    expected = path.read_text() if path.exists() else ""
    if found != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), found.splitlines(), "expected", "now", lineterm=""
        )
        pytest.fail("\n".join(lines) + TO_UPDATE)


def test_every_kind_of_event_and_effect_is_in_a_recorded_journal() -> None:
    """A new kind or field of an event, and a new kind of effect, must be recorded."""
    fields: dict[str, set[str]] = {}
    effects = set()
    for run in RUNS:
        for event in events(run):
            fields.setdefault(event.kind_name, set()).update(event.wire.keys() - RESERVED)
            if isinstance(event, EffectStarted | EffectFinished):
                effects.add(event.kind)
    missing = [f"event {name}" for name in KINDS if name not in fields]
    missing += [
        f"field {field} of event {name}"
        for name, kind in KINDS.items()
        for field in sorted(kind.fields.keys() - fields.get(name, kind.fields.keys()))
    ]
    undeclared = {name: found - KINDS[name].fields.keys() for name, found in fields.items() if name in KINDS}
    assert not any(undeclared.values()), undeclared
    missing += [f"effect {name}" for name in EFFECTS if name not in effects]
    assert not missing, f"not recorded: {missing}; add a case to tests/journals/record.py and run it"


@pytest.mark.parametrize("folder", sorted({case.parent for case in CASES}), ids=lambda path: path.name)
def test_recorded_files_are_unchanged(folder: Path, update: bool) -> None:
    """Each case has its original checksum; cases may be added."""
    found = {case.name: checksum(case) for case in CASES if case.parent == folder}
    sums = folder / CHECKSUMS
    lines = sums.read_text().splitlines() if sums.exists() else []
    stored = {name: digest for digest, name in map(str.split, lines)}
    assert stored.items() <= found.items(), "recorded files were changed or removed; restore them"
    if update:
        sums.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
        stored = found
    assert stored.keys() == found.keys(), "new cases; `pytest --update tests/journals` adds their checksums"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != EXPECTED)
    assert size < 300_000, "recorded runs are kept small"


def checksum(case: Path) -> str:
    """SHA-256 of the names and contents of the recorded files of a case."""
    digest = hashlib.sha256()
    for path in sorted(case.rglob("*")):
        if path.is_file() and path.name != EXPECTED:
            data = path.read_bytes()
            digest.update(f"{path.relative_to(case)} {len(data)}\n".encode() + data)
    return digest.hexdigest()
