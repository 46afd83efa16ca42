"""Semantic checks of a loop.

Owns the rules across states: names, targets that exist, paths that end, verdicts that are routed. All
diagnostics are reported together; an error rejects the loop, a warning does not (`spec/loops.md`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.diagnostics import Diagnostic, DiagnosticId, clean, nearest, suggest
from ...ir.effects import CANNOT_JUDGE
from ...ir.python_internals import late_pattern
from ...ir.spans import Span
from ..source.document import Document
from ..source.schema import MAX_NAME, fields_of
from ..template.template import parse
from .agent_schema import AgentSettings
from .control_flow import Graph
from .evaluator_checks import check_evaluator, check_expressions, schema_verdicts
from .evaluator_schema import DEFAULT_VERDICTS, Answer, ExitCode, LlmStructured
from .foreign_keys import explain_key
from .hook_schema import FAIL, REPORTING, hooks_in
from .key_checks import check_keys, unused_key
from .schema import CURRENT, DEFAULT_MODEL_TEXT, QUOTA_WORDS, Loop, StateSpec, belongs_to_loop
from .variable_checks import MAX_COMPARISONS, check_variables, fixed_text, read_texts

# Keys of other tools with the route that they mean, and common names of terminal states.
_FOREIGN_ROUTES = {
    **dict.fromkeys(("on_pass", "on_ok", "on_true", "on_succeed", "on_done", "on_complete"), "on_success"),
    **dict.fromkeys(("on_fail", "on_false"), "on_failure"),
}
_TERMINAL_NAMES = frozenset(
    ("end", "done", "exit", "finish", "finished", "stop", "success", "complete", "completed")
)
_SPECIAL_KEYS = (*(key for key in fields_of(StateSpec) if key.startswith("on_")), "on_yes", "on_no")
_LIMIT_TARGETS = ("on_retry_exhausted", "on_rate_limit_exhausted", "on_throttle_hard")
_CAPTURE_NAME = late_pattern(r"[\w-]+")


def check(loop: Loop, document: Document | None = None) -> Iterator[Diagnostic]:
    """All diagnostics of a loop. document: locates variables inside texts."""
    yield from _Checker(loop, document).run()


def _warning(
    id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
) -> Diagnostic:
    return Diagnostic(id, message, span, label, help, "warning")


class _Checker:
    def __init__(self, loop: Loop, document: Document | None) -> None:
        self.loop = loop
        self.document = document
        self.comparisons = 0
        # Whether a route has no successor. That already explains why the loop never ends.
        self.has_dead_end = False

    def run(self) -> Iterator[Diagnostic]:
        misspelt: dict[str, StateSpec] = {}
        for state in self.loop.states.values():
            for finding in self.misspelt(state):
                yield finding
                misspelt[state.name] = state.evolve(flawed=True)
        if misspelt:  # the meaning of such a state is unknown, so few other checks apply to it
            self.loop = self.loop.evolve(states={**self.loop.states, **misspelt}, flawed=True)
        loop = self.loop
        texts = list(read_texts(loop))
        graph = Graph(loop, self.resolve)
        yield from self.names()
        yield from self.settings()
        for state in loop.states.values():
            yield from self.targets(state)
            if state.name not in misspelt:
                yield from check_keys(loop, state)
            if not state.flawed and (state.type is None or state.acts):
                yield from self.flow(state)
                yield from check_evaluator(loop, state)
        yield from check_expressions(loop, texts)
        yield from self.reachability(graph)
        yield from check_variables(loop, graph, texts, self.document)

    # --- names and settings -----------------------------------------------------------------

    def names(self) -> Iterator[Diagnostic]:
        loop = self.loop
        if loop.name or not loop.flawed:
            problem = _name_problem(loop.name, may_have_spaces=True)
            if problem is not None:
                yield Diagnostic("bad-name", f"the loop's name {problem}", loop.span_of("name"))
        for state in loop.states.values():
            problem = _name_problem(state.name)
            if state.name.startswith("$") and problem is None:
                problem = "begins with `$`, which is reserved for `$current`"
            if problem is not None:
                help = (
                    f"write `{'_'.join(state.name.split())}`" if problem == "contains white space" else None
                )
                yield Diagnostic("bad-name", f"the state's name {problem}", state.span_of("name"), "", help)
            if state.capture is not None and not _CAPTURE_NAME.fullmatch(state.capture):
                help = "use letters, digits, `_` and `-`"
                message = f"`{clean(state.capture, 80)}` cannot be the name of a capture"
                yield Diagnostic("bad-name", message, state.span_of("capture"), "", help)
        if not loop.states and not loop.flawed:
            yield Diagnostic("no-states", "the loop has no states", loop.span_of("states"))

    def settings(self) -> Iterator[Diagnostic]:
        loop = self.loop
        model = loop.llm.model
        if model is not None and "${" in model and model != DEFAULT_MODEL_TEXT:
            message = f"`model` may contain no variable except `{DEFAULT_MODEL_TEXT}`"
            yield Diagnostic("unknown-variable", message, loop.llm.span_of("model"))
        for i, path in enumerate(loop.scope or ()):
            if "${" in path:
                message = "a scope must be known before the run: it may contain only variables of `context`"
                yield Diagnostic("bad-scope", message, loop.span_of(f"scope[{i}]", "scope"))
        if "key:max_handoffs" in loop.spans and loop.on_handoff == "end":
            why = "the loop ends when an agent hands over"
            help = "add `on_handoff: continue` or `on_handoff: pause`"
            yield unused_key(loop, "max_handoffs", why, help)
        if "key:on_handoff" in loop.spans and not loop.flawed and not self.has_agent():
            yield unused_key(loop, "on_handoff", "the loop has no slash command")
        if isinstance(loop.agent, AgentSettings) and loop.agent.acp is not None:
            for key in ("program", "args"):
                if loop.agent.is_given(key):
                    why = "`acp` is the command of the agent"
                    yield unused_key(loop.agent, key, why, f"leave out `{key}`")
        for key, hook in hooks_in(loop.hooks, *REPORTING):
            if hook.on_failure == FAIL:
                why = f"a failure of an `{key}` hook is only recorded"
                yield unused_key(hook, "on_failure", why, place="on_failure")
        if loop.maintain_delay is not None and not loop.maintain:
            yield unused_key(loop, "maintain_delay", "the loop has no `maintain: true`")

    def has_agent(self) -> bool:
        """Whether an action goes to an agent; true for a state that is invalid."""
        states = self.loop.states.values()
        return any(
            state.flawed or (state.action is not None and self.loop.kind_of(state) == "slash")
            for state in states
        )

    # --- targets ----------------------------------------------------------------------------

    def resolve(self, target: str) -> str | None:
        """The state that a target names; None if it is known only at run time."""
        if "${" not in target:
            return target
        return fixed_text(parse(target, kind="value", context=self.loop.context))

    def targets(self, state: StateSpec) -> Iterator[Diagnostic]:
        for key in ("on_success", "on_failure", "on_error", "next", *_LIMIT_TARGETS):
            target = getattr(state, key)
            if target is not None and not self.is_state(target):
                yield from self.target(target, state.span_of(key))
        for verdict, target in (state.route or {}).items():
            if not self.is_state(target):
                yield from self.target(target, state.span_of(f"route.{verdict}"))
        if state.on_quota and state.on_quota not in QUOTA_WORDS:
            yield from self.target(
                state.on_quota, state.span_of("on_quota"), "target while the quota is used up"
            )
        if state.on_maintain is not None:
            yield from self.fixed_target(state.on_maintain, state.span_of("on_maintain"), "restarts here")

    def fixed_target(self, target: str, span: Span | None, label: str) -> Iterator[Diagnostic]:
        """Check a target that must be known at compile time."""
        if "${" in target:
            message = "this target must be a fixed state name"
            yield Diagnostic("unknown-state", message, span, "", "write the name of a state")
        else:
            yield from self.target(target, span, label)

    def is_state(self, target: str) -> bool:
        # A loop without states has an error already.
        return target in self.loop.states or target == CURRENT or not self.loop.states

    def target(self, target: str, span: Span | None, label: str = "jumps here") -> Iterator[Diagnostic]:
        if self.is_state(target):
            return
        name = self.resolve(target)
        if name is None or name in self.loop.states or name == CURRENT:
            return
        if "${" in target and parse(target, kind="value", context=self.loop.context).problems:
            return
        help = None
        self.comparisons += len(self.loop.states)
        if target.startswith("$"):
            help = f"did you mean `{CURRENT}`?"
        elif self.comparisons <= MAX_COMPARISONS:
            help = suggest(name, self.loop.states, "the states are")
            has_end = any(state.is_terminal for state in self.loop.states.values())
            if name.lower() in _TERMINAL_NAMES and not has_end and nearest(name, self.loop.states) is None:
                help = f"add a state that ends the loop: `{name}: {{terminal: true}}`"
            self.has_dead_end = True
        yield Diagnostic("unknown-state", f"no state named `{name}`", span, label, help)

    def reachability(self, graph: Graph) -> Iterator[Diagnostic]:
        """Check the initial state, reachability and termination."""
        loop = self.loop
        if loop.on_stall is not None:
            yield from self.target(loop.on_stall, loop.span_of("on_stall"), "target of a stalled loop")
            if loop.stall_rounds == 0:
                yield unused_key(loop, "on_stall", "`stall` is false", place="on_stall")
        if loop.on_quota and loop.on_quota not in QUOTA_WORDS:
            yield from self.target(
                loop.on_quota, loop.span_of("on_quota"), "target while the quota is used up"
            )
        for key, label in (
            ("on_error", "errors go here"),
            ("on_max_steps", "runs at the limit"),
            ("on_max_iterations", "runs at the limit"),
        ):
            target = getattr(loop, key)
            if target is not None and key == "on_error":
                yield from self.target(target, loop.span_of(key), label)
            elif target is not None:
                yield from self.fixed_target(target, loop.span_of(key), label)
        if loop.on_max_steps is not None and loop.max_steps is None and not loop.flawed:
            yield unused_key(
                loop, "on_max_steps", "the number of entered states has no limit", "add `max_steps`"
            )
        if loop.initial or not loop.flawed:
            if loop.initial == CURRENT:
                yield Diagnostic(
                    "unknown-state", "`$current` cannot be the initial state", loop.span_of("initial")
                )
            else:
                yield from self.fixed_target(loop.initial, loop.span_of("initial"), "begins here")
        if graph.initial is None:
            return
        reachable = graph.reachable()
        for number, state in enumerate(loop.states.values()):
            if number not in reachable and not loop.flawed:
                message = f"no route leads to state `{state.name}`"
                yield _warning("unreachable-state", message, state.span_of("name"), "never entered")
        stuck = sorted(reachable - graph.can_finish() - {graph.any_state})
        # An explicit limit is the intended end of such a loop.
        is_bounded = loop.max_steps is not None or loop.timeout is not None or loop.has_budget
        if stuck and not loop.flawed and not is_bounded and not self.has_dead_end:
            first = loop.states[graph.names[stuck[0]]]
            more = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
            help = "add a route to a terminal state; otherwise only a limit or an error ends the loop"
            message = f"no terminal state can be reached from `{first.name}`{more}"
            yield _warning("never-ends", message, first.span_of("name"), "runs forever", help)

    def misspelt(self, state: StateSpec) -> Iterator[Diagnostic]:
        """Report keys that read as `on_<verdict>`, but are misspelt keys of the schema."""
        given = [place[4:] for place in state.spans if place[:7] == "key:on_" and "." not in place]
        given = [key for key in given if key not in _SPECIAL_KEYS]
        if not given:
            return
        if "key:evaluate" in state.spans and state.evaluate is None:
            return  # it is invalid and was reported
        judges = state.acts or state.evaluate is not None
        possible = self.verdicts_of(state) if judges else ()
        for key in given:
            verdict = key.removeprefix("on_")
            meant = _FOREIGN_ROUTES.get(key) or nearest(key, _SPECIAL_KEYS)
            elsewhere = belongs_to_loop(key)
            if possible is None or verdict in (*possible, *DEFAULT_VERDICTS) or not (meant or elsewhere):
                continue
            message = f"state `{state.name}` has no key `{key}`"
            why = (
                f" `{self.loop.evaluator_of(state).type}` never gives the verdict `{verdict}`"
                if judges
                else ""
            )
            place = state.span_of(f"key:{key}")
            help = explain_key(key) or elsewhere or f"did you mean `{meant}`?{why}"
            yield Diagnostic("unknown-key", message, place, "unknown", help)

    def flow(self, state: StateSpec) -> Iterator[Diagnostic]:
        """Check that a state has something to evaluate and a successor."""
        name = state.name
        if state.next is not None or state.is_terminal:
            return
        if not state.routes.keys() - {"_error"}:
            help = "add `next`, `on_success` and `on_failure`, `route` or `terminal: true`"
            self.has_dead_end = True
            yield Diagnostic(
                "no-way-out", f"state `{name}` has no successor", state.span_of("name"), "ends here", help
            )
        elif not state.acts and state.evaluate is None:
            help = "add an action, or an evaluator with `source`; `next` needs no verdict"
            message = f"state `{name}` has nothing to evaluate"
            yield Diagnostic("nothing-to-judge", message, state.span_of("name"), "gives no verdict", help)
        elif not state.acts and state.evaluate is not None and state.evaluate.source is None:
            help = 'add `source`, such as `source: "${prev.output}"`'
            message = f"state `{name}` has no action, and its evaluator no `source`"
            yield Diagnostic(
                "missing-source", message, state.evaluate.span_of("type"), "has nothing to evaluate", help
            )
        else:
            yield from self.verdicts(state)

    def verdicts(self, state: StateSpec) -> Iterator[Diagnostic]:
        """Report possible verdicts without a route, and routes for impossible verdicts."""
        evaluator = self.loop.evaluator_of(state)
        if isinstance(evaluator, LlmStructured) and not self.loop.llm.enabled:
            return
        produced = self.verdicts_of(state)
        routes = state.routes
        routed = [verdict for verdict in routes if verdict not in ("_", "_error")]
        kind = evaluator.type
        if produced is None:
            if "_" not in routes:
                message = "the schema does not list its verdicts, and there is no route for other verdicts"
                if not isinstance(evaluator, LlmStructured):
                    message = "any text may be the verdict, and there is no route for other verdicts"
                where = _evaluator_span(state)
                yield _warning(
                    "unrouted-verdict", message, where, "may give any verdict", "add `_` to the route"
                )
            return
        unrouted = [verdict for verdict in produced if verdict not in routes and verdict != "error"]
        if unrouted and "_" not in routes:
            names = ", ".join(f"`{verdict}`" for verdict in unrouted)
            error = routes.get("_error") or self.loop.on_error
            outcome = f"an error goes to `{error}`" if error else "the loop ends with an error"
            help = f"add `_` to the route to take every other verdict; otherwise {outcome}"
            if self.loop.paradigm != "fsm":
                help = f"`llc compile --emit fsm` prints states to add routes to; otherwise {outcome}"
            message = f"state `{state.name}` has no route for {names}"
            yield _warning(
                "unrouted-verdict", message, _evaluator_span(state), f"`{kind}` may give this verdict", help
            )
        possible = {*produced, *(DEFAULT_VERDICTS if self.loop.kind_of(state) == "slash" else ())}
        for verdict in routed:
            if verdict not in possible:
                yield self.unknown_verdict(state, verdict, kind, produced)

    def verdicts_of(self, state: StateSpec) -> tuple[str, ...] | None:
        """The possible verdicts of a state's evaluator, without `error`; None: any text."""
        evaluator = self.loop.evaluator_of(state)
        if isinstance(evaluator, Answer) and state.choices:
            return state.choices
        if state.runs_loops and "timeout" in state.routes:
            return ("success", "failure", "timeout")
        if isinstance(evaluator, ExitCode) and evaluator.abstain_on_exit_3:
            return ("success", "failure", CANNOT_JUDGE)
        if not isinstance(evaluator, LlmStructured):
            return evaluator.verdicts
        verdicts = schema_verdicts(evaluator, state.routes)
        if verdicts is not None and evaluator.uncertain_suffix:
            verdicts = (*verdicts, *(f"{verdict}_uncertain" for verdict in verdicts))
        return verdicts

    def unknown_verdict(
        self, state: StateSpec, verdict: str, kind: str, produced: tuple[str, ...]
    ) -> Diagnostic:
        place = state.span_of(f"key:route.{verdict}", f"key:on_{verdict}")
        meant = {"yes": "success", "no": "failure"}.get(verdict.lower(), verdict.lower())
        help = explain_key(f"on_{verdict}") or suggest(verdict, produced, "its verdicts are")
        if meant in produced:
            help = f"did you mean `{meant}`?"
        return _warning(
            "unknown-verdict", f"`{kind}` never gives the verdict `{verdict}`", place, "never taken", help
        )


def _evaluator_span(state: StateSpec) -> Span | None:
    """The span of the evaluator of a state, or of its action."""
    if state.evaluate is not None:
        return state.evaluate.span_of("type")
    return state.span_of("action", "name")


def _name_problem(name: str, may_have_spaces: bool = False) -> str | None:
    if not name.strip():
        return "is empty"
    if len(name) > MAX_NAME:
        return f"is longer than {MAX_NAME} characters"
    if not name.isprintable():
        return "contains unprintable characters"
    if "/" in name:
        return "contains `/`"
    if any(ch.isspace() for ch in name) and not may_have_spaces:
        return "contains white space"
    if name != name.strip():
        return "begins or ends with white space"
    return "is the name of a folder" if name in (".", "..") else None
