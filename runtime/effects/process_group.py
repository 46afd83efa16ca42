"""A process group: its output, its end by signals, and the pipes that its background children hold.

Must not contain: effects and their results (`process`). One poll() over pipes, exit and interrupt; no
threads, no work per line.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord, field
from ...ir.python_internals import suppress
from ..host import clock, files, keeper, keeper_process, pipes, processes, signals
from ..host.effect_context import TICK, Context, Interrupt, Interrupted, Left, milliseconds
from .output_capture import Capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


# Seconds between TERM and KILL.
GRACE = 2.0
# Seconds in which a background child that holds the pipe may still write to it after the step's own process
# has ended; the end of `cmd > >(tee log)` arrives this late.
LINGER = 0.1
# Seconds between two checks for the exit of a process without a pidfd, and for the end of a group.
EXIT_POLL_INTERVAL = 0.01
_CHUNK_BYTES = 1 << 16
# Seconds between two reads of the output files of an action that has survived its driver.
_KEPT_POLL_INTERVAL = 0.02
# Maximum number of open pipes of background children that outlive their step. Beyond it the oldest is closed.
MAX_LEFT_BEHIND = 64


class ProcessOptions(LightRecord):
    """Options for starting and ending a process; the defaults are those of a shell action.

    Args:
        stdin: text of the standard input; None for an empty one.
        env: additional environment variables.
        stop_signals: signals for the group before KILL.
        grace: seconds between two signals.
        idle_s: seconds without output after which the process is ended; None for no limit.
        must_stop: called after each output; ends the process if it returns True.
        about: facts about the action for the keeper.
    """

    stdin: str | None = None
    env: Mapping[bytes, bytes] = field(factory=dict)
    stop_signals: Sequence[int] = (signals.SIGTERM,)
    grace: float = GRACE
    idle_s: float | None = None
    must_stop: Callable[[], bool] | None = None
    about: dict[str, Any] = field(factory=dict)


class LeftBehind:
    """Open pipes of background children that outlive their step.

    The pipes are drained so that the children do not die of SIGPIPE.
    """

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def drain(self, descriptor: int) -> bool:
        """Discard the output of a background child; return whether its pipe is still open."""
        try:
            if files.read(descriptor, _CHUNK_BYTES):
                return True
        except BlockingIOError:
            return True
        self.descriptors.remove(descriptor)
        files.close(descriptor)
        return False

    def add(self, descriptor: int) -> None:
        """Keep the pipe of a background child open, to be drained during later steps."""
        pipes.set_blocking(descriptor, False)
        self.descriptors.append(descriptor)
        if len(self.descriptors) > MAX_LEFT_BEHIND:
            files.close(self.descriptors.pop(0))

    def close(self) -> None:
        for descriptor in self.descriptors:
            files.close(descriptor)
        self.descriptors.clear()


class Child:
    """A running process group and its two pipes. is_lost: its outcome is unknown."""

    # The action in the keeper, which reports its end; None for a child of this process.
    _kept: keeper.Action | keeper.Kept | None = None
    status: int | None = None
    is_lost = False
    _exit = -1

    def __init__(
        self,
        path: str,
        argv: list[str],
        env: Mapping[bytes, bytes],
        context: Context,
        source: int,
        options: ProcessOptions,
        times: tuple[float, float | None, str],
        is_kept: bool,
    ) -> None:
        """Start a program. Raises OSError, ValueError and `KeeperDied`.

        Args:
            source: descriptor of the standard input.
            times: start, deadline, and what set the deadline.
            is_kept: the keeper starts the process, which then survives this process.
        """
        self._prepare(context, options)
        ends: list[int] = []
        try:
            ends += pipes.pipe()
            ends += pipes.pipe()
            output, output_end, errors, errors_end = ends
            self._since = processes.tick_now()
            # Always UTF-8, the encoding of the loop, regardless of the locale.
            words = [word.encode("utf-8", "surrogateescape") for word in argv]
            if is_kept:
                facts = {
                    "folder": context.folder,
                    "effect": context.effect_id,
                    "begun": times[0],
                    "end": times[1],
                    "elapsed_ms": context.elapsed_ms(),
                    "limited_by": times[2],
                    "signals": options.stop_signals,
                    "grace": options.grace,
                    "about": options.about,
                }
                handles = (source, output_end, errors_end, output, errors)
                self._kept = keeper.start(path, words, env, handles, facts, keeper_process.main)
            if self._kept is not None:
                self.pid, self._exit = self._kept.pid, self._kept.fileno()
            else:
                self.pid = processes.start(path, words, env, source, output_end, errors_end)
        except (OSError, ValueError, keeper.KeeperDied):
            for descriptor in ends:
                files.close(descriptor)
            raise
        files.close(output_end)
        files.close(errors_end)
        self._streams = {output: self.output, errors: self.stderr}
        self._poller = pipes.poll()
        self._poller.register(output, pipes.POLLIN)
        self._poller.register(errors, pipes.POLLIN)

    def _prepare(self, context: Context, options: ProcessOptions) -> None:
        self._options = options
        self._context = context
        self.output = Capture("output", context)
        self.stderr = Capture("stderr", context)

    def watch(self, deadline: float | None, limited_by: str, left_behind: LeftBehind) -> str | None:
        """Read output until the process has ended.

        Return the cause of an early end (`limited_by`, "idle", "stopped"); None if it ended by itself.
        left_behind: drained meanwhile; receives the pipes that background children still hold.
        """
        self._left_behind = left_behind
        context, poller = self._context, self._poller
        idle_s, must_stop = self._options.idle_s, self._options.must_stop
        self._last_output_at = clock.monotonic()
        if context.on_process is not None:
            context.on_process(self.pid, processes.new_start_time(self.pid, self._since))
        if self._kept is None:
            self._exit = processes.exit_handle(self.pid)
        if self._exit >= 0:
            poller.register(self._exit, pipes.POLLIN)
        interrupt, on_tick = context.interrupt, context.on_tick
        poller.register(interrupt, pipes.POLLIN)
        for descriptor in left_behind.descriptors:
            poller.register(descriptor, pipes.POLLIN)
        max_wait = self._max_wait(on_tick is not None)
        next_tick = clock.monotonic() + TICK
        stopped_by: str | None = None
        while self.status is None:
            now = clock.monotonic()
            if interrupt.count:
                if interrupt.is_hangup and self._kept is not None and self._kept.is_whole:
                    raise Left
                stopped_by = "interrupt"
            elif deadline is not None and now >= deadline:
                stopped_by = limited_by
            elif must_stop is not None and must_stop():
                stopped_by = "stopped"
            elif idle_s is not None and now >= self._last_output_at + idle_s:
                stopped_by = "idle"
            if stopped_by is not None:
                self._end_group(interrupt)
                break
            if on_tick is not None and now >= next_tick:
                on_tick()
                next_tick = now + TICK
            wait = max_wait
            if deadline is not None and (wait is None or deadline - now < wait):
                wait = deadline - now
            if idle_s is not None and (wait is None or self._last_output_at + idle_s - now < wait):
                wait = self._last_output_at + idle_s - now
            self._process_events(wait)
        self._read_rest()
        for descriptor in self._streams:
            left_behind.add(descriptor)
        self._streams.clear()
        self.close()
        if stopped_by == "interrupt":
            raise Interrupted
        return stopped_by

    def abandon(self) -> None:
        """Kill the group at once, because the caller failed."""
        if self.status is None:
            _signal_group(self.pid, signals.SIGKILL)
            if self._kept is None:
                _, self.status = processes.waitpid(self.pid, 0)
        self.close()
        keeper.release(self._context.effect_id)

    def _max_wait(self, ticks: bool) -> float | None:
        """The maximum time to wait for an event, in seconds; None for no limit."""
        return EXIT_POLL_INTERVAL if self._exit < 0 else TICK if ticks else None

    def _read(self, descriptor: int, stream: str) -> bytes:
        if self._kept is None:
            return files.read(descriptor, _CHUNK_BYTES)
        assert isinstance(self._kept, keeper.Action)
        return self._kept.read(descriptor, stream, _CHUNK_BYTES)

    def _process_events(self, wait: float | None) -> bool:
        """Wait for events and process them; return whether there were any. wait: seconds, None: no limit."""
        events = self._poller.poll(None if wait is None else milliseconds(wait))
        for descriptor, _ in events:
            capture = self._streams.get(descriptor)
            if capture is not None:
                data = self._read(descriptor, capture.stream)
                if data:
                    if self._options.idle_s is not None:
                        self._last_output_at = clock.monotonic()
                    capture.feed(data)
                else:
                    del self._streams[descriptor]
                    self._poller.unregister(descriptor)
                    files.close(descriptor)
            elif descriptor == self._exit:
                self._reap()
            elif descriptor == self._context.interrupt.fileno():
                self._poller.unregister(descriptor)  # it stays readable; `watch` checks its count
            elif not self._left_behind.drain(descriptor):
                self._poller.unregister(descriptor)
        if self._exit < 0 and self._kept is None:
            self._reap()
        return bool(events)

    def _reap(self) -> None:
        if self._kept is not None:
            self._poller.unregister(self._exit)
            self._exit = -1
            try:
                self.status = self._kept.wait_status()
            except keeper.KeeperDied:
                self.is_lost, self.status = True, 0
                _signal_group(self.pid, signals.SIGKILL)
        elif self.status is None:
            pid, status = processes.waitpid(self.pid, processes.WNOHANG)
            if pid:
                self.status = status
                if self._exit >= 0:
                    self._poller.unregister(self._exit)
                    files.close(self._exit)
                    self._exit = -1

    def _end_group(self, interrupt: Interrupt) -> None:
        """Send the stop signals with time to clean up, then KILL; a further interrupt skips to KILL."""
        # The process is not reaped yet, so the group id is still valid; afterwards the id is not reused as
        # long as the group has members.
        requests = interrupt.count
        for number in self._options.stop_signals:
            deadline = clock.monotonic() + self._options.grace
            _signal_group(self.pid, number)
            while self.status is None or _group_exists(self.pid):
                if clock.monotonic() >= deadline or interrupt.count > requests:
                    break
                self._process_events(EXIT_POLL_INTERVAL)
            else:
                return
            if interrupt.count > requests:
                break
        _signal_group(self.pid, signals.SIGKILL)
        while self.status is None:
            self._process_events(EXIT_POLL_INTERVAL)

    def _read_rest(self) -> None:
        """Read the rest of the output; wait at most `LINGER` for a background child that holds the pipes."""
        deadline = clock.monotonic() + LINGER
        while self._streams:
            remaining = deadline - clock.monotonic()
            self._process_events(max(remaining, 0))
            if remaining <= 0:
                break

    def close(self) -> None:
        for descriptor in self._streams:
            files.close(descriptor)
        self._streams.clear()
        if self._exit >= 0 and self._kept is None:
            files.close(self._exit)
        self._exit = -1
        self.output.close()
        self.stderr.close()


class KeptChild(Child):
    """A process group that has survived the driver that started it."""

    _kept: keeper.Kept

    def __init__(self, kept: keeper.Kept, context: Context, options: ProcessOptions) -> None:
        self._prepare(context, options)
        self._kept = kept
        self.pid = kept.pid
        self._since = -1
        self._streams = {}
        self._exit = kept.fileno()
        self._poller = pipes.poll()
        if kept.status is not None:
            self._read_rest()
            self.status = kept.status

    def watch(self, deadline: float | None, limited_by: str, left_behind: LeftBehind) -> str | None:
        if self.status is not None:
            self.close()
            return self._kept.facts.get("timed_out")
        return super().watch(deadline, limited_by, left_behind) or self._kept.facts.get("timed_out")

    def _max_wait(self, ticks: bool) -> float | None:
        return _KEPT_POLL_INTERVAL

    def _process_events(self, wait: float | None) -> bool:
        has_output = self._read_output()
        return super()._process_events(0 if has_output else wait) or has_output

    def _read_rest(self) -> None:
        while self._read_output():
            pass

    def _read_output(self) -> bool:
        """Read the new output; return whether there was any."""
        has_output = False
        for capture in (self.output, self.stderr):
            data = self._kept.read(capture.stream, _CHUNK_BYTES)
            if data:
                has_output = True
                self._last_output_at = clock.monotonic()
                capture.feed(data)
        return has_output


def end_process_group(pid: int) -> int:
    """End a child and its group with TERM, time to clean up and KILL; return the wait status of the child."""
    deadline = clock.monotonic() + GRACE
    _signal_group(pid, signals.SIGTERM)
    _signal_group(pid, signals.SIGCONT)
    while clock.monotonic() < deadline:
        reaped, status = processes.waitpid(pid, processes.WNOHANG)
        if reaped:
            _signal_group(pid, signals.SIGKILL)
            return status
        clock.sleep(EXIT_POLL_INTERVAL)
    _signal_group(pid, signals.SIGKILL)
    return processes.waitpid(pid, 0)[1]


def _signal_group(group: int, number: int) -> None:
    # The group may be empty, or contain only processes of other users.
    with suppress(ProcessLookupError, PermissionError):
        processes.killpg(group, number)


def _group_exists(group: int) -> bool:
    try:
        processes.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # A group may consist of zombies, if process 1 does not reap children, as in many containers.
    return processes.has_living(group)
