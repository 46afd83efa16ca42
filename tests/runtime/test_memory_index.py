"""The memory index over time: updates, concurrent processes, kill -9, damage and a full disk."""

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
from memory_projects import ask, found, go_on, repository, update, write

from llc.runtime.host import files
from llc.runtime.host.errors import UserError
from llc.runtime.memory import index as index_module
from llc.runtime.memory import recall, report
from llc.runtime.memory.ignore import list_files
from llc.runtime.memory.index import Damaged, Index, index_path

DATABASE = ".loops/.cache/memory.sqlite"


def age(folder: Path) -> None:
    """Make all files old, so that their time stamps can be relied on."""
    for path in folder.rglob("*"):
        if path.is_file() and ".git" not in path.parts and ".loops" not in path.parts:
            os.utime(path, (1_700_000_000, 1_700_000_000))


def dump(folder: Path) -> Any:
    """What the index says, without what differs between two ways to the same files."""
    with Index(str(folder), go_on, index_path(str(folder))) as index:
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
    """The files that are read to be indexed, as they are."""
    seen: list[bytes] = []
    real = index_module.read_entry

    def read(root: str, path: bytes) -> bytes | None:
        seen.append(path)
        return real(root, path)

    monkeypatch.setattr(index_module, "read_entry", read)
    return seen


# --- what is read again -----------------------------------------------------------------------


def test_only_what_changed_is_read_again(tmp_path: Path, reads: list[bytes]) -> None:
    """New, changed and removed files are told; all others are not touched."""
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
    assert sorted(found(folder, "word")) == ["c.py", "d.py", "e.py"]
    assert found(folder, "other") == ["a.py"]


def test_a_file_that_was_only_touched_is_not_indexed_again(tmp_path: Path, reads: list[bytes]) -> None:
    """Its digest says that nothing changed; then its new time stamp is known."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    age(folder)
    update(folder)
    os.utime(folder / "a.py", (1_600_000_000, 1_600_000_000))
    reads.clear()
    assert counts(folder) == (0, 0, 0)
    assert counts(folder) == (0, 0, 0)
    assert reads == [b"a.py"]


def test_a_file_of_the_same_size_and_time_is_seen_by_its_inode(tmp_path: Path) -> None:
    """One moved over another, with the other's time stamp."""
    folder = repository(tmp_path / "p", {"a.py": "first"})
    age(folder)
    update(folder)
    (tmp_path / "new").write_text("other")
    os.utime(tmp_path / "new", (1_700_000_000, 1_700_000_000))
    os.replace(tmp_path / "new", folder / "a.py")
    assert counts(folder) == (0, 1, 0)
    assert found(folder, "other") == ["a.py"]


