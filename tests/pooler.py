"""A connection pooler for a database: PgBouncer if it is installed, otherwise a small implementation.

`start(url, mode)` starts one, with the modes `transaction` and `session` of PgBouncer.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import postgres
import psycopg

_FAKE_PID = 7
_CONFIGURATION = """
[databases]
* = host={host} port={server_port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 40
ignore_startup_parameters = extra_float_digits
"""


def start(url: str, mode: str) -> PgBouncer | Pooler:
    """Start a pooler for the server of a URL; its `url` is the same database, `close` ends it."""
    command = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return PgBouncer(command, url, mode) if command else Pooler(url, mode)


def _parts(url: str) -> dict[str, Any]:
    return psycopg.conninfo.conninfo_to_dict(url)


def _through(url: str, port: int) -> str:
    parts = _parts(url)
    return f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


class PgBouncer:
    """A PgBouncer process with its own folder."""

    def __init__(self, command: str, url: str, mode: str) -> None:
        parts, port = _parts(url), postgres.free_port()
        self.url = _through(url, port)
        self._folder = Path(tempfile.mkdtemp(prefix="llc-pooler-"))
        text = _CONFIGURATION.format(
            host=parts["host"], server_port=parts["port"], user=parts["user"], port=port, mode=mode
        )
        (self._folder / "pgbouncer.ini").write_text(text)
        self._log = self._folder / "log"
        user = postgres.server_user()
        more: dict[str, Any] = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
        for path in (self._folder, self._folder / "pgbouncer.ini"):
            path.chmod(0o755)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [command, self._folder / "pgbouncer.ini"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **more,
            )
        postgres.until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert self._process.poll() is None, self._log.read_text()
            return False
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait(postgres.LIMIT_S)
        shutil.rmtree(self._folder)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


class _Backend:
    """A connection to the server, used by one client at a time."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self._server = socket.create_connection((parts["host"], int(parts["port"])))
        words = ("user", parts["user"], "database", parts["dbname"])
        body = struct.pack("!i", 196608) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self._server.sendall(struct.pack("!i", len(body) + 4) + body)
        self.greeting = self._until_ready(self._server)
        self._turn = threading.Lock()

    def ask(self, sent: bytes) -> bytes:
        """Forward the data of a client up to a Sync or Query; returns the answer."""
        with self._turn:
            self._server.sendall(sent)
            return self._until_ready(self._server)

    def close(self) -> None:
        self._server.close()

    def _until_ready(self, source: socket.socket) -> bytes:
        """Data from the server up to ReadyForQuery, with a fake process number."""
        data = b""
        while True:
            kind, size = _exactly(source, 1), _exactly(source, 4)
            body = _exactly(source, struct.unpack("!i", size)[0] - 4)
            if kind == b"K":
                body = struct.pack("!i", _FAKE_PID) + body[4:]
            data += kind + size + body
            if kind == b"Z":
                return data


class Pooler:
    """The small implementation: in transaction mode all clients share one connection, else each has its own.

    A client that listens for notifications gets them with its next answer.
    """

    def __init__(self, url: str, mode: str) -> None:
        self._parts = _parts(url)
        self._shared = _Backend(self._parts) if mode == "transaction" else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = _through(url, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        backend = self._shared
        try:
            while True:  # encryption is refused, then the client sends its start-up message
                size, code = struct.unpack("!ii", _exactly(client, 8))
                _exactly(client, size - 8)
                if code == 196608:
                    break
                client.sendall(b"N")
            backend = backend or _Backend(self._parts)
            client.sendall(backend.greeting)
            pending = b""
            while True:
                kind, size = _exactly(client, 1), _exactly(client, 4)
                pending += kind + size + _exactly(client, struct.unpack("!i", size)[0] - 4)
                if kind == b"X":
                    return
                if kind in b"QS":
                    client.sendall(backend.ask(pending))
                    pending = b""
        except (ConnectionError, struct.error, OSError):
            pass
        finally:
            client.close()
            if backend is not None and backend is not self._shared:
                backend.close()

    def close(self) -> None:
        self._listener.close()
        if self._shared is not None:
            self._shared.close()
