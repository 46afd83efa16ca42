"""The real world: what a run asks for is done here, and nowhere else.

Owns the world protocol, the context an effect is performed in and how a wait is interrupted. One
module performs each kind of effect; those that need much are imported when they are first used.
`script.ScriptedWorld` follows the same protocol and performs nothing. See `spec/effects.md`.
"""

from __future__ import annotations

import contextlib
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    from ..models.conversation import Turns
    from ..models.judge import Judge
    from ..models.worker_pool import SharedWorkers
    from .jq import JqWorker
    from .mcp import Servers
    from .shell import Shell
    from .task import Tasks
    from .tool import Tools

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
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)

    def set(self) -> None:
        self.count += 1
        if self._write >= 0:
            # A full pipe is full of earlier requests: whoever waits wakes up all the same.
            with contextlib.suppress(BlockingIOError):
                os.write(self._write, b"!")

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
        end = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        if wake >= 0:
            poller.register(wake, select.POLLIN)
        while True:
            self.check()
            left = end - time.monotonic()
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
                os.close(descriptor)


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


class World:
    """Performs effects for real; one per run. The environment is read once.

    kinds: the effects the program may ask for, where that is known; what takes long to start and
    will be needed is then started early. turns, servers: what tasks said, and MCP servers, of the world
    that this one is beside. shared: the helpers that ask models for many runs, where there are many.
    """

    __slots__ = (
        "_is_beside",
        "_jq",
        "_kinds",
        "_model",
        "_servers",
        "_shared",
        "_shell",
        "_tasks",
        "_tools",
        "_turns",
    )

    def __init__(
        self,
        kinds: frozenset[str] = frozenset(),
        turns: Turns | None = None,
        servers: dict[str, Servers] | None = None,
        shared: SharedWorkers | None = None,
    ) -> None:
        self._kinds = kinds
        self._shared = shared
        self._is_beside = servers is not None
        # By one name, as a map that several threads may put something in.
        self._servers: dict[str, Servers] = {} if servers is None else servers
        self._turns = turns
        self._tasks: Tasks | None = None
        self._shell: Shell | None = None
        self._jq: JqWorker | None = None
        self._model: Judge | None = None
        self._tools: Tools | None = None

    def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
        context.interrupt.check()
        handler = _HANDLERS.get(effect.kind)
        if handler is None:
            raise ValueError(f"no effect of kind `{effect.kind}`")
        return handler(self, effect.args, context)

    def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
        """The real world remembers by itself, but for what tasks said."""
        if effect.kind == "task":
            self.turns.observe(effect.args, result)

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def beside(self) -> World:
        """Another world like this one, to perform something at the same time."""
        turns = self.turns if not self._kinds or "task" in self._kinds else None
        return World(self._kinds, turns, self._servers, self._shared)

    def take_over(self, used: World) -> None:
        """Go on with what another one has started, which is of no run any more, or of another."""
        used.part()
        for name in ("_shell", "_jq", "_model"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(used, name))
                setattr(used, name, None)
        used.close()

    def part(self) -> None:
        """End what belongs to the run; what serves any run stays."""
        for kept in (self._tasks, self._tools):
            if kept is not None:
                kept.close()
        self._tools = self._tasks = None

    def save(self) -> Any:
        """What a checkpoint has to keep of it: what tasks said, null where there were none."""
        return None if self._turns is None else self._turns.save()

    def restore(self, saved: Any) -> bool:
        """Go on from what `save` gave; whether that can be done."""
        return saved is None or self.turns.restore(saved)

    def close(self) -> None:
        self.part()
        for kept in (self._shell, self._jq, self._model):
            if kept is not None:
                kept.close()
        self._shell = self._jq = self._model = None
        while self._servers and not self._is_beside:
            self._servers.popitem()[1].close()

    @property
    def shell(self) -> Shell:
        if self._shell is None:
            from .shell import Shell

            self._shell = Shell()
        return self._shell

    @property
    def jq(self) -> JqWorker:
        if self._jq is None:
            from .jq import JqWorker

            self._jq = JqWorker()
        return self._jq

    @property
    def model(self) -> Judge:
        if self._model is None:
            from ..models.judge import Judge

            self._model = Judge(self._shared)
        return self._model

    @property
    def tools(self) -> Tools:
        if self._tools is None:
            from .tool import Tools

            self._tools = Tools(self.shell, self.servers)
        return self._tools

    def servers(self) -> Servers:
        """The MCP servers of the run: there is one of each, whoever asks for it."""
        from .mcp import Servers

        return self._servers.setdefault("mcp", Servers())

    @property
    def turns(self) -> Turns:
        if self._turns is None:
            from ..models.conversation import Turns

            self._turns = Turns()
        return self._turns

    @property
    def tasks(self) -> Tasks:
        if self._tasks is None:
            from .task import Tasks

            self._tasks = Tasks(self.shell, self.turns, self._perform_context, self._shared)
        return self._tasks

    def _perform_shell(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return self.shell.perform(args, context)

    def _perform_tool(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return self.tools.perform(args, context)

    def _perform_task(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return self.tasks.perform(args, context)

    def _perform_context(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        from ..memory import recall

        return recall.perform(args, context, lambda asked, asking: self.model.perform(asked, asking))

    def _perform_agent(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        from . import agent

        if "evaluate" in self._kinds and self._model is None:
            self.model.start()
        return agent.perform(args, context, self.shell.runner)

    def _perform_ask(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        from . import ask

        return ask.perform(args, context)

    def _perform_evaluate(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return self.model.perform(args, context)

    def _perform_jq(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return self.jq.perform(args, context)

    def _perform_sleep(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        seconds, is_cut = sleep_time(args, context)
        context.interrupt.wait(seconds, context.on_tick)
        return slept(context, is_cut)

    def _perform_clock(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"time": timestamp(self.time()), "elapsed_ms": context.elapsed_ms()}

    def _perform_env(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"values": {name: environment_text(name) for name in args["names"]}}

    def _perform_pause(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        return pause(context)

    def _perform_exit(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        leave(args)


_HANDLERS = {
    "shell": World._perform_shell,
    "tool": World._perform_tool,
    "task": World._perform_task,
    "agent": World._perform_agent,
    "ask": World._perform_ask,
    "evaluate": World._perform_evaluate,
    "context": World._perform_context,
    "jq": World._perform_jq,
    "sleep": World._perform_sleep,
    "clock": World._perform_clock,
    "env": World._perform_env,
    "pause": World._perform_pause,
    "exit": World._perform_exit,
}


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
        raw = os.environb.get(name.encode())
    except UnicodeEncodeError:
        return None  # a lone surrogate: no variable can be called that
    return None if raw is None else raw.decode("utf-8", "replace")


# The second that a time stamp was last made for, and what its stamps begin with.
_second = -1, ""


def timestamp(seconds: float) -> str:
    """A time since 1970 as ISO 8601 in UTC with milliseconds: `2024-01-15T10:30:00.000Z`."""
    global _second
    whole, milli = divmod(int(seconds * 1000), 1000)
    second, text = _second
    if second != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second = whole, text
    return f"{text}.{milli:03d}Z"
