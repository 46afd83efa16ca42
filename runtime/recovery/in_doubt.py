"""Effects in doubt when a run is resumed: they started, and their outcome is unknown.

Owns the policies of `on_unknown` (`spec/events.md`): run the effect again, continue the agent's session,
let the effect fail, or ask a person. `replay` finds these effects.
"""

from __future__ import annotations

import sys

from ...ir.effects import CONTINUE, EFFECTS, SPENDERS
from ...ir.light_records import LightRecord, field
from ...vm.machine.machine import Effect
from ..effects.performers import can_continue
from ..host import terminal
from ..host.effect_context import LONGEST_WAIT, Interrupt
from ..host.errors import Failure
from ..host.keeper import Kept
from ..host.leftovers import AGENT_SIGNALS, end_effect, end_kept
from ..host.screen import Screen
from ..host.secrets import masked
from ..journal.agent_history import AgentHistory
from ..journal.events import TAKE_OVER, AgentActed, EffectStarted
from ..journal.reader import read
from ..journal.run_folder import RunFolder
from ..journal.run_history import EffectHistory
from .replay import Position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# The result of an effect whose policy is `fail`.
FAILED_RESULT = {
    "output": "",
    "stderr": "",
    "exit_code": 1,
    "duration_ms": 0,
    "error": {"kind": "unknown-outcome", "message": "the run crashed during it, so its outcome is not known"},
}


