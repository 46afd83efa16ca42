"""The memory index over time: updates, concurrent processes, SIGKILL, damage and a full disk."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_projects import ask, matching_paths, no_check, repository, update, write

from llc.runtime.host import files
from llc.runtime.host.errors import UserError
from llc.runtime.memory import index as index_module
from llc.runtime.memory import recall, report
from llc.runtime.memory.ignore import list_files
from llc.runtime.memory.index import Damaged, Index, index_path

DATABASE = ".loops/.cache/memory.sqlite"


def age(folder: Path) -> None:
    """Set an old modification time on all files, so that time stamps are reliable."""
    for path in folder.rglob("*"):
        if path.is_file() and ".git" not in path.parts and ".loops" not in path.parts:
            os.utime(path, (1_700_000_000, 1_700_000_000))


def dump(folder: Path) -> Any:
    """The content of the index, without data that depends on the order of updates."""
    with Index(str(folder), no_check, index_path(str(folder))) as index:
        index.verify()
        files = index.execute("SELECT path, digest, reason, terms FROM files ORDER BY path").fetchall()
        words = [
            index.execute(f"SELECT term, doc, cnt FROM {table}_words ORDER BY term").fetchall()
            for table in ("contents", "metadata")
        ]
        return files, words


def scores(folder: Path, query: str) -> list[tuple[str, float]]:
    return [(match.path, match.score) for match in ask(folder, query, limit=200).matches]


def counts(folder: Path) -> tuple[int, int, int]:
    done = update(folder)
    return done.new, done.changed, done.removed


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths of the files that are read for indexing."""
    seen: list[bytes] = []
    real = index_module.read_entry

    def read(root: str, path: bytes) -> bytes | None:
        seen.append(path)
        return real(root, path)

    monkeypatch.setattr(index_module, "read_entry", read)
    return seen


# --- incremental updates ----------------------------------------------------------------------


def test_only_changed_files_are_read_again(tmp_path: Path, reads: list[bytes]) -> None:
    """The update counts new, changed and removed files."""
    folder = repository(tmp_path / "p", {f"{name}.py": f"word {name}" for name in "abcd"})
    age(folder)
    assert counts(folder) == (4, 0, 0)
    reads.clear()
    assert counts(folder) == (0, 0, 0)
    assert reads == []
    (folder / "a.py").write_text("other")
    (folder / "b.py").unlink()
    (folder / "e.py").write_text("word")
    assert counts(folder) == (1, 1, 1)
    assert reads == [b"a.py", b"e.py"]
    assert sorted(matching_paths(folder, "word")) == ["c.py", "d.py", "e.py"]
    assert matching_paths(folder, "other") == ["a.py"]


def test_a_touched_file_is_not_indexed_again(tmp_path: Path, reads: list[bytes]) -> None:
    """Its digest is unchanged, and the new time stamp is stored."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    age(folder)
    update(folder)
    os.utime(folder / "a.py", (1_600_000_000, 1_600_000_000))
    reads.clear()
    assert counts(folder) == (0, 0, 0)
    assert counts(folder) == (0, 0, 0)
    assert reads == [b"a.py"]


def test_a_replaced_file_is_detected_by_its_inode(tmp_path: Path) -> None:
    """Size and modification time of the replacement are the same."""
    folder = repository(tmp_path / "p", {"a.py": "first"})
    age(folder)
    update(folder)
    (tmp_path / "new").write_text("other")
    os.utime(tmp_path / "new", (1_700_000_000, 1_700_000_000))
    os.replace(tmp_path / "new", folder / "a.py")
    assert counts(folder) == (0, 1, 0)
    assert matching_paths(folder, "other") == ["a.py"]


def test_a_change_within_the_resolution_of_time_stamps_is_detected(tmp_path: Path) -> None:
    """A file that was just written is read again, though its size, time and inode are the same."""
    folder = repository(tmp_path / "p", {"a.py": "first"})
    update(folder)
    state = (folder / "a.py").stat()
    with open(folder / "a.py", "r+") as file:
        file.write("other")
    os.utime(folder / "a.py", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert counts(folder) == (0, 1, 0)


def test_a_text_that_becomes_a_binary_leaves_the_index(tmp_path: Path) -> None:
    """It is indexed again once it is text."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    (folder / "a.py").write_bytes(b"word\0")
    assert counts(folder) == (0, 0, 1)
    assert matching_paths(folder, "word") == []
    (folder / "a.py").write_bytes(b"word!")
    assert counts(folder) == (1, 0, 0)
    assert matching_paths(folder, "word") == ["a.py"]


