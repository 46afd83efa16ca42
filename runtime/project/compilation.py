"""Compilation in a project: sources to programs and images, checked against the configuration.

Imports the compiler; a run from the cache (`load`) starts without this module. Must not contain: the
cache, options of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import attrs

from ...frontend import compile as frontend
from ...frontend.compile import Compiled
from ...ir.compile_options import CompileOptions
from ...ir.diagnostics import CompileError, render_all
from ...vm.code.emit import emit
from ...vm.code.image import Image
from ..host.paths import ROOT
from . import configuration, models
from .prices import Prices
from .settings import Configuration

Warn = Callable[[str], None]


def compile_file(path: str, options: CompileOptions) -> Compiled:
    """Compile a source of this project. Raises CompileError."""
    return frontend.compile_file(path, options.evolve(project=Project()))


def compile_text(text: str, path: str, options: CompileOptions) -> Compiled:
    """Compile a text as a source of this project. Raises CompileError."""
    return frontend.compile_text(text, path, options.evolve(project=Project()))


def image_of_file(path: str, options: CompileOptions, warn: Warn) -> tuple[Image, bool]:
    """The image of a source, and whether there were warnings; `warn` receives them as text."""
    compiled = compile_file(path, options)
    return emit(compiled.program), report_warnings(compiled, warn)


def image_of_text(text: str, path: str, options: CompileOptions, warn: Warn, name: str = "") -> Image:
    """The image of a text; `name` replaces the name of the program."""
    compiled = compile_text(text, path, options)
    report_warnings(compiled, warn)
    return emit(attrs.evolve(compiled.program, name=name) if name else compiled.program)


def report_warnings(compiled: Compiled, warn: Warn) -> bool:
    """Pass the warnings of a compilation to `warn`, if there are any."""
    warnings = [diagnostic for diagnostic in compiled.diagnostics if not diagnostic.is_error]
    if warnings:
        warn(render_all(warnings, compiled.sources))
    return bool(warnings)


class Project:
    """The project's configuration for the checks of loops; read on first use."""

    def __init__(self) -> None:
        self._known: Configuration | None = None

    @property
    def _configuration(self) -> Configuration | None:
        """None if it cannot be read; the command that uses it reports that."""
        if self._known is None:
            try:
                self._known = configuration.load(ROOT)
            except CompileError:
                return None
        return self._known

    def agents(self) -> Sequence[str] | None:
        found = self._configuration
        return None if found is None else (*_agents().known_names(), *found.agents)

    def lacking(
        self, agent: str | tuple[str, ...], needed: Sequence[str], protocol: str | None
    ) -> dict[str, str]:
        agents, found = _agents(), self._configuration
        if isinstance(agent, tuple):
            entry = agents.of_words(agent) if protocol is None else agents.of_protocol(protocol, agent)
        elif found is not None and agent in found.agents:
            entry = found.agents[agent]
        else:
            entry = agents.known(agent)
        able = agents.capabilities_of(entry)
        return {name: agents.agents_with([name]) for name in needed if name not in able}

    def is_priced(self, model: str) -> bool:
        found = self._configuration
        if found is None:
            return True
        chosen = models.choose(model, found.models)
        return Prices().row(chosen.name, chosen.price) is not None


def _agents() -> ModuleType:
    """The module of agents; imported here because few loops name one."""
    from . import agents

    return agents
