"""Scope locks: one run at a time on the same paths; a dead holder holds no lock."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.host import files
from llc.runtime.host.errors import UserError
from llc.runtime.inspection import stop
from llc.runtime.journal import run_folder
from llc.runtime.journal.run_folder import RunFolder
from llc.runtime.runs import locks, runs, scope_conflicts
from llc.runtime.runs.lookup import find_unfinished

components = st.sampled_from(["a", "ab", "b", "src", "srcs"])
paths = st.lists(components, max_size=4).map(lambda parts: "/" + "/".join(parts))


@contextmanager
def other_process(root: Path, name: str, *scope: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a run of `name` on `scope` until its standard input is closed."""
    code = (
        "import sys; from llc.runtime.runs import locks\n"
        f"run, lock = locks.start({str(root)!r}, {name!r}, {scope!r}, {{'program': {name!r}}})\n"
        "print(run.id, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@given(paths, paths)
def test_overlap_is_by_component(a: str, b: str) -> None:
    """Two paths overlap if and only if one is the other or its ancestor."""
    first, second = PurePosixPath(a), PurePosixPath(b)
    is_related = first == second or first in second.parents or second in first.parents
    assert scope_conflicts.overlap(a, b) == is_related
    assert scope_conflicts.overlap(a, b) == scope_conflicts.overlap(b, a)


def test_a_common_name_prefix_is_no_overlap() -> None:
    """`src/a` and `src/ab` are separate; `src` contains both."""
    assert not scope_conflicts.overlap("/p/src/a", "/p/src/ab")
    assert scope_conflicts.overlap("/p/src", "/p/src/ab")


def test_a_scope_is_compared_after_following_links(tmp_path: Path) -> None:
    """A link to a folder and the folder are the same place."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert scope_conflicts.resolve_scope(["link", "real", "./real/../real"], str(tmp_path)) == [
        os.path.realpath(tmp_path / "real")
    ]


def test_an_overlapping_run_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    """The conflict names the run, its pid and its path."""
    with other_process(tmp_path, "first", "src/api") as process:
        holder = read_line(process)
        with pytest.raises(UserError) as caught:
            locks.start(str(tmp_path), "second", ["src"], {})
    assert caught.value.id == "scope-conflict"
    assert holder in caught.value.message
    assert f"pid {process.pid}" in caught.value.message
    assert "`src/api`" in caught.value.message
    assert [run.id for run in runs.runs_in(str(tmp_path))] == [holder]


def test_stop_needs_an_id_if_several_runs_are_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`llc stop NAME` with two active runs is refused and lists them."""
    monkeypatch.chdir(tmp_path)
    with other_process(tmp_path, "first", "a") as first, other_process(tmp_path, "first", "b") as second:
        ids = read_line(first), read_line(second)
        with pytest.raises(UserError) as caught:
            stop.select_runs("first", False)
    assert caught.value.id == "several-runs"
    assert all(id in caught.value.message for id in ids)


def test_a_holder_that_cannot_be_found_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another container, the recorded pid is missing or belongs to another process."""
    monkeypatch.setattr(stop, "_TAKE_OVER_SECONDS", 0.0)
    run, lock = locks.start(str(tmp_path), "first", ["."], {"pid": os.getpid(), "start_time": "never"})
    with pytest.raises(UserError) as caught:
        stop.Holder.find(run)
    lock.close()
    assert caught.value.id == "unknown-holder"
    assert stop.Holder.find(run) is None


def test_no_run_starts_without_working_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have no locks; two runs could then change the same files."""

    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files, "flock", flock)
    with pytest.raises(UserError, match="file locks do not work here") as caught:
        locks.start(str(tmp_path), "first", ["."], {})
    assert caught.value.id == "no-locks"


def test_runs_with_separate_scopes_run_concurrently(tmp_path: Path) -> None:
    """Scopes that do not overlap do not wait for each other."""
    with other_process(tmp_path, "first", "src/a") as process:
        read_line(process)
        _, lock = locks.start(str(tmp_path), "second", ["src/ab"], {})
        lock.close()


def test_a_killed_holder_releases_its_paths(tmp_path: Path) -> None:
    """After kill -9 the paths are free at once, whatever the lock file contains."""
    with other_process(tmp_path, "first", ".") as process:
        read_line(process)
        process.kill()
        process.wait()
        _, lock = locks.start(str(tmp_path), "second", ["."], {})
        lock.close()


