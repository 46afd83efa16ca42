"""Conversion of little-loops files to llc's own spelling and meaning.

Only the texts of keys and values are replaced, so comments, order and layout stay. The effects of the dialect
become explicit keys of the loop and its states (`dialect`); if that is impossible, the file keeps
`dialect: little-loops`. Must not contain: the meaning of the dialect, or writing of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...ir.compile_options import CompileOptions
from ...ir.diagnostics import Diagnostic
from ...ir.records import frozen
from ...ir.spans import Source
from ..source.document import Document, Mapping, Node, Scalar, Sequence
from ..source.files import text_source
from ..source.schema import Spec, fields_of
from ..source.yaml_tree import read_document
from ..source.yaml_writer import as_word, entry
from ..template.nodes import RuntimeValue
from .checks import check
from .composition import is_library
from .dialect import SESSIONS, translate, with_scope
from .dialect_schema import LITTLE_LOOPS
from .evaluator_schema import EVALUATORS, ExitCode
from .foreign_keys import explain_key
from .load import load
from .reader import read_loop
from .schema import COMPOSITION_KEYS, VERDICT_SYNONYMS, Loop, StateSpec

# Keys of a state with llc's own names, and values of keys.
_KEYS = {"on_yes": "on_success", "on_no": "on_failure", "tools": "allowed_tools"}
_VALUES = {"on_handoff": {"spawn": "continue", "terminate": "end"}}
# Keys of the loop whose default differs in the dialect, in the order in which they are written.
_SETTINGS = (
    "input_key",
    "max_steps",
    "max_iterations",
    "max_in_a_row",
    "nonzero_exit",
    "checks",
    "on_handoff",
)
_OPTIONS = CompileOptions(dialect=LITTLE_LOOPS)
_ROUTES = {"success": "on_success", "failure": "on_failure", "_error": "on_error"}


@frozen
class Imported:
    """A converted file.

    decisions: diagnostics that the user must look at. text: unchanged if there is an error among them.
    """

    text: str
    decisions: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]

    @property
    def is_refused(self) -> bool:
        return any(finding.is_error for finding in self.decisions)


def import_loop(source: Source) -> Imported:
    """Convert a little-loops file, a loop or a library of fragments, to llc's own spelling."""
    document = read_document(source)
    root = document.root
    text = source.text or ""
    if isinstance(root, Mapping) and not document.diagnostics:
        if is_library(root) and isinstance(root.entries["fragments"][1], Mapping):
            return Imported(_spelling_edits(document, root, None).apply(), (), (source,))
        if "nonzero_exit" in root.entries and "dialect" not in root.entries:
            return Imported(text, (), (source,))  # converted earlier
        first = _first_state(root)
        if first is not None and not root.entries.keys() & {"initial", "from", "flow", "paradigm"}:
            return _import_parent(source, first)
    wanted, parsed, found = load(source, _OPTIONS, lambda loop: (loop, []))
    errors = tuple(finding for finding in found if finding.is_error)
    if isinstance(root, Mapping) and "from" in root.entries and _is_base_loop(root, errors):
        return Imported(_spelling_edits(document, root, None).apply(), (), (source,))
    if wanted is None or errors or not isinstance(root, Mapping):
        return Imported(text, errors, parsed.sources)
    decisions = [finding for finding in found if finding.id != "unused-key"]
    decisions += [finding for finding in found if finding.id == "unused-key" and finding not in decisions]
    spec = read_loop(source, LITTLE_LOOPS)[0]
    if not isinstance(spec, Loop):  # the dialect changes nothing in the other paradigms
        edits = _spelling_edits(document, root, None)
        edits.delete(root, "dialect")
        return Imported(edits.apply(), tuple(decisions), parsed.sources)
    edits = _spelling_edits(document, root, spec)
    _comment_out_unknown_keys(edits, root)
    kept = edits.copy()
    edits.delete(root, "dialect")
    plain = with_scope(translate(spec.evolve(dialect=None)))
    own = _with_early_checks(wanted, spec.scope, parsed)
    _write_settings(edits, root, plain, own)
    for name, state in _own_states(root):
        if name in own.states:
            _write_state(edits, state, plain.states[name], own.states[name])
    result = edits.apply()
    differing = None if "from" in root.entries else _difference(result, source, own)
    if differing is None:
        return Imported(result, tuple(decisions), parsed.sources)
    message = f"the file keeps `dialect: {LITTLE_LOOPS}`; without it, this would change: {differing}"
    if "dialect" not in root.entries:
        kept.insert(root, "dialect", LITTLE_LOOPS)
    place = document.span(root.entries["states"][0]) if "states" in root.entries else None
    decisions.append(Diagnostic("not-imported", message, place, "", None, "warning"))
    return Imported(kept.apply(), tuple(decisions), parsed.sources)


