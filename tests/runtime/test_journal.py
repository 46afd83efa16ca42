"""The journal: one checksummed line per event, an exact round trip, and reported damage."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import subprocess
import sys
import textwrap
import zlib
from errno import EMFILE
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.host import files
from llc.runtime.host.errors import UserError
from llc.runtime.journal import journal, reader
from llc.runtime.journal.events import Event
from llc.runtime.journal.journal import BLOB_LIMIT, BlobError, Blobs, Journal, JournalError
from llc.runtime.journal.outcome import headline
from llc.runtime.journal.reader import Damage
from llc.vm.primitives.verdicts import unrouted

TS = "2024-01-15T10:30:00.000Z"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def open_journal(folder: Path) -> Journal:
    return Journal.create(str(folder / "x.events.jsonl"), lambda: TS)


def write_events(folder: Path, *events: dict[str, Any]) -> Path:
    journal_file = open_journal(folder)
    for event in events:
        journal_file.write("note", event)
    journal_file.close()
    return Path(journal_file.path)


def events_of(path: Path) -> list[dict[str, Any] | None]:
    return [event.wire for event in reader.read(str(path)) if isinstance(event, Event)]


def is_same(a: Any, b: Any) -> bool:
    """Equal, with the types of numbers kept apart and NaN equal to itself."""
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(json_values)
def test_every_value_is_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    """pack, seal, unseal and unpack return the written value, with types and order."""
    blobs = Blobs(str(tmp_path_factory.getbasetemp() / "blobs"))
    line = journal.seal({"event": "note", "value": journal.pack(value, blobs.store)})
    event = journal.unseal(line.rstrip(b"\n"))
    assert event is not None
    assert is_same(journal.unpack(event["value"], blobs.fetch), value)


@given(json_values)
def test_a_line_is_strict_json_on_one_line(value: Any) -> None:
    """No line contains bare NaN or Infinity or a newline, for any value."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    line = journal.seal({"event": "note", "value": journal.pack(value, lambda text: {})})
    assert line.count(b"\n") == 1
    json.loads(line, parse_constant=refuse)


def test_the_checksum_is_the_crc32_of_the_preceding_bytes(tmp_path: Path) -> None:
    """A line ends with `,"crc":"<8 hex digits>"}`, computed over the bytes before it."""
    line = write_events(tmp_path, {"a": "ä"}).read_bytes().rstrip(b"\n")
    body, tail = line[:-18], line[-18:]
    assert tail == b',"crc":"%08x"}' % zlib.crc32(body)
    assert json.loads(line)["ts"] == TS


@given(st.data())
def test_any_changed_byte_is_detected(data: st.DataObject) -> None:
    """A line with one changed byte is not an event."""
    line = bytearray(journal.seal({"event": "note", "text": "some text", "n": 17})[:-1])
    offset = data.draw(st.integers(0, len(line) - 1))
    line[offset] ^= data.draw(st.integers(1, 255))
    assert journal.unseal(bytes(line)) is None


def test_a_long_string_is_stored_once_as_a_blob(tmp_path: Path) -> None:
    """Two events with the same long output share one file, named by its hash."""
    text = "x" * (BLOB_LIMIT + 1)
    path = write_events(tmp_path, {"output": text}, {"output": text})
    events = events_of(path)
    assert events[0] is not None
    assert events[0]["output"] == {"$blob": next((tmp_path / "outputs").iterdir()).name, "size": len(text)}
    assert len(list((tmp_path / "outputs").iterdir())) == 1
    assert path.stat().st_size < 1000
    blobs = Blobs(str(tmp_path / "outputs"))
    assert journal.unpack(events[0]["output"], blobs.fetch) == text


def test_the_name_of_a_blob_is_its_sha_256(tmp_path: Path) -> None:
    """After some blobs another module computes the digest; the result is the same."""
    blobs = Blobs(str(tmp_path))
    texts = [chr(97 + number) * 200_000 for number in range(6)]
    references = [blobs.store(text) for text in texts]
    assert [entry["$blob"] for entry in references] == [
        hashlib.sha256(text.encode()).hexdigest() for text in texts
    ]
    assert [blobs.fetch(entry["$blob"], entry["size"]) for entry in references] == texts


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_lost_or_changed_output_file_is_an_error(tmp_path: Path, change: str) -> None:
    """An output is never read back with other content."""
    blobs = Blobs(str(tmp_path))
    reference = blobs.store("y" * 100)
    file = tmp_path / reference["$blob"]
    if change == "gone":
        file.unlink()
    else:
        file.write_text("z" * 100)
    with pytest.raises(BlobError, match="cannot be read" if change == "gone" else "damaged"):
        blobs.fetch(reference["$blob"], 100)


