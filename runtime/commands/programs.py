"""The verbs for programs: run, resume, validate, compile, disasm, fmt, list, schema."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Annotated, Any

import typer

from .. import options
from ..errors import EXIT_OK, EXIT_USAGE, UserError
from ..execution import launch
from ..options import Values
from ..store.journal import write_file
from ..terminal.screen import Screen
from .plumbing import (
    JSON,
    LOOP,
    LOOP_ABOUT,
    argument,
    command,
    complete_loop,
    complete_run,
    option,
    show,
    values,
    warn,
    write,
    write_data,
    write_json,
)


@command(options.RUN, LOOP.replace(default=None, annotation=Annotated[str | None, LOOP_ABOUT]))
def run(given: dict[str, Any]) -> int:
    target = given.pop("loop")
    if (target is None) == (given["expression"] is None):
        raise UserError("bad-option", "name one thing to run", "a loop, a file, or -e EXPRESSION")
    return launch.run(values(options.RUN, target or "", given))


@command(options.RESUME, argument("run", "A loop's name, or a run's id.", complete_run))
def resume(given: dict[str, Any]) -> int:
    return launch.resume(values(options.RESUME, given.pop("run"), given))


@command(
    (options.ARGUMENTS, options.DECLARE),
    inspect.Parameter(
        "loops",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            list[str] | None,
            typer.Argument(
                help="Names or paths; without any, all of .loops/.",
                metavar="[LOOP]…",
                autocompletion=complete_loop,
            ),
        ],
    ),
    option(bool, "strict", "--strict", help="Let warnings fail too.", default=False),
    JSON,
)
def validate(given: dict[str, Any]) -> int:
    from ..compilation import validation

    read = values((options.ARGUMENTS, options.DECLARE), "", given)
    findings = validation.check(given["loops"] or [], read.arguments, read.declare)
    if given["json"]:
        write_json(validation.as_json(findings, given["strict"]))
    else:
        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, given["strict"], screen.color))
    is_good = all(finding.is_valid(given["strict"]) for finding in findings)
    return EXIT_OK if is_good else EXIT_USAGE


@command(
    options.OVERRIDES,
    LOOP,
    option(
        str | None,
        "emit",
        "--emit",
        help="What to print: ir (the default), bytecode, fsm, expanded.",
        metavar="FORM",
    ),
    option(
        str | None,
        "output",
        "--output",
        "-o",
        help="Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text).",
        metavar="FILE",
    ),
    option(bool, "no_sources", "--no-sources", help="Leave the source text out of an image.", default=False),
)
def compile_(given: dict[str, Any]) -> int:
    from ..compilation import products

    read = values(options.OVERRIDES, given["loop"], given)
    text = products.compile_to(read, given["emit"], given["output"], not given["no_sources"], warn)
    if text is not None:
        write_data(text)
    return EXIT_OK


@command((), LOOP, JSON)
def disasm(given: dict[str, Any]) -> int:
    from ..compilation import products

    write_data(products.disassembly(Values(options.OVERRIDES, given["loop"]), given["json"], warn))
    return EXIT_OK


@command(
    (),
    inspect.Parameter(
        "files",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            list[str] | None,
            typer.Argument(
                help="Files, folders, names in .loops/, or - for stdin; without any, all of .loops/.",
                metavar="[FILE]…",
            ),
        ],
    ),
    option(
        bool, "check", "--check", help="Write nothing; exit with 1 if something would change.", default=False
    ),
    option(bool, "diff", "--diff", help="Write nothing; print what would change.", default=False),
)
def fmt(given: dict[str, Any]) -> int:
    from ..compilation import formatting

    is_look = given["check"] or given["diff"]
    found = [formatting.look(path) for path in formatting.files(given["files"] or [])]
    errors = [one.error for one in found if one.error is not None]
    for one in found:
        if one.error is not None:
            continue
        if given["diff"]:
            write_data(formatting.difference(one))
        elif one.path == formatting.STDIN_PATH:
            write_data("" if is_look else one.result)
        elif one.is_changed:
            if not is_look:
                formatting.replace(one)
            write(f"{'would change' if is_look else 'formatted'} {one.path}\n")
    if errors:
        show(
            [d for error in errors for d in error.diagnostics], [s for error in errors for s in error.sources]
        )
    return formatting.exit_code(found, given["check"])


@command(
    (),
    option(bool, "running", "--running", help="Show the runs that have not ended.", default=False),
    JSON,
)
def list_(given: dict[str, Any]) -> int:
    from ..inspection import listing, status

    rows = status.unfinished() if given["running"] else listing.loops()
    if given["json"]:
        write_json(rows)
    else:
        write(listing.as_table(rows, given["running"]))
    return EXIT_OK


@command((), option(str | None, "output", "--output", "-o", help="Write to a file.", metavar="FILE"))
def schema(given: dict[str, Any]) -> int:
    from ...frontend.json_schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if given["output"]:
        write_file(given["output"], text.encode(), durable=False)
    else:
        write_data(text)
    return EXIT_OK
