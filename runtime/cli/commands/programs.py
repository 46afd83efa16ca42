"""The subcommands for programs: validate, compile, disasm, fmt, list."""

from __future__ import annotations

import sys

from ...host.errors import EXIT_OK
from ...host.screen import Screen
from ...project.options import OVERRIDES, Values, read, values
from .. import parameters as shared
from ..completers import complete_loop
from ..output import show, warn, write, write_data, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer

# The subcommands here have nothing else in common, so each imports what it needs.


def validate(
    loops: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names or paths; by default all loops of .loops/.",
            metavar="[LOOP]…",
            autocompletion=complete_loop,
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    json: shared.Json = False,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
) -> int:
    """Check loops without running them."""
    from ...project import validate as validation

    given = read({"arguments": arguments, "declare": declare})
    findings = validation.check(loops or [], given["arguments"], given["declare"])
    if json:
        write_json(validation.as_json(findings, strict))
    else:
        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, strict, screen.color))
    return validation.exit_code(findings, strict)


def compile_(
    loop: shared.Loop,
    emit: Annotated[
        str | None,
        typer.Option("--emit", metavar="ir|bytecode|fsm|expanded", help="Form to print (default ir)."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text).",
        ),
    ] = None,
    no_sources: Annotated[
        bool, typer.Option("--no-sources", help="Leave the source text out of an image.")
    ] = False,
    max_iterations: shared.MaxIterations = None,
    no_llm: shared.NoLlm = False,
    llm_model: shared.LlmModel = None,
    context: shared.Context = None,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
    max_expansions: shared.MaxExpansions = None,
    max_nesting: shared.MaxNesting = None,
) -> int:
    """Compile a loop."""
    given = locals()
    from ...project import emit_products

    overrides = values(loop, {name: given[name] for name in OVERRIDES})
    text = emit_products.compile_to(overrides, emit, output, not no_sources, warn)
    if text is not None:
        write_data(text)
    return EXIT_OK


def disasm(loop: shared.Loop, json: shared.Json = False) -> int:
    """Show the bytecode of a loop or an image."""
    from ...project import emit_products

    write_data(emit_products.disassembly(Values(loop), json, warn))
    return EXIT_OK


def fmt(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, names in .loops/, or - for stdin; by default all of .loops/.",
            metavar="[FILE]…",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file would change.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print what would change.")] = False,
) -> int:
    """Format S-expression files."""
    from ...project import format_files

    is_look = check or diff
    found = [format_files.look(path) for path in format_files.find_files(files or [])]
    errors = [one.error for one in found if one.error is not None]
    for one in found:
        if one.error is not None:
            continue
        if diff:
            write_data(format_files.difference(one))
        elif one.path == format_files.STDIN_PATH:
            write_data("" if is_look else one.result)
        elif one.is_changed:
            if not is_look:
                format_files.replace(one)
            write(f"{'would change' if is_look else 'formatted'} {one.path}\n")
    if errors:
        show(
            [d for error in errors for d in error.diagnostics], [s for error in errors for s in error.sources]
        )
    return format_files.exit_code(found, check)


def list_(
    running: Annotated[bool, typer.Option("--running", help="List unfinished runs.")] = False,
    json: shared.Json = False,
) -> int:
    """List the loops of this project, or its unfinished runs."""
    from ...inspection import listing, status

    rows = status.unfinished() if running else listing.loops()
    if json:
        write_json(rows)
    else:
        write(listing.as_table(rows, running))
    return EXIT_OK
