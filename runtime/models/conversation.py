"""What the tasks of a run said so far: for the conversation, the outputs and the files of later ones.

It is part of a run: kept in checkpoints, and made again from the journal when a run is resumed. Tasks
that run at the same time see what had ended when they began. Bounded; the oldest is forgotten.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MAX_TURNS = 50
# Characters of an instruction or an output that are kept.
MAX_TEXT = 32 << 10
_NAMES = frozenset(("task", "prompt", "content", "status", "files", "is_recorded"))


class Turns:
    """turns: {task, prompt, content, status, files, is_recorded}, the latest last."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []

    def observe(self, args: dict[str, Any], answer: dict[str, Any]) -> None:
        """Note a task that is done: the arguments of its effect, and the effect's result."""
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
        """The files that the latest task saw."""
        return list(self.turns[-1]["files"]) if self.turns else []

    def conversation(self, most: int | None) -> list[tuple[str, str]]:
        """What was asked and answered, the latest last; failures are no part of it."""
        kept = [turn for turn in self.turns if turn["is_recorded"] and turn["status"] != "FAILED"]
        kept = kept if most is None else kept[len(kept) - most :] if most else []
        return [(turn["prompt"], turn["content"]) for turn in kept if turn["content"].strip()]

    def outputs(self, is_full: bool) -> str:
        """What the tasks before gave, as a part of a prompt; '' where there were none."""
        if not self.turns:
            return ""
        parts = []
        for turn in self.turns:
            head = f'<output task="{turn["task"]}" status="{turn["status"]}">'
            files = f"files: {', '.join(turn['files'])}\n" if turn["files"] else ""
            parts.append(f"{head}\n{turn['content'] if is_full else files}\n</output>")
        inside = "\n".join(parts)
        return f"<previous_outputs>\n{inside}\n</previous_outputs>"

    def close(self) -> None:
        """Release nothing: turns are plain data."""

    def save(self) -> Any:
        return self.turns or None

    def restore(self, saved: Any) -> bool:
        if saved is None:
            saved = []
        if not isinstance(saved, list) or not all(
            isinstance(turn, dict) and turn.keys() == _NAMES for turn in saved
        ):
            return False
        self.turns = list(saved)
        return True


def bounded(text: str) -> str:
    """A text with what is too much of it left out, which it says."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[-half:]}"
