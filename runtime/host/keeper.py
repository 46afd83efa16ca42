"""Client of the keeper: a parent process for actions, with which they survive their driver.

A process that drives runs forks its keeper (`keeper_process`) at the first action; the keeper starts the
actions. The output of an action goes to an unnamed file that both processes have open. When the driver dies,
the keeper continues to read output, collects exit codes and holds the locks of the runs; `take_over`
transfers all of this to the process that resumes the run. If the system lacks a necessary feature
(`pidfd_open`, `splice`, `/proc`), or a run is not guarded, `start` returns None and actions die with their
driver. See `spec/events.md`.
"""

from __future__ import annotations

import marshal
import os
from _thread import allocate_lock  # `threading` takes several milliseconds to load

from ...ir import light_json
from ...ir.python_internals import suppress
from . import clock, files, processes
from .keeper_messages import (
    EXITED,
    FAILED,
    FOLDER,
    IN_FILE,
    LARGEST,
    LIST,
    RELEASE,
    RELEASED,
    SOCKET,
    STARTED,
    STOP,
    STREAMS,
    UNSAFE,
    of_socket,
    pair,
    place_of,
    receive,
    send,
    unnamed_file,
)
from .paths import open_regular, regular_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

_is_possible = hasattr(os, "pidfd_open") and hasattr(os, "splice") and files.exists("/proc/self/fd")
_starting = allocate_lock()
# Connection to the keeper of this process, and pid of the process that opened it.
_channel: Any = None
_owner = 0
# Lock handles of the runs whose actions must survive, by folder of the run.
_guarded: dict[str, int] = {}
# Actions of effects whose results are not in the journal yet, by effect id.
_open: dict[str, list[Action | Kept]] = {}


class KeeperDied(Exception):
    """The keeper has died, and the outcome of the action is unknown."""


def guard(folder: str, lock: int) -> None:
    """Let the future actions of the run in `folder` survive this process. lock: handle of the run's lock."""
    if _is_possible and lock >= 0:
        _guarded[folder] = lock


def unguard(folder: str) -> None:
    _guarded.pop(folder, None)


def is_guarded(folder: str | None) -> bool:
    return folder in _guarded


def release(effect_id: str) -> None:
    """Release the actions of an effect whose result is in the journal."""
    for action in _open.pop(effect_id, ()):
        action.release()


class _Connection:
    """Connection to the keeper for one action."""

    def __init__(self, connection: Any, pid: int = 0) -> None:
        self._connection = connection
        self.pid = pid

    def fileno(self) -> int:
        return self._connection.fileno()  # type: ignore[no-any-return]

    def wait_status(self) -> int:
        """Wait for the end of the action; return its wait status. Raises KeeperDied."""
        message = self._receive()
        if not message.startswith(EXITED):
            raise KeeperDied
        return int(message[1:])

    def release(self) -> bool:
        """Release the action; the keeper ends its remaining processes.

        Return False if the keeper has died.
        """
        if self._connection.fileno() < 0:
            return True
        answer = b""
        with suppress(OSError):
            self._connection.send(RELEASE)
            # After the answer the keeper no longer holds the lock of the run.
            while (answer := self._receive()) not in (b"", RELEASED):
                pass
        self._connection.close()
        return answer == RELEASED

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(1024)  # type: ignore[no-any-return]
        except OSError:
            return b""


