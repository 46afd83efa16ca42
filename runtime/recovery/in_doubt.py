"""Effects in doubt when a run is resumed: they started, and their outcome is not known.

Owns the policies of `on_unknown` (`spec/events.md`): run again, continue the agent's session, fail, or
ask. `replay` finds these effects.
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


# What an effect that is to fail has for a result.
RESULT = {
    "output": "",
    "stderr": "",
    "exit_code": 1,
    "duration_ms": 0,
    "error": {"kind": "unknown-outcome", "message": "the run crashed during it, so its outcome is not known"},
}


class InDoubt(LightRecord):
    """Decisions on the effects in doubt of a `position`; `on_unknown` overrides their own policy.

    waiting: the effects that the program waits for. agents: what the agents did whose sessions are to be
    continued, by effect; known once the effects are settled. kept: actions that have survived their driver,
    by effect; afterwards those whose results are used. begun: the processes of the effects in doubt, known
    afterwards: a driver that is stopped before it comes to one of them leaves it in doubt.
    """

    run: RunFolder
    position: Position
    waiting: dict[int, Effect]
    on_unknown: str | None
    screen: Screen
    interrupt: Interrupt
    agents: dict[int, AgentHistory] = field(factory=dict)
    kept: dict[int, Kept] = field(factory=dict)
    begun: dict[int, list[tuple[int, str]]] = field(factory=dict)

    def let_go(self) -> None:
        """End the actions that have survived; their outcome is unknown then."""
        for action in self.kept.values():
            end_kept(action)
        self.kept.clear()

    def settle(self) -> dict[int, str]:
        """End the processes of effects in doubt; returns the policies of the pending ones, by number.

        Effects that do not act are performed again and are not among them.
        """
        position = self.position
        for number, doubted in position.doubtful.items():
            self._end_leftover(number, doubted)
        effects = self.waiting
        self.begun = {
            seq: recorded.processes
            for seq, recorded in position.open.items()
            if recorded is not None and recorded.is_started
        }
        begun = list(self.begun)
        taken = self._take_over(begun)
        begun = [seq for seq in begun if seq not in taken]
        for seq in begun:
            self._end_leftover(seq, position.open[seq])
            position.settled(seq)
        # No other effect has an agent, or a model that is waited for; its record may be anywhere.
        self.agents = self._recorded_agents({seq for seq in begun if effects[seq].kind in SPENDERS})
        policies = {seq: self._policy(effects[seq]) for seq in begun}
        for seq in [seq for seq in self.agents if policies[seq] != CONTINUE]:
            del self.agents[seq]
        return taken | {seq: policy for seq, policy in policies.items() if policy is not None}

    def _take_over(self, begun: list[int]) -> dict[int, str]:
        """Let go of actions whose results nothing waits for; returns the policies of the others."""
        for seq in [seq for seq in self.kept if seq not in begun]:
            end_kept(self.kept.pop(seq))
        for seq, action in self.kept.items():
            self.position.settled(seq)
            effect = self.waiting[seq]
            what = masked(str(effect.args.get("command") or effect.args.get("name") or effect.kind))
            did = "goes on" if action.status is None else "ended"
            line = what.strip().partition("\n")[0][:80]
            self.screen.write(f"note: `{line}` {did} without llc; its result is used\n")
        return dict.fromkeys(self.kept, TAKE_OVER)

    def settle_again(self, effect: Effect) -> dict[str, Any] | None:
        """The result of a later effect that may have happened in the lost part; None to perform it."""
        if self.position.is_doubtful(effect) and self._policy(effect) == "fail":
            return RESULT
        return None

    def _end_leftover(self, seq: int, recorded: EffectHistory | None) -> None:
        """End what is still running of an effect that had started, if anything is."""
        if recorded is None or not recorded.is_started or recorded.is_finished:
            return
        kind = self.waiting[seq].kind if seq in self.waiting else recorded.kind
        numbers = {"numbers": AGENT_SIGNALS} if kind in ("agent", "task") else {}
        for pid in end_effect(f"{self.run.id}/{seq}", recorded.processes, **numbers):
            self.screen.write(f"note: what was still running of effect {seq} (pid {pid}) has been ended\n")

    def _policy(self, effect: Effect) -> str | None:
        """The policy for an effect in doubt; None for one that does not act."""
        default = EFFECTS[effect.kind].on_unknown
        if default is None:
            return None
        continues = self._can_continue(effect)
        recorded = self.agents.get(effect.seq)
        is_agent = effect.kind == "agent"
        if recorded is not None and recorded.waits is not None and (is_agent or not recorded.has_worked):
            # It waited for its quota, so nothing was done that is not on record.
            return CONTINUE if continues and recorded.tools else "rerun"
        policy = self.on_unknown or effect.args.get("on_unknown") or CONTINUE
        if policy == "ask":
            policy = self._ask(effect, continues)
        if policy == CONTINUE:
            return CONTINUE if continues else default
        return "fail" if policy == "fail" else "rerun"

    def _can_continue(self, effect: Effect) -> bool:
        """Whether the effect is an agent's, whose session is known and can be resumed."""
        recorded = self.agents.get(effect.seq) if effect.kind == "agent" else None
        return recorded is not None and bool(recorded.session) and can_continue(effect.kind, effect.args)

    def _recorded_agents(self, wanted: set[int]) -> dict[int, AgentHistory]:
        """What the journal says about the agents of these effects, also before the newest checkpoint."""
        found: dict[int, AgentHistory] = {}
        for entry in read(self.run.journal) if wanted else ():
            match entry:
                case EffectStarted() if entry.seq in wanted:
                    found.setdefault(entry.seq, AgentHistory(entry.seq)).begin()
                case AgentActed() if entry.seq in found:
                    found[entry.seq].add(entry)
        return found

    def _ask(self, effect: Effect, continues: bool) -> str:
        """Ask the person what to do with an effect whose outcome is unknown."""
        what = masked(str(effect.args.get("command") or effect.args.get("name") or effect.kind))
        shown = what if len(what) <= 200 else what[:200] + "…"
        if not (terminal.isatty(0) and terminal.isatty(2)):
            raise Failure(
                "unknown-outcome",
                f"it is not known whether `{shown}` did its work, and its policy is to ask a person",
                "resume in a terminal, or say `--on-unknown rerun` or `--on-unknown fail`",
            )
        self.screen.write(f"It is not known whether this did its work: {shown}\n")
        question = "Run it again, let it fail, or stop here? [r/f/s] "
        if continues:
            question = "Continue the agent's session, run it again, let it fail, or stop here? [c/r/f/s] "
        while True:
            self.screen.write(question)
            self.interrupt.wait(LONGEST_WAIT, wake=0)
            answer = sys.stdin.readline()
            match answer.strip().lower()[:1]:
                case "c" if continues:
                    return CONTINUE
                case "r":
                    return "rerun"
                case "f":
                    return "fail"
                case "s":
                    raise Failure("stopped", "not resumed")
            if not answer:
                raise Failure("stopped", "not resumed")
