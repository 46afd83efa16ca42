"""Diagnostics for successes of a loop that no check proves (`success_proof`)."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.diagnostics import Diagnostic, labelled
from ...ir.nodes import Program
from ...ir.python_internals import late_pattern
from .success_proof import ALL, NOTHING, OUTPUT, Unproven, unproven_successes

# A last command that always succeeds, and commands that say nothing about the project.
_ALWAYS = late_pattern(
    r"(?:^|;|\|\||(?<!&)&(?!&)|\n)\s*(?:true|:|exit\s+0|(?:echo|printf)\b[^;&|\n]*)\s*;?\s*$"
)
_CONSTANT = late_pattern(r"\s*(?:true|:|false|exit\s+\d+|(?:echo|printf)\b[^;&|\n$`<]*)\s*;?\s*")


def information_in(command: str) -> int:
    """How much the result of a shell command says about the project: NOTHING, OUTPUT or ALL."""
    if _CONSTANT.fullmatch(command):
        return NOTHING
    return OUTPUT if _ALWAYS.search(command) else ALL


def proof_findings(program: Program, severity: str) -> Iterator[Diagnostic]:
    """A diagnostic for each success of a loop that follows an agent's work without a check."""
    for found in unproven_successes(program, information_in):
        yield _finding(found, severity)


def _finding(found: Unproven, severity: str) -> Diagnostic:
    end, work = found.end.owner or found.end.name, found.work.owner
    return Diagnostic(
        "unproven-success",
        f"`{end}` can be reached after the agent's work without a check",
        found.end.span,
        "the run would end with success here",
        f"lead to `{end}` by the success of a command that checks the work; the verdict of an agent or a "
        "model proves nothing",
        severity,
        labelled(found.work.span, f"the agent works in `{work}`"),
    )
