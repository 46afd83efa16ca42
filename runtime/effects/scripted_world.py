"""Scripted worlds: results come from a list of rules, and nothing is performed.

Owns which rule answers an effect and with what, and a clock that only the script moves; `script_reader` owns
the file format. jq programs run for real, because they have no effects. See `spec/effects.md`.
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

# When a scripted clock starts where the script does not say: the day of the seed's examples.
EPOCH = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)


class NoRule(Exception):
    """An effect that no rule of the script answers; the text names it and the nearest rule."""


class Rule(LightRecord):
    """One rule: what it answers, its results in order, and how often it has answered."""

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
        """Why the rule does not answer an effect; empty where it does."""
        reasons = []
        if effect.kind not in self.kinds:
            reasons.append(f"is for {' or '.join(f'`{kind}`' for kind in self.kinds)}")
        if self.state is not None and self.state != state:
            reasons.append(f"is for state `{self.state}`")
        if self.pattern is not None and not self._is_match(_subject(effect)):
            reasons.append(f"wants a command with `{self.command}`")
        if self.name is not None and self.name != effect.args.get("name"):
            reasons.append(f"is for `{self.name}`")
        given = effect.args.get(EFFECTS[effect.kind].inputs)
        for name, value in self.args.items():
            if not isinstance(given, dict) or name not in given or not _is_same(given[name], value):
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
    """A world whose answers stand in a file; follows `world.WorldLike`."""

    is_scripted = True

    def __init__(
        self, rules: list[Rule], env: dict[str, str] | None = None, start: datetime = EPOCH, path: str = ""
    ) -> None:
        self.rules = rules
        self._env = env or {}
        self._start = start.timestamp()
        self._passed = 0.0
        self._path = path
        self._parts = Parts()

    def perform(self, effect: EffectLike, context: Context) -> dict[str, Any]:
        context.interrupt.check()
        kind, args = effect.kind, effect.args
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
        if kind == "link":
            return performer_of(kind)(args, context, self._parts)
        limit, limited_by = context.limit(args, own="action")
        if limit is not None and limit <= 0:
            return self._late(kind, context, limited_by)
        rule = self._rule(effect, context.state)
        if rule is None:
            if kind == "jq":
                return performer_of(kind)(args, context, self._parts)
            raise NoRule(self._complaint(effect, context.state))
        given = rule.take()
        if kind == "jq":
            return _with_error(given)
        duration = given.get("duration_ms", 0) / 1000
        if limit is not None and duration > limit:
            self._passed += limit
            given = {"timed_out": limited_by, "duration_ms": round(limit * 1000)}
        else:
            self._passed += duration
        if kind == "ask":
            given = self._answer(rule, given, args)
        result = _MADE[kind](given) if kind in _MADE else _action(given)
        if kind == "agent" and (handed := handoff_of(result["output"])) is not None:
            result["handoff"] = handed
        result["elapsed_ms"] = context.elapsed_ms()
        if context.on_output is not None and EFFECTS[kind].is_action:
            for stream in ("output", "stderr"):
                if result[stream]:
                    context.on_output(stream, result[stream])
        return result

    def observe(self, effect: EffectLike, result: dict[str, Any], state: str | None = None) -> None:
        """Use up the rule that answered an effect when it was recorded, and let its time pass."""
        if effect.kind == "sleep":
            self._passed += effect.args["seconds"]
        rule = self._rule(effect, state) if EFFECTS[effect.kind].scripted else None
        if rule is not None:
            rule.take()
        self._passed += result.get("duration_ms", 0) / 1000

    def save(self) -> Any:
        return {"passed": self._passed, "used": [[rule.line, rule.used] for rule in self.rules]}

    def restore(self, saved: Any) -> bool:
        """False where the rules are others by now."""
        if [line for line, _ in saved["used"]] != [rule.line for rule in self.rules]:
            return False
        self._passed = saved["passed"]
        for rule, (_, used) in zip(self.rules, saved["used"], strict=True):
            rule.used = used
        return True

    def time(self) -> float:
        return self._start + self._passed

    def monotonic(self) -> float:
        return self._passed

    def close(self) -> None:
        self._parts.close()

    def _answer(self, rule: Rule, given: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
        """What a rule says to a question, which has to be one of its choices."""
        choices, default = args.get("choices") or [], args.get("default")
        if "answer" in given and choices and given["answer"] not in choices:
            said = f"{self._path}:{rule.line} answers `{given['answer']}`"
            raise NoRule(f"{said}, which is not one of the choices: {', '.join(choices)}")
        is_left_open = given.get("timed_out") != "loop" and not {"answer", "error"} & given.keys()
        if is_left_open and default is not None:
            return {"answer": default, "by": "default", "duration_ms": given.get("duration_ms", 0)}
        return given

    def _rule(self, effect: EffectLike, state: str | None) -> Rule | None:
        for rule in self.rules:
            if not rule.mismatches(effect, state):
                return rule
        return None

    def _sleep(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        bound, _ = context.limit(args, own="loop")
        cut = bound is not None and bound < args["seconds"]
        self._passed += max(0.0, bound if bound is not None and cut else args["seconds"])
        result: dict[str, Any] = {"elapsed_ms": context.elapsed_ms()}
        if cut:
            result["timed_out"] = "loop"
        return result

    def _late(self, kind: str, context: Context, limited_by: str) -> dict[str, Any]:
        """The result of an effect for which there was no time left."""
        if kind not in _MADE:
            return failure(context, 124, timed_out=limited_by)
        return {**_MADE[kind]({"timed_out": limited_by}), "elapsed_ms": context.elapsed_ms()}

    def _complaint(self, effect: EffectLike, state: str | None) -> str:
        asked = f"no rule answers `{effect.kind}`"
        if state is not None:
            asked += f" in state `{state}`"
        subject = _subject(effect)
        if subject:
            name = EFFECTS[effect.kind].subject
            asked += f" ({name} `{subject if len(subject) <= 200 else subject[:200] + '…'}`)"
        if not self.rules:
            return f"{asked}: the script has no rules"
        # The rule with the least against it; of several the first, but one for the state before others.
        nearest = min(self.rules, key=lambda rule: (len(rule.mismatches(effect, state)), rule.state != state))
        reasons = " and ".join(nearest.mismatches(effect, state))
        return f"{asked}; the nearest rule, {self._path}:{nearest.line}, {reasons}"


def _subject(effect: EffectLike) -> str:
    """The text that `command` of a rule is searched in: an action's command, a query, a question."""
    subject = effect.args.get(EFFECTS[effect.kind].subject)
    # RE2 takes UTF-8, which has no lone surrogates.
    return subject.encode("utf-8", "replace").decode() if isinstance(subject, str) else ""


