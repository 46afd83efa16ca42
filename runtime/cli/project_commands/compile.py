"""The subcommand `compile`."""

from __future__ import annotations

from typing import Annotated

from ...host.errors import EXIT_OK
from ...project import compile_output
from ...project.options import OVERRIDES, values
from .. import parameters as cli
from ..output import warn, write_data


def compile_(
    loop: cli.Loop,
    emit: Annotated[
        cli.Text, cli.option("--emit", "ir|bytecode|fsm|expanded", "Form to print (default ir).")
    ] = None,
    output: Annotated[
        cli.Text,
        cli.option(
            "--output -o", "FILE", "Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text)."
        ),
    ] = None,
    no_sources: Annotated[
        bool, cli.option("--no-sources", "", "Omit the source text from an image.")
    ] = False,
    max_iterations: cli.MaxIterations = None,
    no_llm: cli.NoLlm = False,
    llm_model: cli.LlmModel = None,
    dialect: cli.Dialect = None,
    context: cli.Context = None,
    arguments: cli.Arguments = None,
    declare: cli.Declare = None,
    max_expansions: cli.MaxExpansions = None,
    max_nesting: cli.MaxNesting = None,
) -> int:
    """Compile a loop."""
    parameters = locals()

    overrides = values(loop, {name: parameters[name] for name in OVERRIDES})
    text = compile_output.compile_to(overrides, emit, output, not no_sources, warn)
    if text is not None:
        write_data(text)
    return EXIT_OK
