"""The subcommand `validate`."""

from __future__ import annotations

import sys

from ...host.screen import Screen
from ...project import validate as validation
from ...project.options import read
from ..output import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Texts, argument, complete_loop, option


def validate(
    loops: Annotated[
        Texts, argument("[LOOP]…", "Names or paths; by default all loops of .loops/.", complete_loop)
    ] = None,
    strict: Annotated[bool, option("--strict", "", "Treat warnings as errors.")] = False,
    json: shared.Json = False,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
) -> int:
    """Check loops without running them."""

    given = read({"arguments": arguments, "declare": declare})
    findings = validation.check(loops or [], given["arguments"], given["declare"])
    if json:
        write_json(validation.as_json(findings, strict))
    else:
        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, strict, screen.color))
    return validation.exit_code(findings, strict)
