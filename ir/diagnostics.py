"""Diagnostics as data, and their renderers for people and programs.

Ids are listed in `spec/diagnostics.md`. A message is one short lower-case sentence. A label describes the
marked place, a related label another place ("first defined here"), and a help states what the user can do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NewType

from .records import frozen
from .spans import Source, Span

# Longer source lines are shown as a window around the marked place, so the size of a diagnostic is limited.
MAX_LINE = 140
MAX_MESSAGE = 1000
# Control characters, and lone surrogates, which no output stream takes.
_UNFIT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

# Ids of all diagnostics and user errors, with their meanings; `spec/diagnostics.md` is printed from this
# list. Ids are stable.
DiagnosticId = Literal[
    "action-and-call",  # a state has both `action` and `call`
    "already-compiled",  # an output such as the FSM is requested from a compiled image
    "ambiguous-exit-code",  # an exit code is listed for two verdicts
    "answered-already",  # the question has an answer that the run has not read yet
    "bad-answer",  # the answer is too long, or is not one of the choices
    "bad-argument",  # a command line has an unexpected or malformed argument
    "bad-binding",  # a binding is not written as (name value)
    "bad-call",  # `call` does not name a function of a file
    "bad-character",  # an invisible or unexpected character outside of a string
    "bad-choice",  # a choice of a question, or its default, cannot be used
    "bad-clause",  # a clause of a form is not written as the form requires
    "bad-command",  # a command of the session is incomplete
    "bad-constant",  # a constant of the program is not a plain value
    "bad-count",  # a count or limit is not a positive whole number
    "bad-entry",  # the entry function of a program has parameters or captures that it cannot have
    "bad-escape",  # a string has an escape sequence that does not exist
    "bad-form",  # a special form has too few or too many parts
    "bad-image",  # a code image is damaged, or its code is invalid
    "bad-job",  # a row of a batch file is not a job
    "bad-macro",  # a macro definition or template is malformed
    "bad-meta",  # the settings of a program in IR text are malformed
    "bad-name",  # a name has invalid characters or is reserved
    "bad-number",  # a number has an unsupported notation
    "bad-opcode",  # a code image has an unknown opcode
    "bad-operand",  # a code image has an operand that refers to nothing
    "bad-option",  # the value of an option cannot be used
    "bad-override",  # an option overrides a setting that the program does not have
    "bad-parameter",  # a parameter list contains something other than names
    "bad-schema",  # a JSON Schema is malformed or not supported
    "bad-scope",  # a path in `scope` cannot be locked
    "bad-symbol",  # a symbol has the notation of another dialect, or invalid characters
    "bad-task",  # a task given on the command line is malformed
    "bad-value",  # a value in a recorded case is malformed
    "bad-workspace",  # the files of a run of a cluster cannot be stored or checked out
    "cannot-bind",  # a keyword or a reserved name cannot be bound
    "cannot-import",  # the program has no file, so it cannot import a path
    "cannot-listen",  # a port is in use, or listening on it is not permitted
    "cannot-open",  # no program could be started to open a page
    "cannot-read",  # a file cannot be read
    "cannot-run",  # no loop can be run at this place, or the loop cannot be read
    "cannot-set",  # `set!` of a name that is not a variable
    "cannot-write",  # a file cannot be written
    "case-too-large",  # a recorded case would exceed the limit of a file
    "changed-secret",  # a sealed file was made with another value of a secret
    "circular-import",  # files import each other in a circle
    "circular-inheritance",  # a loop inherits from itself through `from`
    "circular-run",  # loops run each other in a circle
    "code-after-exit",  # a code image has code after the exit of a state
    "context-cycle",  # context values contain each other in a circle
    "context-too-large",  # a context value expands to too much text
    "contradictory-keys",  # two keys exclude each other; one of them has no effect
    "control-character",  # a control character that YAML does not allow
    "counter-reset",  # IR: a counter of a loop is reset at a place where this is not allowed
    "counter-set",  # IR: a counter of a loop is set by something other than counting
    "counter-skipped",  # IR: a cycle does not check its counter
    "counter-unset",  # IR: a counter of a loop is not initialised, or is initialised again in the loop
    "damaged-lock",  # the file of pinned descriptions cannot be read
    "damaged-record",  # a part of a recorded run is lost or damaged
    "dangerous-xml",  # a document type declaration or entity in XML
    "database-pooler",  # a connection pooler shares server connections between transactions
    "database-refused",  # the database refuses the login
    "database-schema",  # the database has no tables of llc, or those of another version
    "differs",  # a replayed run differs from its record
    "dotted-list",  # a dotted pair where a proper list is required
    "duplicate-case",  # IR: a switch has two equal cases
    "duplicate-function",  # IR: two functions have the same name
    "duplicate-key",  # a key is given twice in a mapping
    "duplicate-name",  # two entries of a list have the same name
    "duplicate-slot",  # IR: two slots of a function have the same name
    "duplicate-state",  # IR: two states of a function have the same name
    "empty-body",  # a body has no expression
    "empty-command",  # a command is empty
    "empty-document",  # a file has no content
    "empty-function",  # IR: a function has no state
    "empty-list",  # a list that needs an entry is empty
    "empty-program",  # a program has no expression
    "empty-text",  # a text that needs content is empty
    "empty-value",  # a key has no value and is ignored
    "endless-expansion",  # macro expansion exceeds its limit
    "errors-not-routed",  # `_` of a route takes every verdict but errors, and nothing takes those
    "file-exists",  # an output file already exists
    "file-not-found",  # a source file does not exist
    "file-too-large",  # a source file exceeds 16 MiB
    "form-as-value",  # a keyword is used as a value
    "fragment-library",  # a library of fragments is compiled as a loop
    "incompatible-fork",  # the changes of a fork contradict the record before the fork
    "incompatible-program",  # a run cannot continue with the changed program
    "internal",  # a bug in llc; the help names a file with the traceback to report
    "invalid-jq",  # a jq expression cannot be compiled
    "invalid-regex",  # a regular expression cannot be compiled
    "ir-syntax",  # IR text cannot be parsed
    "item-unused",  # an expression is evaluated once for each item and does not use the item
    "journal",  # the journal of a run cannot be written
    "key-not-text",  # a key is a number, a boolean or null
    "llm-disabled",  # a state asks a model while models are switched off
    "loop-exists",  # a loop with this name already exists
    "malformed-variable",  # `${` is followed by something other than a variable
    "many-documents",  # a file has more than one YAML document
    "maybe-unset",  # a variable is not set on some path to its use
    "misleading-indentation",  # brackets balance, but a form in the first column is inside another
    "mismatched-bracket",  # `)` where `]` belongs, or the other way round
    "misplaced-defatom",  # `defatom` is not at the top of a file
    "misplaced-definition",  # a definition is not at the top of a file or body
    "misplaced-import",  # `import` is not at the top of a file
    "missing-argument",  # a required argument is missing
    "missing-attribute",  # XML: a required attribute is missing
    "missing-capability",  # a loop requires a capability that its agent does not have
    "missing-clause",  # a form lacks a required clause
    "missing-element",  # XML: a required element is missing
    "missing-else",  # an `if` has no else branch
    "missing-field",  # a required key is missing
    "missing-package",  # a subcommand needs a package that is not installed
    "missing-parameter",  # a task is called without a required parameter
    "missing-placeholder",  # a command of the configuration lacks its placeholder
    "missing-secret",  # a secret that the run used is not set
    "missing-source",  # a state evaluates an output that does not exist
    "missing-space",  # two atoms are not separated
    "nested-too-deep",  # brackets or expressions are nested too deeply
    "nested-variable",  # a `${…}` contains another `${…}`
    "nesting-too-deep",  # files import or run each other too deeply
    "never-ends",  # a loop without limits has no path to a terminal state
    "no-cases",  # there are no recorded cases
    "no-code",  # a value of the session is not a function
    "no-database",  # no database is named, or it cannot be reached
    "no-delay",  # a maintained loop has no pause between its cycles
    "no-exit",  # a code image has a state without an exit
    "no-files",  # there are no files to format
    "no-index",  # there is no index to report on
    "no-layout",  # a picture needs Graphviz, which is missing or has failed
    "no-locks",  # the file system does not support locks
    "no-loop",  # the model produced no usable loop
    "no-loops",  # the project has no loops
    "no-matching-rule",  # no rule of a macro matches its use
    "no-order",  # positional arguments for a task whose parameters have no order
    "no-program",  # a recorded program is not available
    "no-record",  # a run has no complete journal
    "no-source",  # the source of a recorded run is not available
    "no-sources",  # an override needs the sources, which the image does not contain
    "no-states",  # a loop has no states
    "no-such-effect",  # a recorded case names an effect that does not exist
    "no-such-point",  # a recorded run has no such effect, iteration or state
    "no-terminal",  # a question cannot be asked, because there is no terminal
    "no-tree",  # the files before or after a step were not recorded, or the record is lost
    "no-way-out",  # a state has no route
    "not-a-case",  # a file is not a recorded case
    "not-a-definition",  # a file whose functions are called has an expression other than a definition
    "not-a-function",  # a value that is not a function is called
    "not-a-loop",  # a path is not a loop
    "not-a-run",  # a path is not the folder of a run
    "not-a-task",  # an XML file does not declare a task
    "not-an-event",  # a recorded case has an event of an unknown kind
    "not-confirmed",  # a generated loop was not confirmed and is not saved
    "not-formattable",  # a file has no formatter
    "not-imported",  # `llc import` cannot write out what the dialect means in a file
    "not-natural",  # a loop has no description to pin
    "not-permitted",  # the process of a run belongs to another user
    "not-pinned",  # a description has not been translated to a loop yet
    "not-repeatable",  # a recorded run cannot be re-executed with the same result
    "not-running",  # a run is not running
    "not-started",  # a run in the background did not start
    "not-utf-8",  # a file is not UTF-8
    "nothing-asked",  # a run has no pending question
    "nothing-to-judge",  # a state routes by a verdict and has nothing to evaluate
    "nul-character",  # a text contains a NUL character
    "nul-in-command",  # a command would contain a NUL character
    "operand-count",  # IR: a primitive or function has the wrong number of operands
    "optional-verdict",  # a schema does not require the verdict
    "out-of-range",  # a number is outside of its range
    "outside-project",  # a file that a loop names lies outside the folder of loops
    "overwrites-source",  # an output file is the source itself
    "preflight",  # a requirement of the program is missing, so nothing was started
    "raw-variable",  # a variable is inserted into a command without quoting
    "recur-not-last",  # `recur` is not in tail position
    "recur-outside-loop",  # `recur` outside of a `loop` with variables
    "recursive-alias",  # a YAML alias contains itself
    "refusal",  # the model refused to produce a loop
    "repeated-choice",  # a choice is given twice
    "repeated-clause",  # a clause is given twice
    "repeated-element",  # XML: an element is given twice
    "repeated-key",  # a key of a form is given twice
    "repeated-name",  # a name is bound twice in one list
    "repeated-parameter",  # a parameter is declared twice
    "repeated-task",  # a task is declared twice
    "repeated-tool",  # a tool is declared twice
    "reserved-brace",  # `{` and `}` have no meaning
    "run-ended",  # a run has ended
    "run-is-live",  # a run is running
    "scope-conflict",  # another run has locked a path of the scope of this run
    "secret-in-case",  # a case would contain a secret
    "several-programs",  # a run continued with another program and cannot be changed
    "several-questions",  # several questions are pending
    "several-runs",  # several runs match
    "shadowed-route",  # a route has no effect because another key decides first
    "silent-failure",  # (warning) a failure continues, or ends the run, as a success
    "stack-leftover",  # a code image leaves values on the stack
    "stack-overflow",  # a code image needs a larger stack than it declares
    "stack-underflow",  # a code image takes operands from an empty stack
    "stopped",  # a run was not resumed because an outcome is in doubt
    "stray-bracket",  # a closing bracket without an opening one
    "stray-dot",  # a dot outside of a list
    "stray-quote",  # a quote without a datum, or a typographic quotation mark
    "stray-text",  # XML: text directly in an element that has only elements
    "too-deep",  # a document or value is nested too deeply
    "too-few-descriptors",  # the process cannot open enough files
    "too-long",  # a description is too long
    "too-many-arguments",  # a call has more arguments than parameters
    "too-many-directives",  # a YAML document has too many tag directives
    "too-many-elements",  # an XML document has too many elements
    "too-many-findings",  # the limit of diagnostics is reached; further ones are omitted
    "too-many-items",  # a list has too many entries
    "too-many-nodes",  # a YAML document has too many values
    "too-many-parameters",  # a task has too many parameters
    "tool-before-task",  # a name is a tool and a task; the tool is called
    "truncated-journal",  # the journal of a run is shorter than it was
    "unbound-name",  # a name is not bound
    "unbounded-budget",  # a loop with a budget calls code whose cost is not limited
    "unbounded-call",  # IR: a loop is called in a way that bypasses its limits
    "unbounded-cycle",  # IR: a cycle without a limit of its iterations
    "unbounded-recursion",  # IR: a recursion without a limit
    "unbounded-time",  # IR: a cycle of a loop with a timeout never reads the clock
    "unbounded-wait",  # IR: an effect of a loop with a timeout can wait without a deadline
    "unclosed-form",  # an opening bracket is never closed
    "uncounted-way",  # IR: an edge to the head of a loop does not count the iteration
    "uneven-repeat",  # repeated variables of a macro match different numbers of items
    "unknown-agent",  # no agent has this name in the configuration
    "unknown-alias",  # a YAML alias without an anchor before it
    "unknown-attribute",  # XML: an element has no such attribute
    "unknown-case",  # there is no such recorded case
    "unknown-choice",  # an answer is not one of the choices
    "unknown-clause",  # a form has no such clause
    "unknown-command",  # there is no such command
    "unknown-context",  # a context value is given that the loop does not read
    "unknown-detail",  # an evaluator has no such detail
    "unknown-directory",  # a directory does not exist
    "unknown-effect",  # IR: there is no such kind of effect
    "unknown-element",  # XML: there is no such element
    "unknown-evaluator",  # there is no such evaluator
    "unknown-field",  # a result has no such field
    "unknown-file",  # a file does not exist
    "unknown-fragment",  # a state uses a fragment that no library has
    "unknown-function",  # there is no such function
    "unknown-holder",  # the process that holds a run cannot be found on this machine
    "unknown-key",  # a mapping has a key that is not known
    "unknown-kind",  # a script answers a kind of effect that does not exist
    "unknown-loop",  # there is no such loop
    "unknown-mcp-tool",  # an MCP server has no such tool
    "unknown-namespace",  # a variable has an unknown namespace
    "unknown-note",  # IR: there is no such kind of note
    "unknown-option",  # a command has no such option
    "unknown-outcome",  # the outcome of an interrupted effect is in doubt
    "unknown-paradigm",  # there is no such paradigm
    "unknown-parameter",  # a task, tool, function or fragment has no such parameter
    "unknown-placeholder",  # a text has a placeholder that is not a parameter
    "unknown-primitive",  # IR: there is no such primitive
    "unknown-ready-loop",  # no ready loop has this name
    "unknown-run",  # there is no such run
    "unknown-server",  # there is no such MCP server
    "unknown-setting",  # a task has no such setting
    "unknown-slot",  # IR: a function has no such slot
    "unknown-state",  # a route leads to a state that does not exist
    "unknown-tag",  # a YAML tag is not supported
    "unknown-task",  # there is no such task or tool
    "unknown-type",  # there is no such type
    "unknown-value",  # a value is not one of the allowed words
    "unknown-variable",  # a variable does not exist
    "unknown-verdict",  # a route for a verdict that the evaluator never returns
    "unpriced-model",  # a budget in USD for a model whose price is not known
    "unproven-success",  # a loop can succeed without a check after the work of an agent
    "unquotable-variable",  # a variable is inserted at a place of a command where no quoting is safe
    "unreachable-code",  # code is unreachable
    "unreachable-state",  # no path leads to a state
    "unreadable-file",  # a source file cannot be read
    "unrouted-verdict",  # an evaluator can return a verdict that has no route
    "unset-capture",  # a variable is read that no state captures
    "unsupported-format",  # a recorded case has a format that this version does not read
    "unterminated-comment",  # a block comment is never closed
    "unterminated-string",  # a string is never closed
    "unterminated-symbol",  # a symbol in bars is never closed
    "unterminated-variable",  # `${` has no `}`
    "unusable-ledger",  # the database of ledgers cannot be used
    "unused-argument",  # an argument is given to a function that ignores it
    "unused-binding",  # a local variable is never used
    "unused-key",  # a key has no effect
    "usage",  # a command line does not fit the usage of the command
    "used-before-definition",  # a variable is used before it has a value
    "variable-in-code",  # a variable is inserted where its value is executed as code
    "wrong-arity",  # a function is called with the wrong number of arguments
    "wrong-program",  # a file is not the program of the recorded run
    "wrong-type",  # a value has the wrong type
    "xml-syntax",  # a file is not XML
    "yaml-syntax",  # a file is not YAML
    "yaml-tab",  # YAML is indented by a tab
]

FaultKind = NewType("FaultKind", str)


@frozen
class Diagnostic:
    """A finding about a program; an `error` refuses it, a `warning` does not.

    id: or the kind of a fault, which is shown as a diagnostic; a program may raise kinds of its own.
    related: further places that explain the finding, each with its label.
    """

    id: DiagnosticId | FaultKind
    message: str
    span: Span | None = None
    label: str = ""
    help: str | None = None
    severity: str = "error"
    related: tuple[tuple[Span, str], ...] = ()

    @property
    def is_error(self) -> bool:
        return self.severity == "error"


def labelled(span: Span | None, label: str) -> tuple[tuple[Span, str], ...]:
    """A related label for a place, if that is known."""
    return () if span is None else ((span, label),)


class CompileError(Exception):
    """A program was refused; has all diagnostics found, and the sources to show them in."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Iterable[Source] = ()) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources = tuple(sources)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics, self.sources)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate a person most likely meant by `name`, or None if none is near.

    Every unknown name of every kind goes through here.
    """
    import difflib

    names = sorted({candidate for candidate in candidates if candidate})
    folded = {candidate.lower(): candidate for candidate in reversed(names)}
    name = _plain(name)
    if len(name) < 5:
        # A few letters in common say nothing of a short name: one change at most, or its first letters.
        folded = {known: as_is for known, as_is in folded.items() if _is_near_short(name, known)}
    match = difflib.get_close_matches(name, folded, n=1, cutoff=0.6)
    return folded[match[0]] if match else None


# Letters that look like Latin ones, in Cyrillic, Greek and full width; and characters without width.
_ALIKE = str.maketrans(
    "авеіјкмнорсѕтухԁһαεικνορτυχ" + "".join(map(chr, range(0xFF41, 0xFF5B))),
    "abeijkmhopcstyxdhaeiknoptux" + "abcdefghijklmnopqrstuvwxyz",
    "\u200b\u200c\u200d\u2060\ufeff",
)


def _plain(name: str) -> str:
    """A name in lower-case letters, with Latin ones for those that look the same."""
    return name[:100].lower().translate(_ALIKE)


def _is_near_short(name: str, known: str) -> bool:
    """Whether a short name begins another, is a word of it, or differs by one letter or exchange."""
    if name == known or (len(name) > 2 and (known.startswith(name) or name in known.split("-"))):
        return True
    start = 0
    while start < min(len(name), len(known)) and name[start] == known[start]:
        start += 1
    end = 0
    while end < min(len(name), len(known)) - start and name[-1 - end] == known[-1 - end]:
        end += 1
    left, right = name[start : len(name) - end], known[start : len(known) - end]
    if len(name) < 3:
        return len(name) == 2 and len(left) + len(right) == 1
    return max(len(left), len(right)) < 2 or (len(left) == 2 and left == right[::-1])


def suggest(name: str, candidates: Iterable[str], what: str = "known names") -> str | None:
    """The help line for an unknown name: the nearest candidate, else a bounded list of all."""
    candidates = list(candidates)
    found = nearest(name, candidates)
    odd = next((letter for letter in name[:100].lower() if letter != _plain(letter)), None)
    if found is not None and odd is not None:
        import unicodedata

        return f"did you mean `{found}`? `{odd}` is {unicodedata.name(odd, 'another letter').lower()}"
    if found is not None:
        return f"did you mean `{found}`?"
    if not candidates:
        return None
    shown = ", ".join(f"`{candidate}`" for candidate in candidates[:12])
    more = f" and {len(candidates) - 12} more" if len(candidates) > 12 else ""
    return f"{what}: {shown}{more}"


def count_words(least: int, most: int | None, what: str) -> str:
    """`2 operands`, `1 to 3 operands`, `at least 1 operand`."""
    if most is None:
        return f"at least {least} {what}{'' if least == 1 else 's'}"
    if least == most:
        return f"{least or 'no'} {what}{'' if least == 1 else 's'}"
    return f"{least} to {most} {what}s"


# --- rendering for people ---------------------------------------------------------------------

_COLOR = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "frame": "\x1b[1;34m", "bold": "\x1b[1m"}


def _paint(text: str, style: str, color: bool) -> str:
    return f"{_COLOR[style]}{text}\x1b[0m" if color and text else text


def clean(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text of unknown origin made fit for a terminal: bounded, without what one obeys or chokes on."""
    if len(text) > limit:
        text = text[: limit // 2] + " … " + text[-limit // 2 :]
    return _UNFIT.sub("�", text)


def _columns(text: str) -> int:
    """How many terminal columns a text takes."""
    width = 0
    for ch in text:
        if unicodedata.combining(ch):
            continue
        width += 2 if unicodedata.east_asian_width(ch) in "WF" else 1
    return width


def _excerpt(line: str, start: int, end: int) -> tuple[str, int, int]:
    """`line` cut to a window around [start, end), with the bounds moved along."""
    line = clean(line.replace("\t", " "), limit=1 << 30)
    end = min(max(end, start + 1), max(len(line), start) + 1)
    if len(line) <= MAX_LINE:
        return line, start, end
    left = max(0, min(start - 30, len(line) - MAX_LINE))
    right = min(len(line), left + MAX_LINE)
    head = "…" if left else ""
    text = head + line[left:right] + ("…" if right < len(line) else "")
    shift = len(head) - left
    return text, start + shift, min(end, right) + shift


def render(diagnostic: Diagnostic, sources: Mapping[str, Source] | None = None, color: bool = False) -> str:
    """One diagnostic as text with the source line and a caret, without a final newline."""
    head = _paint(f"{diagnostic.severity}[{diagnostic.id}]", diagnostic.severity, color)
    out = [head + _paint(f": {clean(diagnostic.message)}", "bold", color)]
    places = [(span, label, ":::", "-", "frame") for span, label in diagnostic.related]
    if diagnostic.span is not None:
        places.insert(0, (diagnostic.span, diagnostic.label, "-->", "^", diagnostic.severity))
    width = max((len(str(span.line)) for span, *_ in places), default=0)
    gutter = " " * width
    bar = _paint("|", "frame", color)
    for span, label, arrow, mark, style in places:
        out.append(f"{gutter}{_paint(f' {arrow}', 'frame', color)} {clean(str(span))}")
        source = (sources or {}).get(span.path)
        lines = source.text.split("\n") if source is not None and source.text is not None else []
        if 0 < span.line <= len(lines):
            line = lines[span.line - 1].rstrip("\r")
            end = span.end_column if span.end_line == span.line else len(line) + 1
            text, start, stop = _excerpt(line, span.column - 1, end - 1)
            marks = mark * max(1, _columns(text[start:stop]))
            caret = " " * _columns(text[:start]) + _paint(marks, style, color)
            out.append(f"{gutter} {bar}")
            out.append(f"{_paint(f'{span.line:>{width}}', 'frame', color)} {bar} {text}")
            out.append(f"{gutter} {bar} {caret}{f' {label}' if label else ''}")
    if diagnostic.help:
        out.append(f"{gutter} {_paint('=', 'frame', color)} help: {clean(diagnostic.help)}")
    return "\n".join(out)


def render_all(diagnostics: Iterable[Diagnostic], sources: Iterable[Source] = (), color: bool = False) -> str:
    """Diagnostics in the order of their places, a blank line between two."""
    by_path = {source.path: source for source in sources}
    return "\n\n".join(render(diagnostic, by_path, color) for diagnostic in in_order(diagnostics))


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sorted by file, line and column; those without a place first."""

    def place(diagnostic: Diagnostic) -> tuple[str, int, int]:
        span = diagnostic.span
        return ("", 0, 0) if span is None else (span.path, span.line, span.column)

    return sorted(diagnostics, key=place)


# --- rendering for programs -------------------------------------------------------------------


def to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The diagnostic as a JSON object; a place is {file, line, column, end_line, end_column}.

    `related` has further places with their labels; it is absent where there are none.
    """
    related = [{**_place(span), "label": label} for span, label in diagnostic.related]
    return {
        "severity": diagnostic.severity,
        "id": diagnostic.id,
        "message": diagnostic.message,
        **_place(diagnostic.span),
        "label": diagnostic.label or None,
        "help": diagnostic.help,
        **({"related": related} if related else {}),
    }


def _place(span: Span | None) -> dict[str, Any]:
    return {
        "file": span.path if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
    }