_TREES = st.dictionaries(
    st.sampled_from(["a.py", "b.md", "c.txt", "d/e.py", "d/f.sexp"]),
    st.sampled_from(["", "word", "word word other", "# Title\nword", "(define x 1)", "a\0b"]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_TREES, min_size=2, max_size=4))
def test_an_updated_index_equals_a_new_index(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, str]]
) -> None:
    """Index and scores depend on the state of the files only, not on earlier changes."""
    folder = tmp_path_factory.mktemp("law")
    for tree in trees:
        for name in ("a.py", "b.md", "c.txt", "d/e.py", "d/f.sexp"):
            (folder / name).unlink(missing_ok=True)
        write(folder, dict(tree))
        update(folder)
    content, ranked = dump(folder), scores(folder, "word other title")
    shutil.rmtree(folder / ".loops")
    update(folder)
    assert dump(folder) == content
    assert scores(folder, "word other title") == ranked


def test_an_index_of_another_format_is_rebuilt(tmp_path: Path) -> None:
    """Another version of llc may have written other terms."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    answer = ask(folder, "word")
    assert [match.path for match in answer.matches] == ["a.py"]
    assert "format 99" in answer.notices[0]
    assert ask(folder, "word").notices == []


def test_the_index_is_private(tmp_path: Path) -> None:
    """Only its owner can read it, and git ignores it."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    for path in (folder / ".loops/.cache").iterdir():
        if path.name.startswith("memory"):
            assert path.stat().st_mode & 0o077 == 0
    status = subprocess.run(
        ["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert status.stdout == "?? a.py\n"


def test_a_removed_project_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot list the files in {tmp_path}/gone: no such file") as refused:
        report.update_index(str(tmp_path / "gone"), False)
    assert refused.value.id == "cannot-read"


# --- concurrent processes ---------------------------------------------------------------------

WORKER = textwrap.dedent("""
    import sys
    sys.path[:0] = [sys.argv[2]]
    from memory_projects import ask, update
    from pathlib import Path
    folder = Path(sys.argv[1])
    for turn in range(int(sys.argv[3])):
        (folder / f"own{sys.argv[4]}.txt").write_text(f"word own{sys.argv[4]} turn{turn}")
        answer = ask(folder, f"own{sys.argv[4]} turn{turn}", limit=3)
        assert answer.notices == [], answer.notices
        assert answer.matches[0].path == f"own{sys.argv[4]}.txt", answer.matches
    print("good")
""")


def worker(folder: Path, *words: str) -> subprocess.Popen[str]:
    here = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", WORKER, str(folder), here, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_many_processes_index_and_search_at_once(tmp_path: Path) -> None:
    """Each process finds its last write; the resulting index is consistent."""
    folder = repository(tmp_path / "p", {f"{number}.txt": f"word w{number} " * 200 for number in range(600)})
    workers = [worker(folder, "4", str(number)) for number in range(5)]
    for process in workers:
        output, errors = process.communicate(timeout=120)
        assert (output, process.returncode) == ("good\n", 0), errors
    content = dump(folder)
    assert len(content[0]) == 605
    shutil.rmtree(folder / ".loops")
    update(folder)
    assert dump(folder) == content


def test_a_reader_is_not_blocked_by_a_writer(tmp_path: Path) -> None:
    """While a process holds the write lock, another finds the committed state."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    age(folder)
    update(folder)
    with Index(str(folder), no_check, index_path(str(folder))) as index, index.writing():
        index.execute("DELETE FROM files")
        assert matching_paths(folder, "word") == ["a.py"]
        index.execute("INSERT INTO files SELECT * FROM files")


def test_waiting_for_a_writer_can_be_stopped(tmp_path: Path) -> None:
    """A process waits for the write lock until `check` raises."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    (folder / "b.py").write_text("word")
    end = time.monotonic() + 0.3

    class Late(Exception):
        pass

    def check() -> None:
        if time.monotonic() > end:
            raise Late

    with (
        Index(str(folder), no_check, index_path(str(folder))) as index,
        index.writing(),
        pytest.raises(Late),
    ):
        ask(folder, "word", check)
    assert sorted(matching_paths(folder, "word")) == ["a.py", "b.py"]


def test_the_wait_for_a_writer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files are found nevertheless, and a notice names the reason for the delay."""
    monkeypatch.setattr(index_module, "_WRITER_TIMEOUT", 0.2)
    folder = write(tmp_path, {"a.md": "alpha"})
    assert matching_paths(folder, "alpha") == ["a.md"]
    holding = sqlite3.connect(folder / ".loops/.cache/memory.sqlite", isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    write(folder, {"b.md": "alpha"})
    answer = ask(folder, "alpha")
    holding.close()
    assert [match.path for match in answer.matches] == ["a.md", "b.md"]
    (notice,) = answer.notices
    assert "another process has had it locked for 0.2 s" in notice


def test_the_folder_may_be_deleted_while_the_index_is_open(tmp_path: Path) -> None:
    """The open index remains usable; a later search creates a new one."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    with Index(str(folder), no_check, index_path(str(folder))) as index:
        index.update(list_files(str(folder), no_check))
        shutil.rmtree(folder / ".loops")
        assert matching_paths(folder, "word") == ["a.py"]
    assert matching_paths(folder, "word") == ["a.py"]


def test_a_long_statement_can_be_stopped(tmp_path: Path) -> None:
    """SQLite is interrupted, and the exception of `check` is raised."""

    class Late(Exception):
        pass

    is_late = False

    def check() -> None:
        if is_late:
            raise Late

    with Index(str(tmp_path), check, None) as index:
        is_late = True
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
        with pytest.raises(Late), index.translating_errors():
            index.execute(endless).fetchone()


# --- SIGKILL ---------------------------------------------------------------------------------

KILLED_UPDATE = textwrap.dedent("""
    import sys
    sys.path[:0] = [sys.argv[2]]
    from memory_projects import no_check
    from llc.runtime.memory import index as module
    from llc.runtime.memory.ignore import list_files
    module._BATCH_FILES = 20
    root = sys.argv[1]
    with module.Index(root, no_check, module.index_path(root)) as index:
        index.update(list_files(root, no_check), lambda done, count: print(done, flush=True))
""")


@pytest.mark.parametrize("after", [1, 19, 20, 21, 57, 130])
def test_a_killed_update_leaves_a_consistent_index(tmp_path: Path, after: int) -> None:
    """Committed batches remain, and the next update indexes only the other files."""
    folder = repository(
        tmp_path / "p", {f"{number:03}.txt": f"word w{number} " * 50 for number in range(150)}
    )
    age(folder)
    here = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_UPDATE, str(folder), here], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Index(str(folder), no_check, index_path(str(folder))) as index:
        index.verify()
        content = index.execute("SELECT count(*) FROM files").fetchone()[0]
    assert content % 20 == 0 or content == 150
    # Progress reports the last file of a batch before the commit.
    assert content >= (after - 1) // 20 * 20
    answer = ask(folder, "word", limit=200)
    assert len(answer.matches) == 150
    assert (answer.update.new, answer.notices) == (150 - content, [])


# --- damage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its index; tests damage copies of it."""
    files = {f"{number:02}.py": f"def function{number}(): return word{number % 7}\n" for number in range(60)}
    folder = repository(tmp_path_factory.mktemp("indexed") / "p", dict(files))
    age(folder)
    update(folder)
    return folder


def copy(indexed: Path, tmp_path: Path) -> Path:
    """A copy with the same modification times but other inodes, so that all files are read again."""
    shutil.copytree(indexed, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_is_an_error(indexed: Path, tmp_path: Path, seed: int) -> None:
    """With random bytes changed, a search succeeds; after `verify` its result is right again."""
    folder = copy(indexed, tmp_path)
    chance = random.Random(seed)
    path = folder / DATABASE
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 4, 64, 1000])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if seed % 8 == 7:
        del data[chance.randrange(len(data)) :]
    path.write_bytes(data)
    (folder / "new.py").write_text("def function_new(): return word3\n")
    ask(folder, "word3 function")
    notices: list[str] = []

    def use(index: Index) -> None:
        index.verify()
        index.update(list_files(str(folder), no_check))

    recall.with_index(str(folder), no_check, notices, use)
    wanted = sorted([f"{number:02}.py" for number in range(60) if number % 7 == 3] + ["new.py"])
    assert sorted(matching_paths(folder, "word3", limit=50)) == wanted


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"SQLite format 3\0", b"\0" * 8192, hashlib.sha256(b"x").digest() * 500]
)
def test_a_file_of_another_format_is_replaced(indexed: Path, tmp_path: Path, content: bytes) -> None:
    """With a notice, unless it is empty: an empty file is an empty database."""
    folder = copy(indexed, tmp_path)
    (folder / DATABASE).write_bytes(content)
    answer = ask(folder, "word3", limit=50)
    assert len(answer.matches) == 9
    assert [notice.partition(" (")[0] for notice in answer.notices] == (
        ["the index was damaged"] if content else []
    )
    assert ask(folder, "word3").notices == []


