"""Pipes, links and other special files in the place of files of the store are reported and skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llc.runtime.host import files
from llc.runtime.journal.journal import BlobError
from llc.runtime.journal.run_folder import RunFolder

LOOP = "name: hello\ninitial: a\nstates:\n  a: {action: echo hello, next: b}\n  b: {terminal: true}\n"
RUN = ".loops/.running/other-20260101-000000-0001"


def llc(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=20, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops/hello.yaml").write_text(LOOP)
    return tmp_path


def make_socket(path: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(os.path.dirname(path))  # the name of a socket has a small limit
        try:
            listener.bind(os.path.basename(path))
        finally:
            os.chdir(before)


KINDS: dict[str, Callable[[str], object]] = {
    "a named pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a symbolic link": lambda path: os.symlink("/dev/zero", path),
    "a socket": make_socket,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_regular_file_only_is_opened(tmp_path: Path, kind: str) -> None:
    """Reading and appending fail at once and name what is there."""
    path = str(tmp_path / "it")
    KINDS[kind](path)
    for flags in (files.O_RDONLY, files.O_WRONLY | files.O_APPEND | files.O_CREAT, files.O_RDWR):
        with pytest.raises(OSError, match=f"it is {kind}|[Ii]s a directory"):
            files.open_regular_handle(path, flags)


@pytest.mark.parametrize("name", ["lock", "other.events.jsonl"])
@pytest.mark.parametrize("kind", KINDS)
def test_such_a_file_in_a_runs_folder_is_reported_and_skipped(project: Path, name: str, kind: str) -> None:
    """No command of the project waits for it or fails because of it."""
    (project / RUN).mkdir(parents=True)
    path = f"{RUN}/{name}"
    KINDS[kind](str(project / path))
    told = f"warning: {path} is {kind}, not a regular file; this run is skipped\n"
    for args in (["list", "--running"], ["status"], ["run", "hello"]):
        done = llc(project, *args)
        assert (done.returncode, done.stderr.count(told)) == (0, 1), (args, done.stderr)
    for args in (["stop", "other"], ["resume", "other"]):
        done = llc(project, *args)
        assert (done.returncode != 0, done.stderr.count(told)) == (True, 1), (args, done.stderr)


@pytest.mark.parametrize("name", ["active", "other.live", "other.state.json", "checkpoint-1", "program.llb"])
def test_a_pipe_in_the_place_of_another_file_blocks_nothing(project: Path, name: str) -> None:
    """Every other file of a finished run may be missing or unusable."""
    assert llc(project, "run", "hello").returncode == 0
    (run,) = (project / ".loops/.history").glob("hello-*")
    path = run / name.replace("other", "hello")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for command in ("history", "status", "logs", "trace", "replay"):
        llc(project, command, "hello")  # its time limit is the test


def test_an_unreadable_folder_of_runs_is_an_error(project: Path) -> None:
    """It is never taken for one without runs."""
    for link in (False, True):
        place = project / ".loops/.running"
        place.unlink(missing_ok=True)
        place.symlink_to(".running") if link else place.write_text("")
        for args in (["list", "--running"], ["status"], ["resume", "hello"], ["stop", "--all"]):
            done = llc(project, *args)
            assert done.returncode != 0, args
            assert ".loops/.running" in done.stderr
            assert "Traceback" not in done.stderr


def test_a_configuration_that_is_no_regular_file_is_an_error(project: Path) -> None:
    """Its `secrets` would be lost without a message."""
    os.mkfifo(project / ".loops/config.yaml")
    done = llc(project, "run", "hello")
    assert done.returncode != 0
    assert "config.yaml` is not a regular file" in done.stderr


def test_a_pipe_in_the_place_of_a_stored_text_is_an_error(tmp_path: Path) -> None:
    """A text of a run is read only from a regular file, and stored again over anything else."""
    run = RunFolder(str(tmp_path), str(tmp_path))
    name, size = run.blobs.store("text").values()
    os.unlink(tmp_path / "outputs" / name)
    os.mkfifo(tmp_path / "outputs" / name)
    with pytest.raises(BlobError, match="a named pipe"):
        run.blobs.fetch(name, size)
    run.blobs.store("text")
    assert run.blobs.fetch(name, size) == "text"
