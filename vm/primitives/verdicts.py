"""Deterministic evaluators, and parsing of a model's reply.

Each returns a result map `{"verdict", "details"}` (seed, Evaluator Types; loops.md, rules 4 and 8). Input
that cannot be evaluated gives the verdict `error` with `details.message`; only wrong use of a primitive is a
fault.
"""

from __future__ import annotations

from ...ir.python_internals import re
from ...ir.regex import compiled, encoded
from ..values.faults import PrimitiveFault
from ..values.lists import is_list, to_tuple
from ..values.maps import is_map, read
from ..values.values import equal, show, type_name
from . import strings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Value = Any
    Result = dict[str, Any]

# Exit codes of a shell that could not run its command.
NOT_EXECUTABLE = 126
NOT_FOUND = 127
# Exit codes from 129 to this one name the signal that ended the command.
LAST_SIGNAL_CODE = 128 + 64

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
}
# A longer text is not a measurement, and parsing it would be slow.
MAX_DIGITS = 1000
# Integral floats below this bound represent their integer exactly.
_EXACT = 2.0**53


def _result(verdict: str, **details: Value) -> Result:
    return {"verdict": verdict, "details": details}


def number_in(value: Value) -> int | float | None:
    """The number that a value is, or that a text spells: decimal, finite, with optional surrounding white
    space.

    None if there is none. An integral float is returned as an integer.
    """
    if type(value) is int:
        return value
    if isinstance(value, str):
        text = value.strip()
        if len(text) > MAX_DIGITS or re.fullmatch(strings.NUMBER, text) is None:
            return None
        try:
            value = int(text)
        except ValueError:
            value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
    return value


def measured_in(output: Value) -> int | float | None:
    """The number that an output is, or its last non-blank line; None if neither is a number."""
    value = number_in(output)
    if value is not None or not isinstance(output, str):
        return value
    return number_in(output.rstrip().rpartition("\n")[2])


def _not_a_number(what: str, value: Value, stderr: Value = None) -> str:
    said = _last_line(stderr)
    return f"{what} is not a number: {show(value)}" + (f" ({said})" if said else "")


def _ordered(operator: str, left: int | float, right: int | float) -> bool:
    match operator:
        case "eq":
            return left == right
        case "ne":
            return left != right
        case "lt":
            return left < right
        case "le":
            return left <= right
        case "gt":
            return left > right
        case "ge":
            return left >= right
    raise PrimitiveFault("bad-operand", f"no comparison is called {show(operator)}")


def _verdict(holds: bool) -> str:
    return "success" if holds else "failure"


def _fields(value: Value, what: str) -> dict[str, Value]:
    if not is_map(value):
        raise PrimitiveFault("type-error", f"{what} is a map, not {show(value)} ({type_name(value)})")
    return read(value)


def _inner(value: Value) -> dict[str, Value] | None:
    """The fields of a value if it is a map; None otherwise."""
    return read(value) if is_map(value) else None


# --- actions ----------------------------------------------------------------------------------


# Action errors whose kind is shown.
_ERRORS = (
    *("not-found", "not-executable", "fault", "nobody", "unknown-choice"),
    *("agent-failed", "no-result", "invalid-json", "unknown-agent", "bad-configuration"),
    *("failed-exit", "no-work", "refused", "unknown-option"),
)


def _crash(action: dict[str, Value]) -> tuple[str, str] | None:
    """The reason and the message for an action without a result of its own; None if it ran to its end."""
    error = _inner(action.get("error"))
    if error is not None:
        kind = error.get("kind")
        message = error.get("message")
        reason = kind if isinstance(kind, str) and kind in _ERRORS else "failed-to-start"
        said = message if isinstance(message, str) else "the action could not be started"
        return reason, said
    if action.get("timed_out"):
        what = "the loop's time is over" if action["timed_out"] == "loop" else "timed out"
        elapsed = number_in(action.get("limit_ms", action.get("duration_ms")))
        return "timeout", what if elapsed is None else f"{what} after {_seconds(elapsed)} s"
    signal = action.get("signal")
    code = number_in(action.get("exit_code"))
    if signal is None and isinstance(code, int) and (128 < code <= LAST_SIGNAL_CODE or code < 0):
        number = code - 128 if code > 0 else -code
        signal = _SIGNALS.get(number, f"signal {number}")
    if signal is not None:
        return "signal", f"ended by {signal if isinstance(signal, str) else show(signal)}"
    if code in (NOT_EXECUTABLE, NOT_FOUND):
        reason = "not-found" if code == NOT_FOUND else "not-executable"
        said = _last_line(action.get("stderr"))
        default = "command not found" if code == NOT_FOUND else "command cannot be executed"
        return reason, said or default
    return None


