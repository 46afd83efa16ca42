"""Keeper process: starts actions for its driver and keeps them when the driver dies (client: `keeper`).

It runs in a fork of the driver, in its own session, and imports nothing before the driver is dead. An action
is *attended* while a process that needs its result is connected.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import time

from ...ir import light_json
from ...ir.python_internals import suppress
from . import processes, secrets, signals
from .keeper_messages import (
    EXITED,
    FAILED,
    FOLDER,
    IN_FILE,
    LIST,
    RELEASE,
    RELEASED,
    SOCKET,
    STARTED,
    STOP,
    STREAMS,
    UNSAFE,
    of_socket,
    place_of,
    receive,
    send,
    unnamed_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_CHUNK = 1 << 20
# Seconds during which output of background children is still read after the end of their action.
_LINGER = 0.1
# Signals that the keeper forwards to its driver, and signals whose handlers it resets to the default.
_SIGNALS = signals.SIGINT, signals.SIGHUP, signals.SIGQUIT, signals.SIGTERM, signals.SIGUSR1, signals.SIGUSR2
_DEFAULT = signals.SIGTSTP, signals.SIGWINCH, signals.SIGCHLD


class _Action:
    """Action: its process, its output pipes, and the output so far.

    spools: unnamed files with the output; None before the first output. reads: whether the keeper reads the
    pipes.
    status: wait status; ended: time of the end; closing: time until which the pipes are read after the end.
    """

    def __init__(self, pid: int, facts: dict[str, Any], pipes: list[int], lock: int, connection: Any) -> None:
        self.pid = pid
        self.watch = os.pidfd_open(pid)
        self.facts = facts
        self.pipes = pipes
        self.lock = lock
        self.connection = connection
        self.spools: list[int | None] = [None, None]
        self.reads = False
        self.status: int | None = None
        self.ended: float | None = None
        self.closing: float | None = None
        self.timed_out: str | None = None
        self.is_unsafe = False
        # Number of stop requests for its run, and number of all stop requests that were handled.
        self.stops = 0
        self.requests = 0
        self.signals = list(facts["signals"])
        self.next_signal: float | None = facts["end"]

    def known(self) -> dict[str, Any]:
        """Return the facts for the process that resumes the run."""
        return {**self.facts, "pid": self.pid, "timed_out": self.timed_out, "ended": self.ended}


class _Keeper:
    """Event loop of the keeper."""

    def __init__(self, channel: Any, driver: int) -> None:
        self.channel = channel
        self.driver = driver
        self.actions: dict[str, _Action] = {}
        self.listeners: dict[str, Any] = {}
        self.poller = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.is_alone = False
        # Number of requests to stop everything; each sends the next signal without waiting for the previous
        # one.
        self.requests = 0
        self.watch(channel.fileno(), self.request)
        wake, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        signals.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        for number in _SIGNALS:
            if signals.getsignal(number) != signals.SIG_IGN:
                signals.signal(number, self.receive)
        self.watch(wake, lambda: os.read(wake, 100))  # type: ignore[arg-type]

    def watch(self, handle: int, handler: Callable[[], None]) -> None:
        self.handlers[handle] = handler
        self.poller.register(handle, select.POLLIN)

    def unwatch(self, handle: int) -> None:
        if self.handlers.pop(handle, None) is not None:
            self.poller.unregister(handle)

    def run(self) -> None:
        while self.actions or not self.is_alone:
            pause = self.pause()
            events = self.poller.poll(None if pause is None else max(0, int(pause * 1000) + 1))
            # An earlier handler may close a handle, and a new handle may get its number.
            for handle, handler in [(handle, self.handlers[handle]) for handle, _ in events]:
                if self.handlers.get(handle) is handler:
                    handler()
            for name, action in list(self.actions.items()):
                self.check(name, action)

    def pause(self) -> float | None:
        """Return the seconds until the next timer; None if there is no timer."""
        if not self.is_alone:
            return None
        due = [
            moment
            for action in self.actions.values()
            for moment in (action.closing, None if action.connection else action.next_signal)
            if moment is not None
        ]
        return None if not due else max(0.0, min(due) - time.monotonic())

    def receive(self, number: int, _: object) -> None:
        """Handle a signal: a stop request, or a signal for the driver from an action that uses `$PPID`."""
        if self.is_alone:
            self.requests += number in (signals.SIGTERM, signals.SIGINT)
        else:
            with suppress(ProcessLookupError):
                processes.kill(self.driver, number)

    # --- while the driver lives -------------------------------------------------------------------

    def request(self) -> None:
        """Handle a request of the driver to start an action, or the death of the driver."""
        try:
            data, handles = receive(self.channel, 0)
        except OSError:
            data, handles = b"", []
        if not data:
            self.unwatch(self.channel.fileno())
            self.keep()
            return
        if data == IN_FILE:
            file = handles.pop()
            data = os.pread(file, os.fstat(file).st_size, 0)
            os.close(file)
        path, argv, env, folder, facts = marshal.loads(data)
        source, output_end, errors_end, output, errors, lock, fd = handles
        connection = of_socket("socket")(fileno=fd)
        try:
            if _is_given_up(lock):
                raise FileNotFoundError(errno.ENOENT, "the run has another owner")
            if os.getcwd() != folder:
                os.chdir(folder)
            if os.environb.get(b"PATH") != env.get(b"PATH"):  # the program is searched in this PATH
                os.environb[b"PATH"] = env.get(b"PATH", b"")
            pid = processes.start(path, argv, env, source, output_end, errors_end)
        except OSError as error:
            connection.send(FAILED + b"%d" % (error.errno or 0))
            connection.close()
            for handle in (output, errors, lock):
                os.close(handle)
            return
        finally:
            for handle in (source, output_end, errors_end):
                os.close(handle)
        name = f"{facts['effect']} {pid}"
        action = _Action(pid, facts, [output, errors], lock, connection)
        self.actions[name] = action
        self.watch(action.watch, lambda: self.exited(action))
        self.attend(name, action, connection)
        self.tell(action, STARTED + b"%d" % pid)

    def attend(self, name: str, action: _Action, connection: Any) -> None:
        action.connection = connection
        self.watch(connection.fileno(), lambda: self.message(name, action))

    def message(self, name: str, action: _Action) -> None:
        """Handle a message of the process that attends an action, or the end of its connection."""
        try:
            data, handles = receive(action.connection, 0)
        except OSError:
            data, handles = b"", []
        if data == RELEASE:
            if action.status is None:
                self.signal(action, signals.SIGKILL)
            connection = action.connection
            self.forget(name, action)
            with suppress(OSError):
                connection.send(RELEASED)
            connection.close()
        elif data == UNSAFE:
            action.is_unsafe = True
        elif data:
            action.spools[STREAMS.index(data.decode())] = handles[0]
        else:
            self.unattend(action)
            if self.is_alone:
                self.claim(action)
                action.next_signal = action.facts["end"]

    def unattend(self, action: _Action) -> None:
        if action.connection is not None:
            self.unwatch(action.connection.fileno())
            action.connection.close()
            action.connection = None

    def tell(self, action: _Action, message: bytes) -> None:
        if action.connection is not None:
            with suppress(OSError):
                action.connection.send(message)

    def exited(self, action: _Action) -> None:
        self.unwatch(action.watch)
        _, action.status = os.waitpid(action.pid, 0)
        action.ended = time.monotonic()
        action.next_signal = None
        if action.reads:
            action.closing = action.ended + _LINGER
        else:
            self.tell(action, EXITED + b"%d" % action.status)

    # --- after the death of the driver --------------------------------------------------------------

    def keep(self) -> None:
        """Handle the death of the driver: keep the actions whose results are not in its journal."""
        for name, action in list(self.actions.items()):
            # Handle the messages that the driver had sent before its death.
            if action.connection is not None:
                action.connection.setblocking(False)
            while action.connection is not None and name in self.actions:
                self.message(name, action)
        self.is_alone = True
        for name, action in list(self.actions.items()):
            if _is_given_up(action.lock) and action.status is None:
                self.signal(action, signals.SIGKILL)
            if action.is_unsafe or _is_given_up(action.lock):
                self.forget(name, action)
                continue
            action.reads = True
            for index, handle in enumerate(action.pipes):
                self.watch(handle, lambda action=action, index=index: self.drain(action, index))  # type: ignore[misc]
            if action.status is not None:
                action.closing = time.monotonic() + _LINGER
            self.claim(action)

    def claim(self, action: _Action) -> None:
        """Claim the run: open a socket for the process that resumes it, and update the lock file."""
        folder = action.facts["folder"]
        try:
            if folder not in self.listeners:
                os.chdir(folder)
                with suppress(FileNotFoundError):
                    os.unlink(SOCKET)
                import socket  # takes 2 ms; the driver is dead, so this delays nothing

                listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                listener.bind(SOCKET)
                listener.listen()
                self.listeners[folder] = listener
                self.watch(listener.fileno(), lambda: self.visit(folder))
            about = light_json.loads(os.pread(action.lock, os.fstat(action.lock).st_size, 0))
            pid = os.getpid()
            about |= {"pid": pid, "start_time": processes.start_time(pid), "kept": True}
            about.pop("host", None)
            data = light_json.dumps_ascii(about).encode() + b"\n"
            os.pwrite(action.lock, data, 0)
            os.ftruncate(action.lock, len(data))
        except (OSError, ValueError):
            return  # no folder, or a full disk; no process can connect, and the action ends at its deadline

    def visit(self, folder: str) -> None:
        """Accept a connection of a process that resumes or stops the run, and handle its first message."""
        connection, _ = self.listeners[folder].accept()
        connection.settimeout(1.0)
        here = {
            action.facts["effect"]: (name, action)
            for name, action in self.actions.items()
            if action.facts["folder"] == folder
        }
        try:
            request = connection.recv(1024)
            if request == LIST:
                lock = next(iter(here.values()))[1].lock
                send(connection, marshal.dumps(list(here)), [lock])
                connection.close()
                return
            if request == STOP:
                for _, action in here.values():
                    action.stops += 1
                connection.send(RELEASED)
                connection.close()
                return
            name, action = here[request.decode()]
            if action.connection is not None:
                raise KeyError(request)
            for index in (0, 1):
                self.spool(action, index)
            send(
                connection,
                marshal.dumps(action.known()),
                [handle for handle in action.spools if handle is not None],
            )
        except (OSError, ValueError, KeyError, StopIteration):
            connection.close()
            return
        connection.settimeout(None)
        action.next_signal = None
        self.attend(name, action, connection)
        if action.status is not None and action.closing is None:
            self.tell(action, EXITED + b"%d" % action.status)

    def spool(self, action: _Action, index: int) -> int:
        handle = action.spools[index]
        if handle is None:
            handle = action.spools[index] = unnamed_file(action.facts["folder"])
        return handle

    def drain(self, action: _Action, index: int) -> None:
        """Read the available output of a pipe."""
        handle = action.pipes[index]
        try:
            count = os.splice(handle, self.spool(action, index), _CHUNK)
        except OSError:
            action.is_unsafe = True
            count = 0
        if not count:
            self.unwatch(handle)
            os.close(handle)
            action.pipes[index] = -1

    def check(self, name: str, action: _Action) -> None:
        """Perform the due steps for an action: signals, end of reading, saving its result."""
        now = time.monotonic()
        if not self.is_alone:
            return
        if action.is_unsafe:  # part of its output is lost
            self.unattend(action)
            self.forget(name, action)
            return
        requests = self.requests + action.stops
        if requests > action.requests and action.status is None:
            action.requests, action.next_signal = requests, now
        if action.next_signal is not None and now >= action.next_signal and action.connection is None:
            if not requests:
                action.timed_out = action.timed_out or action.facts["limited_by"]
            number = action.signals.pop(0) if action.signals else signals.SIGKILL
            self.signal(action, number)
            action.next_signal = now + action.facts["grace"]
        if action.closing is not None and (now >= action.closing or action.pipes == [-1, -1]):
            action.closing = None
            # On a busy machine the time may be over before any output was read.
            for index, handle in enumerate(action.pipes):
                if handle >= 0 and select.select([handle], [], [], 0)[0]:
                    self.drain(action, index)
            assert action.status is not None
            self.tell(action, EXITED + b"%d" % action.status)
        if action.status is not None and action.closing is None and action.connection is None:
            # The outcome of an action that died by a signal is unknown; its work is not finished.
            has_died = os.WIFSIGNALED(action.status) and action.timed_out is None
            if not (has_died or requests or action.is_unsafe):
                with suppress(OSError):
                    self.save(action)
            self.forget(name, action)

    def save(self, action: _Action) -> None:
        """Save the result of an action for the next `resume`, with secrets masked."""
        folder = action.facts["folder"]
        with suppress(FileExistsError):
            os.mkdir(os.path.join(folder, FOLDER), 0o700)
        place = place_of(folder, action.facts["effect"])
        for index, stream in enumerate(STREAMS):
            spool = self.spool(action, index)
            mask = secrets.Stream(is_text=False) if secrets.known else None
            with open(f"{place}.{stream}", "wb", opener=_private) as file:
                at = 0
                while data := os.pread(spool, _CHUNK, at):
                    at += len(data)
                    file.write(data if mask is None else mask.feed(data))
                if mask is not None:
                    file.write(mask.finish())
                file.flush()
                os.fsync(file.fileno())
        with open(f"{place}.new", "w", opener=_private) as file:
            file.write(light_json.dumps_ascii({**action.known(), "status": action.status}))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{place}.new", f"{place}.json")

    def signal(self, action: _Action, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(action.pid, number)

    def forget(self, name: str, action: _Action) -> None:
        """Close the handles of an action; with the last action of a run, also its socket."""
        del self.actions[name]
        if action.connection is not None:
            self.unwatch(action.connection.fileno())
        self.unwatch(action.watch)
        if action.status is None:
            self.watch(action.watch, lambda: self.bury(action))
        else:
            os.close(action.watch)
        for handle in action.pipes:
            if handle >= 0:
                self.unwatch(handle)
                os.close(handle)
        folder = action.facts["folder"]
        if folder in self.listeners and all(one.facts["folder"] != folder for one in self.actions.values()):
            listener = self.listeners.pop(folder)
            self.unwatch(listener.fileno())
            with suppress(OSError):
                os.unlink(os.path.join(folder, SOCKET))
            listener.close()
        for spool in action.spools:
            if spool is not None:
                os.close(spool)
        os.close(action.lock)

    def bury(self, action: _Action) -> None:
        self.unwatch(action.watch)
        os.close(action.watch)
        os.waitpid(action.pid, 0)


def _is_given_up(lock: int) -> bool:
    """Whether the lock file of a run was removed, because another process has decided about its actions."""
    return os.fstat(lock).st_nlink == 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def main(channel: Any, driver: int) -> NoReturn:
    """Run the keeper in a fork of the driver, and exit. driver: pid of the driver."""
    code = 1
    try:
        gc.disable()
        os.setsid()
        signals.pthread_sigmask(signals.SIG_SETMASK, ())
        for number in _DEFAULT:
            # Actions inherit ignored signals, but not handlers.
            if signals.getsignal(number) != signals.SIG_IGN:
                signals.signal(number, signals.SIG_DFL)
        keep = channel.fileno()
        null = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) > 2 and int(entry) != keep:
                with suppress(OSError):
                    os.close(int(entry))
        _Keeper(channel, driver).run()
        code = 0
    finally:
        os._exit(code)
