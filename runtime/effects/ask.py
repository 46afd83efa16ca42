"""Performer of the `ask` effect: a question to a person, in the terminal or for `llc answer`.

A waiting question uses two files in the folder of its run:

    answers/<seq>.json    the answer, written atomically and only once
    answers/<seq>.wake    a named pipe; writing to it wakes the waiting run

The answer file remains until the answer is recorded, so a run that is killed in between finds the answer
again. See `spec/people.md`.
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
# Seconds between two checks of the answer file, because the file system may not support named pipes.
_CHECK_INTERVAL = 5.0
# Seconds between two attempts to get the terminal while another question uses it.
_TERMINAL_RETRY_INTERVAL = 0.3
# Maximum length of an answer; no person types a longer answer.
MAX_ANSWER_BYTES = 64 * 1024
# Maximum length of a line that a terminal delivers, in bytes; it drops the rest.
MAX_LINE_BYTES = 4095
# Held by the question that uses the terminal.
_terminal_lock = threads.Lock()


def pick(text: str, choices: list[str]) -> str | None:
    """The choice that matches a text exactly, in another case, by number, or by prefix; None without one."""
    text = text.strip()
    if text in choices:
        return text
    folded = text.casefold()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    for matches in (
        [choice for choice in choices if choice.casefold() == folded],
        choices[number - 1 : number] if number else [],
        [choice for choice in choices if folded and choice.casefold().startswith(folded)],
    ):
        if len(matches) == 1:
            return matches[0]
    return None


def accepted(text: str, choices: list[str]) -> str | None:
    """The answer for a text; None if it is empty or matches no choice. choices: may be empty."""
    if choices:
        return pick(text, choices)
    return text.strip() or None


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Ask the question; return the answer as output. Raises `Interrupted`, after which it is asked again."""
    started_at = clock.monotonic()
    limit, limited_by = context.limit(args, own="action")
    default, choices = args.get("default"), args.get("choices") or ()
    if default is not None and choices and default not in choices:
        message = f"the default `{default}` is not one of the choices: {', '.join(map(str, choices))}"
        return failure(context, 1, kind="unknown-choice", message=message)
    if not context.has_input or (context.folder is None and context.on_prompt is None):
        return _without_person(args, context)
    mailbox = Mailbox(context.folder, int(context.effect_id.rpartition("/")[2]), args["question"])
    question = _Question(args, context, mailbox, None if limit is None else started_at + limit)
    try:
        answer, by = question.wait()
    finally:
        question.close()
    if answer is None and default is not None and limited_by == "action":
        answer, by = str(default), "default"
    duration_ms = round((clock.monotonic() - started_at + context.waited_s) * 1000)
    if answer is None:
        result = failure(context, 124, timed_out=limited_by)
        return {**result, "duration_ms": duration_ms, "limit_ms": round(max(limit or 0.0, 0.0) * 1000)}
    return {
        "output": answer,
        "stderr": "",
        "exit_code": 0,
        "by": by,
        "duration_ms": duration_ms,
        "elapsed_ms": context.elapsed_ms(),
    }


def _without_person(args: dict[str, Any], context: Context) -> dict[str, Any]:
    """The result if no person can be asked: with `--no-input`, or without a terminal and a recorded run."""
    if args.get("default") is None:
        reason = "there is neither a terminal nor a run that `llc answer` can find"
        if not context.has_input:
            reason = "the run was started with `--no-input`"
        message = f"no person can be asked: {reason}; give the question a `default`"
        return failure(context, 1, kind="nobody", message=message)
    result = failure(context, 0)
    return {**result, "output": str(args["default"]), "by": "default"}


