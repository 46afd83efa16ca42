"""Effect kinds and note kinds: what a program may request of its host, and what it may report.

One row per kind declares every fact about the kind: the verifier, the machine, the host, the displays,
scripted worlds, recorded cases and `spec/effects.md` read these rows, and no other list of kinds exists.
`runtime.effects.performers` names the function that performs each kind; a test compares the two tables.
A field name that ends in `?` may be absent; `FIELD_TYPES` gives the type of each field, by its name or, where
a kind differs, by `kind.name`.

Plain classes: a run of a compiled image reads these rows and must not pay for `typing`.
"""

from __future__ import annotations

from .light_records import LightRecord

# The type of each argument and result field. `value` is any plain data.
FIELD_TYPES = {
    "allowed_tools": "texts", "append_prompt": "text", "args": "map", "argv": "texts", "agent": "text",
    "by": "text", "cap_usd": "number", "choices": "texts", "code": "integer",
    "command": "text", "context": "map", "context_relevance": "map", "cwd": "text", "deadline_ms": "number",
    "default": "text", "definition": "map", "duration_ms": "number", "elapsed_ms": "number",
    "effort": "text", "error": "map", "evidence": "map",
    "exit_code": "integer", "file": "text", "files": "texts", "fork": "value", "fresh_context": "value",
    "guard": "map", "handoff": "text", "idle_timeout_s": "number", "thread": "map", "history": "value",
    "history_config": "map", "inherited_context": "value", "input": "text", "inputs": "map", "judge": "text",
    "linked": "texts",
    "limit": "integer", "limit_ms": "number", "matches": "list", "matching_strategy": "text",
    "max_tokens": "integer", "max_turns": "integer", "model": "text", "name": "text", "names": "texts",
    "on_unknown": "text",
    "output": "text", "permissions": "text", "previous_outputs": "value", "program": "text",
    "protocol": "text", "prompt": "text", "query": "value", "quota": "map",
    "question": "text", "reason": "text", "reply": "map", "rerank": "value", "result": "map", "round": "map",
    "schema": "map", "seconds": "number", "session": "text", "signal": "text", "stall": "map",
    "state": "text",
    "stderr": "text", "summary": "text",
    "template_description": "value", "template_name": "value", "template_subtype": "value",
    "template_type": "value", "time": "text", "timed_out": "text", "timeout_s": "number",
    "truncated": "map", "turn": "map", "usage": "map", "value": "value", "values": "map",
    # Of one kind: words are looked for in any value, a map or an association list too.
    "context.inputs": "value",
}  # fmt: skip
# The fields of a TaskResult (`spec/tools.md`).
TASK_RESULT = ("status", "content", "parsedContent", "criteria", "notes")
# What performs a task: a call of a model, or an agent program.
RUNNERS = ("model", "agent")
# The units of a budget. The slot `spent.<unit>` counts them for a run, `spent.<unit>.<state>` for a state.
UNITS = ("usd", "tokens", "calls", "seconds")
# What an agent may do without asking: everything, edits in the project, reading, what its settings allow.
PERMISSIONS = ("skip", "edit", "plan", "ask")
# When the files of a project are recorded: from the first agent of a run on, in every run, never.
RECORD_FILES = ("agents", "all", "off")
# Policies for an effect whose outcome is unknown; `ask` asks the person who resumes the run, `continue`
# resumes the session of an agent.
ON_UNKNOWN = ("rerun", "ask", "fail")
CONTINUE = "continue"
# Rounds of check and agent without change after which a loop of a paradigm stalls that does not set `stall`.
STALL_ROUNDS = 3
# What a judging model says of evidence that does not show the result, where the schema has it.
CANNOT_JUDGE = "cannot_judge"
# What a result has where a recorded case leaves the field out.
_DEFAULTS: dict[str, str | int] = {"text": "", "integer": 0, "number": 0}
_ACTION_RULE = "output stderr exit_code duration_ms signal timed_out truncated error"


