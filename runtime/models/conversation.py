"""Conversation of a run: the previous tasks' prompts, answers and files, for use in later tasks.

Part of the state of a run: stored in checkpoints and rebuilt from the journal on resume. A task sees the
tasks that had ended when it started. The number of turns is limited; the oldest are dropped.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MAX_TURNS = 50
# Maximum length of a kept prompt or answer, in characters.
MAX_TEXT = 32 << 10
_TURN_FIELDS = frozenset(("task", "prompt", "content", "status", "files", "is_recorded"))


class Turns:
    """The turns of a run. turns: {task, prompt, content, status, files, is_recorded}, oldest first."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []

    def observe(self, args: dict[str, Any], answer: dict[str, Any]) -> None:
        """Add a finished task. args: arguments of its effect. answer: result of the effect."""
        turn, result = answer.get("turn"), answer.get("result")
        if not isinstance(turn, dict) or not isinstance(result, dict):
            return
        content = result.get("content")
        self.turns.append(
            {
                "task": args["name"],
                "prompt": bounded(turn["prompt"]),
                "content": bounded(content if isinstance(content, str) else ""),
                "status": result["status"],
                "files": turn["files"],
                "is_recorded": turn["is_recorded"],
            }
        )
        del self.turns[:-MAX_TURNS]

    @property
    def files(self) -> list[str]:
        """The files that the latest task received."""
        return list(self.turns[-1]["files"]) if self.turns else []

    def conversation(self, max_turns: int | None) -> list[tuple[str, str]]:
        """The (prompt, answer) pairs of recorded tasks that did not fail, oldest first.

        max_turns: limit of the number of turns; None for all.
        """
        turns = [turn for turn in self.turns if turn["is_recorded"] and turn["status"] != "FAILED"]
        if max_turns is not None:
            turns = turns[-max_turns:] if max_turns else []
        return [(turn["prompt"], turn["content"]) for turn in turns if turn["content"].strip()]

    def outputs(self, is_full: bool) -> str:
        """The outputs of the previous tasks as a section of a prompt; '' without previous tasks.

        is_full: whether to include the answers; otherwise only the names of the files.
        """
        if not self.turns:
            return ""
        parts = []
        for turn in self.turns:
            head = f'<output task="{turn["task"]}" status="{turn["status"]}">'
            files = f"files: {', '.join(turn['files'])}\n" if turn["files"] else ""
            parts.append(f"{head}\n{turn['content'] if is_full else files}\n</output>")
        content = "\n".join(parts)
        return f"<previous_outputs>\n{content}\n</previous_outputs>"

    def close(self) -> None:
        """Release nothing: turns are plain data."""

    def save(self) -> Any:
        return self.turns or None

    def restore(self, saved: Any) -> bool:
        if saved is None:
            saved = []
        if not isinstance(saved, list) or not all(
            isinstance(turn, dict) and turn.keys() == _TURN_FIELDS for turn in saved
        ):
            return False
        self.turns = list(saved)
        return True


def bounded(text: str) -> str:
    """A text of at most about `MAX_TEXT` characters: a note replaces the middle of a longer text."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[-half:]}"
