"""`llc answer`: the open questions of runs, and the answer to one of them.

A question is open if its effect has started and has no result, in the journal of an unfinished run. The
answer is written atomically and only once, next to the journal (`ask.Mailbox`), and the run is woken; a
crashed run reads it when it is resumed. See `spec/people.md`.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from typing import Any

from ...ir.records import frozen
from ..effects.ask import MAX_ANSWER_BYTES, Mailbox, accepted
from ..host import files, processes
from ..host.errors import Failure, UserError, reason
from ..host.paths import ROOT
from ..host.screen import Screen, printable
from ..journal.agent_activity import PERMIT, REJECT
from ..journal.events import AgentActed
from ..journal.run_folder import RunFolder
from ..journal.run_history import EffectHistory, RunHistory
from ..runs import locks
from ..runs.follower import follow
from ..runs.lookup import find_run_folder
from ..runs.run_lock import is_live


@frozen
class Question:
    """An open question of a run.

    seq: the number of its effect. timeout_s: seconds to answer, counted from `asked_at`. name: of its
    mailbox, if an agent asks; otherwise "".
    """

    run: RunFolder
    seq: int
    text: str
    choices: tuple[str, ...]
    default: str | None
    timeout_s: float | None
    state: str | None
    asked_at: str | None
    alive: bool
    name: str = ""

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(self.run.path, self.name or self.seq, self.text)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "question": self.seq,
            "text": self.text,
            "choices": list(self.choices),
            "default": self.default,
            "timeout_s": self.timeout_s,
            "state": self.state,
            "asked_at": self.asked_at,
            "running": self.alive,
        }

    def as_text(self, screen: Screen) -> str:
        head = f"{self.run.id}" + (f", question {self.seq}" if self.seq else "")
        where = f" in {printable(self.state)}" if self.state else ""
        lines = [screen.paint(f"{head}{where}", "bold"), *("  " + line for line in self.text.splitlines())]
        facts = [f"choices: {' / '.join(self.choices)}"] if self.choices else []
        facts += [f"default: {self.default}"] if self.default is not None else []
        lines += ["  " + fact for fact in facts]
        if not self.alive:
            lines.append(f"  the run is not running; resume it with: llc resume {self.run.id}")
        return "".join(printable(line) + "\n" for line in lines)


def questions(target: str | None) -> list[Question]:
    """The open questions of a run, or of all runs with None; the oldest first. Raises UserError."""
    if target is not None:
        run = find_run_folder(target)
        ended = run.end()
        if ended is not None:
            message = f"{run.id} has ended: {ended.get('status')}"
            raise Failure("not-running", message)
        return _open_questions(run)
    found = []
    for run in locks.unfinished(ROOT):
        with contextlib.suppress(UserError):
            found += _open_questions(run)
    return sorted(found, key=lambda question: (question.asked_at or "", question.seq))


def _open_questions(run: RunFolder) -> list[Question]:
    alive = is_live(run)
    history, follower = follow(run)
    with contextlib.closing(follower):
        for event in follower.events():
            history.add(event)
        asked = [
            *(
                _question(run, effect, follower.expand(effect.args), history, alive)
                for effect in history.questions
            ),
            *(_permission(run, *request) for request in history.permission_requests if alive),
        ]
        return [question for question in asked if question.mailbox.take() is None]


def _permission(run: RunFolder, effect: EffectHistory, asked: AgentActed) -> Question:
    """The question whether an agent may use a tool."""
    text = f"Allow the agent `{f'{asked.name_} {asked.target}'.strip()}`?"
    start = effect.start
    state = start.state if start is not None else None
    name = f"{effect.seq}-{asked.id}"
    return Question(run, effect.seq, text, (PERMIT, REJECT), None, None, state, asked.ts, True, name)


def _question(
    run: RunFolder, effect: EffectHistory, args: dict[str, Any], history: RunHistory, alive: bool
) -> Question:
    choices = args.get("choices")
    default, timeout_s = args.get("default"), args.get("timeout_s")
    start = effect.start
    return Question(
        run,
        effect.seq,
        str(args.get("question")),
        tuple(str(choice) for choice in choices) if isinstance(choices, list) else (),
        None if default is None else str(default),
        timeout_s if isinstance(timeout_s, int | float) else None,
        (start.state if start else None) or history.state,
        start.ts if start else None,
        alive,
    )


def find_question(target: str, number: int | None) -> Question:
    """The question to answer: the only open one, or number `number`. Raises UserError."""
    found = questions(target)
    if not found:
        run = find_run_folder(target)
        raise Failure("nothing-asked", f"{run.id} has no open question", f"see: llc status {run.id}")
    if number is not None:
        for question in found:
            if question.seq == number:
                return question
        numbers = ", ".join(str(question.seq) for question in found)
        raise Failure("nothing-asked", f"there is no question {number}", f"open questions: {numbers}")
    if len(found) > 1:
        listed = "; ".join(f"{question.seq}: {printable(question.text)[:80]}" for question in found)
        raise UserError("several-questions", f"{len(found)} open questions: {listed}", "use --question N")
    return found[0]


def answer(question: Question, text: str) -> str:
    """Answer a question and wake its run; the answer in its normal form (a number selects a choice).

    Raises UserError if the text is not a valid answer, or if the question has an answer already.
    """
    if len(text.encode("utf-8", "replace")) > MAX_ANSWER_BYTES:
        limit = MAX_ANSWER_BYTES >> 10
        raise UserError("bad-answer", f"an answer has at most {limit} KiB")
    accepted_answer = accepted(text, list(question.choices))
    if accepted_answer is None:
        if not question.choices:
            raise UserError("bad-answer", "the answer is empty")
        help = f"choices: {', '.join(question.choices)}"
        raise UserError("bad-answer", f"`{text[:80]}` is not one of the choices", help)
    mailbox = question.mailbox
    assert mailbox.answer_path is not None
    _create_file(mailbox.answer_path, {"question": question.text, "answer": accepted_answer})
    _wake(mailbox)
    return accepted_answer


def _create_file(path: str, content: dict[str, Any]) -> None:
    """Create the file atomically. Raises Failure if it exists."""
    scratch = f"{path}.{processes.getpid()}.new"
    folder = os.path.dirname(path)
    try:
        if not files.isdir(os.path.dirname(folder)):
            raise Failure("not-running", "the run has ended in the meantime")
        files.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = files.open_handle(scratch, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o600)
        try:
            with files.open(descriptor, "wb") as file:
                file.write(json.dumps(content).encode("ascii") + b"\n")
                file.flush()
                files.fsync(file.fileno())
            files.link(scratch, path)
        finally:
            files.unlink(scratch)
        files.sync_names(folder)
    except FileExistsError:
        message = "the question has an answer already"
        raise Failure("answered-already", message) from None
    except OSError as error:
        message = f"cannot write {path}: {reason(error)}"
        raise Failure("cannot-write", message) from None


def _wake(mailbox: Mailbox) -> None:
    """Wake the process that waits for the answer, if there is one."""
    assert mailbox.wake_path is not None
    with contextlib.suppress(OSError):
        descriptor = files.open_handle(mailbox.wake_path, files.O_WRONLY | files.O_NONBLOCK)
        try:
            files.write(descriptor, b"!")
        finally:
            files.close(descriptor)