class InDoubt(LightRecord):
    """Decisions on the effects in doubt of a `position`.

    Args:
        waiting: the effects that the program waits for, by number.
        on_unknown: overrides the policy of each effect; None to use its own.
        agents: the records of agents whose sessions are continued, by effect; set by `settle`.
        kept: actions that survived their driver, by effect; after `settle`, those whose results are used.
        started: the processes of the effects in doubt; set by `settle`. A driver that stops before it
            reaches one of these effects leaves it in doubt.
    """

    run: RunFolder
    position: Position
    waiting: dict[int, Effect]
    on_unknown: str | None
    screen: Screen
    interrupt: Interrupt
    agents: dict[int, AgentHistory] = field(factory=dict)
    kept: dict[int, Kept] = field(factory=dict)
    started: dict[int, list[tuple[int, str]]] = field(factory=dict)

    def end_survivors(self) -> None:
        """End the actions that survived their driver; their outcome is unknown from then on."""
        for action in self.kept.values():
            end_kept(action)
        self.kept.clear()

    def settle(self) -> dict[int, str]:
        """End the processes of effects in doubt; return the policies of the waiting effects, by number.

        The result omits effects that do not act: they are simply performed again.
        """
        position = self.position
        for number, doubted in position.doubtful.items():
            self._end_leftover(number, doubted)
        effects = self.waiting
        self.started = {
            seq: recorded.processes
            for seq, recorded in position.open.items()
            if recorded is not None and recorded.is_started
        }
        taken_over = self._take_over()
        in_doubt = [seq for seq in self.started if seq not in taken_over]
        for seq in in_doubt:
            self._end_leftover(seq, position.open[seq])
            position.settle(seq)
        # Only these kinds have agents, or models that may wait for a quota. The whole journal is read,
        # because their events may be before the newest checkpoint.
        self.agents = self._recorded_agents({seq for seq in in_doubt if effects[seq].kind in SPENDERS})
        policies = {seq: self._policy(effects[seq]) for seq in in_doubt}
        for seq in [seq for seq in self.agents if policies[seq] != CONTINUE]:
            del self.agents[seq]
        return taken_over | {seq: policy for seq, policy in policies.items() if policy is not None}

    def _take_over(self) -> dict[int, str]:
        """End surviving actions whose results nothing waits for; return the policies of the others."""
        for seq in [seq for seq in self.kept if seq not in self.started]:
            end_kept(self.kept.pop(seq))
        for seq, action in self.kept.items():
            self.position.settle(seq)
            first_line = _describe(self.waiting[seq]).strip().partition("\n")[0][:80]
            state = "is still running" if action.status is None else "has ended"
            self.screen.write(f"note: `{first_line}` {state} without llc; its result is used\n")
        return dict.fromkeys(self.kept, TAKE_OVER)

    def settle_later_effect(self, effect: Effect) -> dict[str, Any] | None:
        """Decide on an effect that may have happened in the lost part of the journal.

        Returns its result, or None to perform it.
        """
        if self.position.is_doubtful(effect) and self._policy(effect) == "fail":
            return FAILED_RESULT
        return None

    def _end_leftover(self, seq: int, recorded: EffectHistory | None) -> None:
        """End the processes of an unfinished effect that are still running."""
        if recorded is None or not recorded.is_started or recorded.is_finished:
            return
        kind = self.waiting[seq].kind if seq in self.waiting else recorded.kind
        numbers = {"numbers": AGENT_SIGNALS} if kind in ("agent", "task") else {}
        for pid in end_effect(f"{self.run.id}/{seq}", recorded.processes, **numbers):
            self.screen.write(
                f"note: a process of effect {seq} was still running (pid {pid}); it was ended\n"
            )

    def _policy(self, effect: Effect) -> str | None:
        """The policy for an effect in doubt; None for one that does not act."""
        default = EFFECTS[effect.kind].on_unknown
        if default is None:
            return None
        continues = self._can_continue(effect)
        recorded = self.agents.get(effect.seq)
        is_agent = effect.kind == "agent"
        if recorded is not None and recorded.waits is not None and (is_agent or not recorded.has_worked):
            # It was waiting for its quota, so the journal has everything that it did.
            return CONTINUE if continues and recorded.tools else "rerun"
        policy = self.on_unknown or effect.args.get("on_unknown") or CONTINUE
        if policy == "ask":
            policy = self._ask(effect, continues)
        if policy == CONTINUE:
            return CONTINUE if continues else default
        return "fail" if policy == "fail" else "rerun"

    def _can_continue(self, effect: Effect) -> bool:
        """Whether the effect is an agent with a known session that can be resumed."""
        recorded = self.agents.get(effect.seq) if effect.kind == "agent" else None
        return recorded is not None and bool(recorded.session) and can_continue(effect.kind, effect.args)

    def _recorded_agents(self, wanted: set[int]) -> dict[int, AgentHistory]:
        """The records of the agents of these effects, from the whole journal."""
        found: dict[int, AgentHistory] = {}
        for entry in read(self.run.journal) if wanted else ():
            match entry:
                case EffectStarted() if entry.seq in wanted:
                    found.setdefault(entry.seq, AgentHistory(entry.seq)).begin()
                case AgentActed() if entry.seq in found:
                    found[entry.seq].add(entry)
        return found

    def _ask(self, effect: Effect, can_continue: bool) -> str:
        """Ask the person for the policy of an effect whose outcome is unknown."""
        action = _describe(effect)
        shown = action if len(action) <= 200 else action[:200] + "…"
        if not (terminal.isatty(0) and terminal.isatty(2)):
            raise Failure(
                "unknown-outcome",
                f"the outcome of `{shown}` is unknown, and its policy is to ask a person",
                "resume in a terminal, or use `--on-unknown rerun` or `--on-unknown fail`",
            )
        self.screen.write(f"The outcome of this action is unknown: {shown}\n")
        question = "Run it again, let it fail, or stop here? [r/f/s] "
        if can_continue:
            question = "Continue the agent's session, run it again, let it fail, or stop here? [c/r/f/s] "
        while True:
            self.screen.write(question)
            self.interrupt.wait(LONGEST_WAIT, wake=0)
            answer = sys.stdin.readline()
            match answer.strip().lower()[:1]:
                case "c" if can_continue:
                    return CONTINUE
                case "r":
                    return "rerun"
                case "f":
                    return "fail"
                case "s":
                    raise Failure("stopped", "not resumed")
            if not answer:
                raise Failure("stopped", "not resumed")


def _describe(effect: Effect) -> str:
    """The command or the name of an effect, with secrets masked."""
    return masked(str(effect.args.get("command") or effect.args.get("name") or effect.kind))
