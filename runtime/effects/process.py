"""Process runner: starts a process group, captures its output, enforces its time limits, ends it.

Owns spawning, output capture and signals. Must not contain: shells, agents. A process has its own session, an
empty standard input and pipes for its output. This is the run's hot path: posix_spawn (vfork for any heap
size), one poll() over pipes, exit and interrupt, no threads, no work per line.
"""

from __future__ import annotations

import errno
import os.path
import stat

from ...ir.python_internals import suppress
from ..host import clock, environment, files, keeper, keeper_process, pipes, processes, signals
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
# An action that took less than `_SHORT_SECONDS` at least `_SHORT_COUNT` times runs without the keeper, which
# costs a tenth of a short step.
_SHORT_SECONDS = 0.01
_SHORT_COUNT = 3
# Maximum number of actions whose short runs are counted.
_MAX_COUNTED_ACTIONS = 1000
# Seconds between two reads of the output files of an action that has survived its driver.
_KEPT_POLL_INTERVAL = 0.02
# Maximum number of open pipes of background children that outlive their step. The pipes are drained so that
# the children do not die of SIGPIPE; beyond this limit the oldest pipe is closed.
MAX_LEFT_BEHIND = 64


class NotStarted(Exception):
    """A program could not be started; the message states the reason. errno: 0 without a system call."""

    def __init__(self, program: str, error: OSError | ValueError) -> None:
        self.errno = 0
        if isinstance(error, OSError):
            self.errno = error.errno or 0
            reason = error.strerror or type(error).__name__
            if self.errno == errno.E2BIG:
                reason += "; the command or the environment is longer than the system permits"
        elif isinstance(error, UnicodeError):
            reason = "the command has a character that UTF-8 cannot encode"
        else:
            reason = "the command has a NUL character"
        super().__init__(f"`{program}` could not be started: {reason}")

    def result(self, context: Context) -> dict[str, Any]:
        kind = "not-executable" if self.errno == errno.EACCES else "failed-to-start"
        return failure(context, 126, kind=kind, message=str(self))


