"""The `ask` effect: a question to a person, answered in the terminal, from elsewhere, or by its default.

A question that waits has a place in the folder of its run, so that `llc answer` finds it:

    answers/<seq>.json    the answer, put there whole and only once (`answering`)
    answers/<seq>.wake    a pipe with a name; what is written to it wakes the run that waits

The answer stays there until it is on record, so a run that is killed in between finds it again.
See `spec/people.md`.
"""

from __future__ import annotations

import contextlib
import json
import os.path

from ..host import clock, files, pipes, secrets, terminal, threads
from ..host.effect_context import TICK, Context, milliseconds
from ..host.paths import open_regular
from .performers import Parts
from .process import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FOLDER = "answers"
# A run that waits looks by itself so often: a pipe may be impossible where the project is.
_LOOK_AGAIN = 5.0
# How often a question that waits for another one to be answered looks for the terminal.
_TURN = 0.3
# A longer answer is refused: no person types it.
LONGEST_ANSWER = 64 * 1024
# What a terminal gives of a line, in bytes: it drops the rest.
LONGEST_LINE = 4095
# The terminal is one, questions may be several.
_terminal = threads.Lock()


def pick(text: str, choices: list[str]) -> str | None:
    """The choice that a person means: as it stands, in another case, by its number, by how it begins."""
    text = text.strip()
    if text in choices:
        return text
    low = text.casefold()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    for found in (
        [choice for choice in choices if choice.casefold() == low],
        choices[number - 1 : number] if number else [],
        [choice for choice in choices if low and choice.casefold().startswith(low)],
    ):
        if len(found) == 1:
            return found[0]
    return None


def accepted(text: str, choices: list[str]) -> str | None:
    """The answer that a text is to a question with these choices, if any; None where it is none."""
    if choices:
        return pick(text, choices)
    return text.strip() or None


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """The answer as an action's output. Raises `Interrupted`; the question is asked again then."""
    began = clock.monotonic()
    limit, limited_by = context.limit(args, own="action")
    default, choices = args.get("default"), args.get("choices") or ()
    if default is not None and choices and default not in choices:
        message = f"the default `{default}` is not one of the choices: {', '.join(map(str, choices))}"
        return failure(context, 1, kind="unknown-choice", message=message)
    if not context.has_input or (context.folder is None and context.on_prompt is None):
        return _alone(args, context)
    mailbox = Mailbox(context.folder, int(context.effect_id.rpartition("/")[2]), args["question"])
    waiting = _Waiting(args, context, mailbox, None if limit is None else began + limit)
    try:
        answer, by = waiting.wait()
    finally:
        waiting.close()
    if answer is None and default is not None and limited_by == "action":
        answer, by = str(default), "default"
    took = round((clock.monotonic() - began + context.waited_s) * 1000)
    if answer is None:
        result = failure(context, 124, timed_out=limited_by)
        return {**result, "duration_ms": took, "limit_ms": round(max(limit or 0.0, 0.0) * 1000)}
    return {
        "output": answer,
        "stderr": "",
        "exit_code": 0,
        "by": by,
        "duration_ms": took,
        "elapsed_ms": context.elapsed_ms(),
    }


def _alone(args: dict[str, Any], context: Context) -> dict[str, Any]:
    """The result where no person may be asked, or none can be: without a terminal and a recorded run."""
    if args.get("default") is None:
        why = "there is neither a terminal nor a run that `llc answer` can find"
        if not context.has_input:
            why = "the run was started with `--no-input`"
        message = f"no person can be asked: {why}; give the question a `default`"
        return failure(context, 1, kind="nobody", message=message)
    result = failure(context, 0)
    return {**result, "output": str(args["default"]), "by": "default"}


