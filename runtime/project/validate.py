"""`llc validate`: checks sources without running them; reports as text and as JSON."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Any

from ...frontend.loop.advice import advice
from ...frontend.lower.proof import proof_findings
from ...frontend.source.files import is_flow_path, read_source
from ...ir.compile_options import CompileOptions
from ...ir.diagnostics import CompileError, Diagnostic, in_order, render_all, to_json
from ...ir.spans import Source
from ..host.crash_report import keep_report
from ..host.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, UserError
from ..host.paths import CONFIG, IMAGE_SUFFIX, LOOPS, ROOT
from ..host.screen import counted
from ..runs.loop_names import files_below, loop_files, resolve_loop
from . import configuration
from .compilation import compile_file
from .load import argument_value, compile_options, known_dialect, load_image


class Finding:
    """The diagnostics of one file."""

    def __init__(self, target: str, diagnostics: Sequence[Diagnostic], sources: Sequence[Source]) -> None:
        self.target = target
        self.diagnostics = in_order(diagnostics)
        self.sources = sources

    def count(self, severity: str) -> int:
        return sum(diagnostic.severity == severity for diagnostic in self.diagnostics)

    def is_valid(self, strict: bool) -> bool:
        return not self.count("error") and not (strict and self.diagnostics)

    @property
    def is_internal(self) -> bool:
        """Whether the check itself failed."""
        return any(diagnostic.id == "internal" for diagnostic in self.diagnostics)


def check(
    targets: Sequence[str],
    arguments: tuple[tuple[str, str], ...] = (),
    declare: tuple[str, ...] = (),
    dialect: str | None = None,
) -> list[Finding]:
    """Check loops and flows. Raises UserError if there is nothing to check.

    Args:
        targets: names or paths; empty to check all of `.loops/`.
        arguments: variables of the flows, as (name, text).
        declare: further functions that the flows may call.
        dialect: dialect of the loops that name none.
    """
    paths = list(targets) or list(loop_files().values())
    options = compile_options().evolve(dialect=known_dialect(dialect))
    findings = [_check_target(target, options, arguments, declare) for target in dict.fromkeys(paths)]
    return findings if targets else findings + _check_declarations(findings) + _check_configuration()


def unread(findings: Sequence[Finding]) -> list[str]:
    """The sources in subfolders of `.loops/` that no checked loop uses."""
    read = {os.path.normpath(source.path) for finding in findings for source in finding.sources}
    return [path for path in files_below() if path not in read]


def _check_configuration() -> list[Finding]:
    """A finding for the project's configuration, if it is invalid."""
    try:
        configuration.load(ROOT)
    except CompileError as error:
        return [Finding(os.path.join(LOOPS, CONFIG), error.diagnostics, error.sources)]
    return []


def _check_declarations(findings: Sequence[Finding]) -> list[Finding]:
    """Findings for the files that declare tools and tasks, without the diagnostics in `findings`.

    findings: those for the loops. Raises UserError if there are neither loops nor such files.
    """
    from ...frontend.tasks.registry import project_files, read_project

    if not findings and not project_files(LOOPS):
        raise UserError("no-loops", f"there are no loops in {LOOPS}/", "name the files to check")
    reported = {diagnostic for finding in findings for diagnostic in finding.diagnostics}
    declarations = read_project(LOOPS)
    by_path: dict[str, list[Diagnostic]] = {}
    for diagnostic in declarations.diagnostics:
        if diagnostic not in reported:
            path = diagnostic.span.path if diagnostic.span else LOOPS
            by_path.setdefault(path, []).append(diagnostic)
    return [Finding(path, diagnostics, declarations.sources) for path, diagnostics in by_path.items()]


def _check_target(
    target: str, options: CompileOptions, arguments: tuple[tuple[str, str], ...], declare: tuple[str, ...]
) -> Finding:
    path = target
    try:
        path = resolve_loop(target)
        if path.endswith(IMAGE_SUFFIX):
            load_image(path)
            return Finding(path, [], [])
        if is_flow_path(path):
            options = options.evolve(arguments={name: argument_value(text) for name, text in arguments})
        if is_flow_path(path) or (declare and _may_call(path)):
            options = options.evolve(declare=declare)
        compiled = compile_file(path, options)
        diagnostics = [*compiled.diagnostics]
        if compiled.loop is not None:
            # Only `validate` reports these: they concern the author's intent, not mistakes.
            diagnostics += [*proof_findings(compiled.program, "warning"), *advice(compiled.loop)]
        return Finding(path, diagnostics, compiled.sources)
    except UserError as error:
        return Finding(path, [Diagnostic(error.id, error.message, help=error.help)], [])
    except CompileError as error:
        return Finding(path, error.diagnostics, error.sources)
    except Exception as error:  # a bug in llc must not hide the findings in the other files
        message, help = keep_report(error)
        return Finding(path, [Diagnostic("internal", f"{path}: {message}", help=help)], [])


def exit_code(findings: Sequence[Finding], strict: bool) -> int:
    """The exit code of the command; an internal error has its own code because no file is at fault."""
    if any(finding.is_internal for finding in findings):
        return EXIT_INTERNAL
    return EXIT_OK if all(finding.is_valid(strict) for finding in findings) else EXIT_USAGE


def _may_call(path: str) -> bool:
    """Whether a loop may call functions of flows, which `--declare` affects."""
    return "call" in (read_source(path).text or "")


def as_text(findings: Sequence[Finding], unread: Sequence[str], strict: bool, color: bool) -> str:
    """The report: all diagnostics, then a summary line."""
    parts = [render_all(f.diagnostics, f.sources, color) for f in findings if f.diagnostics]
    invalid = [finding for finding in findings if not finding.is_valid(strict)]
    errors = sum(finding.count("error") for finding in findings)
    warnings = sum(finding.count("warning") for finding in findings)
    facts = [f"{counted(len(findings), 'loop')} checked"]
    if invalid:
        facts.append(f"{len(invalid)} invalid")
    if errors:
        facts.append(counted(errors, "error"))
    if warnings:
        facts.append(counted(warnings, "warning"))
    if unread:
        example = f"(`{unread[0]}`{', …' if len(unread) > 1 else ''})"
        facts.append(f"{counted(len(unread), 'unused file')} not checked {example}")
    return "".join(f"{part}\n\n" for part in parts) + ", ".join(facts) + "\n"


def as_json(findings: Sequence[Finding], unread: Sequence[str], strict: bool) -> dict[str, Any]:
    return {
        "valid": all(finding.is_valid(strict) for finding in findings),
        "errors": sum(finding.count("error") for finding in findings),
        "warnings": sum(finding.count("warning") for finding in findings),
        "files": [
            {
                "file": finding.target,
                "valid": finding.is_valid(strict),
                "diagnostics": [to_json(diagnostic) for diagnostic in finding.diagnostics],
            }
            for finding in findings
        ],
        "unchecked": list(unread),
    }
