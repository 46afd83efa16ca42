"""The context in which an effect is performed, how a wait is interrupted, and what a driver needs of a world.

Owns the protocols of worlds and effects, so that those who perform effects and those who ask for
them need not know each other.
"""

from __future__ import annotations

import contextlib

from . import clock, environment, files, pipes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    class EffectLike(Protocol):
        """What a world reads of an effect: its kind and its arguments, a map of plain data."""

        @property
        def kind(self) -> str: ...
        @property
        def args(self) -> dict[str, Any]: ...

    class WorldLike(Protocol):
        """What a driver needs of a world."""

        def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
            """The effect's result; raises `Interrupted`, `Exited`, or `NoRule` in a scripted world."""

        def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
            """Take note of an effect in `state` whose result is on record: it is not performed again."""

        def save(self) -> Any:
            """What a checkpoint has to keep of it, as plain data."""

        def restore(self, saved: Any) -> bool:
            """Go on from what `save` gave; False, and nothing is changed, where that cannot be done."""

        def time(self) -> float:
            """Seconds since 1970, for time stamps."""

        def monotonic(self) -> float:
            """Seconds on a clock that never goes back, for durations and time-outs."""

        def close(self) -> None:
            """End what the world keeps: helper processes, connections."""


# How often a wait calls `Context.on_tick`, in seconds.
TICK = 0.1
# No single wait in poll() is longer, in seconds: its argument is a C int of milliseconds.
LONGEST_WAIT = 1_000_000.0


class Interrupted(Exception):
    """The wait for an effect was cut short; what was started for it has been ended."""


class Exited(Exception):
    """The program asked to end the run, with this exit code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


def leave(args: dict[str, Any]) -> NoReturn:
    """Perform `exit`."""
    raise Exited(exit_code(args.get("code")))


def exit_code(code: Any) -> int:
    """The code that a program asks for; one that no process can end with is 1."""
    return code if type(code) is int and 0 <= code <= 255 else 1


def pause(context: Context) -> dict[str, Any]:
    """Perform `pause`: it is over at once, and the run stops before anything else is performed."""
    context.interrupt.set()
    return {"elapsed_ms": context.elapsed_ms()}


class Interrupt:
    """A request to stop that ends every wait at once; `set` may be called in a signal handler.

    The first request asks (processes get TERM and time to clean up), the second one insists. One that
    `is_looked_at` is noticed only by who looks: nothing can wait for it, and it takes no descriptors.
    """

    __slots__ = ("_read", "_write", "count")

    def __init__(self, is_looked_at: bool = False) -> None:
        self.count = 0
        self._read = self._write = -1
        if not is_looked_at:
            self._read, self._write = pipes.pipe()
            pipes.set_blocking(self._write, False)

    def set(self) -> None:
        self.count += 1
        if self._write >= 0:
            # A full pipe is full of earlier requests: whoever waits wakes up all the same.
            with contextlib.suppress(BlockingIOError):
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


class Context:
    """Where an effect is performed, and who is told meanwhile.

    effect_id: `<run>/<seq>`, the effect's idempotency key. loop, state, iteration: for the action's
    environment; None where the program has none. output_dir: a directory for full copies of large
    outputs, or None. elapsed_ms: gives the run's active time in milliseconds.
    on_output(stream, text): parts of "output" and "stderr" as they come. on_process(pid, start_time):
    a process was started, `start_time` tells it from a later one with the same pid.
    on_tick(): called about every 0.1 s while waiting. folder: the run's, None where it has none.
    on_prompt(text): asks the person at the terminal for a line; None where there is nobody.
    """

    __slots__ = (
        "effect_id",
        "elapsed_ms",
        "folder",
        "interrupt",
        "iteration",
        "loop",
        "on_output",
        "on_process",
        "on_prompt",
        "on_tick",
        "output_dir",
        "run_id",
        "state",
    )

    def __init__(
        self,
        *,
        run_id: str,
        effect_id: str,
        loop: str | None,
        state: str | None,
        iteration: int | None,
        elapsed_ms: Callable[[], int],
        interrupt: Interrupt,
        output_dir: str | None = None,
        on_output: Callable[[str, str], object] | None = None,
        on_process: Callable[[int, str], object] | None = None,
        on_tick: Callable[[], object] | None = None,
        folder: str | None = None,
        on_prompt: Callable[[str], object] | None = None,
    ) -> None:
        self.run_id = run_id
        self.effect_id = effect_id
        self.loop = loop
        self.state = state
        self.iteration = iteration
        self.elapsed_ms = elapsed_ms
        self.interrupt = interrupt
        self.output_dir = output_dir
        self.on_output = on_output
        self.on_process = on_process
        self.on_tick = on_tick
        self.folder = folder
        self.on_prompt = on_prompt

    def limit(self, args: dict[str, Any], *, own: str) -> tuple[float | None, str]:
        """How many seconds an effect may take, and what sets that bound: `own` or "loop"."""
        timeout_s, deadline_ms = args.get("timeout_s"), args.get("deadline_ms")
        if deadline_ms is None:
            return timeout_s, own
        left = (deadline_ms - self.elapsed_ms()) / 1000
        if timeout_s is not None and timeout_s < left:
            return timeout_s, own
        return left, "loop"


def sleep_time(args: dict[str, Any], context: Context) -> tuple[float, bool]:
    """How many seconds a `sleep` takes, and whether the deadline cuts it short."""
    wanted = max(0.0, args["seconds"])
    bound, _ = context.limit(args, own="loop")
    return (bound, True) if bound is not None and bound < wanted else (wanted, False)


def slept(context: Context, is_cut: bool) -> dict[str, Any]:
    """The result of a `sleep` that is over."""
    result: dict[str, Any] = {"elapsed_ms": context.elapsed_ms()}
    if is_cut:
        result["timed_out"] = "loop"
    return result


def environment_text(name: str) -> str | None:
    """An environment variable as text; what is not UTF-8 in it becomes replacement characters."""
    try:
        raw = environment.environb.get(name.encode())
    except UnicodeEncodeError:
        return None  # a lone surrogate: no variable can be called that
    return None if raw is None else raw.decode("utf-8", "replace")
