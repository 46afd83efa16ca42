"""Lowering of evaluators to expressions that compute a verdict from an action result.

One method for each evaluator of the schema. The deterministic evaluators are primitives; `output_json`
performs a jq effect and `llm_structured` a model effect, and a primitive evaluates the reply.
"""

from __future__ import annotations

import shlex
from typing import Any, assert_never

from ...ir.builder import expr, freeze, prim, record, store
from ...ir.effects import CANNOT_JUDGE
from ...ir.nodes import Const, Expr, Slot
from ..loop.evaluator_schema import (
    DEFAULT_PROMPT,
    EVIDENCE_PROMPT,
    Answer,
    Classify,
    Convergence,
    DiffStall,
    ExitCode,
    HarborScorer,
    LlmStructured,
    McpResult,
    OutputContains,
    OutputJson,
    OutputNumeric,
    ScoreStall,
    schema_for,
)
from ..loop.schema import StateSpec
from . import templates
from .actions import agent_arguments
from .budgets import check_budget, spend
from .calls import loop_result
from .chain import Chain
from .loop_context import ASKED, CHECKED, LoopContext
from .templates import Needs

# Prints a digest of the commit, the changes since the commit, and the new files.
FINGERPRINT = (
    "{{ git rev-parse HEAD; git diff HEAD --binary -- {paths}; "
    "git ls-files --others --exclude-standard -z -- {paths} | xargs -0 git hash-object --; }} 2>&1 | "
    "git hash-object --stdin"
)
# Characters from the end of an output that the model sees; the limit of the seed.
SHOWN_CHARACTERS = 4000


def as_text(value: Expr) -> Expr:
    return value if isinstance(value, Const) and isinstance(value.value, str) else prim("text", value)