def _with_error(given: dict[str, Any]) -> dict[str, Any]:
    """A result whose `error`, where it is one word, is written out."""
    error = given.get("error")
    if isinstance(error, str):
        return {**given, "error": {"kind": error, "message": error}}
    return dict(given)


def _action(given: dict[str, Any]) -> dict[str, Any]:
    """An action's result from what a rule says of it."""
    given = _with_error(given)
    code = 0
    if "timed_out" in given:
        given.setdefault("signal", "SIGTERM")
    if "signal" in given:
        code = 128 + signals.number_of(given["signal"])
    elif "error" in given:
        code = 127 if given["error"].get("kind") == "not-found" else 126
    return {"output": "", "stderr": "", "exit_code": code, "duration_ms": 0, **given}


def _answered(given: dict[str, Any]) -> dict[str, Any]:
    """A question's result from what a rule says of it: an answer, or that there was none."""
    if "answer" not in given:
        late = given.get("timed_out")
        told = _action({name: value for name, value in given.items() if name != "timed_out"})
        return {**told, "exit_code": 124, "timed_out": late} if late else {**told, "exit_code": 1}
    told = {name: value for name, value in given.items() if name != "answer"}
    return {**_action({}), "by": "script", **told, "output": given["answer"]}


def _found(given: dict[str, Any]) -> dict[str, Any]:
    """What memory found, from what a rule says of it; a path alone is a match."""
    given = _with_error(given)
    if "timed_out" in given:
        given.setdefault("error", {"kind": "timeout", "message": "no answer in time"})
    matches = [
        {"score": 1.0, **match} if isinstance(match, dict) else {"path": str(match), "score": 1.0}
        for match in given.get("matches", ())
    ]
    return {"duration_ms": 0, **given, "matches": matches}


def _reply(given: dict[str, Any]) -> dict[str, Any]:
    """A model call's result from what a rule says of it."""
    given = _with_error(given)
    shown = {name: given.pop(name) for name in ("verdict", "confidence", "reason") if name in given}
    if "timed_out" in given:
        given.setdefault("error", {"kind": "timeout", "message": "no reply in time"})
    elif shown and "error" not in given:
        given["reply"] = {"confidence": 1.0, "reason": "", **shown, **given.get("reply", {})}
    return {"duration_ms": 0, **given}


def _used(given: dict[str, Any]) -> dict[str, Any]:
    """A tool's result from what a rule says of it."""
    given = _in_time(_with_error(given))
    return {"duration_ms": 0, **({} if "error" in given else {"value": None}), **given}


def _done(given: dict[str, Any]) -> dict[str, Any]:
    """A task's result from what a rule says of it: the fields of a TaskResult, or an error."""
    given = _in_time(_with_error(given))
    task: dict[str, Any] = {"status": "COMPLETE", "content": "", "notes": {}}
    task |= {name: given.pop(name) for name in TASK_RESULT if name in given}
    if "error" in given:
        return {"duration_ms": 0, **given}
    if task["status"] == "FAILED" and "error" not in task["notes"]:
        error = {"type": "TASK_FAILURE", "reason": "scripted", "message": str(task["content"]), "details": {}}
        task["notes"] = {**task["notes"], "error": error}
    return {"duration_ms": 0, "result": task, **given}


def _in_time(given: dict[str, Any]) -> dict[str, Any]:
    if "timed_out" in given:
        given.setdefault("error", {"kind": "timeout", "message": "no answer in time"})
    return given


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same to a program: true is no 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# How the result of an effect that is no action is made.
_MADE = {"ask": _answered, "evaluate": _reply, "context": _found, "tool": _used, "task": _done}
