"""The run store: named blobs of a run, and journal positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llc.runtime.database.connection import Address
from llc.runtime.database.store import open_store
from llc.runtime.host.coroutines import alone
from llc.runtime.journal.events import RunEnd
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks, store

ABOUT = {"program": "one", "path": ".loops/one.yaml"}


@pytest.fixture(params=["files", "database"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunFolder]:
    """A new run of each store."""
    root = str(tmp_path)
    if request.param == "files":
        created, lock = locks.start(root, "one", ["."], dict(ABOUT))
        yield created
        lock.close()
        return
    database = open_store(Address.parse(request.getfixturevalue("database")), root)
    stored, claim = alone(database.starting(root, "one", ["."], dict(ABOUT), None))
    yield stored
    claim.close()
    database.close()


def test_a_document_is_replaced_atomically_and_removed(run: RunFolder) -> None:
    """`write`, `read`, `has` and `remove` agree, and no temporary file remains."""
    stored: store.StoredRun = run
    assert not stored.has("checkpoint-1")
    stored.write("checkpoint-1", b"first")
    stored.write("checkpoint-1", b"second", durable=False)
    assert stored.read("checkpoint-1") == b"second"
    assert {path.name for path in Path(run.path).iterdir()} <= {"checkpoint-1", "lock"}
    stored.remove("checkpoint-1")
    with pytest.raises(FileNotFoundError):
        stored.read("checkpoint-1")


def test_the_end_of_a_line_is_verified_by_its_checksum(run: RunFolder) -> None:
    """Only the position and checksum that the journal returned are valid."""
    journal = run.create_journal(lambda: "2024-01-15T10:30:00.000Z")
    journal.write("run_start", {"run": run.id})
    journal.sync()
    size, crc = journal.size, journal.last_crc
    journal.close()
    assert run.has_line_end(size, crc)
    assert not run.has_line_end(size - 1, crc)
    assert not run.has_line_end(size, "00000000")
    assert not isinstance(run.last_event(), RunEnd)
    assert run.start()["run"] == run.id