class Mailbox:
    """The answer file and the wake-up pipe of a question.

    folder: folder of the run; None if the run is not recorded. name: sequence number of the effect; for a
    question of an agent, an id of its own.
    """

    def __init__(self, folder: str | None, name: int | str, question: str) -> None:
        self.question = question
        base = os.path.join(folder, FOLDER, str(name)) if folder is not None else None
        self.answer_path = f"{base}.json" if base is not None else None
        self.wake_path = f"{base}.wake" if base is not None else None
        self._descriptors: list[int] = []

    def open(self) -> int:
        """Open the pipe; return a descriptor that becomes readable for an answer, or -1 on failure."""
        if self.wake_path is None:
            return -1
        try:
            files.makedirs(os.path.dirname(self.wake_path), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                pipes.mkfifo(self.wake_path, 0o600)
            flags = files.O_NONBLOCK
            self._descriptors.append(files.open_handle(self.wake_path, files.O_RDONLY | flags))
            # An own writer, because a pipe without writers is always readable.
            self._descriptors.append(files.open_handle(self.wake_path, files.O_WRONLY | flags))
        except OSError:
            return -1
        return self._descriptors[0]

    def take(self) -> str | None:
        """The answer to this question; None if there is none yet."""
        if self.answer_path is None:
            return None
        try:
            with open_regular(self.answer_path) as file:
                fields = json.loads(file.read(4 * MAX_ANSWER_BYTES))
            if fields["question"] == secrets.masked(self.question) and isinstance(fields["answer"], str):
                return str(fields["answer"])
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


class _Question:
    """A waiting question; uses the terminal if there is one and no other question uses it."""

    def __init__(
        self, args: dict[str, Any], context: Context, mailbox: Mailbox, deadline: float | None
    ) -> None:
        self._choices = [str(choice) for choice in args.get("choices") or ()]
        self._default = args.get("default")
        self._context = context
        self._mailbox = mailbox
        self._deadline = deadline
        self._wants_terminal = context.on_prompt is not None
        self._has_terminal = False
        self._typed = b""
        self._poller = pipes.poll()
        self._poller.register(context.interrupt, pipes.POLLIN)
        self._wake = mailbox.open()
        if self._wake >= 0:
            self._poller.register(self._wake, pipes.POLLIN)

    def close(self) -> None:
        self._release_terminal()
        self._mailbox.close()

    def wait(self) -> tuple[str | None, str]:
        """Wait for the answer; return it with its origin, or (None, "") after a timeout."""
        context, poller = self._context, self._poller
        checked_at = 0.0
        while True:
            context.interrupt.check()
            now = clock.monotonic()
            if not checked_at or now - checked_at >= _CHECK_INTERVAL:
                checked_at = now
                answer = self._mailbox.take()
                if answer is not None:
                    return answer, "answer"
            wait = _CHECK_INTERVAL if self._deadline is None else self._deadline - now
            if wait <= 0:
                return None, ""
            if self._wants_terminal and not self._has_terminal:
                self._acquire_terminal()
            wait = min(wait, _CHECK_INTERVAL)
            if self._wants_terminal and not self._has_terminal:
                wait = min(wait, _TERMINAL_RETRY_INTERVAL)
            if context.on_tick is not None:
                wait = min(wait, TICK)
            ready = poller.poll(milliseconds(wait))
            context.interrupt.check()
            for descriptor, _ in ready:
                if descriptor == self._wake:
                    self._mailbox.drain()
                    checked_at = 0.0
                elif descriptor == 0:
                    answer = self._read()
                    if answer is not None:
                        return answer, "terminal"
            if context.on_tick is not None and not ready:
                context.on_tick()

    # --- terminal -------------------------------------------------------------------------------

    def _acquire_terminal(self) -> None:
        if not _terminal_lock.acquire(blocking=False):
            return
        self._has_terminal = True
        # Discard input that was typed before the question was shown.
        with contextlib.suppress(terminal.TerminalError, OSError):
            terminal.tcflush(0, terminal.TCIFLUSH)
        self._poller.register(0, pipes.POLLIN)
        self._prompt()

    def _release_terminal(self) -> None:
        if self._has_terminal:
            self._has_terminal = False
            with contextlib.suppress(KeyError):
                self._poller.unregister(0)
            _terminal_lock.release()

    def _prompt(self, problem: str = "") -> None:
        assert self._context.on_prompt is not None
        choices = " / ".join(self._choices)
        label = " ".join(part for part in (choices, f"[{self._default}]" if self._default else "") if part)
        self._context.on_prompt((f"{problem}\n" if problem else "") + (f"{label}: " if label else "answer: "))

    def _read(self) -> str | None:
        """Read typed input; return the answer, None if there is no valid answer yet."""
        try:
            data = files.read(0, 4096)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            # The terminal was closed or its input ended (Ctrl-D); `llc answer` still works.
            self._wants_terminal = False
            self._release_terminal()
            assert self._context.on_prompt is not None
            self._context.on_prompt(f"\nto answer: llc answer {self._context.run_id}\n")
            return None
        # A line that exceeds this limit also exceeds MAX_LINE_BYTES and is refused below.
        self._typed = (self._typed + data)[-MAX_ANSWER_BYTES:]
        if not self._typed.endswith(b"\n"):
            return None
        line, self._typed = self._typed, b""
        if len(line) > MAX_LINE_BYTES:
            self._prompt(
                f"the line is too long: a terminal delivers only {MAX_LINE_BYTES:,} bytes of a line; "
                f"for a longer answer: llc answer {self._context.run_id} ANSWER"
            )
            return None
        typed = line.decode("utf-8", "replace").strip()
        if not typed and self._default is not None:
            return str(self._default)
        answer = accepted(typed, self._choices)
        if answer is None:
            names = ", ".join(self._choices)
            self._prompt(f"please answer with one of: {names}" if names else "please type an answer")
        return answer
