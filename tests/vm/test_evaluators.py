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
    """The verdict and details of an evaluator."""
    result = HANDLERS[f"judge_{name}"](*map(from_host, operands))
    assert result.keys() == {"verdict", "details"}
    return result["verdict"], result["details"]


def ran(**fields: Any) -> dict[str, Any]:
    """The result of an action that ran."""
    return {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 5, "elapsed_ms": 9, **fields}


# --- exit codes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "verdict"), [(0, "success"), (1, "failure"), (2, "error"), (3, "error"), (255, "error")]
)
def test_rule_8_exit_codes(code: int, verdict: str) -> None:
    """0 success, 1 failure, 2 and more error; the details are the code."""
    assert judge("exit", ran(exit_code=code), None, None) == (verdict, {"exit_code": code})


def test_rule_8_lists_of_codes_widen_the_verdicts() -> None:
    """A given list takes the place of the default one."""
    assert judge("exit", ran(exit_code=5), [0], [1, 5])[0] == "failure"
    assert judge("exit", ran(exit_code=3), [0, 3], None)[0] == "success"
    assert judge("exit", ran(exit_code=0), [3], None)[0] == "error"
    assert judge("exit", ran(exit_code=137), [0], [137])[0] == "failure"


def test_an_exit_code_may_be_read_from_text() -> None:
    """A `source` gives what was captured, perhaps as text."""
    assert judge("exit", {"exit_code": "1"}, None, None) == ("failure", {"exit_code": 1})
    verdict, details = judge("exit", {"exit_code": "x"}, None, None)
    assert (verdict, details["exit_code"]) == ("error", None)
    assert '"x"' in details["message"]


def test_a_timeout_is_an_error_whatever_the_lists_say() -> None:
    """The code of a group that was ended says nothing about the command."""
    action = ran(exit_code=143, signal="SIGTERM", timed_out="action", duration_ms=5000)
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
def test_rule_8_a_crash_is_an_error_that_says_why(fields: dict[str, Any], reason: str, message: str) -> None:
    """Output evaluators ask this first; a crash is never "pattern not found"."""
    verdict, details = judge("crash", ran(**fields))
    assert (verdict, details["reason"], details["exit_code"]) == ("error", reason, fields["exit_code"])
    assert message in details["message"]


@pytest.mark.parametrize("code", [0, 1, 2, 125, 128, 193, 255])
def test_rule_8_other_codes_are_no_crash(code: int) -> None:
    """The output says what they mean."""
    assert HANDLERS["judge_crash"](ran(exit_code=code)) is None


def test_nothing_ran_is_no_crash() -> None:
    """A decision state before any action."""
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
    """Decimal, with white space around it; a whole number is an integer."""
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
def test_other_texts_are_no_numbers(text: Any) -> None:
    """Nothing is guessed."""
    assert number_in(from_host(text)) is None


@given(number=st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_printed_numbers_read_back(number: float) -> None:
    """Whatever a program prints for a number is that number."""
    assert number_in(f" {number!r}\n") == number


@given(
    left=st.integers(-5, 5),
    right=st.integers(-5, 5),
    operator=st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]),
)
def test_numeric_compares(left: int, right: int, operator: str) -> None:
    """`success` where the comparison holds, `failure` where not."""
    holds = {"eq": left == right, "ne": left != right, "lt": left < right}
    holds |= {"le": left <= right, "gt": left > right, "ge": left >= right}
    expected = "success" if holds[operator] else "failure"
    details = {"value": left, "target": right, "operator": operator}
    assert judge("numeric", f"{left}\n", operator, right) == (expected, details)
    assert judge("numeric", left, operator, f" {right}.0 ") == (expected, details)


def test_numeric_without_a_number_is_an_error() -> None:
    """The message says which of the two it was, and shows it."""
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
    """The last line that is not blank, if it holds a number and nothing else."""
    verdict, details = judge("numeric", output, "eq", 0 if value is None else value)
    assert (verdict, details["value"]) == ("error" if value is None else "success", value)
    verdict, details = judge("convergence", output, 0, 0, None, None, "minimize")
    assert details["current"] == value
    assert judge("convergence", "7", 0, 0, output, None, "minimize")[1]["previous"] == value