def _seconds(milliseconds: int | float) -> str:
    return f"{milliseconds / 1000:.1f}".removesuffix(".0")


def _last_line(text: Value) -> str:
    lines = text[-1000:].split("\n") if isinstance(text, str) else []
    return next((line.strip()[-200:] for line in reversed(lines) if line.strip()), "")


def judge_crash(action: Value) -> Result | None:
    """The `error` result of an action that crashed or never ran; null for one that ended normally.

    details: exit_code, reason ("timeout", "signal", "not-found", "not-executable",
    "failed-to-start", "fault", and others of `_ERRORS`), message.
    """
    if action is None:
        return None
    action = _fields(action, "an action's result")
    crash = _crash(action)
    if crash is None:
        return None
    return _result("error", exit_code=action.get("exit_code"), reason=crash[0], message=crash[1])


def judge_failed_exit(action: Value) -> Result | None:
    """The `error` result of an action that crashed or did not exit with 0; null for any other."""
    crash = judge_crash(action)
    if crash is not None or action is None:
        return crash
    code = read(action).get("exit_code")
    return None if code in (0, None) else _result("error", exit_code=code, message=f"exit code {show(code)}")


def number_after(text: Value, key: Value) -> str | None:
    """The last number that follows `key=` in a text, as text; None without one."""
    pattern = re.escape(_text(key)) + r"\s*=\s*([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
    found = re.findall(pattern, _text(text))
    return found[-1] if found else None


def judge_error_text(result: Value, text: Value, texts: Value) -> Result:
    """Change `failure` to `error` if the text contains one of the given texts."""
    fields = _fields(result, "a result")
    found = next((part for part in _codes(texts) if _text(part) in _text(text)), None)
    if fields.get("verdict") != "failure" or found is None:
        return result  # type: ignore[no-any-return]
    details = _inner(fields.get("details")) or {}
    return _result("error", **{**details, "message": f"the output contains {show(found)}"})


def judge_line(text: Value, line: Value) -> Result:
    """The verdict is the given non-blank line of a text; '' if there is none."""
    lines = [part.strip() for part in _text(text).splitlines() if part.strip()]
    at = line if isinstance(line, int) else 0 if line == "first" else -1
    token = lines[at] if -len(lines) <= at < len(lines) else ""
    return _result(token, token=token, line=line)


def judge_history(text: Value, most: Value, epsilon: Value, is_falling: Value) -> Result:
    """`failure` if none of the last `most` numbers of a text improves the best earlier one by `epsilon`."""
    found = [number_in(part) for part in _text(text).splitlines()]
    values = [number for number in found if number is not None]
    best, stalled = (values[0] if values else None), 0
    for value in values[1:]:
        gain = best - value if is_falling else value - best  # type: ignore[operator]
        stalled = 0 if gain > epsilon else stalled + 1
        best = value if gain > 0 else best
    details = {"stall_count": stalled, "max_stall": most, "rounds": len(values), "best": best}
    return _result(_verdict(len(values) < 2 or stalled < most), **details)


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise PrimitiveFault("type-error", f"a text is needed, not {show(value)} ({type_name(value)})")
    return value


def judge_exit(action: Value, success: Value, failure: Value) -> Result:
    """`exit_code`: 0 is success, 1 failure, any other code error, unless lists of codes are given."""
    if type(action) is not dict:
        action = _fields(action, "an action's result")
    given = action.get("exit_code")
    code = given if type(given) is int else number_in(given)
    error = _inner(action.get("error"))
    # This evaluator interprets the exit code; without an evaluator, a code other than 0 is an agent's error.
    is_ended = error is None or error.get("kind") == "failed-exit"
    never_ended = action.get("timed_out") or not is_ended
    if not never_ended and isinstance(code, int):
        if code in ((0,) if success is None else _codes(success)):
            return {"verdict": "success", "details": {"exit_code": code}}
        if code in ((1,) if failure is None else _codes(failure)):
            return {"verdict": "failure", "details": {"exit_code": code}}
    crash = _crash(action)
    if crash is not None:
        return _result("error", exit_code=code, reason=crash[0], message=crash[1])
    if isinstance(code, int):
        return _result("error", exit_code=code)
    return _result("error", exit_code=None, message=_not_a_number("the exit code", given))


