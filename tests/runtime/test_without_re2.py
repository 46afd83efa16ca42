"""Without RE2 (musl has no wheel): a helper process matches patterns, with limits and a note."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.ir.regex import compiled, encoded
from llc.runtime.effects.regex_worker import answer

Llc = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llc_without_re2(tmp_path: Path) -> Llc:
    """Runs `llc` in a project, in processes that cannot import `re2`."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/re2.py").write_text("raise ModuleNotFoundError('there is no RE2 here', name='re2')\n")
    (tmp_path / ".loops").mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llc", *args]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    return run


def test_functions_match_in_a_helper_with_one_note(llc_without_re2: Llc) -> None:
    """The values are those of RE2; the note is printed once on standard error."""
    done = llc_without_re2(
        "run",
        "-e",
        r"""(list (regex-match "(a+)(é)?$" "xaé") (regex-find-all "\\d+" "é1 22")
                  (regex-replace "n" "banana" "<\\0>") (regex-match "a$" "a\n"))""",
    )
    assert done.returncode == 0
    assert json.loads(done.stdout) == [["aé", "a", "é"], ["1", "22"], "ba<n>a<n>a", None]
    assert done.stderr.count("google-re2 is not installed") == 1


def test_a_pattern_of_exponential_time_is_a_fault(llc_without_re2: Llc) -> None:
    """The run continues, and the next pattern is matched."""
    slow = f"""(try (regex-match "(a*)*b" "{"a" * 60}c") (catch e (get e "kind")))"""
    done = llc_without_re2("run", "-e", f'(list {slow} (regex-match "b" "abc"))')
    assert json.loads(done.stdout) == ["too-large", ["b"]]


def test_a_loop_evaluates_by_a_pattern(llc_without_re2: Llc, tmp_path: Path) -> None:
    """`output_contains` in a run; `validate` reports an unsupported pattern, `doctor` the missing package."""
    loop = tmp_path / ".loops/check.yaml"
    state = "action: 'echo 12 passed', evaluate: {type: output_contains, pattern: '%s'}"
    rest = "on_success: done, on_failure: failed, on_error: failed"
    ends = "  done: {terminal: true}\n  failed: {terminal: true}\n"
    text = "name: check\ninitial: a\nstates:\n  a: {%s, %s}\n" + ends
    loop.write_text(text % (state % r"^\d+ passed$", rest))
    done = llc_without_re2("run", "check", "--json")
    assert json.loads(done.stdout)["final_state"] == "done", done.stderr
    loop.write_text(text % (state % r"(?=x)", rest))
    refused = llc_without_re2("validate", "check")
    assert refused.returncode == 2
    assert "invalid perl operator" in refused.stderr + refused.stdout
    assert "google-re2 is not installed" in llc_without_re2("doctor").stdout


def test_ignore_files_are_read(llc_without_re2: Llc, tmp_path: Path) -> None:
    """Without git; a pattern with many stars takes no exponential time."""
    (tmp_path / ".gitignore").write_text("secret-*.txt\n" + "a*" * 40 + "b\n")
    (tmp_path / "secret-plans.txt").write_text("the word is swordfish\n")
    (tmp_path / ("a" * 200)).write_text("swordfish, hidden by the rest of the pattern\n")
    (tmp_path / "open.txt").write_text("swordfish is here\n")
    done = llc_without_re2("run", "-e", """(get_context "swordfish")""")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["open.txt"]


PATTERNS = [
    *("a", "a|b", "(a)(b)?", "^a", "a$", "a\\z", "(?m)^b$", "(?i)B", "(?s)a.b", "a.b"),
    *("(?:ab)+", "(?P<n>a)", "(?<n>b)", "[ab]", "[^a]", "[]a]", "[^]a]", "[a-b]{2}"),
    *("[[:alpha:]]+", "[[:^alpha:]]", "[[:digit:][:space:]]", "\\bb", "\\d\\w\\s", "\\."),
    *("\\/", "[\\d.]", "\\x61", "\\x{e9}", "é", "[é]", ".", "", "a*", "a*?", "a{2,}", "a{,2}"),
    *("\\Aa", "\\t", "[a&&b]", "[[]", "[a[]", "{", "a{", "a{1", "}", "(?i:A)b", "[\\]]"),
    *("[\\\\]", "$", "^", "(", ")", "[", "a)", "*", "a**", "a++", "a*+", "(?=a)", "(?!a)"),
    *("(?<=a)", "(?<!a)", "\\1", "(a)\\1", "(?P=n)", "(?>a)", "(?#c)a", "a{1001}", "x{2}{2}"),
    *("(?a)b", "(?x) a", "(?L)b", "\\", "[a-", "[b-a]", "a{2,1}", "(?P<1>a)", "(?(1)a|b)"),
    *("(?u)é", "\\Z", "\\N{BULLET}", "\\u0061", "(?P<n>a)(?P<n>b)", "[[:nope:]]"),
    *("\\x{110000}",),
]  # fmt: skip
TEXTS = [
    "",
    "a",
    "ab",
    "b\na\nb",
    "aab",
    "A.B",
    "é1 a\t",
    "aé\n",
    "]",
    "[",
    "a&b",
    "{",
    "a{1",
    "}",
    "\\",
    "1b ",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_helper_matches_like_re2(pattern: str) -> None:
    """Or it refuses the pattern: a pattern that both accept has the same matches."""

    def ours(text: str | None) -> Any:
        return answer({"pattern": pattern, "text": text, "max_matches": None, "limit": 5})

    try:
        expression = compiled(pattern)
    except ValueError:
        assert "error" in ours(None)
        return
    if "error" in ours(None):
        assert "RE2" in ours(None)["error"] or "(?" in pattern or pattern in ("x{2}{2}", "a**")
        return
    for text in TEXTS:
        data = encoded(text)
        rows_of_re2: list[Any] = []
        for match in expression.finditer(data):
            spans = [match.span(group) for group in range(len(match.groups()) + 1)]  # type: ignore[attr-defined]
            row = [None if span == (-1, -1) else list(span) for span in spans]
            is_between = match.start() == len(data) or data[match.start()] & 0xC0 != 0x80
            if is_between and row not in rows_of_re2:
                rows_of_re2.append(row)
        rows = ours(text)["matches"]
        unique = [row for at, row in enumerate(rows) if row not in rows[:at]]
        assert unique == rows_of_re2, text
