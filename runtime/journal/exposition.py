"""Text format of Prometheus: one metric with its samples."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def gauge(name: str, help: str, samples: Iterable[tuple[Mapping[str, Any], Any]]) -> str:
    """The lines of a gauge. samples: labels, whose values may be any text, each with a number."""
    lines = [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
    for labels, number in samples:
        shown = ",".join(f'{label}="{_value(value)}"' for label, value in labels.items())
        lines.append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")
    return "".join(line + "\n" for line in lines)


def _value(value: Any) -> str:
    """The value of a label; a character that UTF-8 cannot express is replaced."""
    return str(value).encode("utf-8", "replace").decode().translate(_ESCAPED)
