"""`llc tools`: the tools and tasks of a project, with their parameters."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

from ...frontend.tasks.registry import TaskRegistry
from ...frontend.tasks.signature import Parameter, Signature
from ...ir.diagnostics import CompileError, clean, suggest
from ..host.errors import UserError
from ..host.paths import LOOPS

WIDTH = 100


def signatures(names: list[str]) -> tuple[list[Signature], CompileError | None]:
    """The tools and tasks of the project, all or those with these names, and the errors in their files.

    Raises CompileError for an unknown name that a file with errors may declare, and UserError for any other
    unknown name.
    """
    declared = TaskRegistry(LOOPS)
    found = declared.signatures()  # also reads the files that `declared.found` describes
    read = declared.found
    broken = CompileError(read.diagnostics, read.sources) if read is not None and declared.is_broken else None
    if not names:
        return found, broken
    selected = []
    for name in names:
        signature = declared.find(name)
        if signature is None and broken is not None:
            raise broken
        if signature is None:
            help = suggest(name, declared.names(), "there are")
            raise UserError("unknown-task", f"no task or tool is called `{name}`", help)
        selected.append(signature)
    return selected, None


def as_json(found: list[Signature]) -> list[dict[str, Any]]:
    return [
        {
            "name": signature.name,
            "kind": signature.kind,
            "description": signature.doc,
            "source": signature.source.path if signature.source is not None else None,
            "timeout_s": signature.timeout_s,
            "parameters": [_parameter(parameter) for parameter in signature.order],
        }
        for signature in found
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    about = {**parameter.as_data(), "description": parameter.doc}
    if parameter.choices:
        about["choices"] = list(parameter.choices)
    return about


def as_text(found: list[Signature], is_full: bool) -> str:
    """One entry for each signature; `is_full`: with a description of each parameter."""
    lines: list[str] = []
    for signature in found:
        if is_full and lines:
            lines.append("")
        lines += wrap(signature.usage, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        lines += wrap(signature.doc, WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
        if is_full:
            lines += [line for parameter in signature.order for line in _parameter_lines(parameter)]
            if signature.source is not None:
                lines.append(f"    declared in {signature.source.path}")
    return "".join(line + "\n" for line in lines)


def _parameter_lines(parameter: Parameter) -> list[str]:
    words = parameter.type
    if not parameter.is_required:
        words += ", optional" if parameter.default is None else f", default {json.dumps(parameter.default)}"
    if parameter.choices:
        words += f", one of {clean(', '.join(parameter.choices))}"
    text = f"{parameter.name}  {words}" + (f": {parameter.doc}" if parameter.doc else "")
    return wrap(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
