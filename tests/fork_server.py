"""Fork server: processes of llc without the time of their imports.

A process that has imported the modules forks a process for each request, which runs `python -m llc` as if
started in a shell: with its own arguments, folder, environment, streams, signals and exit status. Only the
imports are shared; tests of start-up start the program itself.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

# Maximum size of a request (arguments and environment), in bytes.
_SIZE = 1 << 20


class Process:
    """A process of a fork server; the part of `subprocess.Popen` that tests use.

    Its parent in the server sends the exit status through the channel.
    """

    def __init__(self, args: list[str], channel: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self._channel = channel
        self.pid = int(self._read())

    def _read(self) -> bytes:
        data = self._channel.recv(64)
        assert data, "the fork server has ended"
        return data

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                return self.wait(0)
            except subprocess.TimeoutExpired:
                return None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._read())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._channel.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A server whose processes have imported these modules. It ends with the test process."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SIZE)
        self._channels: list[socket.socket] = []
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._control.close()
        for channel in self._channels:  # also of a process that no test has waited for
            channel.close()
        self._process.wait(60)

    def start(
        self, words: list[str], folder: Path, out: IO[Any], errors: IO[Any], **variables: str
    ) -> Process:
        """Start `python -m llc WORDS` with the environment of the tests and these variables."""
        request = {"words": words, "folder": str(folder), "environment": {**os.environ, **variables}}
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handles = [theirs.fileno(), out.fileno(), errors.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], handles)
        self._channels.append(channel)
        return Process(["llc", *words], channel)

    def run(self, *words: str, limit_s: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m llc WORDS` in the current folder to its end."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = self.start(list(words), Path.cwd(), out, errors, **variables)
            try:
                code = process.wait(limit_s)
            finally:
                process.kill()
            for stream in (out, errors):
                stream.seek(0)
            return subprocess.CompletedProcess(process.args, code, out.read(), errors.read())


@functools.cache
def programs() -> ForkServer:
    """The server of `llc run`, `llc resume` and subcommands that inspect a run."""
    parts = ("cli.dispatch", "launch.run", "launch.resume", "inspection.stop", "inspection.status")
    return ForkServer(tuple(f"llc.runtime.{part}" for part in parts))


@functools.cache
def workers() -> ForkServer:
    """The server of `llc worker`."""
    return ForkServer(("llc.runtime.cli.dispatch", "llc.runtime.launch.worker", "dbos", "psycopg"))


def _serve(control: socket.socket) -> None:
    """Fork for each request until the tests end; returns only in a requested process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, handles, _, _ = socket.recv_fds(control, _SIZE, 3)
        if not data:
            while True:  # so that the resource usage of children is counted
                try:
                    os.wait()
                except ChildProcessError:
                    os._exit(0)
        if os.fork() == 0:
            control.close()
            return _watch(json.loads(data), handles)
        for handle in handles:
            os.close(handle)
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def _watch(request: dict[str, Any], handles: list[int]) -> None:
    """Fork the process and report its end; returns in the forked process."""
    with socket.socket(fileno=handles[0]) as channel:
        pid = os.fork()
        if pid != 0:
            for handle in handles[1:]:
                os.close(handle)
            channel.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            try:
                channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            finally:
                os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, handle in enumerate(handles[1:], 1):
        os.dup2(handle, number)
        os.close(handle)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in folders if folder and folder not in sys.path]
    sys.argv[1:] = request["words"]
    runpy.run_module("llc", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        for module in sys.argv[2:]:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        _serve(inherited)