def _is_base_loop(root: Mapping, errors: tuple[Diagnostic, ...]) -> bool:
    """Whether a file has no states and no initial state, so that it can only be inherited."""
    has_states = root.entries.keys() & {"initial", "states", "flow"}
    return not has_states and [finding.id for finding in errors] == ["missing-field"]


def _first_state(root: Mapping) -> str | None:
    states = root.entries.get("states")
    return next(iter(states[1].entries), None) if states and isinstance(states[1], Mapping) else None


def _import_parent(source: Source, first: str) -> Imported:
    """Convert a loop without `initial`, which can only be inherited, by adding `initial` temporarily."""
    text = source.text or ""
    line = f"\ninitial: {json.dumps(first)}\n"
    made = import_loop(text_source(text + line, source.path))
    if made.is_refused or made.text.count(line) != 1:
        missing = [
            finding for finding in load(source, _OPTIONS, lambda loop: (loop, []))[2] if finding.is_error
        ]
        return Imported(text, tuple(missing), (source,))
    decisions = tuple(found for found in made.decisions if found.id != "unreachable-state")
    return Imported(made.text.replace(line, ""), decisions, (source,))


def _with_early_checks(wanted: Loop, scope: tuple[str, ...] | None, document: Document) -> Loop:
    """The loop without the dialect, with early checks if it passes them. scope: the scope as written."""
    early = wanted.evolve(dialect=None, checks="early")
    # As a state of another loop, its inputs are known only at run time.
    given = with_scope(
        early.evolve(context=dict.fromkeys((*early.context, "run_dir"), RuntimeValue()), scope=scope)
    )
    if any(finding.is_error for finding in (*check(early, document), *check(given, document))):
        return wanted.evolve(dialect=None)
    return early


# --- spelling ---------------------------------------------------------------------------------


def _spelling_edits(document: Document, root: Mapping, loop: Loop | None) -> Edits:
    """The edits that replace keys and values of little-loops by llc's names."""
    edits = Edits(document)
    _spell(edits, root)
    if "default_idle_timeout" in root.entries and "idle_timeout" not in root.entries:
        edits.rename(root.entries["default_idle_timeout"][0], "idle_timeout")
    for name, state in _own_states(root, "fragments"):
        _delete_foreign_keys(edits, state)
        spec = loop.states.get(name) if loop is not None else None
        _spell(edits, state)
        own_verdicts = spec.own_verdicts if spec is not None else _own_verdicts(state)
        for old, new in _KEYS.items():
            if old in state.entries and new not in state.entries and old[3:] not in own_verdicts:
                edits.rename(state.entries[old][0], new)
        route = state.entries.get("route")
        if route is not None and isinstance(route[1], Mapping):
            for word, (key, _) in route[1].entries.items():
                verdict = VERDICT_SYNONYMS.get(word)
                if verdict is not None and word not in own_verdicts and verdict not in route[1].entries:
                    edits.rename(key, verdict)
        if state.entries.get("failure") is not None and "status" not in state.entries:
            key, node = state.entries["failure"]
            if isinstance(node, Scalar) and node.value is True:
                edits.rename(key, "status")
                edits.rename(node, "failure")
    return edits


def _spell(edits: Edits, block: Mapping) -> None:
    for key, words in _VALUES.items():
        node = block.entries[key][1] if key in block.entries else None
        if isinstance(node, Scalar) and node.text in words:
            edits.rename(node, words[node.text])
    if "session_mode" in block.entries and "session" not in block.entries:
        name, value = block.entries["session_mode"]
        if isinstance(value, Scalar) and value.text in SESSIONS:
            edits.rename(name, "session")
            edits.rename(value, SESSIONS[value.text])


def _own_verdicts(fragment: Mapping) -> tuple[str, ...]:
    """`yes` and `no` if a fragment may use them as verdicts of its own."""
    evaluate = fragment.entries["evaluate"][1] if "evaluate" in fragment.entries else None
    has_schema = isinstance(evaluate, Mapping) and "schema" in evaluate.entries
    return ("yes", "no") if has_schema or "choices" in fragment.entries else ()


def _delete_foreign_keys(edits: Edits, state: Mapping) -> None:
    """Remove keys of an evaluator that belong to another evaluator."""
    node = state.entries["evaluate"][1] if "evaluate" in state.entries else None
    type_node = node.entries["type"][1] if isinstance(node, Mapping) and "type" in node.entries else None
    if isinstance(node, Mapping) and isinstance(type_node, Scalar) and type_node.text in EVALUATORS:
        own = fields_of(EVALUATORS[type_node.text])
        for key in node.entries.keys() - own.keys() - {"type"}:
            if any(key in fields_of(other) for other in EVALUATORS.values()):
                edits.delete(node, key)


