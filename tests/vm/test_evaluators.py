"""The evaluators: verdicts and details for each result."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.vm.primitives.handlers import HANDLERS
from llc.vm.primitives.verdicts import number_in
from llc.vm.values.faults import PrimitiveFault
from llc.vm.values.values import from_host


def judge(name: str, *operands: Any) -> tuple[str, dict[str, Any]]:
    """Verdict and details of an evaluator."""
    result = HANDLERS[f"judge_{name}"](*map(from_host, operands))
    assert result.keys() == {"verdict", "details"}
    return result["verdict"], result["details"]


def action_result(**fields: Any) -> dict[str, Any]:
    """Result of an action."""
    return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 5, "elapsed_ms": 9, **fields}


# --- exit codes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "success"), (1, "failure"), (2, "error"), (3, "error"), (255, "error")]
)
def test_rule_8_exit_codes(code: int, verdict: str) -> None:
    """0 is success, 1 failure, 2 and higher error; the details contain the code."""
    assert judge("exit", action_result(exit_code=code), None, None) == (verdict, {"exit_code": code})


def test_rule_8_lists_of_codes_widen_the_verdicts() -> None:
    """A given list replaces the default."""
    assert judge("exit", action_result(exit_code=5), [0], [1, 5])[0] == "failure"
    assert judge("exit", action_result(exit_code=3), [0, 3], None)[0] == "success"
    assert judge("exit", action_result(exit_code=0), [3], None)[0] == "error"
    assert judge("exit", action_result(exit_code=137), [0], [137])[0] == "failure"


def test_an_exit_code_may_be_read_from_text() -> None:
    """A `source` gives captured text."""
    assert judge("exit", {"exit_code": "1"}, None, None) == ("failure", {"exit_code": 1})
    verdict, details = judge("exit", {"exit_code": "x"}, None, None)
    assert (verdict, details["exit_code"]) == ("error", None)
    assert '"x"' in details["message"]


def test_timeout_is_an_error_for_any_code_list() -> None:
    """The exit code of a killed process group is meaningless."""
    action = action_result(exit_code=143, signal="SIGTERM", timed_out="action", duration_ms=5000)
    verdict, details = judge("exit", action, [0, 143], None)
    assert verdict == "error"
    assert details == {"exit_code": 143, "reason": "timeout", "message": "timed out after 5 s"}


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"exit_code": 127, "stderr": "bash: line 1: foo: command not found\n"}, "not-found", "foo"),
        ({"exit_code": 127}, "not-found", "command not found"),
        ({"exit_code": 126}, "not-executable", "cannot be executed"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "signal", "ended by SIGKILL"),
        ({"exit_code": 139}, "signal", "ended by SIGSEGV"),
        ({"exit_code": 160}, "signal", "ended by signal 32"),
        ({"exit_code": -9}, "signal", "ended by SIGKILL"),
        ({"exit_code": 143, "timed_out": "action", "duration_ms": 1500}, "timeout", "timed out after 1.5 s"),
        ({"exit_code": 143, "timed_out": "loop"}, "timeout", "the loop's time is over"),
        (
            {"exit_code": 127, "error": {"kind": "not-found", "message": "no `claude`"}},
            "not-found",
            "no `claude`",
        ),
        ({"exit_code": 1, "error": {"kind": "spawn", "message": "too big"}}, "failed-to-start", "too big"),
    ],
)
def test_rule_8_crash_is_an_error_with_a_reason(fields: dict[str, Any], reason: str, message: str) -> None:
    """Output evaluators check for a crash first; a crash is never "pattern not found"."""
    verdict, details = judge("crash", action_result(**fields))
    assert (verdict, details["reason"], details["exit_code"]) == ("error", reason, fields["exit_code"])
    assert message in details["message"]


@pytest.mark.parametrize("code", [0, 1, 2, 125, 128, 193, 255])
def test_rule_8_other_codes_are_no_crash(code: int) -> None:
    """The output defines their meaning."""
    assert HANDLERS["judge_crash"](action_result(exit_code=code)) is None


def test_missing_result_is_no_crash() -> None:
    """A decision state may precede every action."""
    assert HANDLERS["judge_crash"](None) is None


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        (" 5\n", 5),
        ("-3", -3),
        ("+3", 3),
        ("5.0", 5),
        ("2.50", 2.5),
        (".5", 0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("12345678901234567890", 12345678901234567890),
        (7, 7),
        (2.0, 2),
    ],
)
def test_numbers_are_read_from_text(text: Any, number: float) -> None:
    """Decimal numbers with surrounding white space; a number without fraction is an integer."""
    assert number_in(text) == number
    assert isinstance(number_in(text), type(number))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "5 errors",
        "1,000",
        "1_000",
        "0x10",
        "nan",
        "inf",
        "1e999",
        "٣",
        "5%",
        "--5",
        "1" * 5000,
        True,
        None,
        [],
        float("nan"),
        float("inf"),
    ],
)
def test_other_texts_are_not_numbers(text: Any) -> None:
    assert number_in(from_host(text)) is None


@given(number=st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_printed_numbers_read_back(number: float) -> None:
    assert number_in(f" {number!r}\n") == number


@given(
    left=st.integers(-5, 5),
    right=st.integers(-5, 5),
    operator=st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]),
)
def test_numeric_compares(left: int, right: int, operator: str) -> None:
    """`success` if the comparison holds, else `failure`."""
    holds = {"eq": left == right, "ne": left != right, "lt": left < right}
    holds |= {"le": left <= right, "gt": left > right, "ge": left >= right}
    expected = "success" if holds[operator] else "failure"
    details = {"value": left, "target": right, "operator": operator}
    assert judge("numeric", f"{left}\n", operator, right) == (expected, details)
    assert judge("numeric", left, operator, f" {right}.0 ") == (expected, details)


def test_numeric_without_a_number_is_an_error() -> None:
    """The message names the operand that is not a number, and its value."""
    verdict, details = judge("numeric", "5 errors", "le", 5)
    assert verdict == "error"
    assert details["message"] == 'the output is not a number: "5 errors"'
    assert details["target"] == 5
    assert judge("numeric", "5", "le", "five")[1]["message"] == 'the target is not a number: "five"'


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("0\n0\n", 0),  # grep -c x || echo 0
        ("Found 3 errors in 2 files\n3\n \n", 3),
        ("a\r\n-2.5\r\n", -2.5),
        ("3\nFound 3 errors\n", None),
        ("1 2", None),
        ("x\n1 2\n", None),
        ("x\n" + "9" * 1001, None),
        ("", None),
        ("\n\n", None),
    ],
)
def test_the_number_of_an_output_is_its_last_line(output: str, value: float | None) -> None:
    """The last non-blank line, if it is a number."""
    verdict, details = judge("numeric", output, "eq", 0 if value is None else value)
    assert (verdict, details["value"]) == ("error" if value is None else "success", value)
    verdict, details = judge("convergence", output, 0, 0, None, None, "minimize")
    assert details["current"] == value
    assert judge("convergence", "7", 0, 0, output, None, "minimize")[1]["previous"] == value


def test_missing_number_message_has_the_error_output() -> None:
    """The last line of stderr explains why there is no number."""
    stderr = "warning\njq: error (at <stdin>:1): Cannot index array with string\n"
    expected = 'the output is not a number: "" (jq: error (at <stdin>:1): Cannot index array with string)'
    assert judge("numeric", "", "eq", 0, stderr)[1]["message"] == expected
    assert judge("convergence", "", 0, 0, None, None, "minimize", stderr)[1]["message"] == expected
    assert judge("numeric", "5", "eq", "x", stderr)[1]["message"] == 'the target is not a number: "x"'


def test_an_unknown_operator_is_a_fault() -> None:
    """The frontend rejects unknown operators."""
    with pytest.raises(PrimitiveFault):
        judge("numeric", "5", "almost", 5)


# --- patterns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "match", "is_match"),
    [
        ("All tests passed\n", "tests passed", "auto", True),
        ("3 passed in 0.1s", r"\d+ passed", "auto", True),
        ("3 failed", r"\d+ passed", "auto", False),
        ("a.b", "a.b", "substring", True),
        ("axb", "a.b", "substring", False),
        ("axb", "a.b", "regex", True),
        ("a(b", "a(b", "auto", True),
        ("x\n1 passed\n", "passed$", "regex", True),
        ("1 passed\nx\n", "passed$", "regex", False),
        ("1 passed\nx\n", "(?m)passed$", "regex", True),
        ("Ünïcode", "ï.", "regex", True),
        ("", "", "auto", True),
        ("x", "^$", "regex", False),
    ],
)
def test_contains(text: str, pattern: str, match: str, is_match: bool) -> None:
    """A substring or an RE2 expression; `negate` inverts the verdict, not the details."""
    details = {"matched": is_match, "pattern": pattern}
    assert judge("contains", text, pattern, match, False, False) == (
        "success" if is_match else "failure",
        details,
    )
    assert judge("contains", text, pattern, match, True, False) == (
        "failure" if is_match else "success",
        details,
    )


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", r"(?<=x)y", r"(a)\1", "\\"])
def test_an_invalid_expression_is_an_error(pattern: str) -> None:
    """RE2 has no look-behind and no back-references; the message quotes RE2."""
    verdict, details = judge("contains", "text", pattern, "regex", False, False)
    assert verdict == "error"
    assert details["message"].startswith("the pattern is no RE2 expression: ")


def test_not_found_in_truncated_output_is_an_error() -> None:
    """The omitted part may contain the pattern; a match in the kept part is a success."""
    assert judge("contains", "abc", "x", "auto", False, True)[0] == "error"
    assert judge("contains", "abc", "x", "auto", True, True)[0] == "error"
    assert judge("contains", "abc", "b", "auto", False, True)[0] == "success"
    assert judge("contains", "abc", "b", "auto", True, True)[0] == "failure"


def test_catastrophic_expressions_are_linear() -> None:
    """Expressions for which a backtracking engine takes years."""
    assert judge("contains", "a" * 100_000 + "b", "(a+)+$", "regex", False, False)[0] == "failure"
    assert judge("contains", "a" * 50_000, "(a|a)*(a|aa)*c", "regex", False, False)[0] == "failure"


@given(text=st.text(), pattern=st.text(), match=st.sampled_from(["auto", "substring", "regex"]))
def test_any_text_and_pattern_get_a_verdict(text: str, pattern: str, match: str) -> None:
    """Also lone surrogates; a substring is always found in `auto`."""
    verdict, details = judge("contains", text, pattern, match, False, False)
    assert verdict in ("success", "failure", "error")
    if match != "regex" and pattern in text:
        assert (verdict, details["matched"]) == ("success", True)


@given(text=st.text("ab\n"), pattern=st.from_regex(r"[ab.]{0,3}[*+?]?", fullmatch=True))
def test_simple_expressions_agree_with_python(text: str, pattern: str) -> None:
    """RE2 and Python agree on their common subset."""
    try:
        expected = re.search(pattern, text) is not None
    except re.error:
        return
    assert judge("contains", text, pattern, "regex", False, False)[1]["matched"] is expected


# --- JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "operator", "target", "verdict"),
    [
        (0, "eq", 0, "success"),
        (0, "eq", "0", "success"),
        ("0", "eq", 0, "failure"),
        ("ok", "eq", "ok", "success"),
        (["a"], "eq", ["a"], "success"),
        ({"a": 1}, "ne", {"a": 2}, "success"),
        (None, "eq", None, "success"),
        (True, "eq", 1, "failure"),
        (True, "eq", True, "success"),
        (3, "lt", 5, "success"),
        (3, "ge", "5", "failure"),
        (3.0, "eq", 3, "success"),
        ("3", "lt", 5, "error"),
        (None, "gt", 5, "error"),
        (3, "lt", "many", "error"),
    ],
)
def test_json_compares_by_value(value: Any, operator: str, target: Any, verdict: str) -> None:
    """Equality for any value, order for numbers only."""
    actual, details = judge("json", {"value": value}, ".x", operator, target)
    assert actual == verdict
    assert (details["value"], details["path"], details["target"]) == (
        from_host(value), ".x", from_host(target)
    )  # fmt: skip
    assert ("message" in details) is (verdict == "error")


def test_json_that_jq_could_not_read_is_an_error() -> None:
    """The details contain the message of jq."""
    reply = {"error": {"kind": "invalid", "message": "not JSON"}}
    details = {"path": ".x", "target": 0, "error": "invalid", "message": "not JSON"}
    assert judge("json", reply, ".x", "eq", 0) == ("error", details)


# --- convergence ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "tolerance", "last", "direction", "verdict"),
    [
        ("10", 0, 0, None, "minimize", "progress"),
        ("8", 0, 0, 10, "minimize", "progress"),
        ("8", 0, 0, 8, "minimize", "stall"),
        ("9", 0, 0, 8, "minimize", "stall"),
        ("0", 0, 0, 3, "minimize", "target"),
        ("0", 0, 0, None, "minimize", "target"),
        ("2", 0, 2, 8, "minimize", "target"),
        ("-2", 0, 2, 8, "minimize", "target"),
        ("3", 0, 2, 8, "minimize", "progress"),
        ("80", 90, 0, 70, "maximize", "progress"),
        ("60", 90, 0, 70, "maximize", "stall"),
        ("90.5", 90, 0.5, 70, "maximize", "target"),
        ("8", "0", "0", "10", "minimize", "progress"),
    ],
)
def test_rule_4_convergence(
    text: str, target: Any, tolerance: Any, last: Any, direction: str, verdict: str
) -> None:
    """Target reached first, then better than before, else stall; the first measurement is progress."""
    assert judge("convergence", text, target, tolerance, None, last, direction)[0] == verdict


def test_rule_4_details() -> None:
    """The details have current, previous, target, delta; integers stay integers."""
    details = {"current": 8, "previous": 10, "target": 0, "delta": -2}
    assert judge("convergence", "8\n", 0, 0, None, 10, "minimize") == ("progress", details)
    assert judge("convergence", "8", 0, 0, None, None, "minimize")[1] == {
        "current": 8, "previous": None, "target": 0, "delta": None,
    }  # fmt: skip


def test_rule_4_an_explicit_previous_replaces_the_last() -> None:
    """If it is a number."""
    verdict, details = judge("convergence", "8", 0, 0, "7", 10, "minimize")
    assert (verdict, details["previous"]) == ("stall", 7)
    assert "previous_ignored" not in details


@pytest.mark.parametrize("previous", ["", "fixed 3 files", [], True])
def test_rule_4_invalid_previous_falls_back(previous: Any) -> None:
    """The last measured value is used, and the details say so."""
    verdict, details = judge("convergence", "8", 0, 0, previous, 10, "minimize")
    assert (verdict, details["previous"]) == ("progress", 10)
    assert details["previous_ignored"].startswith("the given `previous` is ")


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (("x", 0, 0), "the output is not a number"),
        (("1", "x", 0), "the target is not a number"),
        (("1", 0, "x"), "the tolerance is not a number"),
    ],
)
def test_convergence_without_a_number_is_an_error(operands: tuple[Any, ...], message: str) -> None:
    """The details keep the known values."""
    verdict, details = judge("convergence", *operands, None, 5, "minimize")
    assert verdict == "error"
    assert message in details["message"]
    assert details["previous"] == 5


# --- models and faults ------------------------------------------------------------------------


def test_a_confident_verdict() -> None:
    """The seed's details: confidence, confident, reason, raw."""
    reply = {"verdict": "success", "confidence": 0.85, "reason": "fixed"}
    details = {"confidence": 0.85, "confident": True, "reason": "fixed", "raw": reply}
    assert judge("model", {"reply": reply}, 0.7, False) == ("success", details)


