"""Ids of all diagnostics and user errors, with their meanings; `spec/diagnostics.md` is made from this list.

Ids are stable. At run time an id is a text: only type checkers and tests import this module.
"""

from __future__ import annotations

from typing import Literal

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
