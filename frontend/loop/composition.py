"""Composition of a loop from several files: `import`, `fragment`, `from` and `flow`.

Merges trees before the schema is read, so that there is a single reader; each node keeps its position in its
file (`Document.include`). Inheritance is applied first, then `flow`, then fragments (`spec/dialect.md`). Must
not contain: keys of states, except those that compose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, commonpath, dirname, join, normpath
from typing import Any, NamedTuple

from ...ir.compile_options import LOOP_SUFFIXES
from ...ir.diagnostics import CompileError, Diagnostic, DiagnosticId, nearest, suggest
from ...ir.python_internals import late_pattern
from ..source.document import Document, Mapping, Node, Refused, Scalar, Sequence
from ..source.files import is_file, list_folder, read_source, real_path
from ..source.schema_reader import BAD, SchemaReader
from ..source.yaml_tree import MAX_NODES, read_document
from ..template.nodes import text_of
from .dialect_schema import PARAMETERS, Parameter
from .schema import COMPOSITION_KEYS

# Limit of files that compose one loop.
MAX_FILES = 100
# Pairs of keys of a state that have the same meaning.
SYNONYMS = {"on_yes": "on_success", "on_success": "on_yes", "on_no": "on_failure", "on_failure": "on_no"}
_PARAMETER = late_pattern(r"\$\{param\.([\w-]+)((?::default=[^}]*)?(?::shell)?(?::default=[^}]*)?\??)\}")
_STEP = late_pattern(r"([^?\s]+)(?:\?([^:\s]+):([^:\s]+))?")


def compose(document: Document) -> bool:
    """Replace the root of a document by the loop that it composes. Returns whether anything was composed.

    Each error is reported to the document once, at the line that causes it. Raises `Refused` if there is no
    loop.
    """
    root = document.root
    if not isinstance(root, Mapping):
        return False
    states = root.entries.get("states")
    uses = isinstance(states, tuple) and isinstance(states[1], Mapping)
    fragments = uses and any(
        isinstance(state, Mapping) and "fragment" in state.entries
        for _, state in states[1].entries.values()  # type: ignore[index, union-attr]
    )
    if not fragments and not any(key in root.entries for key in COMPOSITION_KEYS):
        return False
    composition = _Composition(document)
    if is_library(root):
        key = root.entries["fragments"][0]
        help = "write the file under `import` of a loop"
        composition.refuse(
            "fragment-library", "a library of fragments is not a loop", key, "begins here", help
        )
    root = composition.inherit(root, document.source.path, ())
    root = composition.flow(root)
    document.root = composition.fragments(root)
    return True


def is_library(root: Mapping) -> bool:
    """Whether a document only offers fragments to other files."""
    return "fragments" in root.entries and not root.entries.keys() & {
        *("states", "initial", "flow", "from", "paradigm")
    }


class MissingFile(NamedTuple):
    """The parts of a diagnostic for a file that cannot be read."""

    id: DiagnosticId
    message: str
    label: str
    help: str


def locate(name: str, folder: str, suffixes: Iterable[str], what: str) -> str | MissingFile:
    """Find a file by the name that a loop in `folder` uses.

    The folder itself and its parents up to the project's folder of loops are searched. The file must not be
    outside that folder, links resolved. suffixes: suffixes to append to the name. what: term for messages.
    """
    folders = _search_folders(folder)
    root = real_path(folders[-1] or ".")
    candidates = [join(base, name + ending) for base in folders for ending in suffixes]
    path = next((path for path in candidates if is_file(path)), None)
    if path is None:
        looked = ", ".join(f"`{base or '.'}`" for base in folders)
        message = f"no {what} `{name[:200]}`"
        known = {
            file if ending == "" else file.removesuffix(ending)
            for base in folders
            for file in list_folder(base)
            for ending in suffixes
            if file.endswith(ending) and file.endswith(LOOP_SUFFIXES)
        }
        meant = next((file for file in sorted(known) if file.startswith(f"{name}.")), None)
        meant = meant or nearest(name, known)
        help = f"did you mean `{meant}`?" if meant else f"searched in {looked}"
        if what == "library" and not meant:
            help += "; copy a library of little-loops from its folder of loops"
        return MissingFile("file-not-found", message, "file not found", help)
    if commonpath([root, real_path(path)]) != root:
        message = f"`{name[:200]}` lies outside the folder of loops"
        help = f"copy the file to `{folders[-1] or '.'}` or a folder in it"
        return MissingFile("outside-project", message, "outside the folder", help)
    return path


class _Composition:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.folder = dirname(document.source.path)
        self.documents: dict[str, Document] = {}
        self.nodes = 0

    def fail(
        self, id: DiagnosticId, message: str, node: Node, label: str = "", help: str | None = None
    ) -> None:
        self.document.report(Diagnostic(id, message, self.document.span(node), label, help))

    def refuse(
        self, id: DiagnosticId, message: str, node: Node, label: str = "", help: str | None = None
    ) -> None:
        """Report an error after which nothing can be checked."""
        self.fail(id, message, node, label, help)
        raise Refused

    # --- files --------------------------------------------------------------------------------

    def read_file(
        self, name: str, node: Node, folder: str, suffixes: Iterable[str], what: str
    ) -> Document | None:
        """The document of a file that a loop names (`locate`); None after an error. Each file is read
        once.
        """
        if self.document.source.path.startswith("<"):
            self.fail(
                "outside-project", f"a loop without a file cannot use a {what}", node, "save it to a file"
            )
            return None
        path = locate(name, folder, suffixes, what)
        if isinstance(path, MissingFile):
            self.fail(path.id, path.message, node, path.label, path.help)
            return None
        resolved = real_path(path)
        if resolved in self.documents:
            return self.documents[resolved]
        if len(self.documents) >= MAX_FILES:
            self.refuse("too-many-items", f"a loop consists of more than {MAX_FILES} files", node)
        try:
            found = read_document(read_source(normpath(path)))
        except CompileError as error:
            for finding in error.diagnostics:
                span = self.document.span(node)
                again = Diagnostic(finding.id, finding.message, span, "names this file", finding.help)
                self.document.report(again)
            return None
        self.documents[resolved] = found
        self.document.include(found)
        for diagnostic in found.diagnostics:
            self.document.report(diagnostic)
        return found

    # --- inheritance --------------------------------------------------------------------------

    def inherit(self, root: Mapping, path: str, above: tuple[str, ...]) -> Mapping:
        """Merge a loop with the loops that it inherits by `from`: lists are replaced, mappings merged.

        above: real paths of the loops that inherit from this one, to detect cycles.
        """
        given = root.entries.get("from")
        if given is None:
            return root
        _, node = given
        name = node.value if isinstance(node, Scalar) else None
        if not isinstance(name, str) or not name.strip():
            self.refuse("wrong-type", "`from` should be the name of a loop", node)
        assert isinstance(name, str)
        suffixes = file_suffixes(name)
        parent = self.read_file(name, node, dirname(path), suffixes, "loop")
        if parent is None:
            raise Refused
        chain = (*above, real_path(path))
        if real_path(parent.source.path) in chain:
            names = [basename(step) for step in (*chain, parent.source.path)]
            self.refuse("circular-inheritance", f"the loop inherits from itself: {' → '.join(names)}", node)
        if not isinstance(parent.root, Mapping):
            if parent.root is not None:
                self.fail("wrong-type", f"`{name}` is not a loop: it is not a mapping", node)
            raise Refused
        base = self.inherit(parent.root, parent.source.path, chain)
        return self.merge(base, root, without=("from",))

    def merge(self, base: Mapping, over: Mapping, without: tuple[str, ...] = ()) -> Mapping:
        """Merge two mappings; `over` takes precedence, and the result has its position."""
        merged = Mapping(over.start)
        merged.end = over.end
        merged.entries = {key: entry for key, entry in base.entries.items() if key not in without}
        self.count(len(merged.entries) + len(over.entries), over)
        for key, (key_node, node) in over.entries.items():
            merged.entries.pop(SYNONYMS.get(key, ""), None)
            below = base.entries.get(key)
            if key in without:
                continue
            if below is not None and isinstance(below[1], Mapping) and isinstance(node, Mapping):
                node = self.merge(below[1], node)
            merged.entries[key] = (key_node, node)
        return merged

    def count(self, nodes: int, place: Node) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            message = f"the loop has more than {MAX_NODES:,} values"
            self.refuse("too-many-nodes", message, place, "including merged values")

    # --- flow ---------------------------------------------------------------------------------

    def flow(self, root: Mapping) -> Mapping:
        """Convert `flow: [a, b?yes:no, c]` and `state_defs` to `states`."""
        given = root.entries.get("flow")
        if given is None:
            if "state_defs" in root.entries:
                key = root.entries["state_defs"][0]
                help = "add `flow: [first, second, …]`, or write `states`"
                self.fail("unused-key", "`state_defs` describes the states of a `flow`", key, "no flow", help)
            return root
        key, steps = given
        if not isinstance(steps, Sequence) or not steps.items:
            self.refuse("wrong-type", "`flow` should be a list of states", steps, "", "write `[check, fix]`")
        assert isinstance(steps, Sequence)
        bodies = root.entries.get("state_defs")
        defined = bodies[1].entries if bodies is not None and isinstance(bodies[1], Mapping) else {}
        states = Mapping(steps.start)
        states.end = steps.end
        parsed = list(self.flow_steps(steps))
        is_read = len(parsed) == len(steps.items)
        for number, (item, found) in enumerate(parsed):
            after = parsed[number + 1] if number + 1 < len(parsed) else None
            own = defined[found[1]][1] if found[1] in defined else None
            own = own if isinstance(own, Mapping) else None
            body = _body_of_step(item, found, None if after is None else after[1], own)
            name_node = _scalar(found[1], item)
            if found[1] in defined:
                name_node = defined[found[1]][0]
                body = body if own is None else self.merge(body, own)
            if found[1] in states.entries:
                self.fail("duplicate-key", f"`{found[1]}` occurs twice in `flow`", item, "given again")
            states.entries[found[1]] = (name_node, body)
        for name, (name_node, _) in defined.items():
            if is_read and name not in states.entries:
                message = f"`flow` has no state `{name[:80]}`"
                known = suggest(name, states.entries, "`flow` has")
                self.fail("unknown-state", message, name_node, "never entered", known)
        composed = Mapping(root.start)
        composed.end = root.end
        composed.entries = {k: entry for k, entry in root.entries.items() if k not in ("flow", "state_defs")}
        composed.entries["states"] = (key, states)
        if "initial" not in composed.entries and parsed:
            first, found = parsed[0]
            composed.entries["initial"] = (key, _scalar(found[1], first))
        return composed

    def flow_steps(self, steps: Sequence) -> Iterator[tuple[Node, re.Match[str]]]:
        """The valid steps of a `flow`, parsed; the others are reported."""
        for item in steps.items:
            value = item.value if isinstance(item, Scalar) else None
            found = _STEP.fullmatch(value) if isinstance(value, str) else None
            if found is None:
                help = "write `name`, or `name?yes_target:no_target`"
                self.fail("wrong-type", "a step of `flow` is the name of a state", item, "", help)
            else:
                yield item, found

    # --- fragments ----------------------------------------------------------------------------

    def fragments(self, root: Mapping) -> Mapping:
        """Merge the `fragment` of each state into it."""
        known = self.import_fragments(root)
        own = root.entries.get("fragments")
        if own is not None:
            self.add_fragments(own[1], known)
        composed = Mapping(root.start)
        composed.end = root.end
        composed.entries = {k: entry for k, entry in root.entries.items() if k not in ("import", "fragments")}
        states = root.entries.get("states")
        if states is None or not isinstance(states[1], Mapping):
            return composed
        written = Mapping(states[1].start)
        written.end = states[1].end
        for name, (key, node) in states[1].entries.items():
            if isinstance(node, Mapping) and "fragment" in node.entries:
                node = self.expand(node, known)
            written.entries[name] = (key, node)
        composed.entries["states"] = (states[0], written)
        return composed

    def import_fragments(self, root: Mapping) -> dict[str, Mapping | None]:
        """The fragments of all imported libraries; a later library replaces fragments of an earlier one.

        The value of an invalid fragment is None. The key "" means that a library is invalid, so that there
        may be more fragments.
        """
        known: dict[str, Mapping | None] = {}
        given = root.entries.get("import")
        if given is None:
            return known
        _, node = given
        if not isinstance(node, Sequence):
            written = node.text if isinstance(node, Scalar) else ""
            help = f"write `[{written}]`" if written else None
            self.fail("wrong-type", "`import` should be a list of files", node, "", help)
            known[""] = None  # its fragments are unknown
            return known
        for item in node.items:
            name = item.value if isinstance(item, Scalar) else None
            if not isinstance(name, str) or not name:
                self.fail("wrong-type", "an import must be the path of a file", item)
                continue
            library = self.read_file(name, item, self.folder, ("",), "library")
            content = library.root if library is not None else None
            if not isinstance(content, Mapping):
                known[""] = None
                if content is not None:
                    self.fail("wrong-type", f"`{name}` is not a library: it is not a mapping", item)
                continue
            offered = content.entries.get("fragments")
            if offered is not None and "import" in content.entries:  # prevents cycles of libraries
                key = content.entries["import"][0]
                help = "write all libraries under `import` of the loop"
                self.fail("fragment-library", "a library cannot import other libraries", key, "", help)
            if offered is None:
                help = "a library has `fragments:`; a loop is inherited by `from`"
                self.fail("missing-field", f"`{name}` has no `fragments`", item, "is not a library", help)
                known.setdefault("", None)
            else:
                self.add_fragments(offered[1], known)
        return known

    def add_fragments(self, node: Node, known: dict[str, Mapping | None]) -> None:
        if not isinstance(node, Mapping):
            self.fail("wrong-type", "`fragments` should be a mapping from names to parts of states", node)
            known.setdefault("", None)
            return
        for name, (_, fragment) in node.entries.items():
            if not isinstance(fragment, Mapping):
                self.fail("wrong-type", f"fragment `{name[:80]}` should be a mapping", fragment)
            known[name] = fragment if isinstance(fragment, Mapping) else None

    def expand(self, state: Mapping, known: dict[str, Mapping | None]) -> Mapping:
        """Merge the fragment of a state into it."""
        _, node = state.entries["fragment"]
        name = node.value if isinstance(node, Scalar) else None
        if not isinstance(name, str) or name not in known:
            if not isinstance(name, str):
                self.fail("wrong-type", "`fragment` should be the name of a fragment", node)
            elif "" not in known:
                names = [key for key in known if key]
                help = (
                    suggest(name, names, "there are")
                    if names
                    else "add `import:` with the library that has it"
                )
                self.fail("unknown-fragment", f"no fragment `{name[:80]}`", node, "", help)
            return state  # the schema reader marks a state with `fragment` as flawed
        fragment = known[name]
        if fragment is None:
            return state  # see above
        declared = fragment.entries.get("parameters")
        parameters = self.parameters(declared[1] if declared is not None else None)
        given = state.entries.get("with")
        bindings = given[1].entries if given is not None and isinstance(given[1], Mapping) else {}
        if given is not None and not isinstance(given[1], Mapping):
            self.fail("wrong-type", "`with` should be a mapping from parameters to values", given[1])
        values = self.bind(name, node, parameters, bindings)
        body = Mapping(fragment.start)
        body.end = fragment.end
        hidden = ("description", "parameters")
        body.entries = {key: entry for key, entry in fragment.entries.items() if key not in hidden}
        body = self.substitute_parameters(body, values, name)
        own = Mapping(state.start)
        own.end = state.end
        own.entries = {key: entry for key, entry in state.entries.items() if key not in ("fragment", "with")}
        own = self.substitute_parameters(own, values, name)
        return self.merge(body, own)

    def parameters(self, node: Node | None) -> dict[str, Parameter]:
        """Read the declared parameters of a fragment; an invalid one is reported and left out."""
        if node is None:
            return {}
        found = SchemaReader(self.document).value(PARAMETERS._replace(partial=True), node, "parameters", {})
        return {} if found is BAD else found

    def bind(
        self, fragment: str, place: Node, parameters: dict[str, Parameter], bindings: dict[str, Any]
    ) -> dict[str, str]:
        """The values of a fragment's parameters as text."""
        values = {
            name: text_of(parameter.default)
            for name, parameter in parameters.items()
            if parameter.default is not None
        }
        for name, (key, node) in bindings.items():
            value = self.document.plain(node)
            values[name] = text_of(value)
            if name in parameters:
                wanted = parameters[name].mismatch(value)
                if wanted is not None:
                    help = parameters[name].description
                    self.fail("wrong-type", f"`{name}` should be {wanted}", node, "", help)
            elif parameters:
                help = suggest(name, parameters, "it has")
                message = f"fragment `{fragment[:80]}` has no parameter `{name[:80]}`"
                self.fail("unknown-parameter", message, key, "unknown", help)
        missing = [name for name, spec in parameters.items() if spec.required and name not in values]
        if (
            not bindings.keys() <= parameters.keys()
        ):  # reported above: an unknown name may be a misspelt required parameter
            return values | dict.fromkeys(missing, "")
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"fragment `{fragment[:80]}` needs {names}"
            help = f"add `with: {{{missing[0]}: …}}` to the state"
            self.fail("missing-field", message, place, "", help)
        return values | dict.fromkeys(missing, "")

    def substitute_parameters(self, node: Any, values: dict[str, str], fragment: str) -> Any:
        """Replace `${param.x}` in the texts of a node."""

        def value(found: re.Match[str]) -> str:
            text = values.get(found[1])
            if text is None:
                default = re.search(r":default=([^:}]*)", found[2])
                if default is not None or found[2].endswith("?"):
                    return default[1] if default is not None else ""
                missing.append(found[1])
                return ""
            return _quote_shell_word(text) if ":shell" in found[2] else text

        missing: list[str] = []
        if isinstance(node, Scalar):
            if not isinstance(node.value, str) or "${param." not in node.value:
                return node
            text = _PARAMETER.sub(value, node.value)
            for name in missing[:1]:
                help = (
                    suggest(name, values, "it has")
                    if values
                    else "declare it in `parameters` of the fragment"
                )
                message = f"fragment `{fragment[:80]}` has no parameter `{name[:80]}`"
                self.fail("unknown-parameter", message, node, "used here", help)
            return Scalar(text, text, node.plain, node.start, node.end)
        self.count(1, node)
        if isinstance(node, Sequence):
            items = [self.substitute_parameters(item, values, fragment) for item in node.items]
            if all(new is old for new, old in zip(items, node.items, strict=True)):
                return node
            listed = Sequence(node.start)
            listed.end, listed.items = node.end, items
            return listed
        entries = {
            k: (key, self.substitute_parameters(item, values, fragment))
            for k, (key, item) in node.entries.items()
        }
        if all(entries[k][1] is item for k, (_, item) in node.entries.items()):
            return node
        filled = Mapping(node.start)
        filled.end, filled.entries = node.end, entries
        return filled


