"""Lowering of loops to states and jumps.

Each state `check` of the author becomes several IR states:

    check            tests whether the state was entered in this iteration
    check/again      tests the iteration limit          check/next       counts the iteration, backs off
    check/enter      notes the entry, expands the text  check/act        performs the action
    check/judge      evaluates the result               check/route      jumps to the target
    check/error      handles a fault or a crash, if errors have a route

States of the whole program begin with a slash: `/start`, `/max_iterations`, `/timeout`, ….
`spec/lowering.md` describes the slots and why no limit can be bypassed. The input is a loop
without errors (`check`); this module knows nothing of YAML.
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

# Shared nodes that occur in every state.
ITERATION, LAP, STEPS = ir.Slot("iteration"), ir.Slot("lap"), ir.Slot("steps")
COUNT_ITERATION = store("iteration", prim("add", ITERATION, 1))
COUNT_LAP = store("lap", prim("add", LAP, 1))
COUNT_STEP = store("steps", prim("add", STEPS, 1))
BROKEN = prim("or", prim("get", ir.Slot("last"), "timed_out"), prim("get", ir.Slot("last"), "error"))
# A shell exits with 126 or 127 if it could not run the command.
NOT_RUN = prim("or", *BROKEN.args, prim("contains", (126, 127), prim("get", ir.Slot("last"), "exit_code")))
FORGET_LAST = store("last", None)
FAULT = ir.Slot("fault")

# The limit for a loop whose time ends between two iterations.
AT_REST = "timeout_at_rest"


def scope_of(loop: Loop) -> tuple[str, ...]:
    """The paths that a loop works on: none for an empty scope, the whole project without a scope."""
    return (".",) if loop.scope is None else tuple(loop.scope)


def entries_of(state: StateSpec) -> ir.Slot:
    """The slot that counts consecutive entries of a state after the first."""
    return ir.Slot(f"entries.{state.name}")


def lower(loop: Loop, sources: tuple[Source, ...], within: Within, default_model: str) -> ir.Program:
    """Lower a checked loop to a program.

    within: `within(span, text, start, end)` returns the span of a part of a text (`Document.within`).
    """
    lowering = Lowering(loop, within, default_model)
    function = lowering.function()
    meta = ir.Meta("loop", loop.paradigm, scope_of(loop), lowering.maintains, lowering.limits)
    return ir.Program(loop.name, function.name, (function,), meta, sources=sources)


class Lowering(LoopContext):
    """Lowering of one loop; writes its states to the builder of the context."""

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
        if reason == AT_REST:  # the new iteration was counted, but nothing of it has run
            self.finish(chain, ir.Slot("state"), "limit", "timeout", prim("sub", ITERATION, 1))
        else:
            self.finish(chain, ir.Slot("state"), "limit", reason)

    @property
    def last_states(self) -> dict[str, str]:
        """The state that runs once when a limit is reached, by limit."""
        last = {"max_steps": self.loop.on_max_steps, "max_iterations": self.loop.on_max_iterations}
        return {reason: name for reason, name in last.items() if name in self.loop.states}

    def run_at_limit(self, reason: str, state: StateSpec) -> None:
        """Run the action of a state once, then end the loop because of the limit."""
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
        if handler is not None:  # the loop ends because of the limit, even if this action fails
            broken = Chain(self.builder, span=state.span)
            broken.open(handler.target)
            self.finish(broken, state.name, "limit", reason)

    def finish(
        self, chain: Chain, final_state: Any, status: str, terminated_by: str, iterations: ir.Expr = ITERATION
    ) -> None:
        """Note the end of the loop and return its outcome."""
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
        """The captures: as results, or as the strings that `${captured.<name>.output}` gives."""
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
        """Write the state that looks up a target computed at run time."""
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
        """Write the gate of a state, which counts steps and iterations; see `spec/lowering.md`.

        Returns the name of the following state. A state that is not on a cycle counts no iterations; if
        nothing is counted there is no gate.
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
        """Whether consecutive entries of the state are counted."""
        return state.max_retries is not None or self.most_in_a_row(state) is not None

    def most_in_a_row(self, state: StateSpec) -> int | None:
        """Limit of consecutive runs of the state's action; None for no limit."""
        if not state.acts or state.runs_loops:
            return None
        given = state.throttle.hard_max if state.throttle is not None else None
        return self.loop.max_in_a_row if given is None else given

    def exhausted(self, state: StateSpec, target: str) -> None:
        """Write the exit of a state that was entered too often in a row; its action does not run."""
        chain = self.chain(state)
        chain.open(f"{state.name}/exhausted")
        chain.add(store(entries_of(state).name, 0))
        super().go(chain, state, target, verdict=False, remember=[])

    def throttle(self, chain: Chain, state: StateSpec) -> None:
        """Write the exit of a state whose action ran too often in a row."""
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
        """Open the state that follows the gate and record the entry."""
        chain.open(self.gate(state))
        if state.name in self.looping:
            chain.add(store(f"seen.{state.name}", LAP))
        if self.limits.max_steps is None:
            chain.add(COUNT_STEP)
        chain.add(store("state", state.name))
        chain.add(self.note("state_enter", {"state": state.name, "iteration": ITERATION}))
        if state.acts and self.reads_prev and chain.handler is not None:
            chain.add(FORGET_LAST)  # lets `…/error` determine whether the action ran
        hooks.of_state(self, chain, state, "before")

    def go(
        self,
        chain: Chain,
        state: StateSpec,
        target: str,
        verdict: bool = True,
        remember: list[ir.Instruction] | None = None,
    ) -> None:
        """Run the hooks after the state, then leave it by a route."""
        hooks.of_state(self, chain, state, "after")
        super().go(chain, state, target, verdict, remember)

    def working(self, state: StateSpec) -> None:
        """Lower a state that is not terminal."""
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
        """Evaluate the result of the action and route the verdict."""
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
        """Route the verdict: by its own entry, by the error route for errors, otherwise by the default."""
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
            cases.append(("error", unrouted))  # the default `_` does not match errors
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
        """Write the state that treats a fault as the verdict `error`."""
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
        """Write the state for a failed hook: an error of the state, without further hooks of the state."""
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