def test_a_change_within_the_grain_of_time_stamps_is_seen(tmp_path: Path) -> None:
    """A file just written is looked at again, though its size, time and inode are the same."""
    folder = repository(tmp_path / "p", {"a.py": "first"})
    update(folder)
    state = (folder / "a.py").stat()
    with open(folder / "a.py", "r+") as file:
        file.write("other")
    os.utime(folder / "a.py", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert counts(folder) == (0, 1, 0)


def test_a_text_that_becomes_a_binary_leaves_the_index(tmp_path: Path) -> None:
    """And comes back with its text."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    (folder / "a.py").write_bytes(b"word\0")
    assert counts(folder) == (0, 0, 1)
    assert found(folder, "word") == []
    (folder / "a.py").write_bytes(b"word!")
    assert counts(folder) == (1, 0, 0)
    assert found(folder, "word") == ["a.py"]


_TREES = st.dictionaries(
    st.sampled_from(["a.py", "b.md", "c.txt", "d/e.py", "d/f.sexp"]),
    st.sampled_from(["", "word", "word word other", "# Title\nword", "(define x 1)", "a\0b"]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_TREES, min_size=2, max_size=4))
def test_an_index_is_what_it_would_be_if_made_anew(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, str]]
) -> None:
    """Whatever changes led to a state of the files, the index and its scores are those of the state."""
    folder = tmp_path_factory.mktemp("law")
    for tree in trees:
        for name in ("a.py", "b.md", "c.txt", "d/e.py", "d/f.sexp"):
            (folder / name).unlink(missing_ok=True)
        write(folder, dict(tree))
        update(folder)
    kept, ranked = dump(folder), scores(folder, "word other title")
    shutil.rmtree(folder / ".loops")
    update(folder)
    assert dump(folder) == kept
    assert scores(folder, "word other title") == ranked


def test_an_index_of_another_format_is_made_again(tmp_path: Path) -> None:
    """Made by another llc: its terms may be others."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    answer = ask(folder, "word")
    assert [match.path for match in answer.matches] == ["a.py"]
    assert "format 99" in answer.notices[0]
    assert ask(folder, "word").notices == []


def test_the_index_is_its_owners_alone(tmp_path: Path) -> None:
    """And git does not see it."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    update(folder)
    for path in (folder / ".loops/.cache").iterdir():
        if path.name.startswith("memory"):
            assert path.stat().st_mode & 0o077 == 0
    status = subprocess.run(
        ["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert status.stdout == "?? a.py\n"


def test_a_project_that_is_gone_is_an_error_of_the_user(tmp_path: Path) -> None:
    """Its folder was removed while llc looked through it."""
    with pytest.raises(UserError, match=f"cannot list the files in {tmp_path}/gone: no such file") as refused:
        report.update_index(str(tmp_path / "gone"), False)
    assert refused.value.id == "cannot-read"


# --- many at once -----------------------------------------------------------------------------

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
    """From nothing; each finds what it wrote last, and what they leave is one sound index."""
    folder = repository(tmp_path / "p", {f"{number}.txt": f"word w{number} " * 200 for number in range(600)})
    workers = [worker(folder, "4", str(number)) for number in range(5)]
    for process in workers:
        output, errors = process.communicate(timeout=120)
        assert (output, process.returncode) == ("good\n", 0), errors
    kept = dump(folder)
    assert len(kept[0]) == 605
    shutil.rmtree(folder / ".loops")
    update(folder)
    assert dump(folder) == kept


def test_a_reader_is_not_blocked_by_a_writer(tmp_path: Path) -> None:
    """While a process holds the lock for writing, another finds what was there."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    age(folder)
    update(folder)
    with Index(str(folder), go_on, index_path(str(folder))) as index, index.writing():
        index.execute("DELETE FROM files")
        assert found(folder, "word") == ["a.py"]
        index.execute("INSERT INTO files SELECT * FROM files")


def test_waiting_for_a_writer_can_be_stopped(tmp_path: Path) -> None:
    """A process that has something to write waits its turn, until `check` raises."""
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
        Index(str(folder), go_on, index_path(str(folder))) as index,
        index.writing(),
        pytest.raises(Late),
    ):
        ask(folder, "word", check)
    assert sorted(found(folder, "word")) == ["a.py", "b.py"]


def test_a_writer_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is new is found all the same, and why it took so long is said."""
    monkeypatch.setattr(index_module, "_WRITER_TIMEOUT", 0.2)
    folder = write(tmp_path, {"a.md": "alpha"})
    assert found(folder, "alpha") == ["a.md"]
    holding = sqlite3.connect(folder / ".loops/.cache/memory.sqlite", isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    write(folder, {"b.md": "alpha"})
    answer = ask(folder, "alpha")
    holding.close()
    assert [match.path for match in answer.matches] == ["a.md", "b.md"]
    (notice,) = answer.notices
    assert "another process has had it locked for 0.2 s" in notice


def test_the_folder_may_be_deleted_while_it_is_used(tmp_path: Path) -> None:
    """Who has it open goes on; who comes then makes a new one."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    with Index(str(folder), go_on, index_path(str(folder))) as index:
        index.update(list_files(str(folder), go_on))
        shutil.rmtree(folder / ".loops")
        assert found(folder, "word") == ["a.py"]
    assert found(folder, "word") == ["a.py"]


def test_a_long_statement_can_be_stopped(tmp_path: Path) -> None:
    """SQLite is interrupted, and what `check` raised comes out."""

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


# --- kill -9 ----------------------------------------------------------------------------------

VICTIM = textwrap.dedent("""
    import sys
    sys.path[:0] = [sys.argv[2]]
    from memory_projects import go_on
    from llc.runtime.memory import index as module
    from llc.runtime.memory.ignore import list_files
    module._BATCH_FILES = 20
    root = sys.argv[1]
    with module.Index(root, go_on, module.index_path(root)) as index:
        index.update(list_files(root, go_on), lambda done, count: print(done, flush=True))
""")


