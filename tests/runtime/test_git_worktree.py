"""A loop in another git worktree (`spec/dialect.md`) is a separate run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from keepers import KILL

SPEC = Path(__file__).parents[2] / "spec" / "dialect.md"
CHILD = """\
name: child
initial: begin
states:
  begin: {{action: echo started >>log, next: work}}
  work:
    action: |
      if test -e ../../go; then echo changed >file; git commit -qam work; else touch ../../go; {kill}; fi
    on_success: done
    on_failure: failed
    on_error: failed
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


def git(*words: str, at: Path) -> str:
    names = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    return subprocess.run(["git", *names, *words], cwd=at, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the action finds its run in /proc")
def test_run_in_another_worktree_is_resumed_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished actions are not repeated, and the files of the first worktree are unchanged."""
    project = tmp_path / "project"
    (project / ".loops").mkdir(parents=True)
    section = SPEC.read_text("utf-8").partition("\n## Another work tree\n")[2]
    (project / ".loops" / "delegate.yaml").write_text(section.partition("```yaml\n")[2].partition("```")[0])
    (project / ".loops" / "child.yaml").write_text(CHILD.format(kill=KILL))
    (project / "file").write_text("original\n")
    git("init", "-q", "-b", "main", at=project)
    git("config", "user.name", "n", at=project)
    git("config", "user.email", "n@example.org", at=project)
    git("add", "-A", at=project)
    git("commit", "-qm", "begin", at=project)
    git("branch", "feature", at=project)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "llc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m llc "$@"\n')
    (tools / "llc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    exit_codes = []
    for _ in range(2):
        done = subprocess.run(
            [tools / "llc", "run", "delegate"], cwd=project, capture_output=True, text=True, timeout=120
        )
        assert "Traceback" not in done.stderr + done.stdout
        exit_codes.append(done.returncode)
    tree = tmp_path / "trees" / "work"
    assert exit_codes == [1, 0]
    assert (tree / "log").read_text() == "started\n"
    assert git("log", "--format=%s", "feature", at=project).split() == ["work", "begin"]
    assert (project / "file").read_text() == "original\n"
    assert (tree / "file").read_text() == "changed\n"
