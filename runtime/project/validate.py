"""`llc validate`: check sources without running them, as text and as JSON."""

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
from ..runs.loop_names import files_below, loop_files, resolve_loop
from . import configuration
from .compilation import compile_file
from .load import argument_value, compile_options, known_dialect, load_image


class Finding:
    """What was found in one file."""

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
    """Check loops and flows by name or path; without any, all of `.loops/`. UserError where there is nothing.

    arguments: variables of the flows among them, as (name, text). declare: what else they may call.
    dialect: of loops that name none.
    """
    found = list(targets) or list(loop_files().values())
    if not found and not _declares():
        raise UserError("no-loops", f"there are no loops in {LOOPS}/", "name the files to check")
    options = compile_options().evolve(dialect=known_dialect(dialect))
    findings = [_check_one(target, options, arguments, declare) for target in dict.fromkeys(found)]
    return findings if targets else findings + _check_declared(findings) + _check_configuration()


def unread(findings: Sequence[Finding]) -> list[str]:
    """The sources in folders of `.loops/` that no checked loop uses: loops of their own, or parts of none."""
    read = {os.path.normpath(source.path) for finding in findings for source in finding.sources}
    return [path for path in files_below() if path not in read]


def _declares() -> bool:
    """Whether the project has tools or tasks of its own."""
    from ...frontend.tasks.registry import project_files

    return bool(project_files(LOOPS))


def _check_configuration() -> list[Finding]:
    """What the project says about all its loops, where something is wrong with it."""
    try:
        configuration.load(ROOT)
    except CompileError as error:
        return [Finding(os.path.join(LOOPS, CONFIG), error.diagnostics, error.sources)]
    return []


def _check_declared(findings: Sequence[Finding]) -> list[Finding]:
    """The files that declare tools and tasks, where something is wrong that no flow was told of."""
    from ...frontend.tasks.registry import read_project

    told = {diagnostic for finding in findings for diagnostic in finding.diagnostics}
    declared = read_project(LOOPS)
    wrong = [diagnostic for diagnostic in declared.diagnostics if diagnostic not in told]
    paths = dict.fromkeys(diagnostic.span.path if diagnostic.span else LOOPS for diagnostic in wrong)
    return [
        Finding(
            path,
            [found for found in wrong if (found.span.path if found.span else LOOPS) == path],
            declared.sources,
        )
        for path in paths
    ]


def _check_one(
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
        found = [*compiled.diagnostics]
        if compiled.loop is not None:
            # `run` does not repeat these each time: they are about what is meant, not about mistakes.
            found += [*proof_findings(compiled.program, "warning"), *advice(compiled.loop)]
        return Finding(path, found, compiled.sources)
    except UserError as error:
        return Finding(path, [Diagnostic(error.id, error.message, help=error.help)], [])
    except CompileError as error:
        return Finding(path, error.diagnostics, error.sources)
    except Exception as error:  # a bug in llc must not hide the findings in the other files
        message, help = keep_report(error)
        return Finding(path, [Diagnostic("internal", f"{path}: {message}", help=help)], [])


def exit_code(findings: Sequence[Finding], strict: bool) -> int:
    """The exit code of the command: an internal error is not the fault of a file."""
    if any(finding.is_internal for finding in findings):
        return EXIT_INTERNAL
    return EXIT_OK if all(finding.is_valid(strict) for finding in findings) else EXIT_USAGE


def _may_call(path: str) -> bool:
    """Whether a loop may call functions of flows, to which `--declare` matters."""
    return "call" in (read_source(path).text or "")


def as_text(findings: Sequence[Finding], unread: Sequence[str], strict: bool, color: bool) -> str:
    """All that was found, and a line that sums it up."""
    parts = [render_all(f.diagnostics, f.sources, color) for f in findings if f.diagnostics]
    bad = [finding for finding in findings if not finding.is_valid(strict)]
    errors = sum(finding.count("error") for finding in findings)
    warnings = sum(finding.count("warning") for finding in findings)
    facts = [f"{len(findings)} {_plural('loop', len(findings))} checked"]
    if bad:
        facts.append(f"{len(bad)} invalid")
    if errors:
        facts.append(f"{errors} {_plural('error', errors)}")
    if warnings:
        facts.append(f"{warnings} {_plural('warning', warnings)}")
    if unread:
        count = f"{len(unread)} {_plural('file', len(unread))}"
        shown = f"(`{unread[0]}`{', …' if len(unread) > 1 else ''})"
        facts.append(f"{count} that none of them uses {'is' if len(unread) == 1 else 'are'} not {shown}")
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


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
