"""Environments of the peers: programs of others that do a part of what llc does.

Owns the list of peers with their versions, their environments (created once from the package index and
kept), and their processes. A peer that cannot be installed is absent, with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_programs")
# Written last: an environment without it was not finished.
_READY = "installed.json"
_INSTALL_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Installation of a peer. packages: requirements; the first one is the peer itself."""

    key: str
    title: str
    packages: tuple[str, ...]

    @property
    def distribution(self) -> str:
        return self.packages[0].partition("==")[0]


PEERS = {
    peer.key: peer
    for peer in (
        Peer(key="little-loops-1.37", title="little-loops", packages=("little-loops==1.37.0",)),
        Peer(key="little-loops-newest", title="little-loops", packages=("little-loops",)),
        Peer(
            key="langgraph",
            title="LangGraph",
            packages=("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"),
        ),
        # As the extra `test` has it.
        Peer(key="dbos", title="DBOS", packages=("dbos==3.4.0",)),
        Peer(key="burr", title="Burr", packages=("burr==0.42.0",)),
        Peer(key="transitions", title="transitions", packages=("transitions==0.9.3",)),
        Peer(key="hy", title="Hy", packages=("hy==1.3.1",)),
        Peer(key="monty", title="Monty", packages=("pydantic-monty==1.4.0",)),
    )
}


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A peer that cannot be measured here. reason: one line."""

    title: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An installed peer. title: its name and version."""

    title: str
    folder: str

    @property
    def python(self) -> str:
        return self.command("python")

    def command(self, name: str) -> str:
        return os.path.join(self.folder, "bin", name)


def cache_folder() -> str:
    """Return the folder in which the environments of the peers are kept between measurements; it can
    be deleted.
    """
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    version = ".".join(map(str, sys.version_info[:2]))
    return os.path.join(root, "llc-benchmarks", f"python-{version}")


def find(key: str, may_install: bool) -> Installed | Absent:
    """Return a peer from its cached environment; create the environment if it is missing and
    installation is allowed.
    """
    peer = PEERS[key]
    folder = os.path.join(cache_folder(), key)
    found = _kept(peer, folder)
    if found is None and may_install:
        try:
            _install(peer, folder)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            return Absent(title=_wanted(peer), reason=_reason(error))
        found = _kept(peer, folder)
    return found or Absent(title=_wanted(peer), reason="not installed")


def _wanted(peer: Peer) -> str:
    return f"{peer.title} {peer.packages[0].partition('==')[2] or '(newest)'}"


def _kept(peer: Peer, folder: str) -> Installed | None:
    try:
        with open(os.path.join(folder, _READY), encoding="utf-8") as file:
            made = json.load(file)
    except (OSError, ValueError):
        return None
    # Of other versions than are pinned now: made again.
    if made["packages"] != list(peer.packages):
        return None
    return Installed(title=f"{peer.title} {made['version']}", folder=folder)


def _install(peer: Peer, folder: str) -> None:
    print(f"installing {_wanted(peer)} in an environment of its own", file=sys.stderr, flush=True)
    venv.create(folder, clear=True)
    python = os.path.join(folder, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    pip += ["--disable-pip-version-check", "--no-input", "install", "--quiet"]
    subprocess.run(
        [*pip, *peer.packages],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    asked = f"from importlib.metadata import version; print(version({peer.distribution!r}))"
    version = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True)
    with open(os.path.join(folder, _READY), "w", encoding="utf-8") as file:
        json.dump({"packages": peer.packages, "version": version.stdout.strip()}, file)


def _reason(error: Exception) -> str:
    """Return the last line of pip's output, or of the error."""
    said = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(said).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


class Process:
    """Process of a peer's program that waits for requests: `peer_programs/NAME.py` in the peer's interpreter.

    The program has done a small amount of work before it is ready. Raises RuntimeError if the program
    fails.
    """

    def __init__(self, peer: Installed, program: str, folder: str, env: Mapping[str, str]) -> None:
        self.name = f"{program} of {peer.title}"
        self._errors = open(os.path.join(folder, f"{program}.stderr"), "w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [peer.python, os.path.join(_PROGRAMS, f"{program}.py")],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self._answer()
        except RuntimeError:
            self.close()
            raise

    def ask(self, **work: Any) -> dict[str, Any]:
        """Send a request; return the cost that the program measured."""
        if self._process.stdin is None:
            raise RuntimeError(f"{self.name} was not started")
        try:
            self._process.stdin.write(json.dumps(work) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended: what it said last is read below
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self.name} failed: {self._errors.read()[-2000:].strip()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
