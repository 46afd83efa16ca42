"""Place of a measurement: an installation of llc, a working folder, and processes in it.

Owns the installation for the measurement of complete commands, and their environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from time import perf_counter

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HERE = os.path.dirname(os.path.abspath(__file__))
# What is no part of the sources: an installation must not pick up what an earlier one left.
_NO_SOURCES = (".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules")


class Place:
    """A folder for loops and runs, and the interpreter whose llc runs them.

    python: the interpreter. llc: the command as words. folder: an empty folder on the disk for the
    journals.
    """

    def __init__(self, folder: str, python: str) -> None:
        self.folder = folder
        self.python = python
        script = os.path.join(os.path.dirname(python), "llc")
        self.llc = [script] if os.path.exists(script) else [python, "-m", "llc"]
        # Nothing of the environment may change what llc or its interpreter does.
        self.env = {n: text for n, text in os.environ.items() if not n.startswith(("LLC_", "PYTHON"))}
        # The user's own cache key stays out of this.
        self.env["XDG_CACHE_HOME"] = os.path.join(folder, ".xdg")

    def inside(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def fresh(self, name: str) -> Place:
        """Create an empty place in this folder."""
        os.makedirs(self.inside(name))
        return Place(self.inside(name), self.python)

    def write_loop(self, name: str, text: str, suffix: str = ".yaml") -> str:
        """Write a loop or a flow to `.loops/`; return its path."""
        path = self.inside(".loops", name + suffix)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def seconds(
        self, words: Sequence[str], expected: Sequence[int] = (0,), more: Mapping[str, str] | None = None
    ) -> float:
        """Return the seconds of a command from start to end, in the environment extended by `more`.

        Raises RuntimeError for an unexpected exit code.
        """
        env = {**self.env, **(more or {})}
        started_at = perf_counter()
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        took = perf_counter() - started_at
        if done.returncode not in expected:
            raise RuntimeError(f"{' '.join(words)} gave {done.returncode}: {done.stderr.decode()[-2000:]}")
        return took

    def answer(self, script: str, *words: str) -> dict[str, float]:
        """Run a script of this folder in its own process; return the figures that it prints."""
        # -P: what stands beside the script is no module of llc's.
        done = subprocess.run(
            [self.python, "-P", os.path.join(_HERE, script), *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{script} {' '.join(words)} failed: {done.stderr[-2000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def install(folder: str, checkout: str = ROOT) -> str:
    """Install the llc of a checkout in its own environment, as users do; return the path of the
    interpreter.
    """
    sources, environment = os.path.join(folder, "sources"), os.path.join(folder, "venv")
    shutil.copytree(checkout, sources, ignore=shutil.ignore_patterns(*_NO_SOURCES), symlinks=True)
    venv.create(environment, with_pip=True)
    python = os.path.join(environment, "bin", "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The page of a project and the diagrams of reports are measured, too.
    subprocess.run([*pip, f"{sources}[graph,ui]"], check=True, stdout=sys.stderr)
    return python