def _codes(value: Value) -> tuple[Value, ...]:
    return to_tuple(value) if is_list(value) else (value,)


# --- outputs ----------------------------------------------------------------------------------


def judge_numeric(text: Value, operator: Value, target: Value, stderr: Value = None) -> Result:
    """`output_numeric`: compare the number in an output with a number, or with a text that spells one.

    stderr: standard error of the command, for the message if the output has no number.
    """
    value, bound = measured_in(text), number_in(target)
    if value is None or bound is None:
        message = _not_a_number("the output", text, stderr)
        message = message if value is None else _not_a_number("the target", target)
        shown = target if bound is None else bound
        return _result("error", value=value, target=shown, operator=operator, message=message)
    holds = _ordered(operator, value, bound)
    return _result(_verdict(holds), value=value, target=bound, operator=operator)


def judge_contains(text: Value, pattern: Value, match: Value, negate: Value, truncated: Value) -> Result:
    """`output_contains`: search a substring or an RE2 expression in a text.

    match: "substring", "regex", or "auto" for either. If the text was truncated (`truncated`), only
    a match is conclusive.
    """
    text, pattern = strings.text(text), strings.text(pattern)
    if match not in ("auto", "substring", "regex"):
        raise PrimitiveFault("bad-operand", f"no way to match is called {show(match)}")
    matched = match != "regex" and pattern in text
    if not matched and match != "substring":
        try:
            matched = _search(pattern, text)
        except ValueError as error:
            return _result("error", matched=False, pattern=pattern, message=str(error))
    if truncated and not matched:
        message = "the pattern is not in what was kept of an output too large to keep whole"
        return _result("error", matched=False, pattern=pattern, message=message)
    return _result(_verdict(matched != bool(negate)), matched=matched, pattern=pattern)


def _search(pattern: str, text: str) -> bool:
    """Whether RE2 finds `pattern`; `$` also matches before a final newline.

    Raises ValueError with a message for users if the pattern is invalid, or, without RE2, if matching exceeds
    its limits.
    """
    try:
        expression = compiled(pattern)
    except ValueError as error:
        raise ValueError(f"the pattern is no RE2 expression: {error}") from None
    data = encoded(text)
    if expression.search(data) is not None:
        return True
    return data.endswith(b"\n") and expression.search(data[:-1]) is not None


def judge_json(reply: Value, path: Value, operator: Value, target: Value) -> Result:
    """`output_json`: compare the value that jq found with a target.

    `eq` and `ne` compare any two values; a number also equals a text in the target that spells it.
    The other operators need numbers. A path that does not exist gives null, which is an error for `ne`,
    because null differs from every target. `details` contain the operator unless it is `eq`.
    """
    reply = _fields(reply, "a jq reply")
    if "value" not in reply:
        kind, message = _reported(reply, "jq gave no value")
        return _result("error", path=path, target=target, error=kind, message=message)
    value = reply["value"]
    bound = number_in(target) if isinstance(target, str) else target
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    details = {"value": value, "path": path, "target": target}
    if operator != "eq":
        details["operator"] = operator
    if operator == "ne" and value is None and target is not None:
        return _result("error", **details, message=f"the value at {show(path)} is null or missing")
    if operator in ("eq", "ne"):
        same = equal(value, target) or (is_number and bound is not None and equal(value, bound))
        return _result(_verdict(same == (operator == "eq")), **details)
    left, right = (number_in(value) if is_number else None), number_in(target)
    if left is None or right is None:
        message = _not_a_number(f"the value at {show(path)}", value) if left is None else ""
        message = message or _not_a_number("the target", target)
        return _result("error", **details, message=message)
    return _result(_verdict(_ordered(operator, left, right)), **details)


def _reported(reply: dict[str, Value], default: str) -> tuple[str, str]:
    error = _inner(reply.get("error"))
    if error is not None:
        kind, message = error.get("kind"), error.get("message")
        return kind if isinstance(kind, str) else "failed", message if isinstance(message, str) else default
    said = reply.get("error")
    return "failed", said if isinstance(said, str) else default