def test_a_changed_row_is_damage(indexed: Path, tmp_path: Path) -> None:
    """Other terms than those of the full-text tables would leave wrong words in the index."""
    folder = copy(indexed, tmp_path)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(
            "UPDATE files SET terms = (SELECT terms FROM files WHERE path = CAST('01.py' AS BLOB))"
        )
    connection.close()
    with Index(str(folder), no_check, index_path(str(folder))) as index, pytest.raises(Damaged):
        index.verify()
    (folder / "02.py").write_text("changed")
    answer = ask(folder, "changed")
    assert "rebuilt" in answer.notices[0]
    assert [match.path for match in answer.matches] == ["02.py"]


def test_a_damaged_index_in_use_is_not_replaced(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced when no other process uses it; until then a search uses an index in memory."""
    monkeypatch.setattr(index_module, "_READER_TIMEOUT", 0.1)
    folder = copy(indexed, tmp_path)
    lock = os.open(folder / ".loops/.cache/memory.lock", os.O_RDWR)
    files.flock(lock, files.LOCK_SH)
    (folder / DATABASE).write_bytes(b"nothing")
    answer = ask(folder, "word3")
    assert "other processes are using it" in answer.notices[-1]
    assert len(answer.matches) == 9
    os.close(lock)
    assert "has been rebuilt" in ask(folder, "word3").notices[0]


# --- no storage -------------------------------------------------------------------------------


@pytest.mark.parametrize("obstacle", ["folder-in-its-place", "file-in-the-folders-place", "link"])
def test_an_index_that_cannot_be_stored_is_in_memory(tmp_path: Path, obstacle: str) -> None:
    folder = repository(tmp_path / "p", {"a.py": "word"})
    if obstacle == "folder-in-its-place":
        (folder / DATABASE).mkdir(parents=True)
    elif obstacle == "file-in-the-folders-place":
        write(folder, {".loops/.cache": "x"})
    else:
        write(folder, {".loops/.cache/x": "x"})
        (folder / DATABASE).symlink_to(tmp_path / "elsewhere")
    answer = ask(folder, "word")
    assert [match.path for match in answer.matches] == ["a.py"]
    assert "cannot be stored" in answer.notices[0]
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_not_an_error(tmp_path: Path) -> None:
    """A limit on the file size simulates it: the search uses an index in memory."""
    folder = repository(tmp_path / "p", {f"{number}.txt": f"word w{number} " * 500 for number in range(50)})
    here = str(Path(__file__).parents[1])
    code = textwrap.dedent("""
        import json, resource, signal, sys
        sys.path[:0] = [sys.argv[2]]
        from pathlib import Path
        from memory_projects import ask
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        answer = ask(Path(sys.argv[1]), "word", limit=100)
        print(json.dumps([len(answer.matches), answer.notices]))
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), here], capture_output=True, text=True, check=True
    )
    matches, notices = json.loads(done.stdout)
    assert matches == 50
    assert "cannot be stored" in notices[-1]