class EffectKind(LightRecord):
    """One kind of effect.

    args, result, scripted, optional: field names, separated by blanks.
    waits: may take long; displays show it, and `timeout_s` and `deadline_ms` bound it.
    acts: may change the outside world; `effect started` is on disk before it is performed.
    changes_files: may change files of the project; its trees are recorded (`runtime.trees`).
    is_long: performed in the effect pool although it neither waits nor acts.
    is_action: a command that runs as a process; journaled as `action_start` and `action_complete`.
    is_work: the main work of a state; displays show its header, output and failure, and a program
    that replaces another one may change one such kind to another.
    is_idle: nothing works meanwhile; takes no room in the effect pool, and profiles count it as waiting.
    is_model_call: always calls a model or an agent, and counts as a call in budgets.
    may_prompt: may ask the person at the terminal.
    subject: the argument that tells one such effect from another in displays.
    inputs: the argument that holds the caller's values by parameter, "" if there is none.
    waiting: words for the status line while it is performed.
    scripted: the result fields that a rule of a scripted world may give, "" if no rule answers the kind.
    optional: the result fields that a recorded case may leave out.
    """

    name: str
    args: str
    result: str
    doc: str
    subject: str
    waits: bool = False
    acts: bool = False
    changes_files: bool = False
    is_long: bool = False
    is_action: bool = False
    is_work: bool = False
    is_idle: bool = False
    is_model_call: bool = False
    may_prompt: bool = False
    inputs: str = ""
    waiting: str = ""
    scripted: str = ""
    optional: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether it is performed in the effect pool."""
        return self.waits or self.acts or self.is_long

    @property
    def usual(self) -> dict[str, str | int]:
        """The `optional` fields, each with the value that it has where a case leaves it out."""
        return {field: _DEFAULTS[FIELD_TYPES[field]] for field in self.optional.split()}

    @property
    def spends(self) -> bool:
        """Whether it may use the budget of a run: its result can have a `usage`."""
        return "usage?" in self.result.split()

    @property
    def on_unknown(self) -> str | None:
        """Default policy if its outcome is unknown; None if a resumed run simply performs it again."""
        return "rerun" if "on_unknown?" in self.args.split() else None

    def __repr__(self) -> str:
        return f"<effect {self.name}({self.args})>"


class NoteKind(LightRecord):
    """One kind of note.

    more: fields that the journal adds to the note's own. noun: the word for such a note in messages about
    recorded runs. is_shown: displays show it.
    """

    name: str
    fields: str
    doc: str
    more: str = ""
    noun: str = "note"
    is_shown: bool = True

    def __repr__(self) -> str:
        return f"<note {self.name}({self.fields})>"


EFFECT_ROWS = (
    EffectKind(
        "shell",
        "command cwd? timeout_s? deadline_ms? on_unknown?",
        "output stderr exit_code duration_ms elapsed_ms signal? timed_out? limit_ms? truncated? error?",
        "Run a command in a shell, in its own process group, with standard input closed.",
        subject="command", waits=True, acts=True, changes_files=True, is_action=True, is_work=True,
        scripted=_ACTION_RULE, optional="output stderr exit_code duration_ms elapsed_ms",
    ),
    EffectKind(
        "tool",
        "name args definition? timeout_s? deadline_ms? on_unknown?",
        "value? error? duration_ms elapsed_ms timed_out?",
        "Use a tool; the result has its value, or an error.",
        subject="name", waits=True, acts=True, changes_files=True, is_work=True, may_prompt=True,
        inputs="args",
        scripted="value duration_ms timed_out error",
    ),
    EffectKind(
        "task",
        "name inputs files? context? history_config? definition? timeout_s? deadline_ms? on_unknown?",
        "result? turn? usage? error? duration_ms elapsed_ms timed_out?",
        "Have a model or an agent do a task; the result has its TaskResult.",
        subject="name", waits=True, acts=True, changes_files=True, is_work=True, is_model_call=True,
        inputs="inputs",
        scripted=f"{' '.join(TASK_RESULT)} usage duration_ms timed_out error",
    ),
    EffectKind(
        "context",
        "query? history? inputs? matching_strategy? limit? template_description? template_type? "
        "template_subtype? template_name? context_relevance? inherited_context? previous_outputs? "
        "fresh_context? rerank? model? timeout_s? deadline_ms? on_unknown?",
        "matches summary? usage? error? duration_ms elapsed_ms timed_out?",
        "Find the project's files that are relevant to a query, best match first.",
        subject="query", waits=True, acts=True, waiting="searching the files",
        scripted="matches summary usage duration_ms timed_out error",
    ),
    EffectKind(
        "agent",
        "command argv? protocol? agent? model? effort? permissions? allowed_tools? append_prompt? session? "
        "fork? thread? cap_usd? max_turns? idle_timeout_s? stall? guard? quota? timeout_s? deadline_ms? "
        "on_unknown?",
        "output stderr exit_code duration_ms elapsed_ms usage? session? thread? handoff? signal? timed_out? "
        "limit_ms? truncated? round? error?",
        "Pass a prompt or a slash command to the agent program.",
        subject="command", waits=True, acts=True, changes_files=True, is_action=True, is_work=True,
        is_model_call=True,
        scripted=f"{_ACTION_RULE} usage session handoff",
        optional="output stderr exit_code duration_ms elapsed_ms",
    ),
    EffectKind(
        "ask",
        "question choices? default? timeout_s? deadline_ms?",
        "output stderr exit_code duration_ms elapsed_ms by? timed_out? limit_ms? error?",
        "Ask a person; the answer is the output.",
        subject="question", waits=True, acts=True, is_idle=True, may_prompt=True,
        scripted="answer duration_ms timed_out error",
        optional="stderr exit_code duration_ms elapsed_ms",
    ),
    EffectKind(
        "evaluate",
        "prompt output schema model max_tokens evidence? judge? agent? argv? protocol? timeout_s? "
        "deadline_ms? on_unknown?",
        "reply? usage? duration_ms elapsed_ms timed_out? error?",
        "Ask a model for a structured verdict on an output.",
        subject="model", waits=True, acts=True, is_model_call=True, waiting="asking the model",
        scripted="verdict confidence reason reply usage duration_ms timed_out error",
        optional="duration_ms elapsed_ms",
    ),
    EffectKind(
        "jq",
        "program input",
        "value? error?",
        "Run a jq program on a JSON text, with a time limit; the result has the first value it yields.",
        subject="program", is_long=True, scripted="value error",
    ),
    EffectKind(
        "sleep",
        "seconds deadline_ms?",
        "elapsed_ms timed_out?",
        "Wait.",
        subject="seconds", waits=True, is_idle=True, waiting="waiting", optional="elapsed_ms",
    ),
    EffectKind("clock", "", "time elapsed_ms", "Read the clock.", subject=""),
    EffectKind("env", "names", "values", "Read environment variables.", subject="names"),
    EffectKind(
        "link",
        "name file state linked",
        "name? error?",
        "Add the loop with a computed name to the program; the result has the name, or an error.",
        subject="name",
    ),
    EffectKind(
        "pause", "reason", "elapsed_ms", "Stop the run; a resumed run continues here.", subject="reason"
    ),
    EffectKind("exit", "code", "", "End the run with an exit code; there is no result.", subject="code"),
)  # fmt: skip

NOTE_ROWS = (
    NoteKind("loop_start", "loop", "A loop begins.", is_shown=False),
    NoteKind(
        "state_enter", "loop? state iteration", "Control enters one of the author's states.", noun="state"
    ),
    NoteKind(
        "evaluate", "loop? state type verdict details", "An evaluator gave its verdict.",
        more="confidence?", noun="verdict",
    ),
    NoteKind(
        "route", "loop? from to verdict?", "Control moves to another of the author's states.", noun="route"
    ),
    NoteKind("handoff", "loop? state policy text", "An agent's context is full, and it hands over."),
    NoteKind("hook", "loop? state? hook", "A hook of a state or of the loop begins."),
    NoteKind("cycle", "loop? cycle", "A maintained loop begins its next cycle."),
    NoteKind("log", "message", "The program logs a message."),
    NoteKind(
        "loop_complete", "loop? final_state iterations status cycles? terminated_by",
        "A loop ended; `cycles` where it maintains.",
    ),
)  # fmt: skip

EFFECTS = {row.name: row for row in EFFECT_ROWS}
NOTES = {row.name: row for row in NOTE_ROWS}
# Kinds that may use the budget of a run.
SPENDERS = frozenset(row.name for row in EFFECT_ROWS if row.spends)

_ARGUMENT_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,), "integer": (int,), "number": (int, float), "map": (dict,), "texts": (list,),
}  # fmt: skip


def cannot_judge(schema: dict[str, object], reason: str, kind: str = "no-tool-call") -> dict[str, object]:
    """The result of an `evaluate` effect without an answer: the verdict for it, if the schema has one."""
    properties = schema.get("properties")
    verdict = properties.get("verdict") if isinstance(properties, dict) else None
    verdicts = verdict.get("enum") if isinstance(verdict, dict) else None
    if isinstance(verdicts, list | tuple) and CANNOT_JUDGE in verdicts:
        return {"reply": {"verdict": CANNOT_JUDGE, "confidence": 1.0, "reason": reason}}
    return {"error": {"kind": kind, "message": reason}}


# By kind: the names of the required arguments, and the types of all; see `argument_problem`.
_ARGUMENTS: dict[str, tuple[list[str], dict[str, str]]] = {}


def _arguments(kind: str) -> tuple[list[str], dict[str, str]]:
    given = EFFECTS[kind].args.split()
    names = [name.rstrip("?") for name in given]
    types = {name: FIELD_TYPES.get(f"{kind}.{name}") or FIELD_TYPES[name] for name in names}
    return [name for name in given if not name.endswith("?")], types


def argument_problem(kind: str, args: dict[str, object]) -> str | None:
    """What is wrong with the arguments of an effect, as no compiler makes them; None if nothing is."""
    known = _ARGUMENTS.get(kind)
    if known is None:
        known = _ARGUMENTS[kind] = _arguments(kind)
    required, types = known
    for name in required:
        if args.get(name) is None and (name not in args or types[name] != "value"):
            return f"the effect `{kind}` has no `{name}`"
    for name, value in args.items():
        wanted = types.get(name, "value")
        if value is None or wanted == "value":
            continue
        if type(value) is bool or not isinstance(value, _ARGUMENT_TYPES[wanted]):
            return f"`{name}` of the effect `{kind}` is no {wanted}"
        if wanted == "texts" and not all(type(item) is str for item in value):  # type: ignore[attr-defined]
            return f"`{name}` of the effect `{kind}` has items that are no text"
    return None
