"""A connection pooler in transaction mode: all clients share one connection to the server."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

import psycopg

_FAKE_PID = 7


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


class Pooler:
    """Listens on `port`; forwards what a client sends up to its next Sync or Query, then serves any other."""

    def __init__(self, url: str) -> None:
        parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
        self._server = socket.create_connection((parts["host"], int(parts["port"])))
        words = ("user", parts["user"], "database", parts["dbname"])
        body = struct.pack("!i", 196608) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self._server.sendall(struct.pack("!i", len(body) + 4) + body)
        self._greeting = self._until_ready(self._server)
        self._turn = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _until_ready(self, source: socket.socket) -> bytes:
        """What the server sends up to ReadyForQuery, with a process number of ours."""
        data = b""
        while True:
            kind, size = _exactly(source, 1), _exactly(source, 4)
            body = _exactly(source, struct.unpack("!i", size)[0] - 4)
            if kind == b"K":
                body = struct.pack("!i", _FAKE_PID) + body[4:]
            data += kind + size + body
            if kind == b"Z":
                return data

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            while True:  # encryption is refused, then comes the real start
                size, code = struct.unpack("!ii", _exactly(client, 8))
                _exactly(client, size - 8)
                if code == 196608:
                    break
                client.sendall(b"N")
            client.sendall(self._greeting)
            pending = b""
            while True:
                kind, size = _exactly(client, 1), _exactly(client, 4)
                pending += kind + size + _exactly(client, struct.unpack("!i", size)[0] - 4)
                if kind == b"X":
                    return
                if kind in b"QS":
                    with self._turn:
                        self._server.sendall(pending)
                        client.sendall(self._until_ready(self._server))
                    pending = b""
        except (ConnectionError, struct.error, OSError):
            pass
        finally:
            client.close()

    def close(self) -> None:
        self._listener.close()
        self._server.close()
