"""Python API without recorded runs: compile a text to an image, evaluate a flow. Errors are raised."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...frontend.source.files import EXPRESSION_PATH
from ...ir.compile_options import CompileOptions
from ...vm.code.emit import emit
from ...vm.code.image import Image
from ...vm.machine.machine import Done, Effect
from ...vm.tiered import Machine
from ...vm.values.faults import Fault
from ..effects.script_reader import load_world
from ..effects.world import World
from ..execution.observer import Display
from ..execution.unrecorded import Unrecorded
from ..host import files
from ..host.effect_context import Context, Interrupt, WorldLike
from ..host.paths import LOOPS
from ..project.compilation import compile_text
from ..project.limits import Bounds, restoring_bounds


def compile(
    text: str,
    path: str = "<text>",
    *,
    context: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    llm: bool | None = None,
    llm_model: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    declare: Sequence[str] = (),
) -> Image:
    """Compile the YAML text of a loop, or the text of a flow, to an image for `Machine`.

    Raises CompileError with every diagnostic, and TypeError for arguments of the wrong type.

    Args:
        text: source text.
        path: file name for diagnostics; for a flow it ends in `.sexp`.
        context: values for the loop's context variables.
        max_iterations: replaces the loop's iteration limit.
        llm: False disables model calls, as `--no-llm`.
        llm_model: model that judges output.
        arguments: variables of a flow.
        declare: tools and tasks in addition to those of the project, as for `--declare`.
    """
    _check_text(text, "text")
    options = CompileOptions(
        max_iterations=max_iterations,
        context=plain_data(context),
        llm_enabled=llm,
        llm_model=llm_model,
        arguments=plain_data(arguments),
        folder=LOOPS,
        declare=tuple(declare),
    )
    return emit(compile_text(text, path, options).program)


class FlowError(Exception):
    """The evaluated flow ended with `fault`."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(f"{fault.kind}: {fault.message}")


def evaluate(
    source: str,
    bindings: Mapping[str, Any] | None = None,
    world: WorldLike | str | files.PathLike[str] | None = None,
    *,
    fuel: int | None = None,
    limits: Mapping[str, int] | None = None,
    declare: Sequence[str] = (),
) -> Any:
    """Evaluate the text of a flow and return its value. Nothing is recorded.

    Args:
        source: text of the flow.
        bindings: values of its variables, plain data.
        world: performs the effects: an object, or the file of a scripted world; by default the real world.
        fuel: limit of ticks.
        limits: `depth` of calls, `size` of values and `fuel`, as `--max-depth`, `--max-size` and `--fuel`.
        declare: as for `compile`.

    Raises:
        CompileError: the text is invalid.
        FlowError: the flow faults or runs out of fuel.
        Exited: the flow calls `exit`.
        NoRule: the scripted world has no result for an effect.
        TypeError: an argument has the wrong type.
    """
    _check_text(source, "source")
    bounds = Bounds(**{"fuel": fuel, **(limits or {})})
    with restoring_bounds():
        bounds.apply()
        image = compile(source, EXPRESSION_PATH, arguments=bindings, declare=declare)
        if world is not None:
            return _evaluate(image, _load_world(world), bounds.fuel)
        real_world = World()
        try:
            return _evaluate(image, real_world, bounds.fuel)
        finally:
            real_world.close()


def _load_world(world: WorldLike | str | files.PathLike[str]) -> WorldLike:
    """The world itself, or the scripted world in this file. Raises CompileError and TypeError."""
    if isinstance(world, str | files.PathLike):
        return load_world(files.fspath(world))
    if not hasattr(world, "perform"):
        kind = type(world).__name__
        raise TypeError(f"`world` performs effects, or is the file of a scripted world; {kind} is neither")
    return world


def _evaluate(image: Image, world: WorldLike, fuel: int) -> Any:
    machine = Machine(image)
    interrupt = Interrupt()
    started_at = world.monotonic()

    def elapsed_ms() -> int:
        return round((world.monotonic() - started_at) * 1000)

    def context_of(effect: Effect) -> Context:
        return Context.outside_run("evaluate", effect.seq, interrupt, elapsed_ms)

    try:
        stop = Unrecorded(machine, world, Display(), interrupt, context_of, fuel).run()
    finally:
        interrupt.close()
    if isinstance(stop, Done):
        return stop.value
    if not isinstance(stop, Fault):
        stop = Fault("out-of-fuel", f"it did not end within {fuel:,} ticks")
    raise FlowError(stop)


def _check_text(argument: object, name: str) -> None:
    if not isinstance(argument, str):
        raise TypeError(f"`{name}` is a text, not {type(argument).__name__}")


def plain_data(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the variables, made of JSON values. Raises TypeError for other values."""
    if variables is not None and not hasattr(variables, "items"):
        raise TypeError(f"variables are a map from names to values, not {type(variables).__name__}")
    copy = {}
    for name, value in (variables or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a variable is a string, not {name!r}")
        try:
            copy[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the value of the variable `{name}` is not plain data: {error}") from None
    return copy
