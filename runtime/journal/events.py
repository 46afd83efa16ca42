"""The kinds of events a journal holds: the driver's own here, the program's notes in `ir.effects`.

`spec/events.md` prints its table from these rows. A field that ends in `?` may be absent; every
event has `event`, `ts` and `crc` besides.
"""

from __future__ import annotations

from ...ir.effects import NOTE_ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class EventKind:
    """`fields` as in `ir.effects`; `by`: "driver" or "program"."""

    __slots__ = ("by", "doc", "fields", "name")

    def __init__(self, name: str, fields: str, doc: str, by: str = "driver") -> None:
        self.name = name
        self.fields = fields
        self.doc = doc
        self.by = by


OWN_ROWS = (
    EventKind(
        "run_start",
        "format run program program_hash llc path expression? script? scope? overrides? limits? budget? "
        "forked_from?",
        "A run begins. `format` is the journal's, 1; `path` the file it was started from, or `expression` "
        "(`-e`); `scope` the paths it works on, where a batch gave it others; `limits` its `fuel`, `depth` "
        "and `size` where not the default; `budget` what it may spend; "
        "`forked_from` the `run` whose past it shares, the effect `at` which they part, and when it was "
        "(`ts`).",
    ),
    EventKind(
        "action_start",
        "action seq kind args state",
        "A shell or slash command is about to run. `action` is the command; `args` are its other arguments, "
        "and a command of more than 4096 characters, which `action` shows shortened.",
    ),
    EventKind(
        "process",
        "seq pid start_time",
        "A process was started for an effect; `start_time` tells it from a later one with its pid.",
    ),
    EventKind(
        "action_complete",
        "exit_code duration_ms seq kind result",
        "A command has ended, or could not start; `result` is what the program gets.",
    ),
    EventKind(
        "effect_start",
        "seq kind state? args",
        "Any other effect is about to be performed. `state` where the last one entered is not the one that "
        "asks.",
    ),
    EventKind("effect_complete", "seq kind result", "Any other effect has its result."),
    EventKind(
        "run_interrupted",
        "state duration_ms reason?",
        "Ctrl-C, SIGTERM or SIGHUP stopped the run, or it is out of fuel or of its budget (`reason` is "
        "`fuel` or `budget`), or an agent handed over and the loop is to pause (`handoff`); it can be "
        "resumed.",
    ),
    EventKind(
        "run_resume",
        "state iteration elapsed_ms unknown lost set_aside doubtful?",
        "The run goes on. `elapsed_ms`: for how long it was active before; `unknown`: what becomes of each "
        "effect that was cut off, by its number (`rerun` or `fail`); `lost`: what damage to the journal "
        "cost, a sentence each; `set_aside`: the file for what was cut off; `doubtful`: later effects that "
        "may have happened, each with its kind and a CRC-32 of its command.",
    ),
    EventKind(
        "program_changed",
        "program_hash image state",
        "The run goes on with another program, in the file `image` of its folder (`--accept-changes`).",
    ),
    EventKind(
        "run_end",
        "status terminated_by final_state iterations steps value error duration_ms code?",
        "The run has ended, as `llc run --json` says it. `code`: the exit code that a flow asked for.",
    ),
)
NOTE_EVENTS = tuple(
    EventKind(row.name, f"{row.fields} {row.more}".strip(), row.doc, "program") for row in NOTE_ROWS
)
EVENT_ROWS = OWN_ROWS + NOTE_EVENTS
OWN = frozenset(row.name for row in OWN_ROWS)


def markdown() -> Iterator[str]:
    """The lines of the table in `spec/events.md`."""
    yield "| event | by | fields | |"
    yield "|---|---|---|---|"
    for row in EVENT_ROWS:
        fields = " ".join(f"`{field}`" for field in row.fields.split())
        yield f"| `{row.name}` | {row.by} | {fields} | {row.doc} |"
