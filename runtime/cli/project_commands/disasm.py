"""The subcommand `disasm`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK
from ...project import compile_output
from ...project.options import values
from .. import parameters as cli
from ..output import warn, write_data


def disasm(
    loop: cli.Loop,
    function: Annotated[cli.Text, cli.option("--function", "NAME", "Show only this function.")] = None,
    arguments: cli.Arguments = None,
    declare: cli.Declare = None,
    json: cli.Json = False,
) -> int:
    """Show the bytecode of a program."""

    options = values(loop, {"arguments": arguments, "declare": declare})
    write_data(compile_output.disassembly(options, function, json, warn))
    return EXIT_OK