def _body_of_step(
    item: Node, step: re.Match[str], after: re.Match[str] | None, own: Mapping | None
) -> Mapping:
    """The routes of a step of a `flow`, or its end.

    after: the next step. own: the definition of the state in `state_defs`.
    """
    body = Mapping(item.start)
    body.end = item.end
    routes = {}
    if step[2]:
        routes = {"on_yes": step[2], "on_no": step[3]}
    elif after is not None and (own is None or "terminal" not in own.entries):
        routes = {"next": after[1]}
    for name, target in routes.items():
        body.entries[name] = (_scalar(name, item), _scalar(target, item))
    if after is None:
        body.entries["terminal"] = (_scalar("terminal", item), _scalar(True, item))
    return body


def _scalar(value: Any, place: Node) -> Scalar:
    return Scalar(value, str(value), True, place.start, place.end)


def _quote_shell_word(text: str) -> str:
    """Quote a text as one shell word, unless it has variables, which are quoted by their context later."""
    if "${" in text or re.fullmatch(r"[\w@%+=:,./-]+", text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def file_suffixes(name: str) -> tuple[str, ...]:
    """Suffixes that complete the name of a loop to a file name."""
    return ("",) if name.endswith(LOOP_SUFFIXES) else (".fsm.yaml", *LOOP_SUFFIXES)


def _search_folders(folder: str) -> list[str]:
    """The searched folders: a folder and its parents up to the folder of loops.

    The folder of loops is the nearest one called `.loops` or `loops`. Without one, only the folder itself is
    searched.
    """
    found = [folder]
    at = real_path(folder or ".")
    while basename(at) not in (".loops", "loops"):
        parent = dirname(at)
        if parent == at:
            return [folder]
        at = parent
        found.append(normpath(join(found[-1] or ".", "..")))
    return found
