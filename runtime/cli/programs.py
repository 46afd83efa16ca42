"""The verbs for programs: run, resume, validate, compile, disasm, fmt, list, schema."""

from __future__ import annotations

import sys

from ..host.errors import EXIT_OK, EXIT_USAGE, UserError
from ..project import options
from ..project.options import FLAG, TEXT, Option, Values, values
from .declare import (
    ANY,
    JSON,
    LOOP,
    MAYBE,
    ONE,
    Argument,
    command,
    complete_loop,
    complete_run,
)
from .output import show, warn, write, write_data, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@command(options.RUN, Argument("loop", MAYBE, LOOP.doc, LOOP.metavar, LOOP.complete), masks=True)
def run(given: dict[str, Any]) -> int:
    from ..launch import run as launch

    target = given.pop("loop")
    if (target is None) == (given["expression"] is None):
        raise UserError("bad-option", "name one thing to run", "a loop, a file, or -e EXPRESSION")
    return launch.run(values(options.RUN, target or "", given))


@command(
    options.RESUME, Argument("run", ONE, "A loop's name, or a run's id.", "RUN", complete_run), masks=True
)
def resume(given: dict[str, Any]) -> int:
    from ..launch import resume as launch

    return launch.resume(values(options.RESUME, given.pop("run"), given))


@command(
    (options.ARGUMENTS, options.DECLARE),
    Argument("loops", ANY, "Names or paths; without any, all of .loops/.", "[LOOP]…", complete_loop),
    Option("strict", "--strict", FLAG, "Let warnings fail too."),
    JSON,
)
def validate(given: dict[str, Any]) -> int:
    from ..project import validate as validation

    read = values((options.ARGUMENTS, options.DECLARE), "", given)
    findings = validation.check(given["loops"] or [], read.arguments, read.declare)
    if given["json"]:
        write_json(validation.as_json(findings, given["strict"]))
    else:
        from ..host.screen import Screen

        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, given["strict"], screen.color))
    is_good = all(finding.is_valid(given["strict"]) for finding in findings)
    return EXIT_OK if is_good else EXIT_USAGE


@command(
    options.OVERRIDES,
    LOOP,
    Option("emit", "--emit", TEXT, "What to print (default ir).", "ir|bytecode|fsm|expanded"),
    Option(
        "output",
        "--output -o",
        TEXT,
        "Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text).",
        "FILE",
    ),
    Option("no_sources", "--no-sources", FLAG, "Leave the source text out of an image."),
)
def compile_(given: dict[str, Any]) -> int:
    from ..project import emit_products

    read = values(options.OVERRIDES, given["loop"], given)
    text = emit_products.compile_to(read, given["emit"], given["output"], not given["no_sources"], warn)
    if text is not None:
        write_data(text)
    return EXIT_OK


@command((), LOOP, JSON)
def disasm(given: dict[str, Any]) -> int:
    from ..project import emit_products

    write_data(emit_products.disassembly(Values(options.OVERRIDES, given["loop"]), given["json"], warn))
    return EXIT_OK


@command(
    (),
    Argument(
        "files",
        ANY,
        "Files, folders, names in .loops/, or - for stdin; without any, all of .loops/.",
        "[FILE]…",
        None,
    ),
    Option("check", "--check", FLAG, "Write nothing; exit with 1 if something would change."),
    Option("diff", "--diff", FLAG, "Write nothing; print what would change."),
)
def fmt(given: dict[str, Any]) -> int:
    from ..project import format_files

    is_look = given["check"] or given["diff"]
    found = [format_files.look(path) for path in format_files.find_files(given["files"] or [])]
    errors = [one.error for one in found if one.error is not None]
    for one in found:
        if one.error is not None:
            continue
        if given["diff"]:
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
    return format_files.exit_code(found, given["check"])


@command(
    (),
    Option("running", "--running", FLAG, "Show the runs that have not ended."),
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


def _schemas() -> dict[str, Callable[[], str]]:
    """What there are schemas of, each with how its text is made."""
    import json

    from ...frontend.loop.json_schema import json_schema
    from ...ir import results

    def as_text(made: dict[str, Any]) -> str:
        return json.dumps(made, indent=2, ensure_ascii=False) + "\n"

    found: dict[str, Callable[[], str]] = {"loop": lambda: as_text(json_schema())}
    for name, cls in results.CLASSES.items():
        found[name] = lambda cls=cls: as_text(results.json_schema(cls))  # type: ignore[misc]
    return found


@command(
    (),
    Argument(
        "what",
        MAYBE,
        "`loop`, or a result such as `TaskResult`.",
        "WHAT",
        lambda start: [name for name in _schemas() if name.startswith(start)],
    ),
    Option("output", "--output -o", TEXT, "Write to a file.", "FILE"),
)
def schema(given: dict[str, Any]) -> int:
    what, schemas = given["what"] or "loop", _schemas()
    if what not in schemas:
        from ...ir.diagnostics import suggest

        raise UserError(
            "unknown-choice", f"there is no schema of `{what[:80]}`", suggest(what, schemas, "there are")
        )
    text = schemas[what]()
    if given["output"]:
        from ..journal.journal import write_file

        write_file(given["output"], text.encode(), durable=False)
    else:
        write_data(text)
    return EXIT_OK