def test_a_name_in_a_journal_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    """A forged journal cannot make llc read another file as an output."""
    (tmp_path / "outputs").mkdir()
    (tmp_path / "secret").write_text("s")
    with pytest.raises(BlobError):
        Blobs(str(tmp_path / "outputs")).fetch("../secret", 1)


def test_a_read_error_does_not_make_a_blob_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost blob is created again, so a temporary read error is reported instead."""
    blobs = Blobs(str(tmp_path))
    reference = blobs.store("x" * 100)

    def too_many(path: str, *words: Any) -> IO[bytes]:
        raise OSError(EMFILE, "Too many open files", path)

    monkeypatch.setattr(files, "open", too_many)
    with pytest.raises(UserError, match="too many open files"):
        blobs.fetch(reference["$blob"], reference["size"])


def test_a_value_nested_deeper_than_the_recursion_limit_is_kept(tmp_path: Path) -> None:
    """1,200 nested lists are written and read back."""
    value: Any = []
    for _ in range(1_200):
        value = [value]
    event = events_of(write_events(tmp_path, {"value": value}))[0]
    assert event is not None
    depth, item = 0, event["value"]
    while item:
        depth, item = depth + 1, item[0]
    assert depth == 1_200


def test_a_lone_surrogate_is_kept(tmp_path: Path) -> None:
    """Text that UTF-8 cannot represent is read back unchanged."""
    event = events_of(write_events(tmp_path, {"text": "a\ud800b"}))[0]
    assert event is not None
    assert event["text"] == "a\ud800b"


def test_a_note_cannot_replace_the_common_fields(tmp_path: Path) -> None:
    """A note with the fields `event`, `ts` or `crc` keeps those of the journal."""
    event = events_of(write_events(tmp_path, {"event": "run_end", "ts": "x", "crc": "y", "a": 1}))[0]
    assert event == {"event": "note", "a": 1, "ts": TS}


def test_a_torn_last_line_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """A partly written line does not hide the lines before it."""
    path = write_events(tmp_path, {"n": 1}, {"n": 2})
    complete = path.read_bytes()
    for removed in range(1, len(complete) // 2):
        path.write_bytes(complete[:-removed])
        event, damage = reader.read(str(path))
        assert isinstance(event, Event)
        assert event.wire["n"] == 1
        assert isinstance(damage, Damage)
        assert damage.is_torn_line
        assert "line 2 is incomplete" in str(damage)


def test_damage_in_the_middle_is_located_and_the_rest_is_read(tmp_path: Path) -> None:
    """Damaged lines are reported by number; later events are still read."""
    path = write_events(tmp_path, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 4})
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b"\x00" * len(lines[1]) + b"\n"
    lines[2] = lines[2].replace(b"3", b"7", 1)
    path.write_bytes(b"".join(lines))
    first, damage, last = reader.read(str(path))
    assert isinstance(first, Event)
    assert isinstance(last, Event)
    assert (first.wire["n"], last.wire["n"]) == (1, 4)
    assert isinstance(damage, Damage)
    assert (damage.first_line, damage.last_line, damage.offset) == (2, 3, len(lines[0]))
    assert not damage.at_end
    assert "lines 2 to 3 are damaged" in str(damage)


def test_reading_stops_at_an_overlong_line(tmp_path: Path) -> None:
    """A journal extended to 10 GB counts as damaged at its end and is not searched for lines."""
    path = write_events(tmp_path, {"n": 1}, {"n": 2})
    complete = path.read_bytes()
    complete_size = len(complete)
    os.truncate(path, 10 << 30)
    limit, (_, hard) = 4 << 30, resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        *events, damage = reader.read(str(path))
        assert reader.tail_offset(str(path), 1) == 0
        assert reader.last_event(str(path)) is None
        assert list(reader.whole_lines(str(path))) == complete.splitlines(keepends=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert [event.wire["n"] for event in events if isinstance(event, Event)] == [1, 2]
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.size, damage.at_end) == (complete_size, (10 << 30) - complete_size, True)
    assert str(damage) == "line 3 is damaged"


def test_an_empty_journal_has_no_events(tmp_path: Path) -> None:
    """An empty file is not an error."""
    path = write_events(tmp_path)
    assert events_of(path) == []


def test_repair_sets_the_damaged_end_aside(tmp_path: Path) -> None:
    """Repair moves the damaged end to a new file next to the journal each time."""
    path = write_events(tmp_path, {"n": 1})
    size = path.stat().st_size
    for number in (1, 2):
        with path.open("ab") as file:
            file.write(b'{"torn')
        saved = journal.set_aside(str(path), size)
        assert saved == f"{path}.damaged-{number}"
        assert Path(saved).read_bytes() == b'{"torn'
    assert path.stat().st_size == size
    assert journal.set_aside(str(path), size) is None


def test_an_existing_journal_is_not_overwritten(tmp_path: Path) -> None:
    """Creating a journal is refused if one exists."""
    path = write_events(tmp_path, {"n": 1})
    with pytest.raises(JournalError, match="file exists"):
        Journal.create(str(path), lambda: TS)


def test_flushed_events_survive_a_kill(tmp_path: Path) -> None:
    """After flush an event is in the file, even if the process is killed at once."""
    path = tmp_path / "x.jsonl"
    script = f"""
        import os, signal
        from llc.runtime.journal.journal import Journal
        book = Journal.create({str(path)!r}, lambda: "t")
        book.write("note", {{"n": 1}}); book.flush()
        book.write("note", {{"n": 2}})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert [event["n"] for event in events_of(path) if event] == [1]