@pytest.mark.parametrize("after", [1, 19, 20, 21, 57, 130])
def test_a_killed_update_leaves_a_sound_index(tmp_path: Path, after: int) -> None:
    """Killed after so many files: what was committed is there, the next update does the rest only."""
    folder = repository(
        tmp_path / "p", {f"{number:03}.txt": f"word w{number} " * 50 for number in range(150)}
    )
    age(folder)
    here = str(Path(__file__).parents[1])
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(folder), here], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    for _ in range(after):
        victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    with Index(str(folder), go_on, index_path(str(folder))) as index:
        index.verify()
        kept = index.execute("SELECT count(*) FROM files").fetchone()[0]
    assert kept % 20 == 0 or kept == 150
    # The last of a batch is told before it is committed.
    assert kept >= (after - 1) // 20 * 20
    answer = ask(folder, "word", limit=200)
    assert len(answer.matches) == 150
    assert (answer.update.new, answer.notices) == (150 - kept, [])


# --- damage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its index, to damage copies of."""
    files = {f"{number:02}.py": f"def function{number}(): return word{number % 7}\n" for number in range(60)}
    folder = repository(tmp_path_factory.mktemp("sound") / "p", dict(files))
    age(folder)
    update(folder)
    return folder


def copy(sound: Path, tmp_path: Path) -> Path:
    """A copy; the time of its files stays, their inodes do not, so all of them are looked at again."""
    shutil.copytree(sound, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_is_an_error(sound: Path, tmp_path: Path, seed: int) -> None:
    """Bytes changed anywhere: a search answers, and after `verify` all is right again."""
    folder = copy(sound, tmp_path)
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
        index.update(list_files(str(folder), go_on))

    recall.with_index(str(folder), go_on, notices, use)
    wanted = sorted([f"{number:02}.py" for number in range(60) if number % 7 == 3] + ["new.py"])
    assert sorted(found(folder, "word3", limit=50)) == wanted


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"SQLite format 3\0", b"\0" * 8192, hashlib.sha256(b"x").digest() * 500]
)
def test_a_file_that_is_no_database_is_replaced(sound: Path, tmp_path: Path, content: bytes) -> None:
    """With a notice, unless it is empty: that is a database without anything in it."""
    folder = copy(sound, tmp_path)
    (folder / DATABASE).write_bytes(content)
    answer = ask(folder, "word3", limit=50)
    assert len(answer.matches) == 9
    assert [notice.partition(" (")[0] for notice in answer.notices] == (
        ["the index was damaged"] if content else []
    )
    assert ask(folder, "word3").notices == []


def test_a_row_that_is_not_as_it_was_written_is_damage(sound: Path, tmp_path: Path) -> None:
    """Terms that are others than those given to the full-text tables would leave wrong words behind."""
    folder = copy(sound, tmp_path)
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(
            "UPDATE files SET terms = (SELECT terms FROM files WHERE path = CAST('01.py' AS BLOB))"
        )
    connection.close()
    with Index(str(folder), go_on, index_path(str(folder))) as index, pytest.raises(Damaged):
        index.verify()
    (folder / "02.py").write_text("changed")
    answer = ask(folder, "changed")
    assert "rebuilt" in answer.notices[0]
    assert [match.path for match in answer.matches] == ["02.py"]


def test_a_damaged_index_that_others_use_is_not_pulled_away(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced when they are done; until then a search helps itself in memory."""
    monkeypatch.setattr(index_module, "_READER_TIMEOUT", 0.1)
    folder = copy(sound, tmp_path)
    lock = os.open(folder / ".loops/.cache/memory.lock", os.O_RDWR)
    files.flock(lock, files.LOCK_SH)
    (folder / DATABASE).write_bytes(b"nothing")
    answer = ask(folder, "word3")
    assert "other processes are using it" in answer.notices[-1]
    assert len(answer.matches) == 9
    os.close(lock)
    assert "has been rebuilt" in ask(folder, "word3").notices[0]


# --- no room ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["folder-in-its-place", "file-in-the-folders-place", "link"])
def test_where_no_index_can_be_kept_one_is_made_in_memory(tmp_path: Path, how: str) -> None:
    """And that is said."""
    folder = repository(tmp_path / "p", {"a.py": "word"})
    if how == "folder-in-its-place":
        (folder / DATABASE).mkdir(parents=True)
    elif how == "file-in-the-folders-place":
        write(folder, {".loops/.cache": "x"})
    else:
        write(folder, {".loops/.cache/x": "x"})
        (folder / DATABASE).symlink_to(tmp_path / "elsewhere")
    answer = ask(folder, "word")
    assert [match.path for match in answer.matches] == ["a.py"]
    assert "cannot be stored" in answer.notices[0]
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    """A bound on the size of files stands for it: the search answers from memory."""
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