def test_without_a_number_the_message_has_what_the_command_said() -> None:
    """The last line of its error output explains why there is none."""
    said = "warning\njq: error (at <stdin>:1): Cannot index array with string\n"
    expected = 'the output is not a number: "" (jq: error (at <stdin>:1): Cannot index array with string)'
    assert judge("numeric", "", "eq", 0, said)[1]["message"] == expected
    assert judge("convergence", "", 0, 0, None, None, "minimize", said)[1]["message"] == expected
    assert judge("numeric", "5", "eq", "x", said)[1]["message"] == 'the target is not a number: "x"'


def test_an_unknown_operator_is_a_fault() -> None:
    """The frontend never lets one through."""
    with pytest.raises(PrimitiveFault):
        judge("numeric", "5", "almost", 5)


# --- patterns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "match", "found"),
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
def test_contains(text: str, pattern: str, match: str, found: bool) -> None:
    """A substring or an RE2 expression; `negate` turns the verdict round, not the details."""
    details = {"matched": found, "pattern": pattern}
    assert judge("contains", text, pattern, match, False, False) == (
        "success" if found else "failure",
        details,
    )
    assert judge("contains", text, pattern, match, True, False) == (
        "failure" if found else "success",
        details,
    )


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", r"(?<=x)y", r"(a)\1", "\\"])
def test_an_invalid_expression_is_an_error(pattern: str) -> None:
    """RE2 has no look-behind and no back-references; the message says what it did not like."""
    verdict, details = judge("contains", "text", pattern, "regex", False, False)
    assert verdict == "error"
    assert details["message"].startswith("the pattern is no RE2 expression: ")


def test_not_found_in_a_cut_output_is_an_error() -> None:
    """What was left out may have had it; what was kept and has it is enough."""
    assert judge("contains", "abc", "x", "auto", False, True)[0] == "error"
    assert judge("contains", "abc", "x", "auto", True, True)[0] == "error"
    assert judge("contains", "abc", "b", "auto", False, True)[0] == "success"
    assert judge("contains", "abc", "b", "auto", True, True)[0] == "failure"


def test_catastrophic_expressions_are_linear() -> None:
    """What would keep a backtracking engine busy for years."""
    assert judge("contains", "a" * 100_000 + "b", "(a+)+$", "regex", False, False)[0] == "failure"
    assert judge("contains", "a" * 50_000, "(a|a)*(a|aa)*c", "regex", False, False)[0] == "failure"


@given(text=st.text(), pattern=st.text(), match=st.sampled_from(["auto", "substring", "regex"]))
def test_any_text_and_pattern_get_a_verdict(text: str, pattern: str, match: str) -> None:
    """Half surrogate pairs and all; a substring is always found in `auto`."""
    verdict, details = judge("contains", text, pattern, match, False, False)
    assert verdict in ("success", "failure", "error")
    if match != "regex" and pattern in text:
        assert (verdict, details["matched"]) == ("success", True)


@given(text=st.text("ab\n"), pattern=st.from_regex(r"[ab.]{0,3}[*+?]?", fullmatch=True))
def test_simple_expressions_mean_what_python_says(text: str, pattern: str) -> None:
    """RE2 and Python agree on what is common to both."""
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
    found, details = judge("json", {"value": value}, ".x", operator, target)
    assert found == verdict
    assert (details["value"], details["path"], details["target"]) == (
        from_host(value), ".x", from_host(target)
    )  # fmt: skip
    assert ("message" in details) is (verdict == "error")


def test_json_that_jq_could_not_read_is_an_error() -> None:
    """The details carry jq's own words."""
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
    """Target first, then better than before, else stall; the first measurement is progress."""
    assert judge("convergence", text, target, tolerance, None, last, direction)[0] == verdict


def test_rule_4_details() -> None:
    """current, previous, target, delta; whole numbers as such."""
    details = {"current": 8, "previous": 10, "target": 0, "delta": -2}
    assert judge("convergence", "8\n", 0, 0, None, 10, "minimize") == ("progress", details)
    assert judge("convergence", "8", 0, 0, None, None, "minimize")[1] == {
        "current": 8, "previous": None, "target": 0, "delta": None,
    }  # fmt: skip


def test_rule_4_an_explicit_previous_replaces_the_last() -> None:
    """As long as it is a number."""
    verdict, details = judge("convergence", "8", 0, 0, "7", 10, "minimize")
    assert (verdict, details["previous"]) == ("stall", 7)
    assert "previous_ignored" not in details


@pytest.mark.parametrize("previous", ["", "fixed 3 files", [], True])
def test_rule_4_a_useless_previous_falls_back_and_says_so(previous: Any) -> None:
    """To the last value this state measured."""
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
    """And keeps what it does know."""
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
    """Below `min_confidence` it is not confident, and the suffix says so where it is wanted."""
    found, details = judge("model", {"reply": {"verdict": "success", "confidence": 0.5}}, 0.7, suffix)
    assert (found, details["confident"]) == (verdict, False)


