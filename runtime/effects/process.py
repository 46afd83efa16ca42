"""Process runner: runs a program as a process group and returns the result of a `shell` effect.

Owns the environment, the search for programs and the results. Must not contain: shells, agents. A process has
its own session, an empty standard input and pipes for its output. This is the run's hot path: posix_spawn
(vfork for any heap size), no threads, no work per line.
"""

from __future__ import annotations

import errno
import os.path
import stat

from ...ir.python_internals import suppress
from ..host import clock, environment, files, keeper, pipes, processes, signals
from ..host.effect_context import Context, Left
from .process_group import Child, KeptChild, LeftBehind, ProcessOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


# An action that took less than `_SHORT_SECONDS` at least `_SHORT_COUNT` times runs without the keeper, which
# costs a tenth of a short step.
_SHORT_SECONDS = 0.01
_SHORT_COUNT = 3
# Maximum number of actions whose short runs are counted.
_MAX_COUNTED_ACTIONS = 1000
_KEEPER_DIED = "the outcome of the action is unknown: the keeper process of llc was killed"


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
        self._left_behind = LeftBehind()
        # Number of short runs, by state or program.
        self._short_runs: dict[str, int] = {}
        if signals.getsignal(signals.SIGCHLD) == signals.SIG_IGN:
            # Inherited from the parent process; the system would discard exit codes.
            with suppress(ValueError):  # only the main thread may change it
                signals.signal(signals.SIGCHLD, signals.SIG_DFL)

    def close(self) -> None:
        self._left_behind.close()
        files.close(self._null)
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
            child: Child = KeptChild(kept, context, options)
        else:
            started_at = clock.monotonic()
            limit, limited_by = context.limit(args, own="action")
            if limit is not None and limit <= 0:
                return failure(context, 124, timed_out=limited_by)
            times = (started_at, None if limit is None else started_at + limit, limited_by)
            try:
                if options.stdin is None:
                    child = self._start(path, argv, context, self._null, options, times)
                else:
                    # A file instead of a pipe, so that a program that does not read its input blocks nothing.
                    with files.TemporaryFile() as source:
                        source.write(options.stdin.encode("utf-8", "surrogateescape"))
                        source.seek(0)
                        child = self._start(path, argv, context, source.fileno(), options, times)
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
        return _result(context, child, duration, timed_out, limit)

    def _start(
        self,
        path: str,
        argv: list[str],
        context: Context,
        source: int,
        options: ProcessOptions,
        times: tuple[float, float | None, str],
    ) -> Child:
        """Start a program. Raises `NotStarted`, and `KeeperDied`."""
        is_kept = keeper.is_guarded(context.folder) and not self._is_short(context, argv)
        try:
            env = self._environment(context, options.env)
            return Child(path, argv, env, context, source, options, times, is_kept)
        except (OSError, ValueError) as error:
            raise NotStarted(argv[0], error) from error

    def _is_short(self, context: Context, argv: Sequence[str]) -> bool:
        """Whether an action has been short often enough to run without the keeper."""
        return self._short_runs.get(context.state or argv[-1], 0) >= _SHORT_COUNT

    def _environment(self, context: Context, additional: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """The environment variables of an action."""
        env = {**self.env, **additional} if additional else self.env
        for name, value in context.variables.items():
            if value is None:
                env.pop(name.encode(), None)  # the value of an outer run must not be inherited
            else:
                env[name.encode()] = value.encode("utf-8", "replace")
        return env


def _result(
    context: Context, child: Child, duration: float, timed_out: str | None, limit: float | None
) -> dict[str, Any]:
    """The result of a process that has ended. timed_out: cause of an early end. limit: in seconds."""
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
