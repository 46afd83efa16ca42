"""Loops to states and jumps: slots, instructions and exits.

Each state `check` of the author becomes several IR states:

    check            has it run in this iteration already?
    check/again      is another iteration allowed?      check/next       count it, back off
    check/enter      note it, fill in the action        check/act        perform it
    check/judge      the verdict                        check/route      go where it leads
    check/error      a fault or a crash, where something routes errors

What belongs to the whole program begins with a slash: `/start`, `/max_iterations`, `/timeout`, ….
The slots and the proof that no limit can be bypassed are in `spec/lowering.md`. Takes a loop
that `check` found no errors in; knows nothing of YAML.
"""

from __future__ import annotations

from typing import Any

from ...ir import nodes as ir
from ...ir.builder import expr, prim, record, store
from ...ir.compile_options import RUN_FOLDER, RUN_FOLDERS
from ...ir.spans import Source
from ..loop.dialect import missing_inputs
from ..loop.hook_schema import IGNORE, hooks_in
from ..loop.schema import CURRENT, Loop, StateSpec
from ..loop.texts import Within
from . import actions, hooks, templates
from .chain import Chain
from .evaluators import Evaluation
from .loop_context import CHECKED, DEADLINE, VERDICT, LoopContext

# Nodes that occur in every state are created once.
ITERATION, LAP, STEPS = ir.Slot("iteration"), ir.Slot("lap"), ir.Slot("steps")
COUNT_ITERATION = store("iteration", prim("add", ITERATION, 1))
COUNT_LAP = store("lap", prim("add", LAP, 1))
COUNT_STEP = store("steps", prim("add", STEPS, 1))
BROKEN = prim("or", prim("get", ir.Slot("last"), "timed_out"), prim("get", ir.Slot("last"), "error"))
# By 126 and 127 a shell says that it could not run the command.
NOT_RUN = prim("or", *BROKEN.args, prim("contains", (126, 127), prim("get", ir.Slot("last"), "exit_code")))
FORGET_LAST = store("last", None)
FAULT = ir.Slot("fault")

# The limit that is reached when the loop's time ends between two iterations.
AT_REST = "timeout_at_rest"


def scope_of(loop: Loop) -> tuple[str, ...]:
    """The paths that a loop works on: an empty scope is none, a missing one everything."""
    return (".",) if loop.scope is None else tuple(loop.scope)


def entries_of(state: StateSpec) -> ir.Slot:
    """How often a state was entered in a row, after the first time."""
    return ir.Slot(f"entries.{state.name}")


def lower(loop: Loop, sources: tuple[Source, ...], within: Within, default_model: str) -> ir.Program:
    """The program of a checked loop.

    `within(span, text, start, end)` finds the place of a part of a text (`Document.within`).
    """
    lowering = Lowering(loop, within, default_model)
    function = lowering.function()
    meta = ir.Meta("loop", loop.paradigm, scope_of(loop), lowering.maintains, lowering.limits)
    return ir.Program(loop.name, function.name, (function,), meta, sources=sources)


