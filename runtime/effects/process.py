"""One process group at a time: started, read, bounded in time, ended.

Owns spawning, output capture and signals; knows nothing of shells or agents. A process gets its own
session, an empty standard input and pipes for its output. The run's hot path is here: posix_spawn
(vfork whatever the heap), one poll() over pipes, exit and interrupt, no threads, no per-line work.
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
# Seconds a background child that holds the pipe may still write to it after the step's own process
# has ended; the end of `cmd > >(tee log)` comes that late.
LINGER = 0.1
# How often the exit is asked for where the system has no pidfd, and whether a group is empty.
POLL_EXIT = 0.01
_CHUNK = 1 << 16
# An action that took less than `_SHORT` seconds `_TIMES` times is not given to the keeper of actions, which
# costs a tenth of a short step. `_MANY`: the number of actions whose times are remembered.
_SHORT = 0.01
_TIMES = 3
_MANY = 1000
# How often the files of an action are looked at that has survived its driver, in seconds.
_LOOK = 0.02
# Pipes of background children that outlive their step, kept open and drained so that they do not
# die of SIGPIPE; the oldest are closed beyond this many.
MAX_LEFT_BEHIND = 64


class NotStarted(Exception):
    """The system refused to start a program: why is the exception's text; `errno` 0 if it was not asked."""

    def __init__(self, program: str, error: OSError | ValueError) -> None:
        self.errno = 0
        if isinstance(error, OSError):
            self.errno = error.errno or 0
            reason = error.strerror or type(error).__name__
            if self.errno == errno.E2BIG:
                reason += "; the command or the environment is longer than the system takes"
        elif isinstance(error, UnicodeError):
            reason = "the command has a character that UTF-8 cannot say"
        else:
            reason = "the command has a NUL character"
        super().__init__(f"`{program}` could not be started: {reason}")

    def result(self, context: Context) -> dict[str, Any]:
        kind = "not-executable" if self.errno == errno.EACCES else "failed-to-start"
        return failure(context, 126, kind=kind, message=str(self))