@pytest.mark.parametrize(("suffix", "verdict"), [(True, "success_uncertain"), (False, "success")])
def test_an_uncertain_verdict(suffix: bool, verdict: str) -> None:
    """Below `min_confidence` the verdict is not confident and gets the suffix if that is on."""
    actual, details = judge("model", {"reply": {"verdict": "success", "confidence": 0.5}}, 0.7, suffix)
    assert (actual, details["confident"]) == (verdict, False)


def test_confidence_equal_to_the_minimum_is_confident() -> None:
    """`confidence >= min_confidence`, as in the seed's code; a missing confidence is 1."""
    assert judge("model", {"reply": {"verdict": "x", "confidence": 0.5}}, 0.5, True)[0] == "x"
    assert judge("model", {"reply": {"verdict": "x"}}, 0.9, True)[0] == "x"


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"verdict": ""},
        {"verdict": 5},
        {"verdict": None},
        {"verdict": "x", "confidence": "high"},
        {"verdict": "x", "confidence": True},
    ],
)
def test_malformed_reply_is_an_error(reply: dict[str, Any]) -> None:
    """The details contain the reply."""
    verdict, details = judge("model", {"reply": reply}, 0.5, False)
    assert (verdict, details["error"], details["raw"]) == ("error", "invalid-reply", reply)
    assert details["message"]


