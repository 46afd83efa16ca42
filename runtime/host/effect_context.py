"""The context in which an effect is performed, interruptible waits, and the protocol of worlds.

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
        """An effect as a world sees it: its kind, and its arguments as a map of plain data."""

        @property
        def kind(self) -> str: ...
        @property
        def args(self) -> dict[str, Any]: ...

    class WorldLike(Protocol):
        """A world as a driver sees it."""

        def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
            """The effect's result; raises `Interrupted`, `Exited`, or `NoRule` in a scripted world."""

        def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
            """Take note of an effect in `state` whose result is in the journal; it is not performed again."""

        def save(self) -> Any:
            """The state that a checkpoint has to keep, as plain data."""

        def restore(self, saved: Any) -> bool:
            """Restore what `save` returned; False, with nothing changed, if that is impossible."""

        def time(self) -> float:
            """Seconds since 1970, for time stamps."""

        def monotonic(self) -> float:
            """Seconds on a clock that never goes back, for durations and time-outs."""

        def close(self) -> None:
            """Close what the world keeps open: helper processes, connections."""
else:
    EffectLike = WorldLike = object


# How often a wait calls `Context.on_tick`, in seconds.
TICK = 0.1
# No single wait in poll() is longer, in seconds: its argument is a C int of milliseconds.
LONGEST_WAIT = 1_000_000.0


class Interrupted(Exception):
    """The wait for an effect was interrupted; the processes started for it have been terminated."""


class Left(Interrupted):
    """The wait was interrupted, and the action continues: its keeper has it, for the next process."""


class Overdue(BaseException):
    """The machine computes on although a stop was asked for: it is given up as it is, and runs no further.

    Raised in the middle of a primitive, so it is no `Exception`, which code there might take for its own.
    """


class Exited(Exception):
    """The program requested the end of the run, with this exit code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


class Stalled(Exception):
    """A loop repeats itself without change, and has no state for that: the run ends at this limit."""


def leave(args: dict[str, Any]) -> NoReturn:
    """Perform `exit`."""
    raise Exited(exit_code(args.get("code")))


def exit_code(code: Any) -> int:
    """The exit code that a program requested; 1 for a value that is no exit code."""
    return code if type(code) is int and 0 <= code <= 255 else 1


def pause(context: Context) -> dict[str, Any]:
    """Perform `pause`: it finishes at once, and the run stops before the next effect."""
    context.interrupt.set()
    return {"elapsed_ms": context.elapsed_ms()}


class Interrupt:
    """A request to stop that ends every wait at once; `set` may be called in a signal handler.

    The first request lets processes clean up (TERM), the second one kills them. With `is_polled` it has no
    handles: nothing can wait for it, and only `check` and `is_set` notice a request.

    is_hangup: the first request was the end of the terminal, so what can survive this process is left to its
    keeper. computing: an odd number while the machine computes, another one each time.
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
            # A full pipe holds earlier requests, so a waiting reader wakes up anyway.
            with suppress(BlockingIOError):
                files.write(self._write, b"!")

    @property
    def is_set(self) -> bool:
        return self.count > 0

    def fileno(self) -> int:
        """Readable from the first request on."""
        return self._read

    def check(self) -> None:
        """Raises `Interrupted` once a stop has been asked for."""
        if self.count:
            raise Interrupted

    def wait(self, seconds: float, on_tick: Callable[[], object] | None = None, wake: int = -1) -> None:
        """Return after `seconds` or when the descriptor `wake` is readable; raises `Interrupted`."""
        end = clock.monotonic() + seconds
        poller = pipes.poll()
        poller.register(self._read, pipes.POLLIN)
        if wake >= 0:
            poller.register(wake, pipes.POLLIN)
        while True:
            self.check()
            left = end - clock.monotonic()
            if left <= 0:
                return
            ready = poller.poll(milliseconds(min(left, TICK) if on_tick else left))
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
    """Seconds as poll() takes them: rounded up, so that a wait never ends early and spins."""
    return max(0, int(min(seconds, LONGEST_WAIT) * 1000) + 1)


class Context(LightRecord):
    """The context of one effect: its identity, limits and callbacks.

    effect_id: `<run>/<seq>`, the effect's idempotency key. loop, state, iteration: for the action's
    environment; None if the program has none. output_dir: a directory for full copies of large
    outputs, or None. elapsed_ms: gives the run's active time in milliseconds.
    on_output(stream, text): parts of "output" and "stderr" as they arrive. on_process(pid, start_time):
    a process was started; `start_time` distinguishes it from a later one with the same pid.
    on_tick(): called about every 0.1 s while waiting. folder: the run's, or None.
    on_prompt(text): prompts at the terminal; None without one. has_input: whether a person may be asked.
    on_agent(activity): what an agent does, a `journal.agent_activity.AgentActivity`. on_event(event): a
    journal event about the effect, written at once. cap_usd: the most that an agent may spend, or None.
    waited_s: for how many seconds a sleep or a question has waited before, while no process drove the run.
    quota_waited_s: the same for an effect that has waited for the quota of its account.
    kept: an action of the effect that has survived the process which had started it (`keeper.Kept`).
    interrupted: what an agent did before the run crashed or was stopped
    (`journal.agent_history.AgentHistory`), where its session is to be continued.
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

    @property
    def seq(self) -> int:
        """The number of the effect in its run."""
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
        """The seconds that an effect may take, and what sets that limit: `own` or "loop"."""
        timeout_s, deadline_ms = _bounded(args.get("timeout_s")), _bounded(args.get("deadline_ms"))
        if timeout_s is not None:
            timeout_s -= self.waited_s
        if deadline_ms is None:
            return timeout_s, own
        left = (deadline_ms - self.elapsed_ms()) / 1000
        if timeout_s is not None and timeout_s < left:
            return timeout_s, own
        return left, "loop"


# Any time beyond this is as good as none, and arithmetic with it could overflow.
_LONGEST = 10**12


def _bounded(number: float | None) -> float | None:
    return None if number is None else min(number, _LONGEST)


def sleep_time(args: dict[str, Any], context: Context) -> tuple[float, bool]:
    """The seconds that a `sleep` takes, and whether the deadline shortens it."""
    wanted = max(0.0, (_bounded(args["seconds"]) or 0) - context.waited_s)
    bound, _ = context.limit(args, own="loop")
    return (bound, True) if bound is not None and bound < wanted else (wanted, False)


def slept(context: Context, is_cut: bool) -> dict[str, Any]:
    """The result of a finished `sleep`."""
    result: dict[str, Any] = {"elapsed_ms": context.elapsed_ms()}
    if is_cut:
        result["timed_out"] = "loop"
    return result


def environment_text(name: str) -> str | None:
    """An environment variable as text; bytes that are not UTF-8 become replacement characters."""
    try:
        raw = environment.environb.get(name.encode())
    except UnicodeEncodeError:
        return None  # a lone surrogate: no variable has such a name
    return None if raw is None else raw.decode("utf-8", "replace")