def test_a_lock_file_that_is_being_written_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper extends the text between two reads: the first half is then outdated."""
    run, lock = locks.start(str(tmp_path), "first", ["."], {})
    complete = Path(run.lock).read_bytes()
    texts = [complete + b'kept": true}\n', complete[:-10], complete]
    monkeypatch.setattr(run_folder, "open_regular", lambda path: io.BytesIO(texts.pop(0)))
    assert run.about()["pid"] == os.getpid()
    assert texts == []
    texts += [b"nonsense"] * 100
    assert "pid" not in run.about()
    assert len(texts) > 90
    lock.close()


def test_a_reused_pid_is_not_a_holder(tmp_path: Path) -> None:
    """A lock file with the pid of a living process that is not its holder locks nothing."""
    run, lock = locks.start(str(tmp_path), "first", ["."], {"pid": 1})
    lock.close()
    assert not locks.is_live(run)
    _, other = locks.start(str(tmp_path), "second", ["."], {})
    other.close()


def test_a_child_of_a_run_does_not_hold_its_lock(tmp_path: Path) -> None:
    """A process left behind by an action does not keep the paths after the run is gone."""
    run, lock = locks.start(str(tmp_path), "first", ["."], {})
    child = subprocess.Popen(["sleep", "60"])
    try:
        lock.close()
        assert not locks.is_live(run)
    finally:
        child.kill()
        child.wait()


def test_active_run_cannot_be_taken_over(tmp_path: Path) -> None:
    """Resuming a run that is still running is refused with its pid."""
    with other_process(tmp_path, "first", ".") as process:
        run = find_unfinished(read_line(process), str(tmp_path))
        with pytest.raises(UserError, match=f"still running .pid {process.pid}.") as caught:
            locks.take_over(run, ["."], {})
    assert caught.value.id == "run-is-live"


def test_a_dead_run_can_be_taken_over_once(tmp_path: Path) -> None:
    """The first take-over holds the run; a second one is refused."""
    run, lock = locks.start(str(tmp_path), "first", ["."], {})
    lock.close()
    taken_lock = locks.take_over(run, ["."], {"program": "first"})
    assert locks.is_live(run)
    with pytest.raises(UserError):
        locks.take_over(run, ["."], {})
    taken_lock.close()


def test_a_starting_child_of_a_killed_holder_is_waited_for(tmp_path: Path) -> None:
    """A child process may keep the lock files open for a moment; the take-over waits for it."""
    code = (
        "import os, sys, time; from llc.runtime.runs import locks\n"
        f"run, lock = locks.start({str(tmp_path)!r}, 'first', ['.'], {{}})\n"
        "if os.fork() == 0:\n"
        "    time.sleep(0.1)\n"
        "    os._exit(0)\n"
        "print(run.id, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    run = RunFolder(str(tmp_path), str(tmp_path / ".loops" / ".running" / read_line(holder)))
    holder.wait()
    locks.take_over(run, ["."], {}).close()
    holder.communicate()


def test_take_over_is_refused_if_the_scope_is_locked(tmp_path: Path) -> None:
    """A dead run cannot resume while another run holds its paths."""
    run, lock = locks.start(str(tmp_path), "first", ["src"], {})
    lock.close()
    with other_process(tmp_path, "second", ".") as process:
        read_line(process)
        with pytest.raises(UserError) as caught:
            locks.take_over(run, ["src"], {})
    assert caught.value.id == "scope-conflict"


def test_only_one_of_several_concurrent_starts_runs(tmp_path: Path) -> None:
    """Six processes start on the same path together: one holds it, five are refused."""
    code = (
        "import sys; from llc.runtime.runs import locks\n"
        "from llc.runtime.host.errors import UserError\n"
        "sys.stdin.readline()\n"
        "try:\n"
        f"    run = locks.start({str(tmp_path)!r}, 'x', ['.'], {{}})\n"
        "    print('held', flush=True)\n"
        "except UserError as error:\n"
        "    print(error.id, flush=True)\n"
        "sys.stdin.read()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = sorted(read_line(process) for process in processes)
    for process in processes:
        process.communicate()
    assert answers == ["held"] + ["scope-conflict"] * 5


def test_a_nested_run_shares_the_paths_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop can run a loop: paths held by an enclosing run are no conflict."""
    outer, first = locks.start(str(tmp_path), "outer", ["."], {})
    monkeypatch.setenv("LLC_RUN_ID", outer.id)
    middle, second = locks.start(str(tmp_path), "middle", ["."], {})
    monkeypatch.setenv("LLC_RUN_ID", middle.id)
    _, third = locks.start(str(tmp_path), "inner", ["."], {})
    monkeypatch.delenv("LLC_RUN_ID")
    with pytest.raises(UserError):
        locks.start(str(tmp_path), "other", ["."], {})
    for lock in (first, second, third):
        lock.close()


def test_a_loop_with_an_empty_scope_never_conflicts(tmp_path: Path) -> None:
    """`scope: []` locks nothing."""
    from llc.frontend.compile import compile_text

    text = "name: n\nscope: {}\ninitial: a\nstates: {{a: {{action: x, next: b}}, b: {{terminal: true}}}}"
    scopes = [compile_text(text.format(scope), "n.yaml").program.meta.scope for scope in ("[]", "[src]")]
    assert scopes == [(), ("src",)]
    with other_process(tmp_path, "first", ".") as process:
        read_line(process)
        _, lock = locks.start(str(tmp_path), "second", scopes[0], {})
        lock.close()


def test_a_run_that_crashes_during_a_sweep_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another start looks for empty folders, a run may be recorded, act and be killed."""
    runs.make_running_folder(str(tmp_path))
    run = RunFolder.create(str(tmp_path), "a")

    def record_and_die(other: RunFolder) -> bool:
        Path(other.journal).write_bytes(b'{"event":"run_start"}\n')
        return False

    monkeypatch.setattr(locks, "is_live", record_and_die)
    locks.sweep(run.root)
    assert Path(run.journal).exists()


def test_removal_deletes_the_journal_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure the rest is not a run, in particular not one without its program."""
    runs.make_running_folder(str(tmp_path))
    run = RunFolder.create(str(tmp_path), "a")
    Path(run.journal).write_bytes(b'{"event":"run_start"}\n')
    Path(run.image).write_bytes(b"program")
    monkeypatch.setattr(files, "rmtree", lambda path, ignore_errors: None)
    run.discard()
    assert run.is_unrecorded()
    assert Path(run.image).exists()


def test_running_folder_is_synced_before_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another process created it and died before the sync."""
    (tmp_path / ".loops" / ".running").mkdir(parents=True)
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_names", synced.append)
    for _ in range(2):
        runs.make_running_folder(str(tmp_path))
    assert synced == [str(tmp_path), str(tmp_path / ".loops")]
    assert (tmp_path / ".loops" / ".running" / ".gitignore").read_text() == "*\n"
