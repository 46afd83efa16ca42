"""Prometheus text format: one metric with its samples."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def gauge(name: str, help: str, samples: Iterable[tuple[Mapping[str, Any], Any]]) -> str:
    """Format the lines of a gauge.

    samples: labels with their values (any text), and the value of each sample.
    """
    lines = [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
    for labels, number in samples:
        shown = ",".join(f'{label}="{_value(value)}"' for label, value in labels.items())
        lines.append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")
    return "".join(line + "\n" for line in lines)


def _value(value: Any) -> str:
    """Format the value of a label; characters that UTF-8 cannot represent are replaced."""
    return str(value).encode("utf-8", "replace").decode().translate(_ESCAPED)
