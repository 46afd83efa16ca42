"""Parser of templates: texts with `${…}` in actions, evaluators, routes and context.

A template is text with variables (`spec/interpolation.md`). Parsing splits it into parts, inserts the values
that are known at compile time (`context` and others), and determines the quoting of every value that is known
only at run time. Errors are returned as problems with offsets into the text, never raised.

Must not contain: positions of texts in a file, states of loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ...ir.diagnostics import DiagnosticId, nearest, suggest
from .nodes import NAMESPACES, Constant, Literal, Part, Problem, RuntimeValue, Template, Variable, text_of

# A variable that `context` always has.
RUN_DIR = "run_dir"
KINDS = ("shell", "slash", "value")
# Not allowed in a command.
_NUL = "\0"


# Limits of context expansion, because a few lines could expand without bound.
MAX_EXPANDED = 1 << 20
MAX_EXPANSIONS = 10_000
MAX_CONTEXT_DEPTH = 50


def parse(
    text: str,
    *,
    kind: str,
    context: Mapping[str, Any] | None = None,
    known: Mapping[str, str] | None = None,
    is_open: bool = False,
) -> Template:
    """Parse a template into its parts (loops.md, rules 5 to 7).

    Args:
        kind: "shell" for a shell action, "slash" for a slash command, "value" for all other fields.
        context: the loop's `context:`. Its values are inserted before the shell text is analysed, nested
            values depth-first; an unknown name is a problem. None: keep context variables as variables.
        known: texts of other variables known at compile time, such as `{"loop.name": "lint"}`.
        is_open: report an unknown `context` name, or a value that becomes code, as a warning only; it may be
            a fault at run time.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of template: {kind}")
    if "$" not in text and _NUL not in text:
        return Template(text, (Literal(text),) if text else ())
    parser = _Parser(kind, context, known or {}, is_open)
    parts = _join_literals(parser.expand(text, (), None))
    problems = parser.problems
    if kind == "shell":
        parts = _quote_variables(parts, problems, is_open)
    return Template(text, tuple(parts), tuple(problems))


_VARIABLE = re.compile(
    r"\$\{(?P<raw>raw:)?(?P<space>[^\W\d]\w*)(?P<path>(?:\.[\w-]+)+)"
    r"(?P<filters>(?::(?:head|tail|bytes)=[0-9]{1,9})*)"
    # `:shell` and `?` come from little-loops: quote for the shell; empty if missing.
    r"(?P<shell>:shell)?(?P<default>:default=[^}]*|\?)?(?P<shell_last>:shell)?\}"
)
# A name and a dot: intended as a variable of the loop, not of the shell.
_LOOP_VARIABLE = re.compile(r"\$\{(?:raw:)?(?P<space>[^\W\d]\w*)\.")
_MISPLACED = re.compile(r"\$\{[\s#!]+(?:raw:)?(?:" + "|".join(NAMESPACES) + r")\.")
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_OPENING = re.compile(r"\$?\$\{")
_LITERAL_HELP = "for a literal `${` write `$${`"


