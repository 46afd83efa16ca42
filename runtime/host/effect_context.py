"""Effect context: identity, limits and callbacks of an effect; interruptible waits; the protocol of worlds.

Owns the protocols of worlds and effects, so that drivers and performers do not import each other.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord
from ...ir.python_internals import suppress
from . import clock, environment, files, pipes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    class EffectLike(Protocol):
        """Interface of an effect for a world: its kind, and its arguments as a map of plain data."""

        @property
        def kind(self) -> str: ...
        @property
        def args(self) -> dict[str, Any]: ...

    class WorldLike(Protocol):
        """Interface of a world for a driver."""

        def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
            """Perform an effect; return its result.

            Raises `Interrupted`, `Exited`, or `NoRule` (scripted world).
            """

        def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
            """Process an effect in `state` whose result is in the journal, without performing it again."""

        def save(self) -> Any:
            """Return the state for a checkpoint, as plain data."""

        def restore(self, saved: Any) -> bool:
            """Restore the state from `save`; return False, with nothing changed, if this is impossible."""

        def time(self) -> float:
            """Seconds since 1970, for timestamps."""

        def monotonic(self) -> float:
            """Seconds of a monotonic clock, for durations and timeouts."""

        def close(self) -> None:
            """Close helper processes and connections."""
else:
    EffectLike = WorldLike = object


# Interval, in seconds, at which a wait calls `Context.on_tick`.
TICK = 0.1
# Longest single wait in poll(), in seconds: its argument is a C int of milliseconds.
LONGEST_WAIT = 1_000_000.0


class Interrupted(Exception):
    """The wait for an effect was interrupted, and the processes of the effect have been terminated."""


class Left(Interrupted):
    """The wait was interrupted; the action continues under its keeper until a process takes it over."""


class Overdue(BaseException):
    """The machine has not reacted to a stop request in time; its computation is aborted.

    Raised within a primitive. A `BaseException`, because code there might catch an `Exception`.
    """


class Exited(Exception):
    """The program requested the end of the run with an exit code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


class Stalled(Exception):
    """A loop repeats itself without progress and has no state for this case; the run ends with a limit."""


def leave(args: dict[str, Any]) -> NoReturn:
    """Perform the effect `exit`."""
    raise Exited(exit_code(args.get("code")))


def exit_code(code: Any) -> int:
    """Return the exit code that a program requested; 1 for an invalid value."""
    return code if type(code) is int and 0 <= code <= 255 else 1


def pause(context: Context) -> dict[str, Any]:
    """Perform the effect `pause`: it finishes immediately, and the run stops before the next effect."""
    context.interrupt.set()
    return {"elapsed_ms": context.elapsed_ms()}


class Interrupt:
    """Stop request that ends every wait immediately. Signal handlers may call `set`.

    After the first request, processes can clean up (TERM); the second request kills them. With `is_polled`
    the object has no handles: nothing can wait for it; only `check` and `is_set` report a request.

    is_hangup: the first request was caused by the end of the terminal; actions that can survive this process
    are left to their keeper. computing: counter that is odd while the machine computes.
    """

    def __init__(self, is_polled: bool = False) -> None:
        self.count = 0
        self.computing = 0
        self.is_hangup = False
        self._read = self._write = -1
        if not is_polled:
            self._read, self._write = pipes.pipe()
            pipes.set_blocking(self._write, False)

    def set(self, is_hangup: bool = False) -> None:
        self.is_hangup = is_hangup if not self.count else self.is_hangup
        self.count += 1
        if self._write >= 0:
            # A full pipe contains earlier requests, so a waiting reader wakes up anyway.
            with suppress(BlockingIOError):
                files.write(self._write, b"!")

    @property
    def is_set(self) -> bool:
        return self.count > 0

    def fileno(self) -> int:
        """Return a handle that is readable from the first request on."""
        return self._read

    def check(self) -> None:
        """Raise `Interrupted` if a stop was requested."""
        if self.count:
            raise Interrupted

    def wait(self, seconds: float, on_tick: Callable[[], object] | None = None, wake: int = -1) -> None:
        """Wait for `seconds` or until the handle `wake` is readable. Raises `Interrupted`."""
        deadline = clock.monotonic() + seconds
        poller = pipes.poll()
        poller.register(self._read, pipes.POLLIN)
        if wake >= 0:
            poller.register(wake, pipes.POLLIN)
        while True:
            self.check()
            remaining = deadline - clock.monotonic()
            if remaining <= 0:
                return
            ready = poller.poll(milliseconds(min(remaining, TICK) if on_tick else remaining))
            self.check()
            if any(descriptor == wake for descriptor, _ in ready):
                return
            if on_tick:
                on_tick()

    def close(self) -> None:
        for descriptor in (self._read, self._write):
            if descriptor >= 0:
                files.close(descriptor)


def milliseconds(seconds: float) -> int:
    """Convert seconds for poll(), rounded up, so that a wait never ends early and spins."""
    return max(0, int(min(seconds, LONGEST_WAIT) * 1000) + 1)


