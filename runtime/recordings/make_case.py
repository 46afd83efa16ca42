"""Make a test case of a recorded run, with the same result on any machine.

Owns what is normalised (`spec/testing.md`): times, durations, the run's id, process ids, the paths of
the project and of the home folder. The program is executed again with the normalised results, so that
the expectations of a case follow from its contents; less is normalised where the run would differ.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.source.files import EXPRESSION
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
from .recording import Answer, Asked, Note, Recording, bounded, each_text, unpacked

# When a normalised clock stands: the day of the seed's examples, as in scripted worlds.
CLOCK = "2024-01-15T10:30:00.000Z"
_TIMES = {"duration_ms": 0, "elapsed_ms": 0}
# A process id that is as short as this may as well be any number.
_LEAST_PID = 100
# What of a note tells the course of a run; other fields may hold what was normalised.
_COURSE = frozenset(
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
_END_OF_COURSE = ("status", "terminated_by", "final_state")
# From this number of ticks on a case records them, to distinguish an endless program from a slow one.
_MANY_TICKS = 1_000_000


def make(run_files: RunFiles, path: str | None = None) -> tuple[Case, list[str]]:
    """The case of a run, not written yet, and what there is to say of it.

    path: where it is to stand; by default a free name in `.loops/tests/`. Raises UserError for a run
    that cannot be told again, and what reading its record raises.
    """
    history = run_files.history()
    recording, image = run_files.recording(), run_files.load_image()
    comparison = diff.compare(recording, image, exact=True)
    if comparison.difference is not None:
        raise Failure(
            "not-repeatable",
            f"{run_files.name} cannot become a case: told again it differs",
            f"llc replay {run_files.name}",
        )
    if recording.changes:
        raise Failure(
            "several-programs", f"{run_files.name} went on with another program, and a case is of one"
        )
    notices = [recording.left_out] if recording.left_out else []
    if recording.end is None:
        notices.append(f"{run_files.name} had not ended; the case ends where its record does")
    elif (recording.end.get("error") or {}).get("kind") == "not-performed":
        notices.append(f"{run_files.name} ended where its script had no answer; so does the case")
    about = recording.about
    source = _source(about)
    case = Case(
        path or free_path(image.name),
        source,
        image.sources[0].text if not source and image.sources else None,
        _options(about, recording),
        (),
        comparison.ticks if comparison.ticks >= _MANY_TICKS else 0,
        recording,
        _limits(about),
    )
    if not source and case.expression is None:
        raise Failure("no-source", f"{run_files.name} does not say what it was compiled from")
    if any(secrets.known.occur_in(str(text)) for text in (case.expression, *case.options.values())):
        raise Failure(
            "secret-in-case",
            f"{run_files.name} was given a secret as an option or in its expression; a case cannot hold one",
            "let an action read it from its environment",
        )
    words = Words(run_files.name, about, history)
    most = comparison.ticks * diff.PATIENCE + diff.LEAST_TICKS
    for chosen in (("times", "texts"), ("texts",), ("times",), ()):
        answers = [Answer(a.seq, _normalized(recording, a, chosen, words)) for a in recording.answers]
        told = tell(recording, image, answers, most)
        if told is not None and _is_same_course(recording, told):
            case.normalized, case.recording = chosen, told
            break
    else:
        raise Failure(
            "secret-in-case", f"what {run_files.name} does depends on a secret, and a case cannot hold one"
        )
    left = [word for word in ("times", "texts") if word not in case.normalized]
    if left:
        notices.append(f"what the run does depends on its {' and '.join(left)}, which stay as they were")
    notices += _changes_of_source(case, image)
    return case, notices


def refuse_taken(path: str | None, is_forced: bool = False) -> None:
    """Refuse to write a case over a file, unless it is a case and that is wanted."""
    if path is None or not files.lexists(path):
        return
    if not is_case(path):
        raise UserError("file-exists", f"`{path}` is there already and is no case")
    if not is_forced:
        raise UserError(
            "file-exists", f"`{path}` is there already", "`llc record RUN -o CASE --force` replaces it"
        )


def _source(about: dict[str, Any]) -> str:
    """The path of the source, from the project's folder where it is inside."""
    path = str(about.get("path") or "")
    if not path or not os.path.isabs(path):
        return os.path.normpath(path) if path else ""
    near = os.path.relpath(path, files.realpath(ROOT or "."))
    return path if near.startswith("..") else near


def _options(about: dict[str, Any], recording: Recording) -> dict[str, Any]:
    options = recorded_options(about.get("overrides"))
    model = environment.environ.get("LLC_LLM_MODEL")
    asked = {event.args.get("model") for event in recording.events if isinstance(event, Asked)}
    if model in asked and "llm_model" not in options:
        options["default_model"] = model
    return options


def _limits(about: dict[str, Any]) -> dict[str, int]:
    limits = about.get("limits")
    return {str(name): int(value) for name, value in limits.items()} if isinstance(limits, dict) else {}


def _changes_of_source(case: Case, image: Image) -> Iterator[str]:
    """Whether the case is of another program than its source is by now."""
    try:
        now = compile_case(case)
    except (CompileError, UserError) as error:
        yield f"{case.source or 'the expression'} cannot be compiled any more: {str(error).splitlines()[0]}"
        return
    if now.program_hash != image.program_hash:
        yield f"{case.source} is not what was run; `llc test` tells how it differs"


def compile_case(case: Case) -> Image:
    """The program of a case as its source is now. Raises UserError and CompileError.

    Which model judges where nothing names one is part of the case, not of where it is tested.
    """
    values = case.values()
    model = case.options.get("default_model") or DEFAULT_LLM_MODEL
    chosen = compile_options(values).evolve(default_model=model)
    if case.expression is not None:
        return emit(compile_text(case.expression, EXPRESSION, chosen).program)
    path = resolve_loop(_as_path(case.source))
    if path.endswith(IMAGE_SUFFIX):
        return load_program(path, values, lambda text: None)
    return emit(compile_file(path, chosen).program)


