"""Conversion of a recorded run to a test case that gives the same result on any machine.

Owns the normalisation (`spec/testing.md`) of times, durations, the run's id, process ids, and the paths of
the project and of the home folder. The program is re-executed with the normalised results, so that the
expectations of a case follow from its contents. If the run would take another course, less is normalised.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.source.files import EXPRESSION_PATH
from ...ir.compile_options import DEFAULT_LLM_MODEL
from ...ir.diagnostics import CompileError
from ...vm.code.emit import emit
from ...vm.code.image import Image
from ..host import environment, files, secrets
from ..host.errors import Failure, UserError
from ..host.paths import IMAGE_SUFFIX, ROOT
from ..journal import journal
from ..journal.codec import RESERVED
from ..journal.events import Process
from ..journal.run_history import RunHistory
from ..project.compilation import compile_file, compile_text
from ..project.load import compile_options, load_program
from ..project.options import recorded_options
from ..runs.loop_names import is_path, resolve_loop
from . import diff
from .cases import Case, free_path, is_case
from .find import RunFiles
from .re_execution import Endless, ReExecution
from .recording import Answer, EffectRequest, Note, Recording, bounded, map_texts, unpacked

# The normalised time: the day of the seed's examples, as in scripted worlds.
CLOCK = "2024-01-15T10:30:00.000Z"
_TIMES = {"duration_ms": 0, "elapsed_ms": 0}
# Smaller process ids are not normalised: short numbers also occur for other reasons.
_MIN_PID = 100
# Fields of notes that determine the course of a run; other fields may contain normalised texts.
_COURSE_FIELDS = frozenset(
    (
        "loop",
        "state",
        "iteration",
        "verdict",
        "from",
        "to",
        "type",
        "cycle",
        "status",
        "terminated_by",
        "final_state",
    )
)
_COMPARED_END_FIELDS = ("status", "terminated_by", "final_state")
# A case records larger numbers of ticks, to distinguish an endless program from a slow one.
_MIN_RECORDED_TICKS = 1_000_000


def make(run_files: RunFiles, path: str | None = None) -> tuple[Case, list[str]]:
    """Make a case from a run, without writing it; returns the case and notices for the user.

    path: the file of the case; by default an unused name in `.loops/tests/`. Raises UserError if the run is
    not repeatable, and the errors of reading its record.
    """
    history = run_files.history()
    recording, image = run_files.recording(), run_files.load_image()
    ticks = _ticks_of_replay(run_files.name, recording, image)
    notices = [recording.left_out] if recording.left_out else []
    if recording.end is None:
        notices.append(f"{run_files.name} is unfinished; the case ends at the end of its record")
    elif (recording.end.get("error") or {}).get("kind") == "not-performed":
        notices.append(f"{run_files.name} ended because its script had no answer; the case ends there too")
    about = recording.about
    source = _source(about)
    case = Case(
        path or free_path(image.name),
        source,
        image.sources[0].text if not source and image.sources else None,
        _options(about, recording),
        (),
        ticks if ticks >= _MIN_RECORDED_TICKS else 0,
        recording,
        _limits(about),
    )
    if not source and case.expression is None:
        raise Failure("no-source", f"{run_files.name} does not record its source")
    if any(secrets.known.occur_in(str(text)) for text in (case.expression, *case.options.values())):
        raise Failure(
            "secret-in-case",
            f"{run_files.name} has a secret in an option or its expression; a case cannot contain secrets",
            "let an action read the secret from its environment",
        )
    _normalize(run_files.name, case, image, Placeholders(run_files.name, about, history), ticks)
    unchanged = [part for part in ("times", "texts") if part not in case.normalized]
    if unchanged:
        notices.append(
            f"the course of the run depends on its {' and '.join(unchanged)}; they are not normalised"
        )
    notices += _changes_of_source(case, image)
    return case, notices


def _ticks_of_replay(name: str, recording: Recording, image: Image) -> int:
    """The ticks of a replay of the run. Raises UserError if the replay differs from the record."""
    comparison = diff.compare(recording, image, exact=True)
    if comparison.difference is not None:
        raise Failure(
            "not-repeatable",
            f"{name} cannot become a case: a replay of it differs",
            f"see: llc replay {name}",
        )
    if recording.changes:
        message = f"{name} cannot become a case: its program was changed during the run"
        raise Failure("several-programs", message)
    return comparison.ticks


def _normalize(name: str, case: Case, image: Image, placeholders: Placeholders, ticks: int) -> None:
    """Normalise as many parts of the answers as the course of the run permits. Raises UserError."""
    recording = case.recording
    for parts in (("times", "texts"), ("texts",), ("times",), ()):
        answers = [Answer(a.seq, _normalized(recording, a, parts, placeholders)) for a in recording.answers]
        replayed = re_execute(recording, image, answers, ticks * diff.TICK_FACTOR + diff.MIN_TICKS)
        if replayed is not None and _is_same_course(recording, replayed):
            case.normalized, case.recording = parts, replayed
            return
    message = f"the course of {name} depends on a secret; a case cannot contain secrets"
    raise Failure("secret-in-case", message)


def refuse_taken(path: str | None, is_forced: bool = False) -> None:
    """Raise UserError if the file exists, unless it is a case and `is_forced`."""
    if path is None or not files.lexists(path):
        return
    if not is_case(path):
        raise UserError("file-exists", f"`{path}` exists and is not a case")
    if not is_forced:
        raise UserError(
            "file-exists", f"`{path}` exists already", "to replace it: llc record RUN -o CASE --force"
        )


def _source(about: dict[str, Any]) -> str:
    """The path of the source, relative to the project's folder if it is inside."""
    path = str(about.get("path") or "")
    if not path or not os.path.isabs(path):
        return os.path.normpath(path) if path else ""
    near = os.path.relpath(path, files.realpath(ROOT or "."))
    return path if near.startswith("..") else near


