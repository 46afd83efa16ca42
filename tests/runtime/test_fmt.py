"""`llc fmt`: files are formatted in place and atomically; check, diff and pipe modes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UGLY = "(define (f x)\n (g x)\n) ; done\n"
NEAT = "(define (f x)\n  (g x)) ; done\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an ugly flow of `.loops/` and a neat one elsewhere."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops/ugly.sexp").write_text(UGLY)
    (tmp_path / "neat.sexp").write_text(NEAT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fmt(*words: str, given: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `llc fmt`."""
    done = subprocess.run(
        [sys.executable, "-m", "llc", "fmt", *words], input=given, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_file_is_laid_out_in_place(project: Path) -> None:
    """By name or path; what is neat is not touched, permissions and links stay."""
    ugly, neat, link = project / ".loops/ugly.sexp", project / "neat.sexp", project / "link.sexp"
    ugly.chmod(0o750)
    link.symlink_to(ugly)
    before = neat.stat()
    assert fmt("link.sexp", "neat.sexp") == (0, "formatted link.sexp\n", "")
    assert ugly.read_text() == NEAT
    assert ugly.stat().st_mode & 0o777 == 0o750
    assert link.is_symlink()
    assert (neat.stat().st_ino, neat.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert fmt("ugly", ".") == (0, "", "")
    assert sorted(os.listdir(project / ".loops")) == ["ugly.sexp"]


def test_without_files_those_of_the_project_are_laid_out(project: Path) -> None:
    """`llc fmt` alone means `.loops/`; a folder means what is below it."""
    assert fmt() == (0, "formatted .loops/ugly.sexp\n", "")
    (project / "a/b").mkdir(parents=True)
    (project / "a/b/x.sexp").write_text(UGLY)
    (project / "a/b/x.txt").write_text(UGLY)
    assert fmt("a") == (0, "formatted a/b/x.sexp\n", "")


def test_check_writes_nothing_and_exits_with_1(project: Path) -> None:
    """For CI: what would change is named."""
    assert fmt("--check", "ugly", "neat.sexp") == (1, "would change .loops/ugly.sexp\n", "")
    assert (project / ".loops/ugly.sexp").read_text() == UGLY
    assert fmt("--check", "neat.sexp") == (0, "", "")


def test_diff_shows_what_would_change(project: Path) -> None:
    """A unified diff that `patch` takes, and nothing is written."""
    code, out, err = fmt("--diff", ".loops/ugly.sexp", "neat.sexp")
    assert (code, err) == (0, "")
    assert (project / ".loops/ugly.sexp").read_text() == UGLY
    subprocess.run(["patch", "-p0", "-s"], input=out.encode(), check=True)
    assert (project / ".loops/ugly.sexp").read_text() == NEAT
    assert fmt("--diff", "--check", ".") == (0, "", "")


def test_stdin_goes_to_stdout(project: Path) -> None:
    """`-` reads standard input and writes the text laid out, or what would change."""
    assert fmt("-", given=UGLY.encode()) == (0, NEAT, "")
    assert fmt("-", "--check", given=UGLY.encode()) == (1, "", "")
    assert "+++ <stdin>" in fmt("-", "--diff", given=b"(a\n)")[1]


def test_what_does_not_read_is_left_alone(project: Path) -> None:
    """Findings of every file at once, exit code 2; the others are laid out."""
    for name, text in (("a", "(a"), ("b", '"b')):
        (project / f"{name}.sexp").write_text(text)
    code, out, err = fmt("a.sexp", "ugly", "b.sexp")
    assert (code, out) == (2, "formatted .loops/ugly.sexp\n")
    assert "error[unclosed-form]" in err
    assert "error[unterminated-string]" in err
    assert (project / "a.sexp").read_text() == "(a"
    assert fmt("-", given=b"\xff")[0] == 2


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
def test_what_cannot_be_laid_out_is_told(project: Path, words: list[str], expected: str) -> None:
    """Mistaken names and files that are none end with 2 and a diagnostic."""
    (project / "x.yaml").write_text("a: 1\n")
    (project / "pipe.sexp").symlink_to("/dev/null")
    code, _, err = fmt(*words)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


def test_a_file_that_cannot_be_written_stays(project: Path) -> None:
    """Where the disk takes no more, the old file stays whole and nothing is left beside it."""
    command = f"ulimit -f 0; exec {sys.executable} -m llc fmt ugly"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[cannot-write]: cannot write" in done.stderr
    assert (project / ".loops/ugly.sexp").read_text() == UGLY
    assert os.listdir(project / ".loops") == ["ugly.sexp"]