def _as_path(source: str) -> str:
    """A source is always a path, even one that looks like a loop's name."""
    return source if is_path(source) else os.path.join(".", source)


# --- telling again ----------------------------------------------------------------------------


def tell(
    recording: Recording, image: Image, answers: list[Answer], most: int | None = None
) -> Recording | None:
    """What the program does over these answers, in their order; None where they do not fit it.

    A recording of an unfinished run is executed as far as the answers go.
    """
    told, keep = recording.anew()
    execution = ReExecution(image, most)
    with bounded(recording.about):
        try:
            for answer in (*answers, None):
                for event in happened(execution, keep):
                    told.add(event)
                if answer is None:
                    break
                if answer.seq not in execution.machine.waiting:
                    return None
                told.give(answer)
                execution.give(answer.seq, told.result(answer))
        except Endless:
            return None if recording.end is not None else told
    if execution.stop is not None or execution.exit is not None:
        told.end = diff.ending(pack_map(execution.ending(), keep))
    elif recording.end is not None:
        told.end = recording.end if diff.was_refused(recording.end) else None
        if told.end is None:
            return None
    return told


def happened(execution: ReExecution, keep: Callable[[str], dict[str, Any]]) -> Iterator[Note | Asked]:
    """The events of an execution until no strand is ready, in the form of a recording."""
    for event in execution.events():
        if isinstance(event, tuple):
            yield Note(event[0], pack_map(event[1], keep))
        else:
            yield Asked(event.seq, event.kind, pack_map(event.args, keep))


def pack_map(fields: dict[str, Any], keep: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return {name: journal.pack(value, keep) for name, value in fields.items() if name not in RESERVED}


def _is_same_course(recording: Recording, told: Recording) -> bool:
    """Whether both took the same course, whatever the values; an unfinished one may be shorter.

    Side by side, when an effect begins depends on how many others do: notes have an order of their own.
    """
    is_cut = recording.end is None
    for kind in (Note, Asked):
        then = [event for event in recording.events if isinstance(event, kind)]
        now = [event for event in told.events if isinstance(event, kind)]
        if kind is Asked:
            then, now = (sorted(events, key=lambda asked: asked.seq) for events in (then, now))  # type: ignore[union-attr]
        if len(now) < len(then) or (len(now) > len(then) and not is_cut):
            return False
        if not all(map(_is_same_step, then, now)):
            return False
    ends = [[(end or {}).get(name) for name in _END_OF_COURSE] for end in (recording.end, told.end)]
    return is_cut or ends[0] == ends[1]


def _is_same_step(then: Note | Asked, now: Note | Asked) -> bool:
    if then.kind != now.kind or type(then) is not type(now):
        return False
    if isinstance(then, Asked) or isinstance(now, Asked):
        return True
    return all(then.fields.get(name) == now.fields.get(name) for name in _COURSE)


# --- normalising ------------------------------------------------------------------------------


class Words:
    """The texts that differ between runs and machines, and their placeholders."""

    def __init__(self, name: str, about: dict[str, Any], history: RunHistory) -> None:
        pairs = [(str(about.get("run") or name), "<run>")]
        for path, word in (
            (files.realpath(ROOT or "."), "<project>"),
            (os.path.expanduser("~"), "<home>"),
        ):
            if path.count("/") > 1 or (path.startswith("/") and len(path) > 4):
                pairs.append((path, word))
        self.pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
        self.pids = _pids(history)
        self.told: set[str] = set()

    def put(self, text: str, seq: int) -> str:
        """A text of the result of effect `seq` with them put in."""
        text = without_secrets(text)
        for word, placeholder in self.pairs:
            if word in text:
                text = re.sub(rf"{re.escape(word)}(?![\w-])", placeholder, text)
        # A process id that an effect has told may come back in the results of others.
        for pid in (*self.pids.get(seq, ()), *self.told):
            if pid in text:
                text, count = re.subn(rf"(?<![\w.]){pid}(?![\w.])", "<pid>", text)
                if count:
                    self.told.add(pid)
        return text


def _pids(history: RunHistory) -> dict[int, list[str]]:
    """The process ids of each effect, of all its attempts."""
    found: dict[int, list[str]] = {}
    for event in history.events:
        if isinstance(event, Process) and event.pid >= _LEAST_PID:
            found.setdefault(event.seq, []).append(str(event.pid))
    return found


def _normalized(recording: Recording, answer: Answer, chosen: tuple[str, ...], words: Words) -> Any:
    """The result of an answer, as in a journal, with what is chosen normalised; secrets always are."""
    try:
        result = unpacked(answer.result, recording.fetch, named_secrets)
    except journal.BlobError as error:
        raise Failure("damaged-record", f"{recording.name}: {error}") from None
    if "times" in chosen:
        result = {**result, **{name: zero for name, zero in _TIMES.items() if name in result}}
        if "time" in result and "elapsed_ms" in result:
            result["time"] = CLOCK
    put = without_secrets if "texts" not in chosen else lambda text: words.put(text, answer.seq)
    # Long texts are inline from here on; the writer stores them again.
    return journal.pack(each_text(result, put), str)


def named_secrets(parts: list[str]) -> str:
    """A text of parts, with the names of its secrets in their places."""
    return "".join(f"<{part.partition('/')[0]}>" if index % 2 else part for index, part in enumerate(parts))


def without_secrets(text: str) -> str:
    known = secrets.known
    return named_secrets(known.split(text)) if known.occur_in(text) else text