def test_the_bound_itself_is_confident() -> None:
    """`confidence >= min_confidence`, as the seed's code has it; no confidence counts as 1."""
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
def test_a_reply_that_is_none_is_an_error(reply: dict[str, Any]) -> None:
    """With the reply in the details, to look at."""
    verdict, details = judge("model", {"reply": reply}, 0.5, False)
    assert (verdict, details["error"], details["raw"]) == ("error", "invalid-reply", reply)
    assert details["message"]


def test_a_failed_call_is_an_error() -> None:
    """The details name what went wrong."""
    reply = {"error": {"kind": "rate-limited", "message": "429"}, "elapsed_ms": 5}
    assert judge("model", reply, 0.5, False) == ("error", {"error": "rate-limited", "message": "429"})
    assert judge("model", {}, 0.5, False)[1]["message"] == "the model gave no evaluation"


def test_a_fault_is_an_error() -> None:
    """For the state's `_error` route."""
    fault = {"kind": "undefined-variable", "message": "no `x`", "span": "a.yaml:1:2"}
    details = {"error": "undefined-variable", "message": "no `x`"}
    assert judge("fault", fault) == ("error", details)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"verdict": "blocked", "details": {}}, ["`check`", "`blocked`", "`on_blocked`"]),
        ({"verdict": "error", "details": {"message": "no number"}}, ["`error` (no number)", "`on_error`"]),
        ({"verdict": "error", "details": {"exit_code": 2}}, ["`error` (exit code 2)", "`_error`"]),
    ],
)
def test_an_unrouted_verdict_says_what_would_route_it(result: dict[str, Any], said: list[str]) -> None:
    """The fault a loop ends with."""
    fault = HANDLERS["unrouted"]("check", from_host(result))
    assert fault["kind"] == "unrouted-verdict"
    assert all(part in fault["message"] for part in said)


@given(data=st.data())
def test_results_are_plain_data(data: st.DataObject) -> None:
    """Every result can stand in the journal."""
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
    """A step in the direction that passes the target by more than it was away is a stall."""
    assert judge("convergence", str(now), 0, 0, None, before, direction)[0] == verdict


@pytest.mark.parametrize(("target", "verdict"), [("x", "error"), (0, "error"), (None, "failure")])
def test_a_missing_value_is_not_different_from_the_target(target: Any, verdict: str) -> None:
    """`ne` with null is an error, since a wrong path gives null; null itself can be compared."""
    assert judge("json", {"value": None}, ".a", "ne", target)[0] == verdict


# --- evaluators of little-loops -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "verdict"),
    [("a\n b \n\n", "last", "b"), ("a\nb", "first", "a"), ("a\nb", -2, "a"), ("a", 3, ""), ("", "last", "")],
)
def test_a_line_is_a_verdict(text: str, line: str | int, verdict: str) -> None:
    """Blank lines do not count, and where there is no such line the verdict is empty."""
    assert judge("line", text, line) == (verdict, {"token": verdict, "line": line})


@pytest.mark.parametrize(
    ("numbers", "most", "is_falling", "verdict"),
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
def test_scores_stall(numbers: str, most: int, is_falling: bool, verdict: str) -> None:
    """What is not more than half better is no progress; lines that are no numbers are skipped."""
    assert judge("history", numbers, most, 0.5, is_falling)[0] == verdict


def test_an_exit_code_is_an_error_for_output() -> None:
    """Any but 0."""
    assert HANDLERS["judge_failed_exit"](ran()) is None
    assert judge("failed_exit", ran(exit_code=4))[0] == "error"


def test_a_text_means_error() -> None:
    """Instead of `failure` only."""
    no = {"verdict": "failure", "details": {}}
    assert judge("error_text", no, "401 denied", ("denied",))[0] == "error"
    assert judge("error_text", no, "fine", ("denied",))[0] == "failure"
    assert judge("error_text", {**no, "verdict": "success"}, "denied", ("denied",))[0] == "success"


@pytest.mark.parametrize(("text", "number"), [("n=3 n = 5e1", "5e1"), ("m=3", None), ("n=", None)])
def test_the_last_number_after_a_key(text: str, number: str | None) -> None:
    """As text, which `output_numeric` reads."""
    assert HANDLERS["number_after"](text, "n") == number