class Action(_Connection):
    """Action that the keeper of this process has started."""

    def __init__(self, connection: Any, folder: str) -> None:
        super().__init__(connection)
        self._folder = folder
        self._spools: dict[str, int | None] = {}
        self._sizes: dict[str, int] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the keeper has the complete output."""
        return None not in self._spools.values()

    def wait_start(self) -> None:
        """Wait for the start and set `pid`.

        Raises OSError if the action could not be started, and KeeperDied.
        """
        message = self._receive()
        if message.startswith(FAILED):
            number = int(message[1:])
            raise OSError(number, os.strerror(number))
        if not message.startswith(STARTED):
            raise KeeperDied
        self.pid = int(message[1:])

    def read(self, handle: int, stream: str, length: int) -> bytes:
        """Read from a pipe, blocking if it is empty, through the file that the keeper shares."""
        spool = self._spools.get(stream)
        if spool is None and stream not in self._spools:
            spool = self._spools[stream] = self._new_spool(stream)
        if spool is not None:
            try:
                count = os.splice(handle, spool, length)
            except OSError:
                self._spools[stream] = None
                self._tell_unsafe()
            else:
                offset = self._sizes.get(stream, 0)
                self._sizes[stream] = offset + count
                return os.pread(spool, count, offset)
        return files.read(handle, length)

    def _new_spool(self, stream: str) -> int | None:
        try:
            spool = unnamed_file(self._folder)
            send(self._connection, stream.encode(), [spool])
        except OSError:
            self._tell_unsafe()
            return None
        return spool

    def _tell_unsafe(self) -> None:
        """Report that output is missing in the file: the action can no longer survive its driver."""
        with suppress(OSError):
            self._connection.send(UNSAFE)

    def release(self) -> bool:
        is_over = super().release()
        for spool in self._spools.values():
            if spool is not None:
                files.close(spool)
        self._spools.clear()
        return is_over


class Kept(_Connection):
    """Action that has survived its driver.

    facts: the facts from `start`, with `pid`, and `timed_out` if the keeper ended the action. status: wait
    status; None while the action runs. began: start time of the process while it runs.
    """

    began = ""
    is_whole = True

    def __init__(self, facts: dict[str, Any], handles: Sequence[int], connection: Any = None) -> None:
        super().__init__(connection, facts["pid"])
        self.facts = _DEFAULTS | facts
        self._handles = list(handles)
        self._at = [0, 0]
        self.status: int | None = facts.get("status")
        self.is_taken = False
        if connection is not None:
            self.began = processes.start_time(self.pid)

    def took(self) -> float:
        """Return the running time of the action in seconds, until now or its end."""
        ended = self.facts["ended"]
        seconds: float = (clock.monotonic() if ended is None else ended) - self.facts["begun"]
        return min(max(0.0, seconds), _MAX_ACTION_S)

    def elapsed_ms(self) -> int:
        """Return the active time of the run, including this action, in milliseconds; 0 if unknown."""
        if self.status is not None and self.facts["ended"] is None:
            return 0
        return int(self.facts["elapsed_ms"]) + round(self.took() * 1000)

    def take(self) -> Kept | None:
        """Return the action at the first call, then None: only one attempt of an effect may use it."""
        if self.is_taken:
            return None
        self.is_taken = True
        _open.setdefault(self.facts["effect"], []).append(self)
        return self

    def fileno(self) -> int:
        return -1 if self._connection is None else super().fileno()

    def read(self, stream: str, length: int) -> bytes:
        """Read the output since the last call."""
        index = STREAMS.index(stream)
        data = os.pread(self._handles[index], length, self._at[index])
        self._at[index] += len(data)
        return data

    def close(self) -> None:
        """Close the connection and leave the action to its keeper."""
        for handle in self._handles:
            files.close(handle)
        self._handles.clear()
        if self._connection is not None:
            self._connection.close()

    def release(self) -> bool:
        is_over = self._connection is None or super().release()
        self.close()
        _forget(self.facts["folder"], self.facts["effect"])
        return is_over


def start(
    path: str,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    ends: Sequence[int],
    facts: dict[str, Any],
    main: Callable[[Any, int], NoReturn],
) -> Action | None:
    """Let the keeper start a program; return None if there is no keeper.

    Args:
        path, argv, env: as for `processes.start`.
        ends: handles: input, write ends of the two output pipes, read ends of the two output pipes.
        facts: `folder` of the run; `effect`: id; `begun` and `end`: start and deadline in monotonic time;
            `elapsed_ms`: active time of the run at the start; `limited_by`: source of the deadline; `signals`
            and `grace`: signals that end the action, and seconds between them; `about`: data for the caller.
        main: `keeper_process.main`; a parameter, because only processes that start actions import that
            module.

    Raises OSError if the program could not be started, and KeeperDied if this is unknown.
    """
    lock = _guarded[facts["folder"]]
    folder = facts["folder"] = os.path.abspath(facts["folder"])
    request = marshal.dumps((path, list(argv), dict(env), os.getcwd(), facts))
    ours, theirs = pair()
    handles = [*ends, lock, theirs.fileno()]
    try:
        if len(request) > LARGEST:
            handles.append(unnamed_file(folder))
            files.pwrite(handles[-1], request, 0)
            request = IN_FILE
        is_sent = _send_request(main, request, handles)
    except OSError:
        is_sent = False  # the disk is full; the action can run without a keeper
    finally:
        theirs.close()
        for file in handles[len(ends) + 2 :]:
            files.close(file)
    if not is_sent:
        ours.close()
        return None
    action = Action(ours, folder)
    try:
        action.wait_start()
    except BaseException:
        ours.close()
        raise
    _open.setdefault(facts["effect"], []).append(action)
    return action


def take_over(folder: str) -> tuple[int, dict[str, Kept]] | None:
    """Take the lock and the actions (by effect id) of a run whose driver has died.

    Returns None if the keeper does not hand over all actions: an action has just ended and is now in `left`,
    or the keeper is dead, suspended or slow. Therefore a live action is never considered ended.
    """
    locks: list[int] = []
    found: dict[str, Kept] = {}
    try:
        connection, names, locks = _connect(folder, LIST, 1)
        connection.close()
        for name in marshal.loads(names):
            connection, data, handles = _connect(folder, name.encode(), 2)
            found[name] = Kept(marshal.loads(data), handles, connection)
    except (OSError, ValueError):
        for lock in locks:
            files.close(lock)
        for action in found.values():
            action.close()
        return None
    return locks[0], found


def stop(folder: str) -> bool:
    """Request the keeper of a run with a dead driver to end the actions; return False without an answer.

    After the first request the actions can clean up; the second request does not wait for this.
    """
    try:
        connection, answer, _ = _connect(folder, STOP, 0)
    except (OSError, ValueError):
        return False
    connection.close()
    return answer == RELEASED


def _connect(folder: str, request: bytes, count: int) -> tuple[Any, bytes, list[int]]:
    """Connect to the keeper of a run whose driver has died; return the connection, its answer and handles.

    count: expected number of handles. Raises OSError and ValueError.
    """
    directory = files.open_handle(folder, files.O_RDONLY | files.O_DIRECTORY)
    connection = of_socket("socket")(of_socket("AF_UNIX"), of_socket("SOCK_SEQPACKET"))
    try:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        # The path of a socket is limited to 107 bytes.
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        connection.send(request)
        data, handles = receive(connection, count)
        connection.settimeout(None)
    except (OSError, ValueError):
        connection.close()
        raise
    finally:
        files.close(directory)
    return connection, data, handles


# Maximum duration of an action in seconds; a damaged file may contain more.
_MAX_ACTION_S = 1e9
# Timeout for an answer of a keeper, in seconds.
_ANSWER_TIMEOUT_S = 5.0
# Facts of an ended action, with their types.
_FACTS: dict[str, tuple[type, ...]] = {
    "effect": (str,),
    "pid": (int,),
    "status": (int,),
    "begun": (int, float),
    "end": (int, float, type(None)),
    "limited_by": (str,),
    "timed_out": (str, type(None)),
    "about": (dict,),
    "elapsed_ms": (int,),
    "ended": (int, float, type(None)),
}
# Values of facts that a keeper of an earlier version does not record.
_DEFAULTS = {"elapsed_ms": 0, "ended": None}


def left(folder: str) -> dict[str, Kept]:
    """Load the actions of a run that ended after the death of its driver, by effect id."""
    place = os.path.join(folder, FOLDER)
    found = {}
    for name in files.listdir(place) if files.isdir(place) else ():
        number, _, kind = name.rpartition(".")
        if kind != "json":
            continue
        try:
            with open_regular(os.path.join(place, name)) as file:
                facts = _DEFAULTS | light_json.loads(file.read(1 << 20))
            if any(type(facts[key]) not in kinds for key, kinds in _FACTS.items()):
                continue
            handles = [
                regular_handle(os.path.join(place, f"{number}.{stream}"), files.O_RDONLY | files.O_NOFOLLOW)
                for stream in STREAMS
            ]
            found[facts["effect"]] = Kept({**facts, "folder": folder}, handles)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the keeper was killed while it wrote the file; the outcome is unknown
    return found


def _forget(folder: str, effect_id: str) -> None:
    for kind in ("json", *STREAMS):
        try:
            files.unlink(f"{place_of(folder, effect_id)}.{kind}")
        except OSError:
            continue
    with suppress(OSError):  # the folder may contain other actions
        files.rmdir(os.path.join(folder, FOLDER))


def _keeper(main: Callable[[Any, int], NoReturn]) -> Any:
    """Return the connection to the keeper of this process; start the keeper if necessary."""
    global _channel, _owner
    with _starting:
        if _channel is None or _owner != processes.getpid():
            _channel, _owner = None, processes.getpid()
            ours, theirs = pair()
            try:
                child = processes.fork()
            except OSError:
                ours.close()
                theirs.close()
                return None
            if child == 0:
                main(theirs, _owner)
            theirs.close()
            _channel = ours
        return _channel


def _send_request(main: Callable[[Any, int], NoReturn], request: bytes, handles: Sequence[int]) -> bool:
    """Send a request to the keeper; start another keeper if it has died. Return False if it was not sent.

    The connection to a live keeper stays open: the keeper takes its end for the death of this process.
    """
    global _channel
    for _ in range(2):
        channel = _keeper(main)
        if channel is None:
            return False
        try:
            send(channel, request, handles)
            return True
        except ConnectionError:
            with _starting:
                if _channel is channel:  # else another thread has already replaced it
                    _channel = None
                    channel.close()
        except OSError:
            return False
    return False
