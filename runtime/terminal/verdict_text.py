"""Reasons of verdicts in a few words: `exit 1`, `4 = 0`, `confidence: 0.9`."""

from __future__ import annotations

from ..host.screen import fit, printable
from .action_text import MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OPERATORS = {"eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥"}
_ASCII_OPERATORS = {**_OPERATORS, "ne": "!=", "le": "<=", "ge": ">="}
_MAX_COLUMNS = 200


def verdict_text(type: str, verdict: str, details: dict[str, Any], unicode: bool = True) -> str:
    """The reason of a verdict, from the details of an evaluator of this type; "" without one."""
    marks = MARKS[unicode]
    if verdict == "error":
        text = details.get("message") or details.get("error") or ""
        if not text and details.get("exit_code") is not None:
            text = f"exit {details['exit_code']}"
        return _line(str(text), marks)
    match type:
        case "exit_code":
            return f"exit {details.get('exit_code')}"
        case "llm_structured":
            return f"confidence: {_number(details.get('confidence'))}"
        case "output_numeric" | "output_json":
            operators = _OPERATORS if unicode else _ASCII_OPERATORS
            operator = operators.get(str(details.get("operator", "eq")), "=")
            value = f"{_number(details.get('value'))} {operator} {_number(details.get('target'))}"
            return f"{printable(str(details['path']))}: {value}" if "path" in details else value
        case "output_contains":
            return "found" if details.get("matched") else "not found"
        case "convergence":
            before = details.get("previous")
            step = "" if before is None else f"{_number(before)} {marks['to']} "
            return f"{step}{_number(details.get('current'))}, target {_number(details.get('target'))}"
        case "answer":  # the verdict is the answer
            return ""
    facts = [f"{key} {value}" for key, value in details.items() if isinstance(value, str | int | float)]
    return _line(", ".join(facts), marks)


def _line(text: str, marks: dict[str, str]) -> str:
    return fit(printable(" ".join(text.split())), _MAX_COLUMNS, marks["more"])


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return printable(str(value))[:60]