class ProcessOptions:
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

    def __init__(
        self,
        stdin: str | None = None,
        env: Mapping[bytes, bytes] | None = None,
        stop_signals: Sequence[int] = (signals.SIGTERM,),
        grace: float = GRACE,
        idle_s: float | None = None,
        must_stop: Callable[[], bool] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.about = about or {}
        self.stdin = stdin
        self.env = env or {}
        self.stop_signals = stop_signals
        self.grace = grace
        self.idle_s = idle_s
        self.must_stop = must_stop


_SHELL_OPTIONS = ProcessOptions()


class Runner:
    """Starts processes for one run, with a copy of the environment at the creation of the runner."""

    def __init__(self) -> None:
        self.env = dict(environment.environb)
        self.env[b"PWD"] = _working_folder(self.env.get(b"PWD"))
        path = self.env.get(b"PATH") or environment.defpath.encode()
        self._path = [os.path.join(directory or b".", b"") for directory in path.split(b":")]
        self._null = files.open_handle(files.devnull, files.O_RDWR)
        # If llc was started with closed standard descriptors, pipes must not get their numbers, because the
        # child overwrites them.
        while self._null <= 2:
            self._null = pipes.dup(self._null)
        self._left_behind: list[int] = []
        # Number of short runs, by state or program.
        self._short_runs: dict[str, int] = {}
        if signals.getsignal(signals.SIGCHLD) == signals.SIG_IGN:
            # Inherited from the parent process; the system would discard exit codes.
            with suppress(ValueError):  # only the main thread may change it
                signals.signal(signals.SIGCHLD, signals.SIG_DFL)

    def close(self) -> None:
        for descriptor in (self._null, *self._left_behind):
            files.close(descriptor)
        self._left_behind.clear()
        self._null = -1

    def find(self, program: str) -> str | None:
        """The path of a program: itself if it has a slash, otherwise the first on PATH; None if not found."""
        try:
            name = program.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
        if b"/" in name:
            return program if _is_program(name) else None
        for folder in self._path:
            candidate = folder + name
            if _is_program(candidate):
                return candidate.decode("utf-8", "surrogateescape")
        return None

    def run(
        self,
        path: str,
        argv: list[str],
        args: dict[str, Any],
        context: Context,
        options: ProcessOptions = _SHELL_OPTIONS,
    ) -> dict[str, Any]:
        """Run a program and return the result of a `shell` effect.

        Raises `NotStarted`; `Interrupted` after an interrupt (the group has been ended); `Left` if the keeper
        continues the action. An exception of a callback also ends the group.

        Args:
            path: path of the program; without a slash it is searched on PATH of this process.
            argv: name and arguments of the program.
            args: arguments of the effect, with `timeout_s` and `deadline_ms`.
            context: context of the effect.
            options: options for starting and ending the process.
        """
        kept = context.kept.take() if context.kept is not None else None
        if kept is not None:
            started_at, limited_by = kept.facts["begun"], kept.facts["limited_by"]
            limit = None if kept.facts["end"] is None else kept.facts["end"] - started_at
            child: _Child = _KeptChild(self, kept, context, options)
        else:
            started_at = clock.monotonic()
            limit, limited_by = context.limit(args, own="action")
            if limit is not None and limit <= 0:
                return failure(context, 124, timed_out=limited_by)
            times = (started_at, None if limit is None else started_at + limit, limited_by)
            try:
                if options.stdin is None:
                    child = _Child(self, path, argv, context, self._null, options, times)
                else:
                    # A file instead of a pipe, so that a program that does not read its input blocks nothing.
                    with files.TemporaryFile() as source:
                        source.write(options.stdin.encode("utf-8", "surrogateescape"))
                        source.seek(0)
                        child = _Child(self, path, argv, context, source.fileno(), options, times)
            except keeper.KeeperDied:
                # The process may be running, and its pid is unknown.
                from ..host import leftovers  # imported on demand, because this error is rare

                leftovers.end_effect(context.effect_id, (), ())
                return failure(context, 1, kind="unknown-outcome", message=_KEEPER_DIED)
        try:
            deadline = None if limit is None else started_at + limit
            timed_out = child.watch(deadline, limited_by, self._left_behind)
        except Left:
            child.close()
            raise
        except BaseException:
            child.abandon()
            raise
        if child.is_lost:
            return failure(context, 1, kind="unknown-outcome", message=_KEEPER_DIED)
        duration = clock.monotonic() - started_at if kept is None else kept.took()
        key = context.state or argv[-1]
        if duration < _SHORT_SECONDS and len(self._short_runs) < _MAX_COUNTED_ACTIONS:
            self._short_runs[key] = self._short_runs.get(key, 0) + 1
        else:
            self._short_runs.pop(key, None)
        exit_code = processes.waitstatus_to_exitcode(child.status or 0)
        result: dict[str, Any] = {
            "output": child.output.finish(),
            "stderr": child.stderr.finish(),
            "exit_code": exit_code if exit_code >= 0 else 128 - exit_code,
            "duration_ms": round(duration * 1000),
            "elapsed_ms": context.elapsed_ms(),
        }
        if exit_code < 0:
            result["signal"] = signals.name_of(-exit_code)
        if timed_out in ("idle", "stopped"):
            result["ended"] = timed_out
        elif timed_out is not None and limit is not None:
            result["timed_out"] = timed_out
            result["limit_ms"] = round(limit * 1000)
        truncated = {
            capture.stream: capture.total for capture in (child.output, child.stderr) if capture.is_truncated
        }
        if truncated:
            result["truncated"] = truncated
        return result

    def is_short(self, context: Context, argv: Sequence[str]) -> bool:
        """Whether an action has been short often enough to run without the keeper."""
        return self._short_runs.get(context.state or argv[-1], 0) >= _SHORT_COUNT

    def environment(self, context: Context, additional: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """The environment variables of an action."""
        env = {**self.env, **additional} if additional else self.env
        for name, value in context.variables.items():
            if value is None:
                env.pop(name.encode(), None)  # the value of an outer run must not be inherited
            else:
                env[name.encode()] = value.encode("utf-8", "replace")
        return env

    def drain(self, descriptor: int) -> bool:
        """Discard the output of a background child; return whether its pipe is still open."""
        try:
            if files.read(descriptor, _CHUNK_BYTES):
                return True
        except BlockingIOError:
            return True
        self._left_behind.remove(descriptor)
        files.close(descriptor)
        return False

    def keep_open(self, descriptor: int) -> None:
        """Keep the pipe of a background child open, to be drained during later steps."""
        pipes.set_blocking(descriptor, False)
        self._left_behind.append(descriptor)
        if len(self._left_behind) > MAX_LEFT_BEHIND:
            files.close(self._left_behind.pop(0))


class _Child:
    """A running process group and its two pipes. is_lost: its outcome is unknown."""

    # The action in the keeper, which reports its end; None for a child of this process.
    _kept: keeper.Action | keeper.Kept | None = None
    status: int | None = None
    is_lost = False
    _exit = -1

    def __init__(
        self,
        runner: Runner,
        path: str,
        argv: list[str],
        context: Context,
        source: int,
        options: ProcessOptions,
        times: tuple[float, float | None, str],
    ) -> None:
        self._prepare(runner, context, options)
        ends: list[int] = []
        try:
            ends += pipes.pipe()
            ends += pipes.pipe()
            output, output_end, errors, errors_end = ends
            self._since = processes.tick_now()
            # Always UTF-8, the encoding of the loop, regardless of the locale.
            words = [word.encode("utf-8", "surrogateescape") for word in argv]
            env = runner.environment(context, options.env)
            if keeper.is_guarded(context.folder) and not runner.is_short(context, argv):
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
        except (OSError, ValueError, keeper.KeeperDied) as error:
            for descriptor in ends:
                files.close(descriptor)
            if isinstance(error, keeper.KeeperDied):
                raise
            raise NotStarted(argv[0], error) from error
        files.close(output_end)
        files.close(errors_end)
        self._streams = {output: self.output, errors: self.stderr}
        self._poller = pipes.poll()
        self._poller.register(output, pipes.POLLIN)
        self._poller.register(errors, pipes.POLLIN)

    def _prepare(self, runner: Runner, context: Context, options: ProcessOptions) -> None:
        self._runner = runner
        self._options = options
        self._context = context
        self.output = Capture("output", context)
        self.stderr = Capture("stderr", context)

    def watch(self, deadline: float | None, limited_by: str, left_behind: list[int]) -> str | None:
        """Read output until the process has ended.

        Return the cause of an early end (`limited_by`, "idle", "stopped"); None if it ended by itself.
        """
        context, poller = self._context, self._poller
        idle_s, must_stop = self._options.idle_s, self._options.must_stop
        self._last_output_at = clock.monotonic()
        if context.on_process is not None:
            context.on_process(self.pid, processes.new_start_time(self.pid, self._since))
        if self._kept is None:
            self._exit = _exit_descriptor(self.pid)
        if self._exit >= 0:
            poller.register(self._exit, pipes.POLLIN)
        interrupt, on_tick = context.interrupt, context.on_tick
        poller.register(interrupt, pipes.POLLIN)
        for descriptor in left_behind:
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
            self._runner.keep_open(descriptor)
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
            elif not self._runner.drain(descriptor):
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


class _KeptChild(_Child):
    """A process group that has survived the driver that started it."""

    _kept: keeper.Kept

    def __init__(self, runner: Runner, kept: keeper.Kept, context: Context, options: ProcessOptions) -> None:
        self._prepare(runner, context, options)
        self._kept = kept
        self.pid = kept.pid
        self._since = -1
        self._streams = {}
        self._exit = kept.fileno()
        self._poller = pipes.poll()
        if kept.status is not None:
            self._read_rest()
            self.status = kept.status

    def watch(self, deadline: float | None, limited_by: str, left_behind: list[int]) -> str | None:
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


_KEEPER_DIED = "the outcome of the action is unknown: the keeper process of llc was killed"


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


def failure(
    context: Context, exit_code: int, *, timed_out: str | None = None, kind: str = "", message: str = ""
) -> dict[str, Any]:
    """The result of an action that was not started."""
    result: dict[str, Any] = {
        "output": "",
        "stderr": message,
        "exit_code": exit_code,
        "duration_ms": 0,
        "elapsed_ms": context.elapsed_ms(),
    }
    if timed_out is not None:
        result["timed_out"] = timed_out
    if kind:
        result["error"] = {"kind": kind, "message": message}
    return result


def _working_folder(inherited: bytes | None) -> bytes:
    """The value of PWD, as a shell sets it: the inherited value if it still names the working directory."""
    try:
        if inherited is not None and os.path.isabs(inherited) and files.samefile(inherited, b"."):
            return inherited
        return environment.getcwdb()
    except OSError:
        return inherited or b"/"  # the folder is gone, which every command reports


def _is_program(path: bytes) -> bool:
    try:
        return files.access(path, files.X_OK) and stat.S_ISREG(files.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _exit_descriptor(pid: int) -> int:
    """A descriptor that becomes readable when the process ends; -1 if the system has no pidfd."""
    try:
        return processes.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


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