class Mailbox:
    """Where the answer to a question comes to; `folder` is the run's, None where it has none.

    name: the number of the effect, and for an agent that asks an id of its own.
    """

    def __init__(self, folder: str | None, name: int | str, question: str) -> None:
        self.question = question
        base = os.path.join(folder, FOLDER, str(name)) if folder is not None else None
        self.answer_path = f"{base}.json" if base is not None else None
        self.wake_path = f"{base}.wake" if base is not None else None
        self._descriptors: list[int] = []

    def open(self) -> int:
        """What becomes readable when an answer may have come; -1 where that cannot be had."""
        if self.wake_path is None:
            return -1
        try:
            files.makedirs(os.path.dirname(self.wake_path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                pipes.mkfifo(self.wake_path, 0o600)
            flags = files.O_NONBLOCK
            self._descriptors.append(files.open_handle(self.wake_path, files.O_RDONLY | flags))
            # Without a writer of our own it would be readable for ever after the first one closed it.
            self._descriptors.append(files.open_handle(self.wake_path, files.O_WRONLY | flags))
        except OSError:
            return -1
        return self._descriptors[0]

    def take(self) -> str | None:
        """The answer, if there is one to this question."""
        if self.answer_path is None:
            return None
        try:
            with open_regular(self.answer_path) as file:
                found = json.loads(file.read(4 * LONGEST_ANSWER))
            if found["question"] == secrets.masked(self.question) and isinstance(found["answer"], str):
                return str(found["answer"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass
        return None

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            files.read(self._descriptors[0], 4096)

    def close(self) -> None:
        for descriptor in self._descriptors:
            files.close(descriptor)
        if self._descriptors and self.wake_path is not None:
            with contextlib.suppress(OSError):
                files.unlink(self.wake_path)
        self._descriptors.clear()


class _Waiting:
    """One question that waits, in the terminal if there is one and no other question has it."""

    def __init__(self, args: dict[str, Any], context: Context, mailbox: Mailbox, end: float | None) -> None:
        self._choices = [str(choice) for choice in args.get("choices") or ()]
        self._default = args.get("default")
        self._context = context
        self._mailbox = mailbox
        self._end = end
        self._wants_terminal = context.on_prompt is not None
        self._has_terminal = False
        self._typed = b""
        self._poller = pipes.poll()
        self._poller.register(context.interrupt, pipes.POLLIN)
        self._wake = mailbox.open()
        if self._wake >= 0:
            self._poller.register(self._wake, pipes.POLLIN)

    def close(self) -> None:
        self._release()
        self._mailbox.close()

    def wait(self) -> tuple[str | None, str]:
        """The answer, None where the time was over; and by whom it is."""
        context, poller = self._context, self._poller
        looked = 0.0
        while True:
            context.interrupt.check()
            now = clock.monotonic()
            if not looked or now - looked >= _LOOK_AGAIN:
                looked = now
                answer = self._mailbox.take()
                if answer is not None:
                    return answer, "answer"
            left = _LOOK_AGAIN if self._end is None else self._end - now
            if left <= 0:
                return None, ""
            if self._wants_terminal and not self._has_terminal:
                self._seize()
            left = min(left, _LOOK_AGAIN, _TURN if self._wants_terminal and not self._has_terminal else left)
            if context.on_tick is not None:
                left = min(left, TICK)
            ready = poller.poll(milliseconds(left))
            context.interrupt.check()
            for descriptor, _ in ready:
                if descriptor == self._wake:
                    self._mailbox.drain()
                    looked = 0.0
                elif descriptor == 0:
                    answer = self._read()
                    if answer is not None:
                        return answer, "terminal"
            if context.on_tick is not None and not ready:
                context.on_tick()

    # --- in the terminal ------------------------------------------------------------------------

    def _seize(self) -> None:
        if not _terminal.acquire(blocking=False):
            return
        self._has_terminal = True

        # What was typed before the question was read is no answer to it.
        with contextlib.suppress(terminal.TerminalError, OSError):
            terminal.tcflush(0, terminal.TCIFLUSH)
        self._poller.register(0, pipes.POLLIN)
        self._prompt()

    def _release(self) -> None:
        if self._has_terminal:
            self._has_terminal = False
            with contextlib.suppress(KeyError):
                self._poller.unregister(0)
            _terminal.release()

    def _prompt(self, trouble: str = "") -> None:
        assert self._context.on_prompt is not None
        asked = " / ".join(self._choices)
        shown = " ".join(part for part in (asked, f"[{self._default}]" if self._default else "") if part)
        self._context.on_prompt((f"{trouble}\n" if trouble else "") + (f"{shown}: " if shown else "answer: "))

    def _read(self) -> str | None:
        """The answer that was typed, if it is one by now."""
        try:
            data = files.read(0, 4096)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            # The terminal is gone or its input was closed (Ctrl-D); `llc answer` still works.
            self._wants_terminal = False
            self._release()
            assert self._context.on_prompt is not None
            self._context.on_prompt(f"\nto answer: llc answer {self._context.run_id}\n")
            return None
        self._typed = (self._typed + data)[-LONGEST_ANSWER:]
        if not self._typed.endswith(b"\n"):
            return None
        typed, self._typed = self._typed.decode("utf-8", "replace"), b""
        if len(typed.encode()) > LONGEST_LINE:
            self._prompt(
                f"a terminal drops what stands behind {LONGEST_LINE:,} bytes of a line; "
                f"a longer answer is given by: llc answer {self._context.run_id} ANSWER"
            )
            return None
        typed = typed.strip()
        if not typed and self._default is not None:
            return str(self._default)
        answer = accepted(typed, self._choices)
        if answer is None:
            names = ", ".join(self._choices)
            self._prompt(f"please answer with one of: {names}" if names else "please type an answer")
        return answer
