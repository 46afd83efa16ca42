"""Keeper of actions: the parent of a process's actions, so that they survive the process.

A process that drives runs forks its keeper (`keeper_process`) at the first action and lets it start actions.
What an action writes goes through a file without a name, which both have open. When the driving process dies,
the keeper reads on, collects exit codes and holds the locks of the runs; `take_over` gives all that to the
process that resumes the run. Where the system lacks something for that (`pidfd_open`, `splice`, `/proc`), or
for a run that is not guarded, actions die with their driver, as `start` returns None. See `spec/events.md`.
"""

from __future__ import annotations

import marshal
import os
import sys
from _thread import allocate_lock  # `threading` takes several milliseconds to load

from . import files, processes
from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# A request that is longer is passed in a file.
_LARGEST = 1 << 16
# The folder in that of a run where the results of actions are kept that ended with nobody there, and the
# name of the socket of a keeper whose process has died.
FOLDER = "kept"
SOCKET = "keeper"
STREAMS = "output", "stderr"
# Messages of a connection about one action: to the keeper, and from it.
RELEASE, UNSAFE, RELEASED = b"r", b"u", b"."
STARTED, FAILED, EXITED = b"p", b"e", b"x"

_DEFERRED = {
    "_socket": ("SOCK_SEQPACKET", "SCM_RIGHTS", "SOL_SOCKET", "AF_UNIX", "socketpair", "MSG_CMSG_CLOEXEC")
}
_is_possible = hasattr(os, "pidfd_open") and hasattr(os, "splice") and files.exists("/proc/self/fd")
_starting = allocate_lock()
# The connection to the keeper of this process, and the process that has it.
_channel: Any = None
_owner = 0
# The handle of the lock of each run whose actions are to survive, by its folder.
_guarded: dict[str, int] = {}
# The actions of effects whose results are not in the journal yet, by effect.
_open: dict[str, list[Action | Kept]] = {}


class KeeperDied(Exception):
    """The keeper has died, and what became of the action is not known."""


def guard(folder: str, lock: int) -> None:
    """From now on the actions of the run in `folder` survive this process; `lock`: a handle of its lock."""
    if _is_possible and lock >= 0:
        _guarded[folder] = lock


def unguard(folder: str) -> None:
    _guarded.pop(folder, None)


def is_guarded(folder: str | None) -> bool:
    return folder in _guarded


def release(effect_id: str) -> None:
    """The result of an effect is in the journal: its actions need not be kept any more."""
    for action in _open.pop(effect_id, ()):
        action.release()


class _Connection:
    """The connection about one action."""

    def __init__(self, connection: Any, pid: int = 0) -> None:
        self._connection = connection
        self.pid = pid

    def fileno(self) -> int:
        return self._connection.fileno()  # type: ignore[no-any-return]

    def wait_status(self) -> int:
        """The status with which the action has ended. Raises KeeperDied."""
        message = self._receive()
        if not message.startswith(EXITED):
            raise KeeperDied
        return int(message[1:])

    def release(self) -> None:
        """The action is not needed any more; what is still running of it, is ended."""
        if self._connection.fileno() < 0:
            return
        try:
            self._connection.send(RELEASE)
            # Once the answer is there, the keeper does not hold the lock of the run any more.
            while self._receive() not in (b"", RELEASED):
                pass
        except OSError:
            pass  # the keeper has died
        self._connection.close()

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(1024)  # type: ignore[no-any-return]
        except OSError:
            return b""


