"""The real world: what a run asks for is done here, and nowhere else.

One module performs each kind of effect; those that need much are imported when they are first used.
`script.ScriptedWorld` follows the same protocol and performs nothing. See `spec/effects.md`.
"""

from __future__ import annotations

from ..host import clock
from ..host.context import environment_text, leave, pause, sleep_time, slept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..host.context import Context, EffectLike
    from ..models.conversation import Turns
    from ..models.judge import Judge
    from ..models.worker_pool import SharedWorkers
    from .jq import JqWorker
    from .mcp import Servers
    from .shell import Shell
    from .task import Tasks
    from .tool import Tools


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
        return clock.time()

    def monotonic(self) -> float:
        return clock.monotonic()

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
        return {"time": clock.timestamp(self.time()), "elapsed_ms": context.elapsed_ms()}

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
