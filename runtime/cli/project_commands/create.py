"""The subcommand `create`."""

from __future__ import annotations

from typing import Annotated

from ....frontend.loop.paradigms import PARADIGMS
from ...authoring import creation
from .. import parameters as cli


def create(
    loops: Annotated[
        cli.Texts,
        cli.argument(
            "[LOOP]…",
            "With --from: the ready loop; with --pin: the loops, by default all of .loops/.",
            cli.complete_ready_loop,
        ),
    ] = None,
    ready: Annotated[
        bool, cli.option("--from", "", "Create a ready loop: --from lint; without a name, list them.")
    ] = False,
    assignments: Annotated[
        cli.Texts, cli.option("--set", "NAME=VALUE", "With --from: set a parameter; may be repeated.")
    ] = None,
    paradigm: Annotated[
        cli.Text,
        cli.option(
            "--paradigm -p", "|".join(PARADIGMS), "Paradigm of the loop; without it, a dialogue asks."
        ),
    ] = None,
    name: Annotated[cli.Text, cli.option("--name", "NAME", "Name of the loop and its file.")] = None,
    describe: Annotated[
        cli.Text, cli.option("--describe", "TEXT", "Have a model write the loop from this description.")
    ] = None,
    description: Annotated[cli.Text, cli.option("--description", "TEXT", "Purpose of the loop.")] = None,
    goal: Annotated[cli.Text, cli.option("--goal", "TEXT", "goal: what should be true.")] = None,
    tool: Annotated[
        cli.Texts,
        cli.option(
            "--tool",
            "ACTION",
            "goal: an action, the first one checks; natural: a permitted action; may be repeated.",
        ),
    ] = None,
    check: Annotated[
        cli.Text, cli.option("--check", "COMMAND", "convergence: the command that prints the metric.")
    ] = None,
    toward: Annotated[cli.Text, cli.option("--toward", "NUMBER", "convergence: the target.")] = None,
    using: Annotated[
        cli.Text, cli.option("--using", "ACTION", "convergence: the action that changes the metric.")
    ] = None,
    tolerance: Annotated[
        cli.Text, cli.option("--tolerance", "NUMBER", "convergence: accepted distance from the target.")
    ] = None,
    direction: Annotated[
        cli.Text, cli.option("--direction", "minimize|maximize", "convergence: which direction is progress.")
    ] = None,
    constraint: Annotated[
        cli.Texts,
        cli.option("--constraint", "NAME=COMMAND", "invariants: a check and its name; may be repeated."),
    ] = None,
    fix: Annotated[
        cli.Texts,
        cli.option(
            "--fix",
            "NAME=ACTION",
            "invariants: the action that repairs the check with this name; may be repeated.",
        ),
    ] = None,
    step: Annotated[cli.Texts, cli.option("--step", "ACTION", "imperative: a step; may be repeated.")] = None,
    until: Annotated[
        cli.Text, cli.option("--until", "COMMAND", "imperative: the check that ends the loop.")
    ] = None,
    until_fails: Annotated[
        bool, cli.option("--until-fails", "", "imperative: the check ends the loop when it fails.")
    ] = False,
    state: Annotated[
        cli.Texts,
        cli.option(
            "--state",
            "NAME=[ACTION]",
            "fsm: a state; without an action the loop ends there; may be repeated.",
        ),
    ] = None,
    route: Annotated[
        cli.Texts,
        cli.option(
            "--route",
            "STATE.VERDICT=STATE",
            "fsm: the next state after a verdict, `next` for any verdict; may be repeated.",
        ),
    ] = None,
    initial: Annotated[
        cli.Text, cli.option("--initial", "STATE", "fsm: the initial state, by default the first.")
    ] = None,
    max_iterations: Annotated[
        cli.Count, cli.option("--max-iterations", "N", "Limit of iterations.", least=1)
    ] = None,
    timeout: Annotated[
        float | None, cli.option("--timeout", "SECONDS", "Time limit of the whole run.", least=0)
    ] = None,
    backoff: Annotated[
        float | None, cli.option("--backoff", "SECONDS", "Delay between two iterations.", least=0)
    ] = None,
    maintain: Annotated[bool, cli.option("--maintain", "", "Restart the loop when it is done.")] = False,
    maintain_delay: Annotated[
        float | None,
        cli.option("--maintain-delay", "SECONDS", "With --maintain: delay before a restart.", least=0),
    ] = None,
    scope: Annotated[
        cli.Texts, cli.option("--scope", "PATH", "A path that the loop works on; may be repeated.")
    ] = None,
    model: Annotated[cli.Text, cli.option("--model", "MODEL", "The model that writes the loop.")] = None,
    pin: Annotated[
        bool,
        cli.option("--pin", "", "Have a model translate loops in `paradigm: natural`; save the results."),
    ] = False,
    no_pin: Annotated[bool, cli.option("--no-pin", "", "natural: save only the description.")] = False,
    yes: Annotated[bool, cli.option("--yes -y", "", "Save without confirmation.")] = False,
    force: Annotated[
        bool, cli.option("--force", "", "Replace an existing file; with --pin, translate again.")
    ] = False,
    print: Annotated[bool, cli.option("--print", "", "Only print the YAML.")] = False,
    json: cli.Json = False,
) -> int:
    """Create a loop: from a ready loop, by dialogue, by options, or from a description.

    Examples:
        llc create
        llc create --from
        llc create --from tests --set check='npm test'
        llc create -p goal --goal 'No type errors' --tool 'mypy src/' --tool 'Fix the type errors' --yes
        llc create -p invariants --constraint tests=pytest --fix tests='Make the tests pass' --print
        llc create --describe 'run the tests until they pass, at most 5 times'
        llc create --pin --yes
    """
    return creation.run(locals())