class Evaluation:
    """Writes the states that compute `result` from `last` or from the evaluator's source."""

    def __init__(self, context: LoopContext, chain: Chain, state: StateSpec) -> None:
        self.context = context
        self.chain = chain
        self.state = state
        self.evaluator = context.loop.evaluator_of(state)
        self.type = self.evaluator.type
        self.needs = Needs()

    def lower(self) -> None:
        if self.state.runs_loops:
            self.chain.add(store("result", loop_result(self.state), span=self.state.span))
            return
        match self.evaluator:
            case Answer():
                result = self.answer()
            case ExitCode():
                result = self.exit_code(self.evaluator)
            case OutputNumeric():
                result = self.numeric(self.evaluator)
            case OutputContains():
                result = self.contains(self.evaluator)
            case OutputJson():
                result = self.json(self.evaluator)
            case Convergence():
                result = self.convergence(self.evaluator)
            case LlmStructured():
                result = self.model(self.evaluator)
            case HarborScorer():
                result = self.score()
            case McpResult():
                result = self.tool()
            case Classify():
                result = self.classify(self.evaluator)
            case DiffStall():
                result = self.work_tree(self.evaluator)
            case ScoreStall():
                result = self.history(self.evaluator)
            case _:
                assert_never(self.evaluator)
        self.chain.add(store("result", result, span=self.evaluator.span))
        if isinstance(self.evaluator, Convergence):
            measured = Slot(f"measured.{self.state.name}")
            current = prim("lookup_or", Slot("result"), ("details", "current"), None)
            kept = prim("select", prim("is_null", current), measured, current)
            self.chain.add(store(measured.name, kept))

    # --- operands ---------------------------------------------------------------------------

    def field(self, name: str, *, lenient: bool = False) -> Expr:
        """The value of a field of the evaluator, with its variables expanded if it is a string."""
        value = getattr(self.evaluator, name)
        if not isinstance(value, str):
            return expr(freeze(value))
        template = self.context.templates[self.state.name, f"evaluate.{name}"]
        place = self.context.place(self.state, f"evaluate.{name}", value)
        fill = templates.lenient if lenient else templates.value_of
        return fill(template, place, self.needs)

    def subject(self) -> Expr:
        """The text to evaluate: the `source`, or the output of the action."""
        if self.evaluator.source is not None:
            return self.field("source")
        return prim("get", Slot("last"), "output")

    def stderr(self) -> list[Expr]:
        """The standard error of the evaluated command, for the message if the output is not a number."""
        return [prim("get", Slot("last"), "stderr")] if self.sees_exit and not self.evaluator.source else []

    def prepared(self, *operands: Expr) -> None:
        """Request the host data that the operands need, before the evaluating state."""
        self.context.prepare(self.chain, self.state, "judge", self.needs)

    @property
    def sees_exit(self) -> bool:
        return self.state.acts and not getattr(self.evaluator, "ignore_exit", False)

    def unless_crashed(self, result: Expr) -> Expr:
        """The verdict on an output; `error` if the action that printed it crashed."""
        if self.state.acts and self.context.loop.nonzero_exit == "error":
            return prim("or", prim("judge_failed_exit", Slot("last")), result)
        return prim("or", prim("judge_crash", Slot("last")), result) if self.sees_exit else result

    # --- evaluators -------------------------------------------------------------------------

    def answer(self) -> Expr:
        """The chosen answer; `success` if any text is allowed."""
        answer = prim("get", Slot("last"), "output")
        details = record({"answer": answer, "by": prim("get", Slot("last"), "by")})
        verdict = answer if self.state.choices else expr("success")
        return self.unless_crashed(record({"verdict": verdict, "details": details}))

    def exit_code(self, evaluator: ExitCode) -> Expr:
        success, failure = expr(evaluator.success), expr(evaluator.failure)
        if evaluator.source is not None:
            code = self.field("source")
            self.prepared(code)
            return prim("judge_exit", record({"exit_code": code}), success, failure)
        result = prim("judge_exit", Slot("last"), success, failure)
        if not evaluator.abstain_on_exit_3:
            return result
        abstains = prim("eq", prim("lookup_or", Slot("last"), ("exit_code",), None), 3)
        abstention = record({"verdict": CANNOT_JUDGE, "details": record({"exit_code": 3})})
        return prim("select", abstains, abstention, result)

    def score(self) -> Expr:
        """Evaluate the number that a command prints; its exit code can state that there is none."""
        subject, code = self.subject(), prim("lookup_or", Slot("last"), ("exit_code",), 0)
        self.prepared(subject)
        number = prim("judge_numeric", subject, "ge", 0, *self.stderr())
        value = prim("get", prim("get", number, "details"), "value")
        scored = record({"verdict": "success", "details": record({"value": value, "exit_code": code})})
        refused = record({"verdict": "failure", "details": record({"exit_code": code})})
        judged = prim("select", prim("eq", prim("get", number, "verdict"), "error"), number, scored)
        judged = prim("select", prim("eq", code, 0), judged, refused)
        return prim("or", prim("judge_crash", Slot("last")), judged) if self.sees_exit else judged

    def tool(self) -> Expr:
        """Evaluate the exit code of a tool call; a call that could not be made is an error."""
        last = Slot("last")
        code = prim("lookup_or", last, ("exit_code",), None)
        timed_out = prim("eq", prim("lookup_or", last, ("timed_out",), None), "action")
        verdict = prim("select", prim("eq", code, 0), "success", "tool_error")
        verdict = prim("select", prim("eq", code, 127), "not_found", verdict)
        verdict = prim("select", prim("or", timed_out, prim("eq", code, 124)), "timeout", verdict)
        said = record({"verdict": verdict, "details": record({"exit_code": code})})
        is_broken = prim("not", prim("is_null", prim("lookup_or", last, ("error",), None)))
        is_broken = prim("and", is_broken, prim("not", prim("eq", code, 127)))
        return prim("select", is_broken, prim("judge_crash", last), said)

    def numeric(self, evaluator: OutputNumeric) -> Expr:
        subject, target = self.subject(), self.field("target")
        self.prepared(subject, target)
        if evaluator.key is not None:
            subject = prim("number_after", as_text(subject), evaluator.key)
        result = prim("judge_numeric", subject, evaluator.operator, target, *self.stderr())
        return self.unless_crashed(result)

    def contains(self, evaluator: OutputContains) -> Expr:
        subject, pattern = self.subject(), self.field("pattern")
        self.prepared(subject, pattern)
        cut = prim("not", prim("is_null", self.truncated()))
        result = prim("judge_contains", subject, pattern, evaluator.match, evaluator.negate, cut)
        if evaluator.error_patterns and not evaluator.negate:
            result = prim("judge_error_text", result, as_text(subject), freeze(evaluator.error_patterns))
        return self.unless_crashed(result)

    def classify(self, evaluator: Classify) -> Expr:
        subject = self.subject()
        self.prepared(subject)
        return self.unless_crashed(prim("judge_line", as_text(subject), evaluator.line))

    def work_tree(self, evaluator: DiffStall) -> Expr:
        """`failure` if the same state of the work tree occurs repeatedly."""
        self.prepared()
        paths = " ".join(shlex.quote(path) for path in evaluator.scope or (".",))
        tree = self.command(expr(FINGERPRINT.format(paths=paths)))
        seen, stalled = Slot(f"tree.{self.state.name}"), Slot(f"stalled.{self.state.name}")
        before = prim("select", prim("is_null", stalled), 0, stalled)
        count = prim("select", prim("eq", tree, seen), prim("add", before, 1), 0)
        self.chain.add(store(stalled.name, count), store(seen.name, tree))
        return self.stall(prim("ge", stalled, evaluator.max_stall), stalled, evaluator.max_stall)

    def history(self, evaluator: ScoreStall) -> Expr:
        """`failure` if the last numbers in a file do not improve on the earlier ones."""
        file = self.field("history_file")
        self.prepared(file)
        numbers = self.command(prim("concat", "cat -- ", prim("shell_word", file)))
        return prim("judge_history", numbers, evaluator.max_stall, evaluator.epsilon, evaluator.is_falling)

    def command(self, command: Expr) -> Expr:
        """The output of one of llc's own commands; empty if the command fails."""
        args = {"command": command, "timeout_s": None, "deadline_ms": self.context.deadline}
        self.chain.perform("shell", {**args, "on_unknown": None}, "reply", f"{self.state.name}/judge")
        self.context.in_time(self.chain, "reply", f"{self.state.name}/judge_in_time")
        return prim("lookup_or", Slot("reply"), ("output",), "")

    def stall(self, is_stalled: Expr, count: Expr, most: int) -> Expr:
        details = record({"stall_count": count, "max_stall": most})
        return record({"verdict": prim("select", is_stalled, "failure", "success"), "details": details})

    def truncated(self) -> Expr:
        """The number of bytes missing from the subject; null if it is complete or the number is unknown."""
        if self.evaluator.source is None:
            return prim("lookup_or", Slot("last"), ("truncated", "output"), None)
        template = self.context.templates[self.state.name, "evaluate.source"]
        read = template.variables
        if len(read) == 1 and read[0].path[-1] in templates.PRINTED and read[0].namespace != "env":
            place = self.context.place(self.state, "evaluate.source", self.evaluator.source)
            base, path = templates.base_of(read[0], place, self.needs)
            return prim("lookup_or", base, (*path[:-1], "truncated", path[-1]), None)
        return expr(None)

    def json(self, evaluator: OutputJson) -> Expr:
        subject, path, target = self.subject(), self.field("path"), self.field("target")
        self.prepared(subject, path, target)
        args = {"program": path, "input": as_text(subject)}
        self.chain.perform("jq", args, "reply", f"{self.state.name}/judge")
        result = prim("judge_json", Slot("reply"), path, evaluator.operator, target)
        return self.unless_crashed(result)

    def convergence(self, evaluator: Convergence) -> Expr:
        subject, target, tolerance = self.subject(), self.field("target"), self.field("tolerance")
        # The seed shows `previous: ${prev.output}` here, which would read the output of the *apply* action.
        # The intended value is the last value that this state measured.
        if self.context.loop.paradigm == "convergence":
            previous = expr(None)
        else:
            previous = self.field("previous", lenient=True)
        reference = self.field("reference")
        self.prepared(subject, target, tolerance, previous, reference)
        measured: Expr = Slot(f"measured.{self.state.name}")
        if evaluator.previous == "":
            previous = measured = expr(None)
        operands = (subject, target, tolerance, previous, measured, evaluator.direction)
        result = prim("judge_convergence", *operands, *self.stderr())
        if evaluator.reference not in (None, ""):
            worse = "gt" if evaluator.direction == "minimize" else "lt"
            compared = prim("judge_numeric", subject, worse, reference, *self.stderr())
            said, details = prim("get", compared, "verdict"), prim("get", compared, "details")
            known = {"current": prim("get", details, "value"), "target": target}
            stall = record({"verdict": "stall", "details": record(known)})
            result = prim("select", prim("eq", said, "error"), compared, result)
            result = prim("select", prim("eq", said, "success"), stall, result)
        return self.unless_crashed(result)

    def model(self, evaluator: LlmStructured) -> Expr:
        context, state, chain = self.context, self.state, self.chain
        if not context.loop.llm.enabled:
            disabled = {"kind": "llm-disabled", "message": "model evaluation is switched off"}
            return prim("judge_model", expr({"error": disabled}), evaluator.min_confidence, False)
        if state.acts:
            chain.unless(prim("judge_crash", Slot("last")), f"{state.name}/crashed", f"{state.name}/ask")
            context.crashed(state)
        is_by_evidence = state.name in context.judged
        # A slash command can be a check whose answer is its work.
        is_strict = context.loop.llm.sees == "evidence" or state.action_type == "prompt"
        is_answer_seen = not (is_by_evidence and is_strict)
        subject = self.subject() if is_answer_seen else expr("")
        default = EVIDENCE_PROMPT if is_by_evidence else DEFAULT_PROMPT
        prompt = self.field("prompt") if evaluator.prompt is not None else expr(default)
        self.prepared(subject, prompt)
        check_budget(context, chain, state, "ask")
        settings = context.loop.llm
        args: dict[str, Any] = {
            "prompt": as_text(prompt),
            "output": prim("tail", as_text(subject), SHOWN_CHARACTERS) if is_answer_seen else subject,
            "schema": freeze(schema_for(evaluator, state.routes)),
            "model": context.model,
            "max_tokens": settings.max_tokens,
            "timeout_s": settings.timeout,
            "deadline_ms": context.deadline,
            "on_unknown": state.on_unknown,
        }
        if is_by_evidence:
            args["evidence"] = record(
                {
                    "task": ASKED,
                    "exit_code": prim("get", Slot("last"), "exit_code"),
                    # A prompt that already contains the check need not repeat it.
                    "checked": expr("") if state.feedback else prim("check_report", CHECKED),
                }
            )
        if settings.judge is not None:
            args["judge"] = settings.judge
        if settings.judge != "model":
            args |= agent_arguments(context, state)
        chain.perform("evaluate", args, "reply", f"{state.name}/judge")
        spend(context, chain, state, "reply")
        context.in_time(chain, "reply", f"{state.name}/judge_in_time")
        return prim(
            "judge_model", Slot("reply"), expr(evaluator.min_confidence), expr(evaluator.uncertain_suffix)
        )
