"""The subcommand `validate`."""

from __future__ import annotations

import sys
from typing import Annotated

from ...host.screen import Screen
from ...project import validate as validation
from ...project.options import read
from .. import parameters as cli
from ..output import write_json


def validate(
    loops: Annotated[
        cli.Texts,
        cli.argument("[LOOP]…", "Names or paths; by default all loops of .loops/.", cli.complete_loop),
    ] = None,
    strict: Annotated[bool, cli.option("--strict", "", "Treat warnings as errors.")] = False,
    json: cli.Json = False,
    arguments: cli.Arguments = None,
    declare: cli.Declare = None,
    dialect: cli.Dialect = None,
) -> int:
    """Check loops without running them."""

    parameters = read({"arguments": arguments, "declare": declare})
    findings = validation.check(loops or [], parameters["arguments"], parameters["declare"], dialect)
    unread = [] if loops else validation.unread(findings)
    if json:
        write_json(validation.as_json(findings, unread, strict))
    else:
        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, unread, strict, screen.color))
    return validation.exit_code(findings, strict)