def _options(about: dict[str, Any], recording: Recording) -> dict[str, Any]:
    options = recorded_options(about.get("overrides"))
    model = environment.environ.get("LLC_LLM_MODEL")
    asked = {event.args.get("model") for event in recording.events if isinstance(event, EffectRequest)}
    if model in asked and "llm_model" not in options:
        options["default_model"] = model
    return options


def _limits(about: dict[str, Any]) -> dict[str, int]:
    limits = about.get("limits")
    return {str(name): int(value) for name, value in limits.items()} if isinstance(limits, dict) else {}


def _changes_of_source(case: Case, image: Image) -> Iterator[str]:
    """Notices about a source that has changed since the run."""
    try:
        now = compile_case(case)
    except (CompileError, UserError) as error:
        yield f"{case.source or 'the expression'} does not compile any more: {str(error).splitlines()[0]}"
        return
    if now.program_hash != image.program_hash:
        yield f"{case.source} has changed since the run; `llc test` shows the difference"


def compile_case(case: Case) -> Image:
    """Compile the current source of a case. Raises UserError and CompileError.

    The default model is taken from the case, not from the environment of the test.
    """
    values = case.values()
    model = case.options.get("default_model") or DEFAULT_LLM_MODEL
    chosen = compile_options(values).evolve(default_model=model)
    if case.expression is not None:
        return emit(compile_text(case.expression, EXPRESSION_PATH, chosen).program)
    path = resolve_loop(_as_path(case.source))
    if path.endswith(IMAGE_SUFFIX):
        return load_program(path, values, lambda text: None)
    return emit(compile_file(path, chosen).program)


def _as_path(source: str) -> str:
    """Make a source a path, because a plain name would be resolved as a loop."""
    return source if is_path(source) else os.path.join(".", source)


# --- re-execution -----------------------------------------------------------------------------


def re_execute(
    recording: Recording, image: Image, answers: list[Answer], max_ticks: int | None = None
) -> Recording | None:
    """Execute a program with these answers, in this order; returns the new recording.

    None if the program does not request an effect that has an answer. An unfinished run is executed up to the
    last answer.
    """
    replayed, keep = recording.empty_copy()
    execution = ReExecution(image, max_ticks)
    with bounded(recording.about):
        try:
            for answer in (*answers, None):
                for event in recorded_events(execution, keep):
                    replayed.add(event)
                if answer is None:
                    break
                if answer.seq not in execution.machine.waiting:
                    return None
                replayed.give(answer)
                execution.give(answer.seq, replayed.result(answer))
        except Endless:
            return None if recording.end is not None else replayed
    if execution.stop is not None or execution.exit is not None:
        replayed.end = diff.ending(pack_map(execution.ending(), keep))
    elif recording.end is not None:
        replayed.end = recording.end if diff.was_refused(recording.end) else None
        if replayed.end is None:
            return None
    return replayed