def judge_convergence(
    text: Value,
    target: Value,
    tolerance: Value,
    previous: Value,
    last: Value,
    direction: Value,
    stderr: Value = None,
) -> Result:
    """`convergence`: compare a measurement with its target and with the previous one (loops.md, rule 4).

    previous: the value to compare with, as the author gives it, or null; if it is not a number, `last`
    is used: the previous measurement of this state, null the first time. Progress is a step in the
    right direction that ends nearer to the target; a step that overshoots by more is a stall. stderr: as in
    `judge_numeric`.
    """
    if direction not in ("minimize", "maximize"):
        raise PrimitiveFault("bad-operand", f"no direction is called {show(direction)}")
    current, goal, room = measured_in(text), number_in(target), number_in(tolerance)
    if current is None or goal is None or room is None:
        message = _not_a_number("the output", text, stderr)
        if current is not None:
            what, wrong = ("the target", target) if goal is None else ("the tolerance", tolerance)
            message = _not_a_number(what, wrong)
        return _result(
            "error", current=current, previous=number_in(last), target=goal, delta=None, message=message
        )
    before = measured_in(previous)
    details: dict[str, Value] = {}
    if before is None:
        before = number_in(last)
        if previous is not None:
            reason = "is undefined or empty" if previous == "" else f"is not a number: {show(previous)}"
            details["previous_ignored"] = f"the given `previous` {reason}"
    if abs(current - goal) <= room:
        verdict = "target"
    elif before is None or (
        (current < before) == (direction == "minimize") and abs(current - goal) < abs(before - goal)
    ):
        verdict = "progress"
    else:
        verdict = "stall"
    delta = None if before is None else _tidy(current - before)
    return _result(verdict, current=current, previous=before, target=goal, delta=delta, **details)


def _tidy(number: int | float) -> int | float:
    return (
        int(number) if isinstance(number, float) and number.is_integer() and abs(number) < _EXACT else number
    )


# --- models and faults ------------------------------------------------------------------------


def judge_model(reply: Value, min_confidence: Value, uncertain_suffix: Value) -> Result:
    """`llm_structured`: the verdict of a model's reply, with the flag `confident` and the suffix
    `_uncertain` if set.
    """
    reply = _fields(reply, "a model's reply")
    answer = _inner(raw := reply.get("reply"))
    if answer is None:
        kind, message = _reported(reply, "the model gave no evaluation")
        return _result("error", error=kind, message=message)
    verdict = answer.get("verdict")
    confidence = answer.get("confidence", 1.0)
    wrong = None
    if not isinstance(verdict, str) or verdict == "":
        verdict = ""
        wrong = f"the model's verdict is no text: {show(answer.get('verdict'))}"
    elif isinstance(confidence, bool) or not isinstance(confidence, int | float):
        wrong = _not_a_number("the model's confidence", confidence)
    if wrong is not None:
        return _result("error", error="invalid-reply", message=wrong, raw=raw)
    bound = 0.5 if min_confidence is None else min_confidence
    confident = confidence >= bound
    if uncertain_suffix and not confident:
        verdict = f"{verdict}_uncertain"
    reason = answer.get("reason", "")
    return _result(verdict, confidence=confidence, confident=confident, reason=reason, raw=raw)


def unrouted(state: Value, result: Value) -> dict[str, Value]:
    """The fault for a verdict without a route: the verdict, its reason, and the key that would route it."""
    result = _fields(result, "a result")
    verdict, details = result.get("verdict"), _inner(result.get("details")) or {}
    shown = verdict if isinstance(verdict, str) else show(verdict)
    message = details.get("message")
    reason = f" ({message})" if isinstance(message, str) and message else ""
    if verdict == "error" and not reason and details.get("exit_code") is not None:
        reason = f" (exit code {show(details['exit_code'])})"
    if verdict == "error":
        help = "add `on_error` to the state or the loop, or `_error` to its route"
    else:
        help = f"add `on_{shown}` to the state, or `_` to its route"
    name = state if isinstance(state, str) else show(state)
    message = f"state `{name}`: nothing routes the verdict `{shown}`{reason}; {help}"
    return {"kind": "unrouted-verdict", "message": message}


def judge_fault(fault: Value) -> Result:
    """The `error` result for a fault that a state's handler caught."""
    fault = _fields(fault, "a fault")
    return _result("error", error=fault.get("kind"), message=fault.get("message"))


HANDLERS: dict[str, Callable[..., Value]] = {
    "judge_exit": judge_exit,
    "judge_numeric": judge_numeric,
    "judge_contains": judge_contains,
    "judge_json": judge_json,
    "judge_convergence": judge_convergence,
    "judge_model": judge_model,
    "judge_crash": judge_crash,
    "judge_error_text": judge_error_text,
    "judge_failed_exit": judge_failed_exit,
    "judge_history": judge_history,
    "judge_line": judge_line,
    "number_after": number_after,
    "unrouted": unrouted,
    "judge_fault": judge_fault,
}