def test_a_full_disk_is_an_error_and_leaves_complete_lines(tmp_path: Path) -> None:
    """If the system writes only a part, the journal reports it and keeps no partial line."""
    path = tmp_path / "x.jsonl"
    script = f"""
        import resource, signal
        from llc.runtime.journal.journal import Journal, JournalError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
        book = Journal.create({str(path)!r}, lambda: "t")
        try:
            for n in range(1000):
                book.write("note", {{"n": n, "pad": "p" * 60}}); book.sync()
        except JournalError as error:
            print(n, error.message)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True
    )
    number, _, message = done.stdout.partition(" ")
    assert "cannot write" in message
    assert [event["n"] for event in events_of(path) if event] == list(range(int(number)))
    assert all(isinstance(event, Event) for event in reader.read(str(path)))


def test_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    """Events are read in bounded portions: 200,000 events do not stay in memory."""
    journal_file = open_journal(tmp_path)
    for n in range(2_000):
        journal_file.write("note", {"n": n})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in range(200_000):
        journal_file.write("note", {"n": n, "pad": "p" * 50})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000
    journal_file.close()


def test_pack_does_not_change_its_argument() -> None:
    """Packing copies the value of the program."""
    value = {"a": ["x" * (BLOB_LIMIT + 1), math.inf], "$b": 1}
    before = repr(value)
    journal.pack(value, lambda text: {"$blob": "0" * 64, "size": len(text)})
    assert repr(value) == before


_ADD = "add `on_error` to the state or the loop, or `_error` to its route"


@pytest.mark.parametrize(
    ("verdict", "details", "shown"),
    [
        (
            "error",
            {"message": "HTTP 401: no; check the key in KEY"},
            (
                "state `fix`: HTTP 401: no; check the key in KEY",
                f"nothing routes the verdict `error`: {_ADD}",
            ),
        ),
        (
            "error",
            {"exit_code": 2},
            (
                "state `fix`: exit code 2",
                f"nothing routes the verdict `error`: {_ADD}",
            ),
        ),
        (
            "blocked",
            {},
            (
                "state `fix`: nothing routes the verdict `blocked`; "
                "add `on_blocked` to the state, or `_` to its route",
                None,
            ),
        ),
    ],
)
def test_headline_starts_with_the_cause(
    verdict: str, details: dict[str, Any], shown: tuple[str, str | None]
) -> None:
    """The recorded message is unchanged; the displayed error moves the routing to its help."""
    assert headline(unrouted("fix", {"verdict": verdict, "details": details})) == shown