def _own_states(root: Mapping, *more: str) -> Iterator[tuple[str, Mapping]]:
    """The states that the file itself contains."""
    for key in ("states", "state_defs", *more):
        node = root.entries[key][1] if key in root.entries else None
        if isinstance(node, Mapping):
            for name, (_, state) in node.entries.items():
                if isinstance(state, Mapping):
                    yield name, state


def _comment_out_unknown_keys(edits: Edits, root: Mapping) -> None:
    """Convert keys that only little-loops may know to comments."""
    known_keys = {*fields_of(Loop), "paradigm", *COMPOSITION_KEYS}
    for key, (key_node, node) in root.entries.items():
        is_known = key in known_keys or key.endswith("_ok")
        if not is_known and explain_key(key) is None and not edits.is_flow(root):
            edits.comment_out(key_node, node)


# --- meaning ----------------------------------------------------------------------------------


def _write_settings(edits: Edits, root: Mapping, plain: Loop, own: Loop) -> None:
    """Write the settings that have another value under the dialect."""
    has_agent = any(
        state.flawed or (state.action is not None and own.kind_of(state) == "slash")
        for state in own.states.values()
    )
    keys = [key for key in _SETTINGS if key != "on_handoff" or has_agent]
    if "input" in own.context and "input" not in plain.context and own.input_key != "input":
        context = root.entries.get("context")
        if context is not None and isinstance(context[1], Mapping):
            edits.insert(context[1], "input", "")
        elif context is None:
            edits.insert(root, "context", {"input": ""})
    for key in keys:
        if getattr(plain, key) != getattr(own, key):
            edits.put(root, key, getattr(own, key))
    if has_agent and plain.llm != own.llm:
        llm = root.entries.get("llm")
        if llm is not None and isinstance(llm[1], Mapping):
            edits.insert(llm[1], "timeout", own.llm.timeout)
        else:
            edits.insert(root, "llm", {"timeout": own.llm.timeout})


def _write_state(edits: Edits, block: Mapping, plain: StateSpec, own: StateSpec) -> None:
    """Write the keys of a state that have another value under the dialect."""
    changed = [key for key in fields_of(StateSpec) if getattr(plain, key) != getattr(own, key)]
    if "route" in changed and own.route is not None:  # `next` with `on_error`
        changed = [key for key in changed if key not in ("route", "on_error")]
        targets = {_ROUTES[verdict]: target for verdict, target in own.route.items()}
        if "next" in block.entries:
            edits.rename(block.entries["next"][0], "on_success")
            changed.remove("next")
            targets.pop("on_success")
            for name in ("on_yes", "on_success"):
                edits.delete(block, name)
        if "on_error" in block.entries or "error" in (plain.route or {}):
            targets.pop("on_error")
        for key, target in targets.items():
            edits.put(block, key, target)
        for verdict in (plain.route or {}).keys() - own.route.keys() - {"error"}:
            edits.delete(block, f"on_{verdict}")
        is_command = own.action_type in (None, "shell") and plain.evaluate is None
        if is_command and own.evaluate == ExitCode():  # the exit code is the default evaluator
            changed.remove("evaluate")
    for key in changed:
        value = getattr(own, key)
        names = [name for name in (key, *(n for n, k in _KEYS.items() if k == key)) if name in block.entries]
        if value is None or value is False:
            for name in names:
                edits.delete(block, name)
        elif key == "evaluate":
            _write_evaluator(edits, block, plain.evaluate, value)
        elif not isinstance(value, Spec):
            edits.put(block, key, value)


def _write_evaluator(edits: Edits, block: Mapping, plain: Any, own: Any) -> None:
    written = block.entries.get("evaluate")
    if plain is not None and type(plain) is type(own):
        changed = {
            key: getattr(own, key) for key in fields_of(type(own)) if getattr(plain, key) != getattr(own, key)
        }
        if written is not None and isinstance(written[1], Mapping):
            for key, value in changed.items():
                edits.put(written[1], key, value)
        else:
            edits.put(block, "evaluate", changed)
        return
    given = {"type": own.type} | {
        key: getattr(own, key)
        for key in ("success", "failure")
        if getattr(own, key) != getattr(type(own), key)
    }
    edits.put(block, "evaluate", given)


def _difference(text: str, source: Source, own: Loop) -> str | None:
    """The first difference in meaning between the new text and `own`; None if they are the same loop."""
    spec, document, found = read_loop(text_source(text, source.path))
    if not isinstance(spec, Loop) or any(finding.is_error for finding in found):
        return found[0].message if found else "the loop"
    loop = with_scope(translate(spec))
    if any(finding.is_error for finding in check(loop, document)):
        return next(finding.message for finding in check(loop, document) if finding.is_error)
    for name, state in own.states.items():
        if _meaning(state, own) != _meaning(loop.states[name], loop):
            return f"state `{name}`"
    settings = [key for key in fields_of(Loop) if key not in ("states", "llm", "on_handoff", "session_mode")]
    return next((f"`{key}`" for key in settings if getattr(own, key) != getattr(loop, key)), None)