class _Parser:
    def __init__(
        self, kind: str, context: Mapping[str, Any] | None, known: Mapping[str, str], is_open: bool
    ) -> None:
        self.kind = kind
        self.is_open = is_open
        self.context = context
        self.known = known
        self.problems: list[Problem] = []
        self.expansions = 0
        self.size = 0
        self.is_exhausted = False

    def expand(self, text: str, trail: tuple[str, ...], outer: Variable | None) -> Iterator[Part]:
        """The parts of `text`. trail: names of the context variables whose values contain the text, outermost
        first.
        """
        at = 0
        for opening in _OPENING.finditer(text):
            start = opening.start()
            if start < at or self.is_exhausted:
                continue
            yield Literal(text[at:start])
            if opening[0] == "$${":
                yield Literal("${")
                at = opening.end()
                continue
            variable, at = self.variable(text, start, outer)
            if variable is None:
                yield Literal(text[start:at])
            else:
                yield from self.inline(variable, trail)
        yield Literal(text[at:])

    def problem(
        self, id: DiagnosticId, message: str, place: Variable, help: str | None, severity: str = "error"
    ) -> None:
        found = Problem(id, message, place.start, place.end, help, severity)
        if found not in self.problems:
            self.problems.append(found)

    # --- reading one `${` -----------------------------------------------------------------

    def variable(self, text: str, start: int, outer: Variable | None) -> tuple[Variable | None, int]:
        """The variable at `start` and the offset after it; None and the end of the literal text if there is
        none.
        """
        found = _VARIABLE.match(text, start)
        end = found.end() if found else start + 2
        place = outer or Variable("", (), start=start, end=end)
        if found and found["space"] in NAMESPACES:
            default = found["default"]
            if default is not None and "${" in default:
                self.report_nested(place)
            has_shell = found["shell"] is not None or found["shell_last"] is not None
            if default is not None:
                has_shell = has_shell or default.endswith(":shell")
                default = default[len(":default=") :].removesuffix(":shell")
            variable = Variable(
                found["space"],
                tuple(found["path"][1:].split(".")),
                default,
                found["raw"] is not None,
                start=place.start,
                end=place.end,
                filters=_filters(found["filters"]),
                is_word=has_shell,
            )
            return variable, end
        close = text.find("}", start)
        if outer is None:
            place = attrs.evolve(place, end=close + 1 if close >= 0 else min(len(text), start + 2))
        if text.startswith("${${", start):
            self.report_nested(place)
            return None, start + 4
        if self.report_malformed(text, start, close, place):
            return None, max(end, close + 1)
        return None, start + 2

    def report_malformed(self, text: str, start: int, close: int, place: Variable) -> bool:
        """Report a `${` without a valid variable; returns False if it belongs to the shell.

        close: offset of the next `}`; -1 without one.
        """
        prefix = _LOOP_VARIABLE.match(text, start)
        if prefix and prefix["space"] not in NAMESPACES:
            help = suggest(prefix["space"], NAMESPACES, "namespaces")
            self.problem(
                "unknown-namespace",
                f"`{prefix['space']}` is not a namespace of variables",
                place,
                f"{help}; {_LITERAL_HELP}",
            )
        elif close < 0 and (prefix or self.kind != "shell"):
            self.problem("unterminated-variable", "this `${` has no `}`", place, _LITERAL_HELP)
        elif prefix or _MISPLACED.match(text, start):
            written = text[start : close + 1]
            self.problem(
                "malformed-variable",
                f"`{written[:80]}` is not a variable",
                place,
                "write `${namespace.name}`, with a default `${namespace.name:default=text}`, a part of it "
                "`${namespace.name:tail=200}`; " + _LITERAL_HELP,
            )
        elif self.kind == "value":
            self.report_bare_name(text[start + 2 : close], place)
        else:
            return False
        return True

    def report_nested(self, place: Variable) -> None:
        self.problem(
            "nested-variable",
            "a variable cannot be inside another",
            place,
            "put the inner variable in a separate `context` value; " + _LITERAL_HELP,
        )

    def report_bare_name(self, name: str, place: Variable) -> None:
        if name in NAMESPACES:
            help = f"write `${{{name}.…}}` with the field you want"
        else:
            help = suggest(name, NAMESPACES, "variables begin with one of") or ""
            if name.isidentifier():
                help = f"for an environment variable write `${{env.{name}}}`"
        self.problem(
            "unknown-variable", f"`${{{name[:80]}}}` is not a variable", place, f"{help}; {_LITERAL_HELP}"
        )

    # --- putting in place what is known ---------------------------------------------------

    def inline(self, variable: Variable, trail: tuple[str, ...]) -> Iterator[Part]:
        if variable.filters and variable.namespace in ("context", "loop", "state"):
            self.problem(
                "malformed-variable",
                f"`{variable.text}` is the author's own text and takes no filters",
                variable,
                "`:head`, `:tail` and `:bytes` apply to `prev`, `captured`, `result` and `env`",
            )
        if variable.namespace != "context" or self.context is None:
            text = self.known.get(variable.name)
            yield variable if text is None else self.count_size(variable, text)
            return
        if variable.name == f"context.{RUN_DIR}" and RUN_DIR not in self.context:
            yield attrs.evolve(variable, namespace="loop")
            return
        if variable.name in trail:
            cycle = " → ".join((*trail[trail.index(variable.name) :], variable.name))
            self.problem("context-cycle", f"`{variable.name}` contains itself: {cycle}", variable, None)
            return
        if not self.is_within_limits(variable, len(trail)):
            return
        if isinstance(self.context.get(variable.path[0]), RuntimeValue):
            yield attrs.evolve(variable, is_runtime_value=True)
            return
        try:
            value = _walk(self.context, variable.path)
        except LookupError:
            if variable.default is None:
                self.report_undefined(variable)
                if self.is_open:
                    yield variable
            else:
                yield self.count_size(variable, _as_shell_word(variable, variable.default))
            return
        trail = (*trail, variable.name)
        if isinstance(value, str) and "$" not in value:
            yield self.count_size(variable, _as_shell_word(variable, value))
        elif isinstance(value, str):
            yield from (self.count_size(variable, part) for part in self.expand(value, trail, variable))
        elif variable.is_word:
            yield self.count_size(
                variable, _as_shell_word(variable, text_of(self.plain(value, trail, variable)))
            )
        else:
            yield Constant(self.plain(value, trail, variable))

    def count_size(self, variable: Variable, part: Part | str) -> Part:
        part = Literal(part) if isinstance(part, str) else part
        if isinstance(part, Literal) and not self.is_exhausted:
            self.size += len(part.text)
            self.is_within_limits(variable, 0)
        return Literal("") if self.is_exhausted and isinstance(part, Literal) else part

    def is_within_limits(self, variable: Variable, depth: int) -> bool:
        self.expansions += 1
        if self.is_exhausted:
            return False
        if self.size <= MAX_EXPANDED and self.expansions <= MAX_EXPANSIONS and depth < MAX_CONTEXT_DEPTH:
            return True
        self.is_exhausted = True
        self.problem(
            "context-too-large",
            f"`{variable.name}` expands to too much text or through too many levels",
            variable,
            f"at most {MAX_EXPANDED} characters, {MAX_EXPANSIONS} variables, {MAX_CONTEXT_DEPTH} levels",
        )
        return False

    def report_undefined(self, variable: Variable) -> None:
        space: Any = self.context
        help = ""
        for depth, name in enumerate(variable.path):
            owner = ".".join(("context", *variable.path[:depth]))
            if isinstance(space, list | tuple) and re.fullmatch(r"\d{1,9}", name):
                if int(name) >= len(space):
                    help = f"`{owner}` is a list of {len(space)}, counted from 0"
                    break
                space = space[int(name)]
                continue
            if not isinstance(space, Mapping):
                help = f"`{owner}` has no fields"
                break
            if name not in space:
                help = suggest(name, space, "context has") or "the loop has no `context:`"
                if depth == 0 and name == "input":
                    help = "`input_key: input` in the loop makes it the text after the loop's name"
                elif depth == 0 and nearest(name, [*space, RUN_DIR]) == RUN_DIR:
                    help = f"did you mean `{RUN_DIR}`?"
                break
            space = space[name]
        self.problem(
            "unknown-variable",
            f"`{variable.text}` is not defined",
            variable,
            f"{help}; a default is written `${{{variable.name}:default=text}}`",
            "warning" if self.is_open else "error",
        )

    def plain(self, value: Any, trail: tuple[str, ...], variable: Variable) -> Any:
        """Expand the variables in the strings of a list or map of context."""
        if isinstance(value, Mapping):
            return {name: self.plain(item, trail, variable) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item, trail, variable) for item in value]
        if not isinstance(value, str):
            return value
        parts = _join_literals(self.expand(value, trail, variable))
        if len(parts) == 1 and isinstance(parts[0], Constant):
            return parts[0].value
        for part in parts:
            if isinstance(part, Variable):
                self.problem(
                    "unknown-variable",
                    f"`{part.text}` inside a list or map of context is known only at run time",
                    variable,
                    "move it to a separate context value",
                )
        return "".join(_as_literal(part).text for part in parts if not isinstance(part, Variable))


