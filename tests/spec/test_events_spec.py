"""`spec/events.md`: its table is the program's, its loops run and leave the events it shows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spec.blocks import take, text_of
from spec.tables import compare

from llc.ir.effects import NOTE_ROWS
from llc.runtime.journal import events
from llc.runtime.launch import run as launch_run
from llc.runtime.project import options

TEXT = text_of("events.md")
BLOCKS = [
    (block.kind, block.text) for block in take("events.md", "yaml loop", "yaml world", "jsonl", "json state")
]
EXAMPLES = [
    found
    for found in itertools.zip_longest(*(BLOCKS[n:] for n in range(4)), fillvalue=("", ""))
    if found[0][0] == "yaml loop"
]
# Fields that differ between runs or versions.
VOLATILE = ("ts", "crc", "run", "program_hash", "llc", "path", "script", "started_at", "updated_at")


def describe_fields(kind: type[events.Event]) -> list[str]:
    """The wire names of its fields; `?` marks one that may be absent."""
    return [name + "?" * field.is_optional for name, field in kind.fields.items()]


def table() -> Iterator[str]:
    yield "| event | by | fields | |"
    yield "|---|---|---|---|"
    for kind in events.KINDS.values():
        fields = " ".join(f"`{field}`" for field in describe_fields(kind))
        yield f"| `{kind.name}` | {kind.by} | {fields} | {' '.join((kind.__doc__ or '').split())} |"


def stable(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in VOLATILE}


@pytest.fixture
def run_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a run of the example's loop in its world."""
    (_, loop), (_, world), *_ = request.param
    (tmp_path / "loop.yaml").write_text(loop)
    (tmp_path / "world.yaml").write_text(world)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    launch_run.outcome(options.Values("loop.yaml", script="world.yaml", quiet=True))
    (folder,) = tmp_path.glob(".loops/.history/fix-types-*")
    return folder


@pytest.mark.parametrize("run_folder", EXAMPLES, indirect=True)
def test_journal_is_as_shown(run_folder: Path) -> None:
    """The journal of the loop in its world is that of the chapter, line by line."""
    ((kind, shown),) = [example[2] for example in EXAMPLES]
    assert kind == "jsonl"
    (path,) = run_folder.glob("*.events.jsonl")
    written = [stable(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    assert written == [json.loads(line) for line in shown.splitlines()]


@pytest.mark.parametrize("run_folder", EXAMPLES, indirect=True)
def test_state_file_is_as_shown(run_folder: Path) -> None:
    """The state file at the end of the run is that of the chapter."""
    ((kind, shown),) = [example[3] for example in EXAMPLES]
    assert kind == "json state"
    (path,) = run_folder.glob("*.state.json")
    assert stable(json.loads(path.read_text("utf-8"))) == json.loads(shown)


@pytest.mark.parametrize("run_folder", EXAMPLES, indirect=True)
def test_every_event_is_declared(run_folder: Path) -> None:
    """Its kind and fields are in the table."""
    (path,) = run_folder.glob("*.events.jsonl")
    for line in path.read_text("utf-8").splitlines():
        event = json.loads(line)
        fields = describe_fields(events.KINDS[event.pop("event")])
        assert {"ts", "crc"} <= event.keys()
        assert event.keys() - {"ts", "crc"} <= {field.rstrip("?") for field in fields}
        assert {field for field in fields if not field.endswith("?")} <= event.keys()


def test_table_matches_the_code(update: bool) -> None:
    """Event kinds are declared once, in `runtime/journal/events.py` and `ir/effects.py`."""
    compare("events.md", lambda name: table(), update)


def test_every_note_is_an_event() -> None:
    """Each kind of note has its class, with the fields that `ir.effects` declares."""
    for row in NOTE_ROWS:
        fields = describe_fields(events.KINDS[row.name])
        assert set(fields) - {"confidence?"} == set(row.fields.split()), row.name