# Keys of a state that are compared through derived properties.
_DERIVED_KEYS = {
    "action_type", "route", "on_success", "on_failure", "on_error", "next", "failure", "session_mode",
    "tools", "evaluate",
}  # fmt: skip


def _meaning(state: StateSpec, loop: Loop) -> tuple[Any, ...]:
    """The meaning of a state, independent of its spelling."""
    keys = [key for key in fields_of(StateSpec) if key not in _DERIVED_KEYS]
    evaluator = loop.evaluator_of(state)
    kind = loop.kind_of(state)
    return (
        *(getattr(state, key) for key in keys),
        kind,
        evaluator,
        state.next,
        dict(state.routes),
        state.bindings,
    )


# --- texts ------------------------------------------------------------------------------------


class Edits:
    """Replacements in a text at the positions of its nodes, applied together."""

    def __init__(self, document: Document) -> None:
        self.text = document.text
        self.changes: dict[tuple[int, int], str] = {}

    def copy(self) -> Edits:
        copied = Edits.__new__(Edits)
        copied.text, copied.changes = self.text, dict(self.changes)
        return copied

    def apply(self) -> str:
        """The text with all replacements."""
        parts, at = [], 0
        for (start, end), new in sorted(self.changes.items()):
            if start >= at:
                parts += [self.text[at:start], new]
                at = end
        return "".join(parts) + self.text[at:]

    def is_flow(self, block: Mapping) -> bool:
        return self.text.startswith("{", block.start)

    def rename(self, node: Scalar, word: str) -> None:
        """Replace the text of a scalar."""
        self.changes[node.start, node.end] = word

    def put(self, block: Mapping, key: str, value: Any) -> None:
        """Set a key to a value, at its position if the key exists."""
        if key not in block.entries:
            self.insert(block, key, value)
            return
        key_node, node = block.entries[key]
        if node.start >= key_node.end:  # false for an alias, which has the position of its anchor
            self.changes[node.start, node.end] = _one_line(value)

    def insert(self, block: Mapping, key: str, value: Any) -> None:
        """Add a key to a mapping: after its `name` or `type`, or after its first key."""
        anchors = [
            name for name in ("name", "type", "terminal", "action_type", "action") if name in block.entries
        ]
        key_node, node = block.entries[(*anchors, *block.entries)[0]]
        end = max(node.end, key_node.end) if node.start >= key_node.end else self.end_of_line(key_node.end)
        if self.is_flow(block):
            self.add(end, f", {key}: {_one_line(value)}")
            return
        column = key_node.start - (self.text.rfind("\n", 0, key_node.start) + 1)
        self.add(self.end_of_line(end), f"\n{' ' * column}{key}: {_one_line(value)}")

    def add(self, at: int, new: str) -> None:
        self.changes[at, at] = self.changes.get((at, at), "") + new

    def delete(self, block: Mapping, key: str) -> None:
        """Remove a key with its value."""
        if key not in block.entries:
            return
        key_node, node = block.entries[key]
        end = max(node.end, key_node.end)
        if not self.is_flow(block):
            line = self.text.rfind("\n", 0, key_node.start) + 1
            self.changes[line, min(self.end_of_line(end) + 1, len(self.text))] = ""
            return
        rest = self.text[end:]
        blank = len(rest) - len(rest.lstrip())
        if rest[blank : blank + 1] == ",":
            end += blank + 1
            end += len(self.text[end:]) - len(self.text[end:].lstrip(" "))
            self.changes[key_node.start, end] = ""
        else:
            before = self.text[: key_node.start].rstrip()
            self.changes[len(before) - before.endswith(","), end] = ""

    def comment_out(self, key: Scalar, node: Node) -> None:
        """Convert the lines of a key to a comment."""
        line = self.text.rfind("\n", 0, key.start) + 1
        end = self.end_of_line(max(key.end, _text_end(node)))
        self.changes[line, end] = "\n".join(f"# {text}" for text in self.text[line:end].split("\n"))

    def end_of_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end


def _text_end(node: Node) -> int:
    """The end of the last text in a node."""
    if isinstance(node, Sequence):
        return max((_text_end(item) for item in node.items), default=node.end)
    return node.end


def _one_line(value: Any) -> str:
    """A value on one line, valid in any mapping."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_one_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_one_line, value)) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and "\n" not in value:
        return entry("x", as_word(value), 0)[0].removeprefix("x: ")
    return json.dumps(value)