class ProcessOptions:
    """How a process is started and ended where that differs from a shell action.

    given: the text of its standard input, None: empty. env: more environment variables. stop_signals: sent to
    the group before KILL, `grace` seconds apart. idle_s: seconds without output after which it is ended.
    must_stop(): whether to end it now, asked after each output.
    """

    def __init__(
        self,
        given: str | None = None,
        env: Mapping[bytes, bytes] | None = None,
        stop_signals: Sequence[int] = (signals.SIGTERM,),
        grace: float = GRACE,
        idle_s: float | None = None,
        must_stop: Callable[[], bool] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.about = about or {}
        self.given = given
        self.env = env or {}
        self.stop_signals = stop_signals
        self.grace = grace
        self.idle_s = idle_s
        self.must_stop = must_stop


_SHELL_OPTIONS = ProcessOptions()


class Runner:
    """Starts processes for one run, with the environment as it was when the runner was made."""

    def __init__(self) -> None:
        self.env = dict(environment.environb)
        self.env[b"PWD"] = _working_folder(self.env.get(b"PWD"))
        path = self.env.get(b"PATH") or environment.defpath.encode()
        self._path = [os.path.join(directory or b".", b"") for directory in path.split(b":")]
        self._null = files.open_handle(files.devnull, files.O_RDWR)
        # Where llc itself was started with closed standard descriptors, pipes must not take their
        # places: they are overwritten in the child.
        while self._null <= 2:
            self._null = pipes.dup(self._null)
        self._left_behind: list[int] = []
        # How often an action was short, by state or program.
        self._short: dict[str, int] = {}
        if signals.getsignal(signals.SIGCHLD) == signals.SIG_IGN:
            # Inherited from a careless parent; with it the system throws exit codes away.
            with suppress(ValueError):  # only the main thread may change it
                signals.signal(signals.SIGCHLD, signals.SIG_DFL)

    def close(self) -> None:
        for descriptor in (self._null, *self._left_behind):
            files.close(descriptor)
        self._left_behind.clear()
        self._null = -1

    def find(self, program: str) -> str | None:
        """The file that `program` names: itself if it has a slash, else the first on PATH."""
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
        """Run the program at `path` to its end; the result of a `shell` effect.

        A path without a slash is looked for on PATH as this process has it. `args` give `timeout_s` and
        `deadline_ms`. Raises `NotStarted`, and `Interrupted` when the wait was cut short (the group has
        been ended then; with `Left` its keeper has it); what a callback raises ends the group, too.
        """
        kept = context.kept.take() if context.kept is not None else None
        if kept is not None:
            started, limited_by = kept.facts["begun"], kept.facts["limited_by"]
            limit = None if kept.facts["end"] is None else kept.facts["end"] - started
            child: _Child = _KeptChild(self, kept, context, options)
        else:
            started = clock.monotonic()
            limit, limited_by = context.limit(args, own="action")
            if limit is not None and limit <= 0:
                return failure(context, 124, timed_out=limited_by)
            times = (started, None if limit is None else started + limit, limited_by)
            try:
                if options.given is None:
                    child = _Child(self, path, argv, context, self._null, options, times)
                else:
                    # A file, not a pipe: a program that does not read its input is not waited for.
                    with files.TemporaryFile() as source:
                        source.write(options.given.encode("utf-8", "surrogateescape"))
                        source.seek(0)
                        child = _Child(self, path, argv, context, source.fileno(), options, times)
            except keeper.KeeperDied:
                # It may run, and its pid is not known.
                from ..host import leftovers  # no run without such a death needs it

                leftovers.end_effect(context.effect_id, (), ())
                return failure(context, 1, kind="unknown-outcome", message=_LOST)
        try:
            end = None if limit is None else started + limit
            timed_out = child.watch(end, limited_by, self._left_behind)
        except Left:
            child.close()
            raise
        except BaseException:
            child.abandon()
            raise
        if child.is_lost:
            return failure(context, 1, kind="unknown-outcome", message=_LOST)
        took = clock.monotonic() - started if kept is None else kept.took()
        key = context.state or argv[-1]
        if took < _SHORT and len(self._short) < _MANY:
            self._short[key] = self._short.get(key, 0) + 1
        else:
            self._short.pop(key, None)
        exit_code = processes.waitstatus_to_exitcode(child.status or 0)
        result: dict[str, Any] = {
            "output": child.output.finish(),
            "stderr": child.stderr.finish(),
            "exit_code": exit_code if exit_code >= 0 else 128 - exit_code,
            "duration_ms": round(took * 1000),
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
        """Whether an action has been short as often as it takes."""
        return self._short.get(context.state or argv[-1], 0) >= _TIMES

    def environment(self, context: Context, more: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """The environment variables of an action."""
        env = {**self.env, **more} if more else self.env
        for name, value in context.variables.items():
            if value is None:
                env.pop(name.encode(), None)  # an outer run's value must not show through
            else:
                env[name.encode()] = value.encode("utf-8", "replace")
        return env

    def drain(self, descriptor: int) -> bool:
        """Drop what a background child wrote; whether its pipe is still open."""
        try:
            if files.read(descriptor, _CHUNK):
                return True
        except BlockingIOError:
            return True
        self._left_behind.remove(descriptor)
        files.close(descriptor)
        return False

    def keep(self, descriptor: int) -> None:
        """Hold the pipe of a background child open, to be drained during later steps."""
        pipes.set_blocking(descriptor, False)
        self._left_behind.append(descriptor)
        if len(self._left_behind) > MAX_LEFT_BEHIND:
            files.close(self._left_behind.pop(0))


class _Child:
    """A running process group and its two pipes.

    is_lost: its outcome is unknown.
    """

    # An action of the keeper's, which tells how it ends; None for a child of this process.
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
            # In UTF-8 whatever the locale says: that is what the loop's text is.
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

    def watch(self, end: float | None, limited_by: str, left_behind: list[int]) -> str | None:
        """Read until the process has ended; what ended it early (`limited_by`, "idle", "stopped") or None."""
        context, poller = self._context, self._poller
        idle_s, must_stop = self._options.idle_s, self._options.must_stop
        self._heard = clock.monotonic()
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
        longest = self._longest_wait(on_tick is not None)
        next_tick = clock.monotonic() + TICK
        stopped_by: str | None = None
        while self.status is None:
            now = clock.monotonic()
            if interrupt.count:
                if interrupt.is_hangup and self._kept is not None and self._kept.is_whole:
                    raise Left
                stopped_by = "interrupt"
            elif end is not None and now >= end:
                stopped_by = limited_by
            elif must_stop is not None and must_stop():
                stopped_by = "stopped"
            elif idle_s is not None and now >= self._heard + idle_s:
                stopped_by = "idle"
            if stopped_by is not None:
                self._end_group(interrupt)
                break
            if on_tick is not None and now >= next_tick:
                on_tick()
                next_tick = now + TICK
            wait = longest
            if end is not None and (wait is None or end - now < wait):
                wait = end - now
            if idle_s is not None and (wait is None or self._heard + idle_s - now < wait):
                wait = self._heard + idle_s - now
            self._turn(wait)
        self._read_rest()
        for descriptor in self._streams:
            self._runner.keep(descriptor)
        self._streams.clear()
        self.close()
        if stopped_by == "interrupt":
            raise Interrupted
        return stopped_by

    def abandon(self) -> None:
        """End everything at once: the caller cannot go on."""
        if self.status is None:
            _signal_group(self.pid, signals.SIGKILL)
            if self._kept is None:
                _, self.status = processes.waitpid(self.pid, 0)
        self.close()
        keeper.release(self._context.effect_id)

    def _longest_wait(self, ticks: bool) -> float | None:
        """For how many seconds to wait for an event at most."""
        return POLL_EXIT if self._exit < 0 else TICK if ticks else None

    def _read(self, descriptor: int, stream: str) -> bytes:
        if self._kept is None:
            return files.read(descriptor, _CHUNK)
        assert isinstance(self._kept, keeper.Action)
        return self._kept.read(descriptor, stream, _CHUNK)

    def _turn(self, wait: float | None) -> bool:
        """Wait for one round of events and take them; whether there were any."""
        events = self._poller.poll(None if wait is None else milliseconds(wait))
        for descriptor, _ in events:
            capture = self._streams.get(descriptor)
            if capture is not None:
                data = self._read(descriptor, capture.stream)
                if data:
                    if self._options.idle_s is not None:
                        self._heard = clock.monotonic()
                    capture.feed(data)
                else:
                    del self._streams[descriptor]
                    self._poller.unregister(descriptor)
                    files.close(descriptor)
            elif descriptor == self._exit:
                self._reap()
            elif descriptor == self._context.interrupt.fileno():
                self._poller.unregister(descriptor)  # its count is looked at, and it stays readable
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
        """Send the stop signals, with time to clean up, then KILL; a further request cuts that short."""
        # Nothing was reaped so far, so the group is ours; afterwards a group that has members keeps
        # its number from being used again.
        requests = interrupt.count
        for number in self._options.stop_signals:
            end = clock.monotonic() + self._options.grace
            _signal_group(self.pid, number)
            while self.status is None or _group_exists(self.pid):
                if clock.monotonic() >= end or interrupt.count > requests:
                    break
                self._turn(POLL_EXIT)
            else:
                return
            if interrupt.count > requests:
                break
        _signal_group(self.pid, signals.SIGKILL)
        while self.status is None:
            self._turn(POLL_EXIT)

    def _read_rest(self) -> None:
        """Take what is in the pipes; a background child that holds them gets LINGER, not more."""
        end = clock.monotonic() + LINGER
        while self._streams:
            left = end - clock.monotonic()
            self._turn(max(left, 0))
            if left <= 0:
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
    """A process group that has survived the driver that had started it."""

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
            self._take_rest()
            self.status = kept.status

    def watch(self, end: float | None, limited_by: str, left_behind: list[int]) -> str | None:
        if self.status is not None:
            self.close()
            return self._kept.facts.get("timed_out")
        return super().watch(end, limited_by, left_behind) or self._kept.facts.get("timed_out")

    def _longest_wait(self, ticks: bool) -> float | None:
        return _LOOK

    def _turn(self, wait: float | None) -> bool:
        found = self._take()
        return super()._turn(0 if found else wait) or found

    def _read_rest(self) -> None:
        self._take_rest()

    def _take(self) -> bool:
        """Take what has been written since the last time; whether there was anything."""
        found = False
        for capture in (self.output, self.stderr):
            data = self._kept.read(capture.stream, _CHUNK)
            if data:
                found = True
                self._heard = clock.monotonic()
                capture.feed(data)
        return found

    def _take_rest(self) -> None:
        while self._take():
            pass


_LOST = "what became of it is not known: the process was killed that keeps the actions of llc"


def end_process_group(pid: int) -> int:
    """End a child and its group: TERM, time to clean up, KILL; the status it ended with."""
    end = clock.monotonic() + GRACE
    _signal_group(pid, signals.SIGTERM)
    _signal_group(pid, signals.SIGCONT)
    while clock.monotonic() < end:
        found, status = processes.waitpid(pid, processes.WNOHANG)
        if found:
            _signal_group(pid, signals.SIGKILL)
            return status
        clock.sleep(POLL_EXIT)
    _signal_group(pid, signals.SIGKILL)
    return processes.waitpid(pid, 0)[1]


def failure(
    context: Context, exit_code: int, *, timed_out: str | None = None, kind: str = "", message: str = ""
) -> dict[str, Any]:
    """The result of an action that was never started."""
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


def _working_folder(named: bytes | None) -> bytes:
    """PWD as a shell would have it: as it was named if that still leads here."""
    try:
        if named is not None and os.path.isabs(named) and files.samefile(named, b"."):
            return named
        return environment.getcwdb()
    except OSError:
        return named or b"/"  # the folder is gone; every command will say so


def _is_program(path: bytes) -> bool:
    try:
        return files.access(path, files.X_OK) and stat.S_ISREG(files.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _exit_descriptor(pid: int) -> int:
    """A descriptor that becomes readable when the process ends, -1 where the system has none."""
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
    # If process 1 reaps no children, as in many containers, a group of zombies remains.
    return processes.has_living(group)
