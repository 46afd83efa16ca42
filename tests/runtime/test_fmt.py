"""`llc fmt`: files are formatted in place and atomically; check, diff and pipe modes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNFORMATTED = "(define (f x)\n (g x)\n) ; done\n"
FORMATTED = "(define (f x)\n  (g x)) ; done\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an unformatted flow in `.loops/` and a formatted flow elsewhere."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops/ugly.sexp").write_text(UNFORMATTED)
    (tmp_path / "neat.sexp").write_text(FORMATTED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fmt(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `llc fmt`."""
    completed = subprocess.run(
        [sys.executable, "-m", "llc", "fmt", *words], input=stdin, capture_output=True, check=False
    )
    return completed.returncode, completed.stdout.decode(), completed.stderr.decode()


def test_file_is_formatted_in_place(project: Path) -> None:
    """A file is given by name or path; formatted files are not touched, permissions and links are kept."""
    unformatted, formatted, link = project / ".loops/ugly.sexp", project / "neat.sexp", project / "link.sexp"
    unformatted.chmod(0o750)
    link.symlink_to(unformatted)
    before = formatted.stat()
    assert fmt("link.sexp", "neat.sexp") == (0, "formatted link.sexp\n", "")
    assert unformatted.read_text() == FORMATTED
    assert unformatted.stat().st_mode & 0o777 == 0o750
    assert link.is_symlink()
    assert (formatted.stat().st_ino, formatted.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert fmt("ugly", ".") == (0, "", "")
    assert sorted(os.listdir(project / ".loops")) == ["ugly.sexp"]


def test_project_is_formatted_by_default(project: Path) -> None:
    """`llc fmt` without arguments formats `.loops/`; a folder stands for all files below it."""
    assert fmt() == (0, "formatted .loops/ugly.sexp\n", "")
    (project / "a/b").mkdir(parents=True)
    (project / "a/b/x.sexp").write_text(UNFORMATTED)
    (project / "a/b/x.txt").write_text(UNFORMATTED)
    assert fmt("a") == (0, "formatted a/b/x.sexp\n", "")


def test_check_writes_nothing_and_exits_with_1(project: Path) -> None:
    """For CI; the output names the files."""
    assert fmt("--check", "ugly", "neat.sexp") == (1, "would change .loops/ugly.sexp\n", "")
    assert (project / ".loops/ugly.sexp").read_text() == UNFORMATTED
    assert fmt("--check", "neat.sexp") == (0, "", "")


def test_diff_shows_the_changes(project: Path) -> None:
    """The output is a unified diff that `patch` accepts; nothing is written."""
    code, out, err = fmt("--diff", ".loops/ugly.sexp", "neat.sexp")
    assert (code, err) == (0, "")
    assert (project / ".loops/ugly.sexp").read_text() == UNFORMATTED
    subprocess.run(["patch", "-p0", "-s"], input=out.encode(), check=True)
    assert (project / ".loops/ugly.sexp").read_text() == FORMATTED
    assert fmt("--diff", "--check", ".") == (0, "", "")


def test_stdin_goes_to_stdout(project: Path) -> None:
    """`-` reads standard input and writes the formatted text or the difference."""
    assert fmt("-", stdin=UNFORMATTED.encode()) == (0, FORMATTED, "")
    assert fmt("-", "--check", stdin=UNFORMATTED.encode()) == (1, "", "")
    assert "+++ <stdin>" in fmt("-", "--diff", stdin=b"(a\n)")[1]


def test_invalid_file_is_not_changed(project: Path) -> None:
    """The errors of all files are shown, the exit code is 2; the other files are formatted."""
    for name, text in (("a", "(a"), ("b", '"b')):
        (project / f"{name}.sexp").write_text(text)
    code, out, err = fmt("a.sexp", "ugly", "b.sexp")
    assert (code, out) == (2, "formatted .loops/ugly.sexp\n")
    assert "error[unclosed-form]" in err
    assert "error[unterminated-string]" in err
    assert (project / "a.sexp").read_text() == "(a"
    assert fmt("-", stdin=b"\xff")[0] == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ugyl"], "did you mean `ugly`?"),
        (["gone.sexp"], "no file `gone.sexp`"),
        (["x.yaml"], "YAML is not formatted"),
        (["-", "ugly"], "cannot be combined with other files"),
        (["pipe.sexp"], "cannot read `pipe.sexp`"),
    ],
)
def test_file_that_cannot_be_formatted_is_reported(project: Path, words: list[str], expected: str) -> None:
    """Misspelt names and files of another kind are a diagnostic with exit code 2."""
    (project / "x.yaml").write_text("a: 1\n")
    (project / "pipe.sexp").symlink_to("/dev/null")
    code, _, err = fmt(*words)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


def test_file_is_kept_if_it_cannot_be_written(project: Path) -> None:
    """If the disk is full, the old file is complete and no temporary file is left."""
    command = f"ulimit -f 0; exec {sys.executable} -m llc fmt ugly"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[cannot-write]: cannot write" in done.stderr
    assert (project / ".loops/ugly.sexp").read_text() == UNFORMATTED
    assert os.listdir(project / ".loops") == ["ugly.sexp"]