def test_a_failed_call_is_an_error() -> None:
    """The details contain the error."""
    reply = {"error": {"kind": "rate-limited", "message": "429"}, "elapsed_ms": 5}
    assert judge("model", reply, 0.5, False) == ("error", {"error": "rate-limited", "message": "429"})
    assert judge("model", {}, 0.5, False)[1]["message"] == "the model gave no evaluation"


def test_a_fault_is_an_error() -> None:
    """The `_error` route takes it."""
    fault = {"kind": "undefined-variable", "message": "no `x`", "span": "a.yaml:1:2"}
    details = {"error": "undefined-variable", "message": "no `x`"}
    assert judge("fault", fault) == ("error", details)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"verdict": "blocked", "details": {}}, ["`check`", "`blocked`", "`on_blocked`"]),
        ({"verdict": "error", "details": {"message": "no number"}}, ["`error` (no number)", "`on_error`"]),
        ({"verdict": "error", "details": {"exit_code": 2}}, ["`error` (exit code 2)", "`_error`"]),
    ],
)
def test_unrouted_verdict_names_the_missing_route(result: dict[str, Any], expected: list[str]) -> None:
    """The message of the fault that ends the loop."""
    fault = HANDLERS["unrouted"]("check", from_host(result))
    assert fault["kind"] == "unrouted-verdict"
    assert all(part in fault["message"] for part in expected)


