"""Python API without runs: compile a text to an image, evaluate a flow. Errors are raised, not printed."""

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

    path: the file name for diagnostics; that of a flow ends in `.sexp`. arguments: variables of a flow.
    declare: tools and tasks that it may call in addition to those of the project, as for `--declare`. The
    other parameters override settings of the loop, as the options of `llc compile` do. Raises CompileError
    with every diagnostic, and TypeError for arguments of the wrong type.
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
    """The evaluated flow ended with an error of its own, `fault`."""

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
    """Evaluate a flow given as text, with variables bound to plain data; its value. Nothing is recorded.

    world: performs the effects; by default the real one, or the file of a scripted one, as `script` of
    `run`. fuel: ticks it may use at most. limits: `depth` of calls and `size` of values, as `--max-depth`
    and `--max-size` of `llc run`, and also `fuel`. declare: as for `compile`. Raises CompileError; FlowError
    if the flow faults or runs out of fuel; Exited if it calls `exit`; NoRule if the scripted world has no
    result for an effect; TypeError for arguments of the wrong type.
    """
    _check_text(source, "source")
    given = Bounds(**{"fuel": fuel, **(limits or {})})
    with restoring_bounds():
        given.apply()
        image = compile(source, EXPRESSION_PATH, arguments=bindings, declare=declare)
        if world is not None:
            return _evaluate(image, _world(world), given.fuel)
        real = World()
        try:
            return _evaluate(image, real, given.fuel)
        finally:
            real.close()


def _world(given: WorldLike | str | files.PathLike[str]) -> WorldLike:
    """The given world, or the scripted one in a file. Raises CompileError and TypeError."""
    if isinstance(given, str | files.PathLike):
        return load_world(files.fspath(given))
    if not hasattr(given, "perform"):
        kind = type(given).__name__
        raise TypeError(f"`world` performs effects, or is the file of a scripted world; {kind} is neither")
    return given


def _evaluate(image: Image, performing: WorldLike, fuel: int) -> Any:
    machine = Machine(image)
    interrupt = Interrupt()
    begun = performing.monotonic()

    def context_of(effect: Effect) -> Context:
        return Context(
            run_id="evaluate",
            effect_id=f"evaluate/{effect.seq}",
            loop=None,
            state=None,
            iteration=None,
            elapsed_ms=lambda: round((performing.monotonic() - begun) * 1000),
            interrupt=interrupt,
        )

    try:
        stop = Unrecorded(machine, performing, Display(), interrupt, context_of, fuel).run()
    finally:
        interrupt.close()
    if isinstance(stop, Done):
        return stop.value
    if not isinstance(stop, Fault):
        stop = Fault("out-of-fuel", f"it did not end within {fuel:,} ticks")
    raise FlowError(stop)


def _check_text(given: object, name: str) -> None:
    if not isinstance(given, str):
        raise TypeError(f"`{name}` is a text, not {type(given).__name__}")


def plain_data(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Variables as plain data. Raises TypeError for values that are not plain data."""
    if given is not None and not hasattr(given, "items"):
        raise TypeError(f"variables are a map from names to values, not {type(given).__name__}")
    found = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a variable is a string, not {name!r}")
        try:
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the variable `{name}` is no plain data: {error}") from None
    return found