def _as_shell_word(variable: Variable, text: str) -> str:
    """The author's text, quote_variables as one shell word if the variable has `:shell`."""
    if not variable.is_word or _PLAIN_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _filters(text: str) -> tuple[tuple[str, int], ...]:
    """Parse filters such as `:head=3:bytes=100` to (primitive, count). `bytes` selects from the same end
    as the filter before it.
    """
    if not text:
        return ()
    found = []
    side = "tail"
    for name, _, number in (part.partition("=") for part in text.split(":")[1:]):
        side = side if name == "bytes" else name
        found.append((f"{side}_bytes" if name == "bytes" else f"{name}_lines", int(number)))
    return tuple(found)


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if isinstance(value, Mapping):
            value = value[name]
        elif isinstance(value, list | tuple) and re.fullmatch(r"\d{1,9}", name):
            value = value[int(name)]
        else:
            raise LookupError(name)
    return value


def _as_literal(part: Literal | Constant) -> Literal:
    return part if isinstance(part, Literal) else Literal(text_of(part.value))


def _join_literals(parts: Iterator[Part]) -> list[Part]:
    """Drop empty literals and join adjacent ones; a constant among other parts becomes text."""
    found = [part for part in parts if type(part) is not Literal or part.text]
    if len(found) == 1:
        return found
    joined: list[Part] = []
    text: list[str] = []
    for part in found:
        if isinstance(part, Variable):
            if text:
                joined.append(Literal("".join(text)))
                text = []
            joined.append(part)
        else:
            text.append(_as_literal(part).text)
    if text:
        joined.append(Literal("".join(text)))
    return [part for part in joined if type(part) is not Literal or part.text]


def _quote_variables(parts: list[Part], problems: list[Problem], is_checked: bool) -> list[Part]:
    """Set the quoting of all variables of a shell action."""
    parts = [_as_literal(part) if isinstance(part, Constant) else part for part in parts]
    if any(isinstance(part, Literal) and _NUL in part.text for part in parts):
        problems.append(Problem("nul-in-command", "a command cannot contain a NUL character", 0, 0))
        return parts
    if not any(isinstance(part, Variable) and part.is_data for part in parts):
        return parts
    # Deferred: the shell parser takes 20 ms to load, and a command without variables does not need it.
    from .shell_quoting import quote_variables

    return _join_literals(quote_variables(parts, problems, is_checked))