class Action(_Connection):
    """An action that the keeper of this process has started."""

    def __init__(self, connection: Any, folder: str) -> None:
        super().__init__(connection)
        self._folder = folder
        self._spools: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}

    def wait_start(self) -> None:
        """Wait for its pid. Raises OSError where it could not be started, and KeeperDied."""
        message = self._receive()
        if message.startswith(FAILED):
            number = int(message[1:])
            raise OSError(number, os.strerror(number))
        if not message.startswith(STARTED):
            raise KeeperDied
        self.pid = int(message[1:])

    def read(self, handle: int, stream: str, length: int) -> bytes:
        """What a pipe holds, once it holds something; it is in a file that the keeper has too."""
        spool = self._spools.get(stream)
        if spool is None and stream not in self._spools:
            spool = self._spools[stream] = self._new_spool(stream)
        if spool is not None:
            try:
                count = os.splice(handle, spool.fileno(), length)
            except OSError:
                # The disk is full, or the pipe is none: the run goes on, and its death would cost the output.
                self._connection.send(UNSAFE)
                self._spools[stream] = None
            else:
                offset = self._sizes.get(stream, 0)
                self._sizes[stream] = offset + count
                return os.pread(spool.fileno(), count, offset)
        return files.read(handle, length)

    def _new_spool(self, stream: str) -> Any:
        try:
            spool = files.TemporaryFile(dir=self._folder)
            _send(self._connection, stream.encode(), [spool.fileno()])
        except OSError:
            self._connection.send(UNSAFE)
            return None
        return spool

    def release(self) -> None:
        super().release()
        for spool in self._spools.values():
            if spool is not None:
                spool.close()
        self._spools.clear()


class Kept(_Connection):
    """An action that has survived its driver.

    facts: what `start` was told, with `pid`, and `timed_out` where the keeper had to end it. status: with which
    it has ended, None while it runs.
    """

    def __init__(self, facts: dict[str, Any], handles: Sequence[int], connection: Any = None) -> None:
        super().__init__(connection, facts["pid"])
        self.facts = facts
        self._handles = list(handles)
        self._at = [0, 0]
        self.status: int | None = facts.get("status")
        self.is_taken = False

    def take(self) -> Kept | None:
        """Itself, the first time: an effect has one action that was running last."""
        if self.is_taken:
            return None
        self.is_taken = True
        _open.setdefault(self.facts["effect"], []).append(self)
        return self

    def fileno(self) -> int:
        return -1 if self._connection is None else super().fileno()

    def read(self, stream: str, length: int) -> bytes:
        """What it has written since the last call."""
        index = STREAMS.index(stream)
        data = os.pread(self._handles[index], length, self._at[index])
        self._at[index] += len(data)
        return data

    def close(self) -> None:
        """Let go of it; the keeper keeps it."""
        for handle in self._handles:
            files.close(handle)
        self._handles.clear()
        if self._connection is not None:
            self._connection.close()

    def release(self) -> None:
        if self._connection is not None:
            super().release()
        self.close()
        _forget(self.facts["folder"], self.facts["effect"])


def start(
    path: str,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    ends: Sequence[int],
    facts: dict[str, Any],
) -> Action | None:
    """Let the keeper start a program; None where there is none.

    ends: handles of its input, of the ends of its pipes that it writes to, and of those that we read.
    facts: `folder`, of the run; `effect`, the id; `end` and `begun`, by the monotonic clock, when it is to end
    and began; `limited_by`; `signals` and `grace` to end it with; `about`, what its caller wants back.
    Raises OSError.
    """
    channel = _keeper()
    if channel is None:
        return None
    lock = _guarded[facts["folder"]]
    folder = facts["folder"] = os.path.abspath(facts["folder"])
    request = marshal.dumps((path, list(argv), dict(env), os.getcwd(), facts))
    ours, theirs = _socket("socketpair")(_socket("AF_UNIX"), _socket("SOCK_SEQPACKET"))
    handles = [*ends, lock, theirs.fileno()]
    try:
        if len(request) > _LARGEST:
            with files.TemporaryFile(dir=folder) as file:
                file.write(request)
                file.flush()
                _send(channel, b"f", [*handles, file.fileno()])
        else:
            _send(channel, request, handles)
    except OSError:
        ours.close()
        _lose()
        return None
    finally:
        theirs.close()
    action = Action(ours, folder)
    try:
        action.wait_start()
    except KeeperDied:
        _lose()
        return None
    _open.setdefault(facts["effect"], []).append(action)
    return action


