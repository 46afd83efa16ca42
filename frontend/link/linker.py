"""Linker for programs of several files: loops that flows run, functions that loops call.

Owns the resolution of names to files, the program parts (`core.program_parts`) made from files, and the
detection of
files that run each other in a cycle. Diagnostics about a file carry its own spans. Must not contain:
forms (`expand`), states (`lower`).
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import Any

from ...ir.compile_options import CONFIG, FLOW_SUFFIX, LOOP_SUFFIXES, LOOPS, TOOLS, CompileOptions
from ...ir.diagnostics import CompileError, Diagnostic, DiagnosticId, count_words, suggest
from ...ir.scalars import scalar_or_text
from ...ir.spans import Source, Span
from ..core.program_parts import (
    BranchesPart,
    CallPart,
    Definitions,
    FunctionPart,
    LateCallPart,
    LoopPart,
    Request,
)
from ..expand.expansion import Environment, Limits
from ..expand.program import expand_definitions
from ..loop.load import load, unread_context, with_llm_options
from ..loop.schema import Loop, StateSpec, model_name
from ..sexp.reader import read
from ..source import files
from ..source.files import EXPRESSION_PATH, read_source, resolve_path
from ..tasks.registry import TaskRegistry
from ..template.nodes import RuntimeValue
from .calls import arguments_of, target_of
from .sub_loops import fixed_name, request_of, unread_bindings, with_bindings

# YAML files of a project that are not loops.
NO_LOOPS = (CONFIG, TOOLS)
# Deeper nesting of files counts as a cycle, whatever the names of the files.
MAX_DEPTH = 50


class Linker:
    """The files of one program, except the first one.

    declared: the tools and tasks that its flows may call; by default those of the options.
    """

    def __init__(self, options: CompileOptions, declared: TaskRegistry | None = None) -> None:
        self.options = options
        self.declared = declared or TaskRegistry(options.folder, options.declare)
        self.limits = Limits.of(options.max_expansions, options.max_nesting)
        self.sources: dict[str, Source] = {}
        self.diagnostics: list[Diagnostic] = []
        self._loops: dict[Any, LoopPart | None] = {}
        self._files: dict[str, Definitions | None] = {}
        self._functions: dict[tuple[str, str, int], FunctionPart] = {}
        # The files being read, outermost first, as (resolved path, displayed path).
        self._trail: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Context in which a file is read; used to detect cycles."""
        self._trail.append((files.real_path(path), path))
        try:
            yield
        finally:
            self._trail.pop()

    def report(self, *found: Diagnostic) -> None:
        """Add diagnostics; a file that is read twice reports each of them once."""
        self.diagnostics += [finding for finding in found if finding not in self.diagnostics]

    def error(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.report(Diagnostic(id, message, span, label, help))

    def source(self, path: str, span: Span | None, what: str) -> Source | None:
        """The source of a file; None, with a diagnostic, if it cannot be read or is being read already."""
        real = files.real_path(path)
        names = [shown for _, shown in self._trail]
        index = next((i for i, (other, _) in enumerate(self._trail) if other == real), None)
        if index is not None:
            chain = " → ".join([*names[index:], path])
            help = "a program cannot run itself through another file; move the shared part to a third file"
            self.error("circular-run", f"`{path}` runs itself: {chain}", span, help=help)
            return None
        if len(self._trail) > MAX_DEPTH:
            self.error(
                "nesting-too-deep", f"loops and flows run one another more than {MAX_DEPTH} deep", span
            )
            return None
        if path in self.sources:
            return self.sources[path]
        try:
            source = read_source(path)
        except CompileError as error:
            for source in error.sources:
                self.sources[source.path] = source
            places = [found for found in error.diagnostics if found.span is not None]
            if places:
                self.report(*places)
            else:
                why = error.diagnostics[0].message
                self.error("cannot-run", f"cannot {what} `{path}`: {why}", span)
            return None
        self.sources[path] = source
        return source

    # --- loops --------------------------------------------------------------------------------

    def loop(self, request: Request, importer: str) -> LoopPart | None:
        """The loop that the file `importer` runs; None, with diagnostics, if there is none."""
        path = self._loop_path(request, importer)
        return None if path is None else self.part(path, request)

    def part(self, path: str, request: Request) -> LoopPart | None:
        """The loop of a file. Requests with the same constants share one part."""
        key = (
            path,
            request.max_iterations,
            request.is_state,
            request.dialect,
            request.is_late,
            repr(sorted(request.constants.items())),
            frozenset(request.given),
        )
        if key not in self._loops or any(files.real_path(path) == real for real, _ in self._trail):
            self._loops[key] = self._read_loop(path, request)
        return self._loops[key]

    def _loop_path(self, request: Request, importer: str) -> str | None:
        name = request.name
        if "/" in name or name.endswith(LOOP_SUFFIXES):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))
            if files.path_exists(path):
                return path
            folder = posixpath.dirname(path)
            known = [file for file in files.list_folder(folder) if file.endswith(LOOP_SUFFIXES)]
            help = suggest(posixpath.basename(path), known, f"loops in `{folder or '.'}`")
            self.error("unknown-file", f"there is no file `{path}`", request.span, help=help)
            return None
        path = posixpath.join(LOOPS, name + LOOP_SUFFIXES[0])
        if name and files.path_exists(path):
            return path
        stems = [posixpath.splitext(file) for file in files.list_folder(LOOPS) if not file.startswith(".")]
        if (name, ".sexp") in stems:
            help = f'`{name}` is a flow: (import "{name}.sexp") imports its functions'
        else:
            known = [
                stem for stem, suffix in stems if suffix in LOOP_SUFFIXES and stem + suffix not in NO_LOOPS
            ]
            help = suggest(name, known, "loops here") or f"write the loop to {path}, or give a path"
        self.error("unknown-loop", f"no loop named `{name}` in {LOOPS}/", request.span, help=help)
        return None

    def _read_loop(self, path: str, request: Request) -> LoopPart | None:
        source = self.source(path, request.span, "run")
        if source is None:
            return None
        with self.reading(path):
            change = lambda made: self._changed(made, request, source)  # noqa: E731
            options = self.options
            if request.dialect is not None and options.dialect is None:
                options = options.evolve(dialect=request.dialect)
            loop, document, found = load(source, options, change)
            for part in document.sources[1:]:
                self.sources.setdefault(part.path, part)
            if loop is not None and request.is_state:
                found += unread_bindings(loop, request, document.sources)
            self.report(*found)
            if loop is None:
                return None
            before = len(self.diagnostics)
            calls = self.calls(loop, path)
            if any(finding.is_error for finding in (*found, *self.diagnostics[before:])):
                return None
        given = tuple(key for key, value in loop.context.items() if isinstance(value, RuntimeValue))
        model = model_name(loop, self.options.default_model)
        return LoopPart(loop.name, loop, given, document.within, model, calls, request.is_state)

    def _changed(self, loop: Loop, request: Request, source: Source) -> tuple[Loop, list[Diagnostic]]:
        """The loop with the compilation options and the values of the request applied."""
        loop = with_llm_options(loop, self.options)
        if request.max_iterations is not None:
            loop = loop.evolve(max_iterations=request.max_iterations)
        if request.is_state:
            return with_bindings(loop, request)
        keys = sorted({*request.constants, *request.given})
        unread = list(unread_context(loop, keys, source))
        context = dict(loop.context)
        for key in keys:
            if key in unread:
                continue
            if key in request.given:
                context[key] = RuntimeValue()
            else:
                value = request.constants[key]
                context[key] = scalar_or_text(value) if isinstance(value, str) else value
        problems = [
            Diagnostic(
                "unknown-context",
                f"loop `{loop.name}` does not read context `{key}`",
                request.spans.get(key),
                help=suggest(key, loop.context, "the loop's context has"),
            )
            for key in unread
        ]
        return loop.evolve(context=context), problems

    # --- functions ----------------------------------------------------------------------------

    def calls(self, loop: Loop, importer: str) -> dict[str, CallPart | LateCallPart]:
        """The callees of a loop's states; invalid ones are omitted, with diagnostics."""
        found: dict[str, CallPart | LateCallPart] = {}
        for state in loop.states.values():
            if state.calls and not state.flawed:
                call: CallPart | LateCallPart | None
                if state.call is not None:
                    call = self._call(state, state.call, importer)
                elif state.parallel is not None:
                    call = self._branches(loop, state, state.parallel, importer)
                else:
                    call = self._sub_loop(loop, state, importer)
                if call is not None:
                    found[state.name] = call
        return found

    def _sub_loop(self, loop: Loop, state: StateSpec, importer: str) -> CallPart | LateCallPart | None:
        name = fixed_name(loop, state)
        if name is not None:
            return self._named_loop(loop, state, name, importer)
        linked = []
        for number, (file, of, known) in enumerate(self.options.links):
            if (file, of) == (importer, state.name):
                call = self._named_loop(loop, state, known, importer, is_late=True)
                if call is not None:
                    linked.append((known, number, call))
        return LateCallPart(importer, tuple(linked))

    def _named_loop(
        self, loop: Loop, state: StateSpec, name: str, importer: str, is_late: bool = False
    ) -> CallPart | None:
        found = request_of(loop, state, name, importer, self.error, is_late)
        if found is None:
            return None
        path, request, values = found
        part = self.part(path, request)
        if part is None:
            return None
        return CallPart(part, tuple((f"with.{key}", values[key]) for key in part.given))

    def _branches(
        self, loop: Loop, state: StateSpec, names: tuple[str, ...], importer: str
    ) -> CallPart | None:
        """The loops that a state runs concurrently; reports every error in them."""
        span = state.span_of("parallel")
        twice = next((name for name in names if names.count(name) > 1), None)
        least = {"all": len(names), "any": 1}.get(str(state.join or "all"), state.join)
        assert isinstance(least, int)
        if twice is not None:
            help = "captures are stored by the name of the loop; copy the file, or run the loop in two states"
            self.error("duplicate-name", f"the loop `{twice}` occurs twice in `parallel`", span, help=help)
            return None
        if least > len(names):
            message = (
                f"`join: {least}`, but `parallel` has only {count_words(len(names), len(names), 'loop')}"
            )
            help = f"write {len(names)} at most, or `all`"
            self.error("out-of-range", message, state.span_of("join"), help=help)
            return None
        computed = next((name for name in names if "${" in name), None)
        if computed is not None:
            help = "write a flow with `parallel-map`, and `call` it; or name all loops that may run"
            self.error(
                "unknown-loop",
                f"the name of a loop in `parallel` cannot be computed: `{computed}`",
                span,
                help=help,
            )
            return None
        # A given value need not be used by every branch.
        calls = {name: self._named_loop(loop, state, name, importer, is_late=True) for name in names}
        loops = [(name, call.function) for name, call in calls.items() if call is not None]
        branches = tuple((name, one) for name, one in loops if isinstance(one, LoopPart))
        if len(branches) < len(names):
            return None
        arguments = {place: value for call in calls.values() if call for place, value in call.arguments}
        part = BranchesPart(f"{loop.name}/{state.name}", branches, least, span)
        return CallPart(part, tuple((f"with.{key}", arguments[f"with.{key}"]) for key in part.given))

    def _call(self, state: StateSpec, call: str, importer: str) -> CallPart | None:
        span = state.span_of("call")
        target = target_of(call)
        if target is None:
            how = "write the file and the function: `call: flows.sexp#summarise`"
            self.error("bad-call", f"`{call}` is not a function of a file", span, help=how)
            return None
        file, name = target
        if not file.endswith(FLOW_SUFFIX):
            how = f"functions are defined in `{FLOW_SUFFIX}` files"
            self.error("bad-call", f"`{file}` is not a file of functions", span, help=how)
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(importer), file))
        if not files.path_exists(path):
            known = [
                file for file in files.list_folder(posixpath.dirname(path)) if file.endswith(FLOW_SUFFIX)
            ]
            help = suggest(posixpath.basename(path), known, "flows there")
            self.error("unknown-file", f"there is no file `{path}`", span, help=help)
            return None
        definitions = self._definitions(path, span)
        if definitions is None:
            return None
        binding = definitions.names.get(name)
        if binding is None:
            help = suggest(name, definitions.names, "it defines")
            self.error("unknown-function", f"`{path}` does not define `{name}`", span, help=help)
            return None
        arguments = arguments_of(state, name, definitions, binding, self.error)
        if arguments is None:
            return None
        key = (path, name, len(arguments))
        if key not in self._functions:
            self._functions[key] = FunctionPart(name, path, definitions, binding, len(arguments))
        return CallPart(self._functions[key], arguments)

    def _definitions(self, path: str, span: Span | None) -> Definitions | None:
        if path not in self._files or any(files.real_path(path) == real for real, _ in self._trail):
            self._files[path] = self._read_definitions(path, span)
        return self._files[path]

    def _read_definitions(self, path: str, span: Span | None) -> Definitions | None:
        source = self.source(path, span, "call")
        if source is None:
            return None
        with self.reading(path):
            data, found = read(source, self.limits.nesting)
            if any(finding.is_error for finding in found):
                self.report(*found)
                return None
            environment = Environment((), imported_source, self.loop, self.limits, self.declared)
            before = len(self.diagnostics)
            definitions = expand_definitions(data, source, environment)
        for source in definitions.sources:
            self.sources.setdefault(source.path, source)
        found += definitions.diagnostics
        self.report(*found)
        return None if any(finding.is_error for finding in self.diagnostics[before:]) else definitions


def imported_source(path: str, importer: str) -> Source:
    """The source for `import` of `path` in the file `importer`. Raises CompileError."""
    return read_source(resolve_path("" if importer == EXPRESSION_PATH else importer, path))
