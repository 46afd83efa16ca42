"""Compilation of sources in a project, checked against the project's configuration.

Imports the compiler, so a run from the cache (`load`) does not import this module. Must not contain: the
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
    """Compile a source file of this project. Raises CompileError."""
    return frontend.compile_file(path, options.evolve(project=Project()))


def compile_text(text: str, path: str, options: CompileOptions) -> Compiled:
    """Compile a text as a source of this project. Raises CompileError."""
    return frontend.compile_text(text, path, options.evolve(project=Project()))


def image_of_file(path: str, options: CompileOptions, warn: Warn) -> tuple[Image, bool]:
    """Compile a source to an image; also return whether there were warnings. warn: receives their text."""
    compiled = compile_file(path, options)
    return emit(compiled.program), report_warnings(compiled, warn)


def image_of_text(text: str, path: str, options: CompileOptions, warn: Warn, name: str = "") -> Image:
    """Compile a text to an image. name: replaces the name of the program, unless empty."""
    compiled = compile_text(text, path, options)
    report_warnings(compiled, warn)
    return emit(attrs.evolve(compiled.program, name=name) if name else compiled.program)


def report_warnings(compiled: Compiled, warn: Warn) -> bool:
    """Pass the rendered warnings of a compilation to `warn`; return whether there are any."""
    warnings = [diagnostic for diagnostic in compiled.diagnostics if not diagnostic.is_error]
    if warnings:
        warn(render_all(warnings, compiled.sources))
    return bool(warnings)


class Project:
    """The project's configuration for the checks of loops (`CompileOptions.project`); read on first use."""

    def __init__(self) -> None:
        self._loaded: Configuration | None = None

    @property
    def _configuration(self) -> Configuration | None:
        """None if the configuration is invalid; the command that uses it reports the errors."""
        if self._loaded is None:
            try:
                self._loaded = configuration.load(ROOT)
            except CompileError:
                return None
        return self._loaded

    def agents(self) -> Sequence[str] | None:
        settings = self._configuration
        return None if settings is None else (*_agents().known_names(), *settings.agents)

    def lacking(
        self, agent: str | tuple[str, ...], needed: Sequence[str], protocol: str | None
    ) -> dict[str, str]:
        agents, settings = _agents(), self._configuration
        if isinstance(agent, tuple):
            entry = agents.of_words(agent) if protocol is None else agents.of_protocol(protocol, agent)
        elif settings is not None and agent in settings.agents:
            entry = settings.agents[agent]
        else:
            entry = agents.known(agent)
        capabilities = agents.capabilities_of(entry)
        return {name: agents.agents_with([name]) for name in needed if name not in capabilities}

    def is_priced(self, model: str) -> bool:
        settings = self._configuration
        if settings is None:
            return True
        chosen = models.choose(model, settings.models)
        return Prices().row(chosen.name, chosen.price) is not None


def _agents() -> ModuleType:
    """The module `agents`; imported on demand because few loops name an agent."""
    from . import agents

    return agents
