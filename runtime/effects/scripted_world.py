"""Scripted world: takes the results of effects from rules and performs nothing.

Owns the selection of a rule, its results, and a clock that only the script advances; `script_reader` owns the
file format. jq programs are executed, because they have no side effects. See `spec/effects.md`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...ir.effects import EFFECTS, TASK_RESULT
from ...ir.light_records import LightRecord, field
from ...ir.regex import MatchLimit, encoded
from ..host import signals
from ..host.clock import timestamp
from ..host.effect_context import Context, EffectLike, leave, pause
from .handoff import handoff_of
from .performers import Parts, performer_of
from .process import failure

# Default start of a scripted clock: the day of the seed's examples.
EPOCH = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)


class NoRule(Exception):
    """No rule of the script answers an effect; the message names the effect and the nearest rule."""


class Rule(LightRecord):
    """One rule: its conditions, its results in order, and the number of effects that it has answered."""

    line: int
    kinds: tuple[str, ...] = ()
    state: str | None = None
    command: str | None = None
    pattern: Any = None
    name: str | None = None
    args: dict[str, Any] = field(factory=dict)
    times: int | None = None
    results: list[dict[str, Any]] = field(factory=list)
    used: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.used >= self.times

    def mismatches(self, effect: EffectLike, state: str | None) -> list[str]:
        """The reasons why the rule does not answer an effect; empty if it does."""
        reasons = []
        if effect.kind not in self.kinds:
            reasons.append(f"is for {' or '.join(f'`{kind}`' for kind in self.kinds)}")
        if self.state is not None and self.state != state:
            reasons.append(f"is for state `{self.state}`")
        if self.pattern is not None and not self._is_match(_subject(effect)):
            reasons.append(f"wants a command with `{self.command}`")
        if self.name is not None and self.name != effect.args.get("name"):
            reasons.append(f"is for `{self.name}`")
        inputs = effect.args.get(EFFECTS[effect.kind].inputs)
        for name, value in self.args.items():
            if not isinstance(inputs, dict) or name not in inputs or not _is_same(inputs[name], value):
                reasons.append(f"wants another `{name}`")
        if self.is_used_up:
            reasons.append(f"has answered {self.used} time{'s' * (self.used != 1)} and is used up")
        return reasons

    def _is_match(self, subject: str) -> bool:
        try:
            return self.pattern.search(encoded(subject)) is not None
        except MatchLimit as error:
            raise NoRule(f"line {self.line} of the script: {error}") from None

    def take(self) -> dict[str, Any]:
        result = self.results[min(self.used, len(self.results) - 1)]
        self.used += 1
        return result


class ScriptedWorld:
    """A world with results from a script; implements the protocol of `world.World`."""

    is_scripted = True

    def __init__(
        self, rules: list[Rule], env: dict[str, str] | None = None, start: datetime = EPOCH, path: str = ""
    ) -> None:
        self.rules = rules
        self._env = env or {}
        self._start = start.timestamp()
        self._elapsed = 0.0  # seconds since the start
        self._path = path
        self._parts = Parts()

    def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
        context.interrupt.check()
        kind, args = effect.kind, effect.args
        if not EFFECTS[kind].scripted:
            return self._perform_without_rule(kind, args, context)
        limit, limited_by = context.limit(args, own="action")
        if limit is not None and limit <= 0:
            return self._timed_out(kind, context, limited_by)
        rule = self._rule(effect, context.state)
        if rule is None:
            if kind == "jq":
                return performer_of(kind)(args, context, self._parts)
            raise NoRule(self._no_rule_message(effect, context.state))
        fields = rule.take()
        if kind == "jq":
            return _with_error(fields)
        duration = fields.get("duration_ms", 0) / 1000
        if limit is not None and duration > limit:
            self._elapsed += limit
            fields = {"timed_out": limited_by, "duration_ms": round(limit * 1000)}
        else:
            self._elapsed += duration
        if kind == "ask":
            fields = self._answer(rule, fields, args)
        result = _RESULT_BUILDERS.get(kind, _action_result)(fields)
        if kind == "agent" and (handoff := handoff_of(result["output"])) is not None:
            result["handoff"] = handoff
        result["elapsed_ms"] = context.elapsed_ms()
        if context.on_output is not None and EFFECTS[kind].is_action:
            for stream in ("output", "stderr"):
                if result[stream]:
                    context.on_output(stream, result[stream])
        return result

    def _perform_without_rule(self, kind: str, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Perform an effect that rules cannot answer."""
        if kind == "clock":
            return {"time": timestamp(self.time()), "elapsed_ms": context.elapsed_ms()}
        if kind == "env":
            return {"values": {name: self._env.get(name) for name in args["names"]}}
        if kind == "sleep":
            return self._sleep(args, context)
        if kind == "exit":
            leave(args)
        if kind == "pause":
            return pause(context)
        return performer_of(kind)(args, context, self._parts)

    def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
        """Observe a recorded result: use the rule that answered it, and advance the clock."""
        if effect.kind == "sleep":
            self._elapsed += effect.args["seconds"]
        rule = self._rule(effect, state) if EFFECTS[effect.kind].scripted else None
        if rule is not None:
            rule.take()
        self._elapsed += result.get("duration_ms", 0) / 1000

    def save(self) -> Any:
        return {"passed": self._elapsed, "used": [[rule.line, rule.used] for rule in self.rules]}

    def restore(self, saved: Any) -> bool:
        """Restore the state that `save` returned; return False if the rules have changed."""
        if [line for line, _ in saved["used"]] != [rule.line for rule in self.rules]:
            return False
        self._elapsed = saved["passed"]
        for rule, (_, used) in zip(self.rules, saved["used"], strict=True):
            rule.used = used
        return True

    def time(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def close(self) -> None:
        self._parts.close()

    def _answer(self, rule: Rule, fields: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
        """The rule's answer to a question. Raises `NoRule` if it is not one of the choices."""
        choices, default = args.get("choices") or [], args.get("default")
        if "answer" in fields and choices and fields["answer"] not in choices:
            message = f"{self._path}:{rule.line} answers `{fields['answer']}`"
            raise NoRule(f"{message}, which is not one of the choices: {', '.join(choices)}")
        has_no_answer = fields.get("timed_out") != "loop" and not {"answer", "error"} & fields.keys()
        if has_no_answer and default is not None:
            return {"answer": default, "by": "default", "duration_ms": fields.get("duration_ms", 0)}
        return fields

    def _rule(self, effect: EffectLike, state: str | None) -> Rule | None:
        for rule in self.rules:
            if not rule.mismatches(effect, state):
                return rule
        return None

    def _sleep(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        limit, _ = context.limit(args, own="loop")
        is_shortened = limit is not None and limit < args["seconds"]
        self._elapsed += max(0.0, limit if limit is not None and is_shortened else args["seconds"])
        result: dict[str, Any] = {"elapsed_ms": context.elapsed_ms()}
        if is_shortened:
            result["timed_out"] = "loop"
        return result

    def _timed_out(self, kind: str, context: Context, limited_by: str) -> dict[str, Any]:
        """The result of an effect without remaining time."""
        if kind not in _RESULT_BUILDERS:
            return failure(context, 124, timed_out=limited_by)
        return {**_RESULT_BUILDERS[kind]({"timed_out": limited_by}), "elapsed_ms": context.elapsed_ms()}

    def _no_rule_message(self, effect: EffectLike, state: str | None) -> str:
        message = f"no rule answers `{effect.kind}`"
        if state is not None:
            message += f" in state `{state}`"
        subject = _subject(effect)
        if subject:
            name = EFFECTS[effect.kind].subject
            message += f" ({name} `{subject if len(subject) <= 200 else subject[:200] + '…'}`)"
        if not self.rules:
            return f"{message}: the script has no rules"
        # The rule with the fewest mismatches; rules for this state come first, then the order of the script.
        nearest = min(self.rules, key=lambda rule: (len(rule.mismatches(effect, state)), rule.state != state))
        reasons = " and ".join(nearest.mismatches(effect, state))
        return f"{message}; the nearest rule, {self._path}:{nearest.line}, {reasons}"


def _subject(effect: EffectLike) -> str:
    """The text in which `command` of a rule is searched: an action's command, a query, a question."""
    subject = effect.args.get(EFFECTS[effect.kind].subject)
    # RE2 requires UTF-8, which cannot encode lone surrogates.
    return subject.encode("utf-8", "replace").decode() if isinstance(subject, str) else ""


def _with_error(fields: dict[str, Any]) -> dict[str, Any]:
    """A copy of a rule's fields; expands an `error` that is a text."""
    error = fields.get("error")
    if isinstance(error, str):
        return {**fields, "error": {"kind": error, "message": error}}
    return dict(fields)


def _with_timeout_error(fields: dict[str, Any], message: str = "no answer in time") -> dict[str, Any]:
    """`_with_error`; adds a timeout error to fields with `timed_out`."""
    fields = _with_error(fields)
    if "timed_out" in fields:
        fields.setdefault("error", {"kind": "timeout", "message": message})
    return fields


# Functions that build the result of an effect from the fields of a rule.


def _action_result(fields: dict[str, Any]) -> dict[str, Any]:
    fields = _with_error(fields)
    code = 0
    if "timed_out" in fields:
        fields.setdefault("signal", "SIGTERM")
    if "signal" in fields:
        code = 128 + signals.number_of(fields["signal"])
    elif "error" in fields:
        code = 127 if fields["error"].get("kind") == "not-found" else 126
    return {"output": "", "stderr": "", "exit_code": code, "duration_ms": 0, **fields}


def _ask_result(fields: dict[str, Any]) -> dict[str, Any]:
    """The answer; without `answer`, a timeout or a failure."""
    if "answer" not in fields:
        timed_out = fields.get("timed_out")
        result = _action_result({name: value for name, value in fields.items() if name != "timed_out"})
        return (
            {**result, "exit_code": 124, "timed_out": timed_out} if timed_out else {**result, "exit_code": 1}
        )
    result = {name: value for name, value in fields.items() if name != "answer"}
    return {**_action_result({}), "by": "script", **result, "output": fields["answer"]}


def _context_result(fields: dict[str, Any]) -> dict[str, Any]:
    """The matches; a path alone is a match."""
    fields = _with_timeout_error(fields)
    matches = [
        {"score": 1.0, **match} if isinstance(match, dict) else {"path": str(match), "score": 1.0}
        for match in fields.get("matches", ())
    ]
    return {"duration_ms": 0, **fields, "matches": matches}


def _evaluate_result(fields: dict[str, Any]) -> dict[str, Any]:
    fields = _with_timeout_error(fields, "no reply in time")
    reply = {name: fields.pop(name) for name in ("verdict", "confidence", "reason") if name in fields}
    if reply and "error" not in fields:
        fields["reply"] = {"confidence": 1.0, "reason": "", **reply, **fields.get("reply", {})}
    return {"duration_ms": 0, **fields}


def _tool_result(fields: dict[str, Any]) -> dict[str, Any]:
    fields = _with_timeout_error(fields)
    return {"duration_ms": 0, **({} if "error" in fields else {"value": None}), **fields}


def _task_result(fields: dict[str, Any]) -> dict[str, Any]:
    """A TaskResult from its fields, or an error."""
    fields = _with_timeout_error(fields)
    task: dict[str, Any] = {"status": "COMPLETE", "content": "", "notes": {}}
    task |= {name: fields.pop(name) for name in TASK_RESULT if name in fields}
    if "error" in fields:
        return {"duration_ms": 0, **fields}
    if task["status"] == "FAILED" and "error" not in task["notes"]:
        error = {"type": "TASK_FAILURE", "reason": "scripted", "message": str(task["content"]), "details": {}}
        task["notes"] = {**task["notes"], "error": error}
    return {"duration_ms": 0, "result": task, **fields}


def _is_same(first: Any, second: Any) -> bool:
    """Whether two values are equal in the language, where true is not equal to 1."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


# All other kinds use `_action_result`.
_RESULT_BUILDERS = {
    "ask": _ask_result,
    "evaluate": _evaluate_result,
    "context": _context_result,
    "tool": _tool_result,
    "task": _task_result,
}
