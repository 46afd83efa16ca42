"""The history in a checkpoint: continued from any position of any recorded journal it gives the same
result.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.host import files
from llc.runtime.journal import reader
from llc.runtime.journal.journal import Journal
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.journal.run_history import Checkpoint, RunHistory
from llc.runtime.runs import checkpoint_reader, checkpoints, follower
from llc.runtime.runs.checkpoints import Checkpoints

HERE = Path(__file__).parent
RUNS = sorted(path for path in HERE.glob("*.*/*/*/*-*") if path.is_dir())


def checkpoint_at(history: RunHistory, offset: int) -> Checkpoint:
    """The checkpoint with this history, as read from a file."""
    facts: dict[str, Any] = json.loads(json.dumps({"history": history.to_data()}))
    return Checkpoint(offset, history.lines, 0, facts)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "/".join(run.relative_to(HERE).parts))
def test_a_history_goes_on_from_every_position(run: Path) -> None:
    (journal,) = run.glob("*.events.jsonl")
    entries = [entry for entry in reader.read(str(journal)) if not isinstance(entry, reader.Damage)]
    whole = RunHistory.of(entries)
    expected = whole.to_data()
    history = RunHistory()
    for index, entry in enumerate(entries):
        resumed = RunHistory(checkpoint_at(history, entry.offset))
        for later in entries[index:]:
            resumed.add(later)
        assert resumed.to_data() == expected, f"from line {entry.line}"
        assert resumed.active_ms() == whole.active_ms()
        history.add(entry)
    assert RunHistory(checkpoint_at(history, 0)).to_data() == expected


@pytest.fixture
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run with a checkpoint, and events after it."""
    monkeypatch.setattr(checkpoints, "SPACE", 0)
    run = RunFolder(str(tmp_path), str(tmp_path / "long-20240115-103000-abcd"))
    files.mkdir(run.path)
    journal = Journal.create(run.journal, lambda: "2024-01-15T10:30:00.000Z")
    writer = Checkpoints(run)
    for number in range(20):
        journal.write("state_enter", {"state": f"s{number % 3}", "iteration": number})
        if number in (9, 14):
            writer.write(journal, {"open": [], "last": 0, "doubtful": [], "snapshot": {}})
    journal.close()
    return run


def test_only_what_follows_the_newest_checkpoint_is_read(long_run: RunFolder) -> None:
    history = follower.load_history(long_run)
    assert history.checkpoint is not None
    assert history.checkpoint.lines == 15
    assert history.to_data() == RunHistory.of(reader.read(long_run.journal)).to_data()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "history",
    [
        None,
        7,
        {},
        [],
        "text",
        {"states": {"a": [1]}},
        {"states": {"a": ["x", 0, 0, 0, 0, {}, 0.0, 0]}},
        {"pending": [[1, [{"event": "route"}, 0, 0], []]]},
        {"pending": 3},
        {"start": [{"event": "route"}, 0, 0]},
        {"last_seq": "many"},
        {"progress": None},
        {"own": {}},
    ],
    ids=str,
)
def test_a_malformed_history_is_not_used(long_run: RunFolder, history: Any) -> None:
    expected = follower.load_history(long_run).to_data()
    for name in ("checkpoint-1", "checkpoint-2"):
        path = Path(long_run.place(name))
        checkpoint = checkpoint_reader.load(long_run)[0][0]
        facts = {**checkpoint.facts}
        given = facts["history"]
        facts["history"] = {**given, **history} if isinstance(history, dict) and history else history
        path.write_bytes(checkpoints.zlib.compress(checkpoints.seal(facts)))
    read = follower.load_history(long_run)
    assert read.checkpoint is None
    assert read.to_data() == expected
