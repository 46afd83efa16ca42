"""Driver of a program without a record: an expression, or an input of a session.

Performs pending effects concurrently, like `driver`, but writes no journal, so that nothing can be resumed.
"""

from __future__ import annotations

from ...ir.effects import EFFECTS
from ...vm.machine.machine import Done, Effect, Machine, OutOfFuel
from ...vm.values.faults import Fault
from ..host.effect_context import TICK, Context, Interrupt, WorldLike, sleep_time, slept
from ..journal.position import QUANTUM
from .effect_pool import RunEffects
from .observer import Display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Limit of concurrently performed effects.
JOBS = 8


class Unrecorded:
    """Drives one machine to its end.

    Args:
        machine: the machine.
        world: performs the effects.
        display: observes effects and notes.
        interrupt: requests to stop.
        context_of: makes the context of an effect; its callbacks to the display are set here.
        fuel: the total limit of ticks; None for no limit.
    """

    def __init__(
        self,
        machine: Machine,
        world: WorldLike,
        display: Display,
        interrupt: Interrupt,
        context_of: Callable[[Effect], Context],
        fuel: int | None = None,
    ) -> None:
        self._machine = machine
        self._world = world
        self._display = display
        self._interrupt = interrupt
        self._context_of = context_of
        self._fuel = fuel
        # Only a world that can be forked performs effects concurrently.
        self._can_fork_world = getattr(world, "beside", None) is not None
        self._requested: list[Effect] = []
        self._effects: RunEffects | None = None
        self._performed: dict[int, tuple[Effect, Display]] = {}

    def run(self) -> Done | Fault | OutOfFuel:
        """Run to the end, or until the fuel is used up. Raises exceptions of the world, and Interrupted."""
        machine = self._machine
        answer: tuple[Any, ...] = ()
        try:
            while True:
                self._interrupt.check()
                left = QUANTUM if self._fuel is None else min(QUANTUM, self._fuel - machine.ticks)
                if left <= 0:
                    return OutOfFuel()
                machine.refuel(left)
                stop = machine.resume(*answer)
                answer = ()
                for kind, fields in machine.take_notes():
                    self._display.note(kind, fields)
                if isinstance(stop, Done | Fault):
                    return stop
                if isinstance(stop, Effect):
                    self._requested.append(stop)
                if not machine.is_ready:
                    answer = self._answer()
        finally:
            self._close()

    def _answer(self) -> tuple[Any, int]:
        """The next result and the number of its effect. Called when no strand of the machine is ready."""
        requested = self._requested
        while True:
            for index, effect in enumerate(requested):
                is_alone = not self._can_fork_world or (len(requested) == 1 and not self._performed)
                if is_alone or not EFFECTS[effect.kind].is_slow:
                    del requested[index]
                    return self._perform(effect), effect.seq
            effects = self._effects or self._begin()
            requested[:] = [effect for effect in requested if not self._start(effects, effect)]
            message = effects.wait()
            if message is not None and (found := self._take(*message)) is not None:
                return found

    def _perform(self, effect: Effect) -> dict[str, Any]:
        """Perform one effect while everything else waits."""
        context = self._context_of(effect)
        context.on_output = self._display.output
        context.on_tick = self._display.tick
        context.on_prompt = self._display.prompt if self._display.has_person else None
        self._display.effect_start(effect.kind, effect.args)
        result = self._world.perform(effect, context)
        self._display.effect_end(effect.kind, result)
        return result

    # --- concurrent effects ---------------------------------------------------------------------

    def _begin(self) -> RunEffects:
        world: Any = self._world
        self._effects = RunEffects(world, self._interrupt, self._tick, None, JOBS)
        return self._effects

    def _tick(self) -> float:
        self._display.tick()
        return TICK

    def _start(self, effects: RunEffects, effect: Effect) -> bool:
        """Start an effect if a slot is free; returns whether it was started."""
        row = EFFECTS[effect.kind]
        is_sleep = effect.kind == "sleep"
        if effects.free_slots <= 0 and not row.is_idle and not is_sleep:
            return False
        context = self._context_of(effect)
        display = self._display.concurrent(effect.seq)
        context.on_prompt = display.prompt if self._display.has_person else None
        self._performed[effect.seq] = effect, display
        display.effect_start(effect.kind, effect.args)
        if is_sleep:
            seconds, is_cut = sleep_time(effect.args, context)
            effects.sleep(effect.seq, seconds, lambda: slept(context, is_cut))
            return True
        if not row.is_idle:
            effects.reserve_slot()
        effects.start(effect, context)
        return True

    def _take(self, seq: int, kind: str, content: Any) -> tuple[Any, int] | None:
        """Handle a message of an effect; returns its result and number if it has finished."""
        effect, display = self._performed[seq]
        match kind:
            case "output":
                display.output(*content)
            case "prompt":
                display.prompt(content)
            case "failed":
                raise content
            case "cut":
                del self._performed[seq]
                display.effect_cut()
            case "done":
                del self._performed[seq]
                display.effect_end(effect.kind, content)
                return content, seq
        return None

    def _close(self) -> None:
        """Stop all effects and discard their results."""
        effects = self._effects
        while effects is not None and effects.end():
            effects.wait()
        if effects is not None:
            effects.close()
