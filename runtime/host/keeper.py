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

    def release(self) -> bool:
        """The action is not needed any more: the keeper ends what is still running of it, unless it has died.

        Returns whether it has done so.
        """
        if self._connection.fileno() < 0:
            return True
        answer = b""
        with suppress(OSError):
            self._connection.send(RELEASE)
            # Once the answer is there, the keeper does not hold the lock of the run any more.
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
    """An action that the keeper of this process has started."""

    def __init__(self, connection: Any, folder: str) -> None:
        super().__init__(connection)
        self._folder = folder
        self._spools: dict[str, int | None] = {}
        self._sizes: dict[str, int] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the keeper has all of its output."""
        return None not in self._spools.values()

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
        """The disk is full, or the keeper dead: the run continues, and its death would cost the output."""
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
    """An action that has survived its driver.

    facts: what `start` was told, with `pid`, and `timed_out` where the keeper had to end it. status: of its
    end, None while it runs; began: the start time of the process then.
    """

    began = ""
    is_whole = True

    def __init__(self, facts: dict[str, Any], handles: Sequence[int], connection: Any = None) -> None:
        super().__init__(connection, facts["pid"])
        self.facts = _UNTOLD | facts
        self._handles = list(handles)
        self._at = [0, 0]
        self.status: int | None = facts.get("status")
        self.is_taken = False
        if connection is not None:
            self.began = processes.start_time(self.pid)

    def took(self) -> float:
        """Seconds that it has been running, without those since its end."""
        ended = self.facts["ended"]
        seconds: float = (clock.monotonic() if ended is None else ended) - self.facts["begun"]
        return min(max(0.0, seconds), _LONGEST)

    def elapsed_ms(self) -> int:
        """Active time of the run, which its action is a part of, with a driver or without; 0 for unknown."""
        if self.status is not None and self.facts["ended"] is None:
            return 0
        return int(self.facts["elapsed_ms"]) + round(self.took() * 1000)

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
    """Let the keeper start a program; None where there is none.

    ends: handles of its input, of the ends of its pipes that it writes to, and of those that we read.
    facts: `folder`, of the run; `effect`, the id; `begun` and `end`, when it began and is to end, by the
    monotonic clock; `elapsed_ms`, the active time of the run then; `limited_by`; `signals` and `grace` to end
    it with; `about`, what its caller wants back.
    main: `keeper_process.main`, which only a process needs that starts actions.
    Raises OSError where it could not be started, and KeeperDied where it is not known whether it was.
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
        is_asked = _ask(main, request, handles)
    except OSError:
        is_asked = False  # the disk is full: better unkept than not at all
    finally:
        theirs.close()
        for file in handles[len(ends) + 2 :]:
            files.close(file)
    if not is_asked:
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
    """The lock of a run whose driver has died, and its actions, by effect.

    None where the keeper does not hand over each of them: an action has just ended, and is in `left` then, or
    the keeper is dead, suspended or late. So an action that lives is not taken for one that has ended.
    """
    locks: list[int] = []
    found: dict[str, Kept] = {}
    try:
        asked, names, locks = _visit(folder, LIST, 1)
        asked.close()
        for name in marshal.loads(names):
            connection, data, handles = _visit(folder, name.encode(), 2)
            found[name] = Kept(marshal.loads(data), handles, connection)
    except (OSError, ValueError):
        for lock in locks:
            files.close(lock)
        for action in found.values():
            action.close()
        return None
    return locks[0], found


def stop(folder: str) -> bool:
    """Ask the keeper of a run whose driver has died to end its actions; False if it does not answer.

    The first request lets them clean up, the second one does not wait for that.
    """
    try:
        connection, answer, _ = _visit(folder, STOP, 0)
    except (OSError, ValueError):
        return False
    connection.close()
    return answer == RELEASED


def _visit(folder: str, wanted: bytes, count: int) -> tuple[Any, bytes, list[int]]:
    """A connection to the keeper of a run whose driver has died, and its answer.

    Raises OSError and ValueError.
    """
    directory = files.open_handle(folder, files.O_RDONLY | files.O_DIRECTORY)
    connection = of_socket("socket")(of_socket("AF_UNIX"), of_socket("SOCK_SEQPACKET"))
    try:
        connection.settimeout(_PATIENCE)
        # The path of a socket has 107 bytes at most.
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        connection.send(wanted)
        data, handles = receive(connection, count)
        connection.settimeout(None)
    except (OSError, ValueError):
        connection.close()
        raise
    finally:
        files.close(directory)
    return connection, data, handles


# Seconds of an action at most; what a file says may be more.
_LONGEST = 1e9
# Seconds that a keeper may take to answer.
_PATIENCE = 5.0
# What is known of an action that has ended, and the types.
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
# Those that a keeper of an earlier version does not tell.
_UNTOLD = {"elapsed_ms": 0, "ended": None}


def left(folder: str) -> dict[str, Kept]:
    """The actions of a run that ended after its driver had died, by effect."""
    place = os.path.join(folder, FOLDER)
    found = {}
    for name in files.listdir(place) if files.isdir(place) else ():
        number, _, kind = name.rpartition(".")
        if kind != "json":
            continue
        try:
            with open_regular(os.path.join(place, name)) as file:
                facts = _UNTOLD | light_json.loads(file.read(1 << 20))
            if any(type(facts[key]) not in kinds for key, kinds in _FACTS.items()):
                continue
            handles = [
                regular_handle(os.path.join(place, f"{number}.{stream}"), files.O_RDONLY | files.O_NOFOLLOW)
                for stream in STREAMS
            ]
            found[facts["effect"]] = Kept({**facts, "folder": folder}, handles)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the keeper was killed while it wrote it: the outcome is not known
    return found


def _forget(folder: str, effect_id: str) -> None:
    for kind in ("json", *STREAMS):
        try:
            files.unlink(f"{place_of(folder, effect_id)}.{kind}")
        except OSError:
            continue
    with suppress(OSError):  # it may contain another one
        files.rmdir(os.path.join(folder, FOLDER))


def _keeper(main: Callable[[Any, int], NoReturn]) -> Any:
    """The connection to the keeper of this process, which is started at first."""
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


def _ask(main: Callable[[Any, int], NoReturn], request: bytes, handles: Sequence[int]) -> bool:
    """Send a request to the keeper; another one is started where it has died. False where it was not sent.

    The connection of a keeper that lives stays open: its end would tell the keeper that this process is dead.
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
                if _channel is channel:  # else another thread has noticed that before
                    _channel = None
                    channel.close()
        except OSError:
            return False
    return False