class Context(LightRecord):
    """Context of one effect: its identity, limits and callbacks.

    Args:
        effect_id: `<run>/<seq>`, the idempotency key of the effect.
        loop, state, iteration: for the environment of the action; None if the program has none.
        elapsed_ms: returns the active time of the run in milliseconds.
        output_dir: folder for full copies of large outputs, or None.
        on_output: called with stream ("output" or "stderr") and text when output arrives.
        on_process: called with pid and start time when a process was started; the start time distinguishes
            the process from a later one with the same pid.
        on_tick: called about every 0.1 s during a wait.
        folder: folder of the run, or None.
        on_prompt: called with the text of a prompt at the terminal; None without a terminal.
        has_input: whether a person can answer.
        on_agent: called with each activity of an agent (`journal.agent_activity.AgentActivity`).
        on_event: called with a journal event about the effect, which is written immediately.
        cap_usd: maximum cost of an agent, or None.
        interrupted: activity of an agent before the run crashed or was stopped
            (`journal.agent_history.AgentHistory`), if its session is to be continued.
        waited_s: seconds that a sleep or a question has already waited while no process drove the run.
        quota_waited_s: same for a wait for the quota of an account.
        kept: action of the effect that has survived the process that started it (`keeper.Kept`).
    """

    run_id: str
    effect_id: str
    loop: str | None
    state: str | None
    iteration: int | None
    elapsed_ms: Callable[[], int]
    interrupt: Interrupt
    output_dir: str | None = None
    on_output: Callable[[str, str], object] | None = None
    on_process: Callable[[int, str], object] | None = None
    on_tick: Callable[[], object] | None = None
    folder: str | None = None
    on_prompt: Callable[[str], object] | None = None
    has_input: bool = True
    on_agent: Callable[[Any], object] | None = None
    on_event: Callable[[Any], object] | None = None
    cap_usd: float | None = None
    interrupted: Any = None
    waited_s: float = 0.0
    quota_waited_s: float = 0.0
    kept: Any = None

    @classmethod
    def outside_run(
        cls, name: str, seq: int, interrupt: Interrupt, elapsed_ms: Callable[[], int] = lambda: 0
    ) -> Context:
        """The context of an effect that is not part of a run. name: replaces the run's id."""
        return cls(name, f"{name}/{seq}", None, None, None, elapsed_ms, interrupt)

    @property
    def seq(self) -> int:
        """Number of the effect in its run."""
        number = self.effect_id.rpartition("/")[2]
        return int(number) if number.isdecimal() else 0

    @property
    def variables(self) -> dict[str, str | None]:
        """Environment variables of an action; None for a variable that must be unset."""
        iteration = None if self.iteration is None else str(self.iteration)
        return {
            "LLC_EFFECT_ID": self.effect_id,
            "LLC_RUN_ID": self.run_id,
            "LLC_LOOP": self.loop,
            "LLC_STATE": self.state,
            "LLC_ITERATION": iteration,
        }

    def limit(self, args: dict[str, Any], *, own: str) -> tuple[float | None, str]:
        """Return the time limit of an effect in seconds, and the source of the limit: `own` or "loop"."""
        timeout_s, deadline_ms = args.get("timeout_s"), args.get("deadline_ms")
        if timeout_s is None and deadline_ms is None:
            return None, own
        timeout_s, deadline_ms = _bounded(timeout_s), _bounded(deadline_ms)
        if timeout_s is not None:
            timeout_s -= self.waited_s
        if deadline_ms is None:
            return timeout_s, own
        remaining_s = (deadline_ms - self.elapsed_ms()) / 1000
        if timeout_s is not None and timeout_s < remaining_s:
            return timeout_s, own
        return remaining_s, "loop"


# Upper bound of times; larger values have no additional effect and could overflow in arithmetic.
_MAX_TIME = 10**12


def _bounded(number: float | None) -> float | None:
    return None if number is None else min(number, _MAX_TIME)


def sleep_time(args: dict[str, Any], context: Context) -> tuple[float, bool]:
    """Return the duration of a `sleep` in seconds, and whether the deadline shortens it."""
    wanted = max(0.0, (_bounded(args["seconds"]) or 0) - context.waited_s)
    bound, _ = context.limit(args, own="loop")
    return (bound, True) if bound is not None and bound < wanted else (wanted, False)


def slept(context: Context, is_cut: bool) -> dict[str, Any]:
    """Return the result of a finished `sleep`."""
    result: dict[str, Any] = {"elapsed_ms": context.elapsed_ms()}
    if is_cut:
        result["timed_out"] = "loop"
    return result


def environment_text(name: str) -> str | None:
    """Return an environment variable as text; bytes that are not UTF-8 become replacement characters."""
    try:
        raw = environment.environb.get(name.encode())
    except UnicodeEncodeError:
        return None  # a lone surrogate, which no variable name contains
    return None if raw is None else raw.decode("utf-8", "replace")
