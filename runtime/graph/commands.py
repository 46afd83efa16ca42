"""`llc graph`: the graph of a loop, a flow, IR text, an image or a run, in the requested format."""

from __future__ import annotations

import os.path

from ...frontend.loop.load import load, with_options
from ...frontend.source.files import read_source, text_source
from ...ir.compile_options import LOOP_SUFFIXES
from ...ir.diagnostics import CompileError, suggest
from ...ir.spans import Source
from ...vm.code.image import Image
from ..host.errors import Failure, UserError, refuse_missing_folder
from ..host.paths import IMAGE_SUFFIX
from ..host.screen import Screen
from ..journal.journal import JournalError, write_file
from ..journal.run_history import RunHistory
from ..project.compilation import compile_text
from ..project.load import compile_options, load_image
from ..project.options import Values, recorded_options
from ..recordings.find import RunFiles, find_run
from ..runs.loop_names import is_path, loop_files, resolve_loop
from . import diagram, layout, picture, text_forms
from .loop_graph import graph_of_loop
from .model import Graph
from .program_graph import graph_of_functions, graph_of_ir
from .run_overlay import RouteCounts, add_run, read_routes
from .simplify import simplify

LEVELS = ("loop", "functions", "ir")
# Suffixes of output files.
FORMS = (".svg", ".html", ".png", ".mmd", ".dot", ".json")


def graph_of(target: str, run: str | None, level: str | None, all_edges: bool) -> Graph:
    """The simplified graph of a loop, a program or a run.

    Args:
        target: a loop, a path or a run.
        run: the run whose visits are shown; None for none, unless `target` is a run.
        level: one of `LEVELS`; None for the default of the source.
        all_edges: draw all routes.

    Raises UserError, CompileError and JournalError.
    """
    if level is not None and level not in LEVELS:
        raise UserError("bad-option", f"--level cannot be `{level}`", suggest(level, LEVELS, "levels"))
    run_files = None if run is None else find_run(run)
    if run_files is not None or is_path(target) or target in loop_files():
        path = resolve_loop(target)
        source = _source_of(load_image(path), path) if path.endswith(IMAGE_SUFFIX) else read_source(path)
    else:
        run_files = _find_run(target)
        source = _source_of(run_files.load_image(), run_files.name)
    if run_files is None:
        return simplify(_graph(source, level), all_edges)
    history, routes = read_routes(run_files.journal)
    graph = _graph(source, level, history)
    if graph.level == "loop":
        add_run(graph, run_files.name, history, routes)
    return simplify(graph, all_edges)


def graph_of_run(name: str, image: Image, history: RunHistory, routes: RouteCounts) -> Graph:
    """The simplified graph of a run. Raises UserError and CompileError."""
    graph = _graph(_source_of(image, name), None, history)
    if graph.level == "loop":
        add_run(graph, name, history, routes)
    return simplify(graph, False)


def _find_run(target: str) -> RunFiles:
    try:
        return find_run(target)
    except UserError as error:
        if error.id != "unknown-run":
            raise
        message = f"there is no loop and no run `{target}`"
        raise UserError(error.id, message, suggest(target, loop_files(), "loops here")) from None


def _source_of(image: Image, name: str) -> Source:
    """The main source of an image. Raises UserError if the image does not contain it."""
    source = image.sources[0] if image.sources else None
    if source is None or source.text is None:
        raise UserError("no-sources", f"{name} was compiled without its sources", "give the source instead")
    return text_source(source.text, source.path)


def _graph(source: Source, level: str | None, history: RunHistory | None = None) -> Graph:
    """The graph of a program. history: of a run, whose context values are used."""
    is_loop = source.path.endswith(LOOP_SUFFIXES)
    if level == "loop" and not is_loop:
        raise UserError("bad-option", f"{source.path} has no states", "--level functions or --level ir")
    overrides = None if history is None or history.start is None else history.start.overrides
    options = compile_options(Values(source.path, context=recorded_options(overrides).get("context", ())))
    if is_loop and level in (None, "loop"):
        # A loop with errors is shown too, if its states can be read.
        loop, document, found = load(source, options, lambda made: with_options(made, options, source))
        if loop is None or not loop.states:
            raise CompileError(found, document.sources)
        graph = graph_of_loop(loop)
        errors = sum(diagnostic.is_error for diagnostic in found)
        if errors:
            graph.notes.append(f"the loop has {errors} error{'s' * (errors > 1)}: llc validate {source.path}")
        return graph
    program = compile_text(source.text or "", source.path, options).program
    is_ir = level == "ir" or (level is None and len(program.functions) == 1)
    return graph_of_ir(program) if is_ir else graph_of_functions(program)


def shown(graph: Graph, screen: Screen) -> str:
    """The diagram for a terminal or a text file."""
    title = f"{graph.name}" + (f" · run {graph.run}" if graph.run else "")
    width = screen.width if screen.is_live else 100
    return f"{title}\n\n" + diagram.as_diagram(graph, screen, width)


def write(graph: Graph, output: str) -> None:
    """Write the graph to a file in the format of its suffix. Raises UserError."""
    refuse_missing_folder(output)
    data = written(graph, output)
    try:
        write_file(output, data, durable=False)
    except JournalError as error:
        raise Failure("cannot-write", error.message) from None


def written(graph: Graph, output: str) -> bytes:
    """The graph in the format of a file name's suffix. Raises UserError."""
    suffix = os.path.splitext(output)[1]
    match suffix:
        case ".svg":
            return picture.as_svg(graph).encode()
        case ".html":
            return picture.as_html(graph).encode()
        case ".png":
            return layout.run_graphviz(text_forms.as_dot(graph), "png")
        case ".mmd":
            return text_forms.as_mermaid(graph).encode()
        case ".dot":
            return text_forms.as_dot(graph).encode()
        case ".json":
            return text_forms.as_json(graph).encode()
        case _:
            raise UserError(
                "bad-option",
                f"unknown suffix of the output `{output}`",
                f"use {', '.join(FORMS[:-1])} or {FORMS[-1]}",
            )
