"""What a program may ask of the world, and what it may tell it: effect and note kinds.

Each kind is declared once, with the fields of its arguments and of its result; the verifier, the
host and `spec/effects.md` read these rows. A field that ends in `?` may be absent.
"""

from __future__ import annotations


class EffectKind:
    """`waits`: it may take long, so it is shown, bounded by `timeout_s` and `deadline_ms`.
    `acts`: it changes the world, so `effect started` must be on disk before it is performed.

    Plain classes: a run of a compiled image reads these rows and must not pay for `typing`.
    """

    __slots__ = ("acts", "args", "doc", "name", "result", "waits")

    def __init__(self, name: str, waits: bool, acts: bool, args: str, result: str, doc: str) -> None:
        self.name = name
        self.waits = waits
        self.acts = acts
        self.args = args
        self.result = result
        self.doc = doc

    def __repr__(self) -> str:
        return f"<effect {self.name}({self.args})>"


class NoteKind:
    __slots__ = ("doc", "fields", "name")

    def __init__(self, name: str, fields: str, doc: str) -> None:
        self.name = name
        self.fields = fields
        self.doc = doc

    def __repr__(self) -> str:
        return f"<note {self.name}({self.fields})>"


EFFECT_ROWS = (
    EffectKind(
        "shell", True, True,
        "command cwd? timeout_s? deadline_ms? on_unknown?",
        "output stderr exit_code duration_ms elapsed_ms signal? timed_out? limit_ms? truncated? error?",
        "Run a command in a shell, in its own process group, with standard input closed.",
    ),
    EffectKind(
        "tool", True, True,
        "name args definition? timeout_s? deadline_ms? on_unknown?",
        "value? error? duration_ms elapsed_ms timed_out?",
        "Use a tool: what it gives, or why it gave nothing.",
    ),
    EffectKind(
        "task", True, True,
        "name inputs files? context? history_config? definition? timeout_s? deadline_ms? on_unknown?",
        "result? turn? usage? error? duration_ms elapsed_ms timed_out?",
        "Have a task done; its TaskResult.",
    ),
    EffectKind(
        "context", True, True,
        "query? history? inputs? matching_strategy? limit? template_description? template_type? "
        "template_subtype? template_name? context_relevance? inherited_context? previous_outputs? "
        "fresh_context? rerank? model? timeout_s? deadline_ms? on_unknown?",
        "matches summary? usage? error? duration_ms elapsed_ms timed_out?",
        "Find the files of the project that matter for something, best first.",
    ),
    EffectKind(
        "agent", True, True,
        "command argv? agent? timeout_s? deadline_ms? on_unknown?",
        "output stderr exit_code duration_ms elapsed_ms usage? session? handoff? signal? timed_out? "
        "limit_ms? truncated? error?",
        "Give a slash command to the agent program.",
    ),
    EffectKind(
        "ask", True, True,
        "question choices? default? timeout_s? deadline_ms?",
        "output stderr exit_code duration_ms elapsed_ms by? timed_out? limit_ms? error?",
        "Ask a person; the answer is the output.",
    ),
    EffectKind(
        "evaluate", True, True,
        "prompt output schema model max_tokens timeout_s? deadline_ms? on_unknown?",
        "reply? usage? duration_ms elapsed_ms timed_out? error?",
        "Ask a model for a structured verdict on an output.",
    ),
    EffectKind(
        "jq", False, False,
        "program input",
        "value? error?",
        "Run a jq program on a JSON text, bounded in time; the first value it gives.",
    ),
    EffectKind(
        "sleep", True, False,
        "seconds deadline_ms?",
        "elapsed_ms timed_out?",
        "Wait.",
    ),
    EffectKind("clock", False, False, "", "time elapsed_ms", "Read the clock."),
    EffectKind("env", False, False, "names", "values", "Read environment variables."),
    EffectKind("pause", False, False, "reason", "elapsed_ms", "Stop the run here; resumed, it goes on."),
    EffectKind("exit", False, False, "code", "", "End the run with an exit code; nothing answers."),
)  # fmt: skip

NOTE_ROWS = (
    NoteKind("loop_start", "loop", "A loop begins."),
    NoteKind("state_enter", "loop? state iteration", "Control enters one of the author's states."),
    NoteKind("evaluate", "loop? state type verdict details", "An evaluator gave its verdict."),
    NoteKind("route", "loop? from to verdict?", "Control goes to another of the author's states."),
    NoteKind("handoff", "loop? state policy text", "An agent's context is full, and it hands over."),
    NoteKind("cycle", "loop? cycle", "A maintained loop begins its next cycle."),
    NoteKind("log", "message", "The program says something."),
    NoteKind("loop_complete", "loop? final_state iterations status terminated_by", "A loop ended."),
)

EFFECTS = {row.name: row for row in EFFECT_ROWS}
NOTES = {row.name: row for row in NOTE_ROWS}