@given(data=st.data())
def test_results_are_plain_data(data: st.DataObject) -> None:
    """Every result can be written to the journal."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    operands = data.draw(st.lists(scalars, min_size=5, max_size=5))
    json.dumps(judge("convergence", *operands, "minimize"))
    json.dumps(judge("contains", *operands[:2], "auto", *operands[2:4]))


@pytest.mark.parametrize(
    ("before", "now", "direction", "verdict"),
    [
        (1, -3, "minimize", "stall"),
        (3, -1, "minimize", "progress"),
        (-3, 1, "maximize", "progress"),
        (-1, 3, "maximize", "stall"),
        (2, -2, "minimize", "stall"),
        (5, 3, "minimize", "progress"),
    ],
)
def test_progress_ends_nearer_to_the_target(before: int, now: int, direction: str, verdict: str) -> None:
    """A step that overshoots the target by more than the previous distance is a stall."""
    assert judge("convergence", str(now), 0, 0, None, before, direction)[0] == verdict


@pytest.mark.parametrize(("target", "verdict"), [("x", "error"), (0, "error"), (None, "failure")])
def test_a_missing_value_is_not_different_from_the_target(target: Any, verdict: str) -> None:
    """`ne` with null is an error, since a wrong path gives null; comparing with null is allowed."""
    assert judge("json", {"value": None}, ".a", "ne", target)[0] == verdict


# --- evaluators of little-loops -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "verdict"),
    [("a\n b \n\n", "last", "b"), ("a\nb", "first", "a"), ("a\nb", -2, "a"), ("a", 3, ""), ("", "last", "")],
)
def test_a_line_is_a_verdict(text: str, line: str | int, verdict: str) -> None:
    """Blank lines do not count; without such a line the verdict is empty."""
    assert judge("line", text, line) == (verdict, {"token": verdict, "line": line})


@pytest.mark.parametrize(
    ("numbers", "window", "is_falling", "verdict"),
    [
        ("", 1, False, "success"),
        ("3", 1, False, "success"),
        ("3\n3", 1, False, "failure"),
        ("3\n3\n5", 2, False, "success"),
        ("3\nx\n3.2\n3.4", 2, False, "failure"),
        ("9\n5\n2", 1, True, "success"),
        ("9\n9", 1, True, "failure"),
    ],
)
def test_scores_stall(numbers: str, window: int, is_falling: bool, verdict: str) -> None:
    """An improvement of at most half is no progress; non-numeric lines are skipped."""
    assert judge("history", numbers, window, 0.5, is_falling)[0] == verdict


def test_an_exit_code_is_an_error_for_output() -> None:
    """Any code but 0."""
    assert HANDLERS["judge_failed_exit"](action_result()) is None
    assert judge("failed_exit", action_result(exit_code=4))[0] == "error"


def test_error_pattern() -> None:
    """A match turns only `failure` into an error."""
    no = {"verdict": "failure", "details": {}}
    assert judge("error_text", no, "401 denied", ("denied",))[0] == "error"
    assert judge("error_text", no, "fine", ("denied",))[0] == "failure"
    assert judge("error_text", {**no, "verdict": "success"}, "denied", ("denied",))[0] == "success"


@pytest.mark.parametrize(("text", "number"), [("n=3 n = 5e1", "5e1"), ("m=3", None), ("n=", None)])
def test_the_last_number_after_a_key(text: str, number: str | None) -> None:
    """The result is text, which `output_numeric` reads."""
    assert HANDLERS["number_after"](text, "n") == number
