"""Forged images are refused with `bad-image`, or their effects are limited; they cause no internal error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llc.ir.text import parse_program
from llc.ir.verify import verify
from llc.vm.code.emit import emit
from llc.vm.code.image import Image
from llc.vm.code.lift import lift

HUGE = 10**400
TEXT = """program p entry f
function f() locals(a)
  state s
    perform {} -> a then t
  state t
    return get(a, "exit_code")
"""


def run(folder: Path, image: Image) -> subprocess.CompletedProcess[str]:
    (folder / "x.llb").write_bytes(image.to_bytes())
    command = [sys.executable, "-m", "llc", "run", "x.llb"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    "effect",
    [
        'shell map("command", 5)',
        'shell map("command", "true", "cwd", 5)',
        'shell map("command", "true", "timeout_s", "soon")',
        "shell map()",
        'env map("names", list(1.5))',
        'env map("names", null)',
        'shell map("command", null)',
        'agent map("command", "x", "argv", "x")',
        'ask map("question", list())',
        'sleep map("seconds", "a")',
        'tool map("name", 5, "args", 5)',
    ],
)
def test_effect_arguments_of_a_wrong_type_are_refused(tmp_path: Path, effect: str) -> None:
    """The message names the effect and the argument."""
    done = run(tmp_path, emit(parse_program(TEXT.format(effect), "x.ir")))
    assert (done.returncode == 70, "error[bad-image]: " in done.stderr) == (False, True), done.stderr
    assert f"the effect `{effect.split()[0]}`" in done.stderr


@pytest.mark.parametrize("name", ["timeout_s", "deadline_ms"])
def test_time_limit_beyond_the_float_range_is_ignored(tmp_path: Path, name: str) -> None:
    """Arithmetic with such a number would overflow."""
    text = TEXT.format(f'shell map("command", "true", "{name}", {HUGE})')
    done = run(tmp_path, emit(parse_program(text, "x.ir")))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["max_iterations", "timeout_ms", "budget_usd", "budget_calls"])
@pytest.mark.parametrize("bound", [HUGE, -1, float("nan"), float("inf"), 10**16])
def test_limits_out_of_range_are_refused(name: str, bound: float) -> None:
    """Verification itself does not overflow."""
    image = emit(parse_program(TEXT.format('shell map("command", "true")'), "x.ir"))
    image.meta["limits"] = {**image.meta["limits"], name: bound}
    assert any(name in diagnostic.message for diagnostic in verify(lift(image)))