class Lowering(LoopContext):
    """The states of one loop, written to the builder of its context."""

    def function(self) -> ir.Function:
        loop = self.loop
        self.start()
        for state in loop.states.values():
            if state.is_terminal:
                self.terminal(state)
            else:
                self.working(state)
        if self.dynamic:
            self.dispatch()
        for reason in sorted(self.ends & self.last_states.keys()):
            self.run_at_limit(reason, loop.states[self.last_states[reason]])
        for reason in sorted(self.ends - self.last_states.keys()):
            self.end_at_limit(reason)
        hooks.catch_faults(self)
        return self.builder.build(loop.span)

    # --- the program's own states -----------------------------------------------------------

    @property
    def maintains(self) -> bool:
        return any(self.loop.restart_of(state) is not None for state in self.loop.states.values())

    def start(self) -> None:
        chain = Chain(self.builder, span=self.loop.span)
        chain.open("/start")
        chain.add(store("iteration", 1), store("lap", 1), store("steps", 0))
        if self.maintains:
            chain.add(store("cycle", 1))
        counted = (state for state in self.loop.states.values() if state.name in self.looping)
        chain.add(*(store(entries_of(state).name, 0) for state in counted if self.counts_entries(state)))
        own = self.loop.budget.bounds if self.loop.budget is not None else {}
        chain.add(*(store(f"spent.{unit}", 0) for unit in own))
        for name, bounds in self.limits.state_budgets.items():
            chain.add(*(store(f"spent.{unit}.{name}", 0) for unit in bounds))
        chain.add(ir.Note("loop_start", record({"loop": self.inner or self.loop.name})))
        if self.reads_start or self.reads_elapsed or self.deadline is DEADLINE:
            chain.perform("clock", {}, "now", "/started")
            elapsed = prim("get", ir.Slot("now"), "elapsed_ms")
            if self.deadline is DEADLINE:
                chain.add(store(DEADLINE.name, prim("add", elapsed, self.limits.timeout_ms)))
            if self.reads_start:
                chain.add(store("started_at", prim("get", ir.Slot("now"), "time")))
            if self.reads_elapsed:
                chain.add(store(templates.BEGUN.name, elapsed))
        if self.reads_folder:
            chain.perform("env", {"names": (RUN_FOLDER,)}, "env", "/folder")
            values = prim("without_nulls", prim("get", ir.Slot("env"), "values"))
            chain.add(store("run_dir", prim("lookup_or", values, (RUN_FOLDER,), f"{RUN_FOLDERS}/")))
        if not self.gives_results and (missing := missing_inputs(self.loop)):
            chain.unless(expr(True), "/missing_input", "/given")
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"the loop needs {names}: pass it by --context {missing[0]}=VALUE"
            failure = ir.Fail(record({"kind": "missing-input", "message": message}))
            self.builder.state("/missing_input", (), failure)
        hooks.of_loop(self, chain, "before")
        chain.close(ir.Goto(self.loop.initial))

    def end_at_limit(self, reason: str) -> None:
        chain = Chain(self.builder, span=self.loop.span)
        chain.open(f"/{reason}")
        if reason == AT_REST:  # the iteration is counted, but nothing of it has run
            self.finish(chain, ir.Slot("state"), "limit", "timeout", prim("sub", ITERATION, 1))
        else:
            self.finish(chain, ir.Slot("state"), "limit", reason)

    @property
    def last_states(self) -> dict[str, str]:
        """The states that run once when a limit is reached, by the limit."""
        last = {"max_steps": self.loop.on_max_steps, "max_iterations": self.loop.on_max_iterations}
        return {reason: name for reason, name in last.items() if name in self.loop.states}

    def run_at_limit(self, reason: str, state: StateSpec) -> None:
        """Run the action of a state once, then end the loop at the limit that led there."""
        again = state.evolve(name=f"{state.name}/{reason}")
        for (name, field), template in list(self.templates.items()):
            if name == state.name:
                self.templates[again.name, field] = template
        chain = self.chain(again)
        handler = chain.handler
        chain.open(f"/{reason}")
        chain.add(store("state", state.name))
        chain.add(self.note("state_enter", {"state": state.name, "iteration": ITERATION}))
        if again.acts:
            actions.act(self, chain, again)
        self.finish(chain, state.name, "limit", reason)
        if handler is not None:  # the limit is how the loop ends, whatever happens here
            broken = Chain(self.builder, span=state.span)
            broken.open(handler.target)
            self.finish(broken, state.name, "limit", reason)

    def finish(
        self, chain: Chain, final_state: Any, status: str, terminated_by: str, iterations: ir.Expr = ITERATION
    ) -> None:
        """Note that the loop is over and return its outcome."""
        common = {"final_state": final_state, "iterations": iterations, "status": status}
        if self.maintains:
            common["cycles"] = ir.Slot("cycle")
        hooks.at_end(self, chain, *(["on_limit"] if status == "limit" else []), "after")
        common["terminated_by"] = terminated_by
        chain.add(self.note("loop_complete", common))
        common["steps"] = STEPS
        if self.inner is not None:
            common["captured"] = self.captured()
        chain.close(ir.Return(record(common)))

    def captured(self) -> ir.Expr:
        """What was captured, as the text that `${captured.<name>.output}` is, or as it is."""
        names = dict.fromkeys(state.capture for state in self.loop.states.values() if state.capture)
        if self.gives_results:
            loops = (state.name for state in self.loop.states.values() if state.loop is not None)
            names |= dict.fromkeys(loops)
            results = {name: ir.Slot(f"captured.{name}") for name in names}
            return prim("without_nulls", record(results))
        texts: dict[str, ir.Expr] = {}
        for name in names:
            slot = ir.Slot(f"captured.{name}")
            text = prim("trim_newline", prim("lookup_or", slot, ("output",), ""))
            texts[name] = prim("select", prim("is_null", slot), None, text)
        return prim("without_nulls", record(texts))

    def dispatch(self) -> None:
        """Where a target worked out at run time is looked up among the author's states."""
        names = list(self.loop.states)
        cases = tuple((name, name) for name in names)
        self.builder.state("/dispatch", (), ir.Switch(ir.Slot("goal"), cases, "/unknown_state"))
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        whose = prim("concat", "state `", ir.Slot("state"), "`: no state named `", ir.Slot("goal"))
        message = prim("concat", whose, f"`; the states are: {shown}")
        self.builder.state(
            "/unknown_state", (), ir.Fail(record({"kind": "unknown-state", "message": message}))
        )

    # --- the author's states ----------------------------------------------------------------

    def gate(self, state: StateSpec) -> str:
        """Count the step and the iteration before a state is entered; see `spec/lowering.md`.

        Gives the name of the state that is to follow. A state that no way leads back to needs no
        iteration counted, and where there is nothing to count there is no gate.
        """
        name, enter = state.name, f"{state.name}/enter"
        counts_visits = name in self.looping
        counts_entries = counts_visits and self.counts_entries(state)
        if not counts_visits and self.limits.max_steps is None:
            return name
        chain = Chain(self.builder, span=state.span)
        chain.open(name)
        if counts_entries:
            entries = entries_of(state)
            is_again = prim("eq", ir.Slot("state"), name)
            chain.add(store(entries.name, prim("select", is_again, prim("add", entries, 1), 0)))
            if state.max_retries is not None and state.on_retry_exhausted is not None:
                chain.unless(prim("gt", entries, state.max_retries), f"{name}/exhausted", f"{name}/retried")
                self.exhausted(state, state.on_retry_exhausted)
        if self.limits.max_steps is not None:
            self.ends.add("max_steps")
            chain.unless(prim("ge", STEPS, self.limits.max_steps), "/max_steps", f"{name}/step")
            chain.add(COUNT_STEP)
        if not counts_visits:
            chain.close(ir.Goto(enter))
            return enter
        self.ends.add("max_iterations")
        again = prim("eq", ir.Slot(f"seen.{name}"), LAP)
        chain.close(ir.Branch(again, f"{name}/again", enter, span=state.span))
        chain.open(f"{name}/again")
        most = prim("ge", ITERATION, self.limits.max_iterations)
        chain.unless(most, "/max_iterations", f"{name}/next")
        chain.add(COUNT_ITERATION)
        chain.add(COUNT_LAP)
        if self.loop.backoff:
            self.sleep(chain, self.loop.backoff, f"{name}/rested", AT_REST)
        chain.close(ir.Goto(enter))
        return enter

    def counts_entries(self, state: StateSpec) -> bool:
        """Whether it matters how often the state is entered in a row."""
        return state.max_retries is not None or self.most_in_a_row(state) is not None

    def most_in_a_row(self, state: StateSpec) -> int | None:
        """How often the action of a state may run in a row."""
        if not state.acts or state.runs_loops:
            return None
        given = state.throttle.hard_max if state.throttle is not None else None
        return self.loop.max_in_a_row if given is None else given

    def exhausted(self, state: StateSpec, target: str) -> None:
        """Leave a state that was entered too often in a row, without running it."""
        chain = self.chain(state)
        chain.open(f"{state.name}/exhausted")
        chain.add(store(entries_of(state).name, 0))
        super().go(chain, state, target, verdict=False, remember=[])

    def throttle(self, chain: Chain, state: StateSpec) -> None:
        """Leave a state whose action ran too often in a row."""
        most = self.most_in_a_row(state)
        if most is None or state.name not in self.looping:
            return
        name, target = state.name, state.on_throttle_hard or self.error_route(state)
        entries = entries_of(state)
        if target is not None:
            chain.unless(prim("eq", entries, most - 1), f"{name}/throttled", f"{name}/allowed")
            throttled = self.chain(state)
            throttled.open(f"{name}/throttled")
            self.go(throttled, state, target, verdict=False)
            return
        chain.unless(prim("ge", entries, most), f"{name}/throttled", f"{name}/allowed")
        throttled = self.chain(state)
        throttled.open(f"{name}/throttled")
        message = f"state `{name}` ran its action more than {most} times in a row"
        throttled.close(ir.Fail(record({"kind": "throttled", "message": message}), span=state.span))

    def enter(self, chain: Chain, state: StateSpec) -> None:
        """Open the state proper: what is true from here on is that the state has been entered."""
        chain.open(self.gate(state))
        if state.name in self.looping:
            chain.add(store(f"seen.{state.name}", LAP))
        if self.limits.max_steps is None:
            chain.add(COUNT_STEP)
        chain.add(store("state", state.name))
        chain.add(self.note("state_enter", {"state": state.name, "iteration": ITERATION}))
        if state.acts and self.reads_prev and chain.handler is not None:
            chain.add(FORGET_LAST)  # so that `…/error` can tell whether the action ran
        hooks.of_state(self, chain, state, "before")

    def go(
        self,
        chain: Chain,
        state: StateSpec,
        target: str,
        verdict: bool = True,
        remember: list[ir.Instruction] | None = None,
    ) -> None:
        """Leave a state by a route, its hooks run."""
        hooks.of_state(self, chain, state, "after")
        super().go(chain, state, target, verdict, remember)

    def working(self, state: StateSpec) -> None:
        """A state that is left again."""
        chain = self.chain(state)
        self.enter(chain, state)
        if state.acts:
            actions.act(self, chain, state)
            self.throttle(chain, state)
        else:
            self.watch_deadline(chain, state)
        if state.next is not None:
            if state.acts:
                is_command = not state.calls and not state.asks
                chain.unless(
                    NOT_RUN if is_command else BROKEN, f"{state.name}/crashed", f"{state.name}/route"
                )
                self.crashed(state)
            self.go(chain, state, state.next, verdict=False)
        else:
            self.evaluate(chain, state)
        if chain.handler is not None:
            self.error(state)
        self.hook_failed(state)

    def evaluate(self, chain: Chain, state: StateSpec) -> None:
        """The verdict on what the action gave, and where it leads."""
        evaluation = Evaluation(self, chain, state)
        evaluation.lower()
        if state.capture is not None and ("captured", state.capture, "verdict") in self.read_fields:
            result = ir.Slot(f"captured.{state.capture}")
            said = prim("select", prim("eq", VERDICT, "failure"), "no", VERDICT)
            said = prim("select", prim("eq", VERDICT, "success"), "yes", said)
            chain.add(store(result.name, prim("put", result, "verdict", said)))
        if self.reads_checked and self.is_check(state):
            command = self.commands.get(state.name, state.call)
            chain.add(store(CHECKED.name, prim("put", ir.Slot("last"), "command", command)))
        self.note_verdict(chain, state, evaluation.type)
        if hooks_in(self.loop.hooks, "on_error") and self.error_route(state) is not None:
            chain.close(
                ir.Branch(prim("eq", VERDICT, "error"), f"{state.name}/erred", f"{state.name}/judged")
            )
            chain.open(f"{state.name}/erred")
            hooks.on_error(self, chain, state)
            chain.close(ir.Goto(f"{state.name}/judged"))
            chain.open(f"{state.name}/judged")
        self.route(chain, state)

    def route(self, chain: Chain, state: StateSpec) -> None:
        """The verdict's target: an exact entry, for errors the error route, else the default."""
        name = state.name
        table = {verdict: target for verdict, target in state.routes.items() if verdict[0] != "_"}
        error = self.error_route(state)
        if error is not None:
            table["error"] = error
        default = state.routes.get("_")
        table = {verdict: name if target == CURRENT else target for verdict, target in table.items()}
        default = name if default == CURRENT else default
        verdict = VERDICT
        unrouted = f"{name}/unrouted"
        targets = dict.fromkeys([*table.values(), *([default] if default else [])])
        go = {
            target: f"{name}/to/{target}" if "${" not in target else f"{name}/to/{i}"
            for i, target in enumerate(targets)
        }
        cases = [(key, go[target]) for key, target in table.items()]
        is_picky = state.retryable_exit_codes is not None and state.acts and "error" in table
        if is_picky:
            cases = [(key, f"{name}/which_error" if key == "error" else way) for key, way in cases]
        if default is not None and "error" not in table:
            cases.append(("error", unrouted))  # an error is never an "other verdict"
        chain.close(ir.Switch(verdict, tuple(cases), go[default] if default else unrouted))
        if is_picky:
            chain.open(f"{name}/which_error")
            code = prim("lookup_or", ir.Slot("last"), ("exit_code",), None)
            is_retried = prim("contains", state.retryable_exit_codes, code)
            chain.close(ir.Branch(is_retried, go[table["error"]], f"{name}/not_retried", span=state.span))
            chain.open(f"{name}/not_retried")
            self.go(chain, state, state.on_retry_exhausted or table["error"])
        for target, label in go.items():
            chain.open(label)
            self.go(chain, state, target)
        if default is None or "error" not in table:
            self.unrouted(chain, state)

    def unrouted(self, chain: Chain, state: StateSpec) -> None:
        chain.open(f"{state.name}/unrouted")
        chain.close(ir.Fail(self.unrouted_fault(state), span=state.span))

    def error(
        self, state: StateSpec, name: str = "error", fault: ir.Expr = FAULT, phase: str = "error_"
    ) -> None:
        """A fault in the state, taken as the verdict `error`."""
        target = self.error_route(state)
        assert target is not None
        chain = Chain(self.builder, span=state.span)
        chain.open(f"{state.name}/{name}")
        chain.add(store("result", prim("judge_fault", fault)))
        self.note_verdict(chain, state, self.loop.evaluator_of(state).type)
        self.watch_deadline(chain, state, phase)
        hooks.on_error(self, chain, state)
        remember: list[ir.Instruction] = []
        if self.reads_prev and state.acts:
            ran = prim("put", ir.Slot("last"), "state", state.name)
            remember = [store("prev", prim("select", prim("is_null", ir.Slot("last")), ir.Slot("prev"), ran))]
        go = self.go if fault is FAULT else super().go
        go(chain, state, target, remember=remember)

    def hook_failed(self, state: StateSpec) -> None:
        """A failing hook of the state: an error of the state, which runs no further hook of it."""
        own = [hook for when in ("before", "after") for _, hook in self.loop.hooks_of(state, when)]
        if all(hook.on_failure == IGNORE for hook in own):
            return
        if self.error_route(state) is not None:
            self.error(state, "hook_failed", hooks.FAULT, "hook_")
        else:
            self.builder.state(f"{state.name}/hook_failed", (), ir.Fail(hooks.FAULT), span=state.span)

    # --- terminal states --------------------------------------------------------------------

    def terminal(self, state: StateSpec) -> None:
        chain = self.chain(state)
        is_routed = chain.handler is not None
        self.enter(chain, state)
        if state.acts:
            actions.act(self, chain, state)
            chain.add(*self.remember(state))
        hooks.of_state(self, chain, state, "after")
        restart = self.loop.restart_of(state)
        if restart is None:
            self.finish(chain, state.name, state.status or "success", "terminal")
        else:
            delay = self.loop.maintain_delay if self.loop.maintain_delay is not None else self.loop.backoff
            if delay:
                self.sleep(chain, delay, f"{state.name}/delayed")
            else:
                self.watch_deadline(chain, state)
            chain.close(ir.Goto(f"{state.name}/cycle"))
            chain.open(f"{state.name}/cycle")
            chain.add(store("iteration", 1), COUNT_LAP)
            chain.add(store("cycle", prim("add", ir.Slot("cycle"), 1)))
            chain.add(self.note("cycle", {"cycle": ir.Slot("cycle")}))
            chain.close(ir.Goto(state.name if restart == CURRENT else restart))
        if is_routed:
            self.error(state)
        self.hook_failed(state)