def take_over(folder: str) -> tuple[int, dict[str, Kept]] | None:
    """The lock of a run whose driver has died, and its actions, by effect; None if no keeper has it."""
    from socket import AF_UNIX, SOCK_SEQPACKET, socket

    def connect() -> Any:
        # A path of a socket has 107 bytes at most.
        directory = files.open_handle(folder, files.O_RDONLY | files.O_DIRECTORY)
        try:
            connection = socket(AF_UNIX, SOCK_SEQPACKET)
            connection.settimeout(_PATIENCE)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            connection.settimeout(None)
        finally:
            files.close(directory)
        return connection

    try:
        with connect() as asked:
            asked.send(b"list")
            names, (lock,) = receive(asked, 1)
            found = {}
            for name in marshal.loads(names):
                connection = connect()
                connection.send(name.encode())
                data, handles = receive(connection, 2)
                found[name] = Kept(marshal.loads(data), handles, connection)
    except (OSError, ValueError, EOFError):
        return None
    return lock, found


_PATIENCE = 5.0


def left(folder: str) -> dict[str, Kept]:
    """The actions of a run that ended after its driver had died, by effect."""
    import json

    place = os.path.join(folder, FOLDER)
    found = {}
    for name in files.listdir(place) if files.isdir(place) else ():
        number, _, kind = name.rpartition(".")
        if kind != "json":
            continue
        try:
            with files.open(os.path.join(place, name), "rb") as file:
                facts = json.load(file)
            handles = [
                files.open_handle(
                    os.path.join(place, f"{number}.{stream}"), files.O_RDONLY | files.O_NOFOLLOW
                )
                for stream in STREAMS
            ]
            found[facts["effect"]] = Kept({**facts, "folder": folder}, handles)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the keeper was killed while it wrote it: the outcome is not known
    return found


def place_of(folder: str, effect_id: str) -> str:
    """Where the result of an action is kept, without the ending of the name."""
    return os.path.join(folder, FOLDER, effect_id.rpartition("/")[2])


def _forget(folder: str, effect_id: str) -> None:
    for kind in ("json", *STREAMS):
        try:
            files.unlink(f"{place_of(folder, effect_id)}.{kind}")
        except OSError:
            continue
    try:
        files.rmdir(os.path.join(folder, FOLDER))
    except OSError:
        pass  # there is another one


def receive(connection: Any, count: int) -> tuple[bytes, list[int]]:
    """A message and its handles. Raises ValueError where there are not `count`."""
    data, ancillary, _, _ = connection.recvmsg(_LARGEST * 2, 4 * 32, _socket("MSG_CMSG_CLOEXEC"))
    handles = [
        int.from_bytes(packed[at : at + 4], sys.byteorder)
        for _, _, packed in ancillary
        for at in range(0, len(packed) - 3, 4)
    ]
    if len(handles) < count:
        raise ValueError("a message without its handles")
    return data, handles


def _send(connection: Any, data: bytes, handles: Sequence[int]) -> None:
    packed = b"".join(handle.to_bytes(4, sys.byteorder) for handle in handles)
    connection.sendmsg([data], [(_socket("SOL_SOCKET"), _socket("SCM_RIGHTS"), packed)])


def _socket(name: str) -> Any:
    # `socket` takes another 2 ms to load.
    return globals().get(name) or load(globals(), _DEFERRED, name)


def _keeper() -> Any:
    """The connection to the keeper of this process, which is started at first."""
    global _channel, _owner
    with _starting:
        if _channel is None or _owner != processes.getpid():
            _channel, _owner = None, processes.getpid()
            ours, theirs = _socket("socketpair")(_socket("AF_UNIX"), _socket("SOCK_SEQPACKET"))
            from . import keeper_process

            try:
                child = processes.fork()
            except OSError:
                ours.close()
                theirs.close()
                return None
            if child == 0:
                keeper_process.main(theirs)
            theirs.close()
            _channel = ours
        return _channel


def _lose() -> None:
    """The keeper has died."""
    global _channel
    with _starting:
        if _channel is not None:
            _channel.close()
            _channel = None