def recorded_events(
    execution: ReExecution, keep: Callable[[str], dict[str, Any]]
) -> Iterator[Note | EffectRequest]:
    """The events of an execution until no strand is ready, in the form of a recording."""
    for event in execution.events():
        if isinstance(event, tuple):
            yield Note(event[0], pack_map(event[1], keep))
        else:
            yield EffectRequest(event.seq, event.kind, pack_map(event.args, keep))


def pack_map(fields: dict[str, Any], keep: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return {name: journal.pack(value, keep) for name, value in fields.items() if name not in RESERVED}


def _is_same_course(recording: Recording, replayed: Recording) -> bool:
    """Whether both runs took the same course, apart from values; an unfinished run may be shorter.

    Notes and effects are compared separately: the start of a concurrent effect depends on free slots.
    """
    is_cut = recording.end is None
    for kind in (Note, EffectRequest):
        then = [event for event in recording.events if isinstance(event, kind)]
        now = [event for event in replayed.events if isinstance(event, kind)]
        if kind is EffectRequest:
            then, now = (sorted(events, key=lambda effect: effect.seq) for events in (then, now))  # type: ignore[union-attr]
        if len(now) < len(then) or (len(now) > len(then) and not is_cut):
            return False
        if not all(map(_is_same_step, then, now)):
            return False
    ends = [[(end or {}).get(name) for name in _COMPARED_END_FIELDS] for end in (recording.end, replayed.end)]
    return is_cut or ends[0] == ends[1]


def _is_same_step(then: Note | EffectRequest, now: Note | EffectRequest) -> bool:
    if then.kind != now.kind or type(then) is not type(now):
        return False
    if isinstance(then, EffectRequest) or isinstance(now, EffectRequest):
        return True
    return all(then.fields.get(name) == now.fields.get(name) for name in _COURSE_FIELDS)


# --- normalising ------------------------------------------------------------------------------


class Placeholders:
    """The texts that differ between runs and machines, with their placeholders."""

    def __init__(self, name: str, about: dict[str, Any], history: RunHistory) -> None:
        pairs = [(str(about.get("run") or name), "<run>")]
        for path, word in ((files.realpath(ROOT or "."), "<project>"), (os.path.expanduser("~"), "<home>")):
            if path.count("/") > 1 or (path.startswith("/") and len(path) > 4):
                pairs.append((path, word))
        self.pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
        self.pids = _pids(history)
        self.printed_pids: set[str] = set()

    def replace(self, text: str, seq: int) -> str:
        """Replace secrets and machine-specific texts in a result of effect `seq`."""
        text = without_secrets(text)
        for word, placeholder in self.pairs:
            if word in text:
                text = re.sub(rf"{re.escape(word)}(?![\w-])", placeholder, text)
        # Results of other effects may repeat a process id that an effect printed.
        for pid in (*self.pids.get(seq, ()), *self.printed_pids):
            if pid in text:
                text, count = re.subn(rf"(?<![\w.]){pid}(?![\w.])", "<pid>", text)
                if count:
                    self.printed_pids.add(pid)
        return text


def _pids(history: RunHistory) -> dict[int, list[str]]:
    """The process ids of all attempts of each effect."""
    found: dict[int, list[str]] = {}
    for event in history.events:
        if isinstance(event, Process) and event.pid >= _MIN_PID:
            found.setdefault(event.seq, []).append(str(event.pid))
    return found


def _normalized(
    recording: Recording, answer: Answer, parts: tuple[str, ...], placeholders: Placeholders
) -> Any:
    """The result of an answer, in the form of a journal, with `parts` normalised and without secrets."""
    try:
        result = unpacked(answer.result, recording.fetch, named_secrets)
    except journal.BlobError as error:
        raise Failure("damaged-record", f"{recording.name}: {error}") from None
    if "times" in parts:
        result = {**result, **{name: zero for name, zero in _TIMES.items() if name in result}}
        if "time" in result and "elapsed_ms" in result:
            result["time"] = CLOCK
    replace = without_secrets if "texts" not in parts else lambda text: placeholders.replace(text, answer.seq)
    # Long texts are inline from here on; the writer of the case extracts them again.
    return journal.pack(map_texts(result, replace), str)


def named_secrets(parts: list[str]) -> str:
    """Join the parts of a text, with secrets replaced by their names."""
    return "".join(f"<{part.partition('/')[0]}>" if index % 2 else part for index, part in enumerate(parts))


def without_secrets(text: str) -> str:
    known = secrets.known
    return named_secrets(known.split(text)) if known.occur_in(text) else text
