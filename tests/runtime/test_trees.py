"""Trees of a run in real git repositories and `llc diff`, for every state of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.runtime.journal import codec
from llc.runtime.trees.git_trees import GitTrees
from llc.runtime.trees.manifest_trees import ManifestTrees
from llc.runtime.trees.tree import MAX_FILE_BYTES, NoTree

Run = Callable[..., subprocess.CompletedProcess[str]]
Git = Callable[..., str]
LOOP = """
name: l
initial: check
agent: stub
states:
  check: {action: "test -e ok", evaluate: {type: exit_code}, on_success: done, on_failure: fix}
  fix: {action: "/fix it", next: check}
  done: {terminal: true}
"""


@pytest.fixture
def git(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a repository with one commit."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "n")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "n@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=project_dir, capture_output=True, text=True, check=True)
        return done.stdout

    git("init", "-q", "-b", "main", ".")
    (project_dir / "src").mkdir()
    (project_dir / "src/a.txt").write_text("one\n")
    (project_dir / "b.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    (project_dir / ".gitignore").write_text("ignored/\n")
    git("add", "-A")
    git("commit", "-qm", "first")
    return git


@pytest.fixture
def trees(git: Git, project_dir: Path) -> GitTrees:
    """A store of trees for the repository, with a first tree."""
    store = GitTrees.create("trees-of-run", "")
    (project_dir / ".git/info/exclude").write_text("trees-of-run\n")
    (project_dir / "trees-of-run/info/exclude").write_text("trees-of-run\n")
    store.take()
    return store


def changes(trees: GitTrees) -> dict[str, str]:
    """The change letters of the files that changed since the last tree."""
    return {change.path: change.letter for change in trees.take().changes or ()}


def write_agent(project_dir: Path, script: str) -> None:
    """Write the loop and its agent, a shell script."""
    (project_dir / ".loops").mkdir(exist_ok=True)
    (project_dir / ".loops/l.yaml").write_text(LOOP)
    (project_dir / ".loops/config.yaml").write_text(
        'agents: {stub: {argv: [./stub, "{prompt}"], output: text}}'
    )
    (project_dir / "stub").write_text(f"#!/bin/sh\n{script}\n")
    (project_dir / "stub").chmod(0o755)


def user_state(git: Git, project_dir: Path) -> tuple[Any, ...]:
    """The parts of the user's repository that must not change."""
    index = project_dir / ".git/index"
    return (
        index.read_bytes() if index.exists() else None,
        git("for-each-ref"),
        (project_dir / ".git/HEAD").read_text(),
        sorted(path.name for path in (project_dir / ".git").rglob("*") if path.is_file()),
    )


def test_a_diff_shows_the_changes_of_a_run_and_of_a_step(llc: Run, git: Git, project_dir: Path) -> None:
    """Changed, new, deleted, renamed and binary files; the user's repository is unchanged."""
    (project_dir / "x.bin").write_bytes(b"\0\1\2")
    git("add", "-A")
    git("commit", "-qm", "second")
    write_agent(
        project_dir,
        "echo two >> src/a.txt; mv b.txt c.txt; rm x.bin; echo new > ok; echo secret > ignored.txt",
    )
    before = user_state(git, project_dir)
    assert llc("run", "l").returncode == 0
    assert user_state(git, project_dir) == before
    patch = llc("diff")
    assert patch.returncode == 0
    assert "rename from b.txt\nrename to c.txt\n" in patch.stdout
    assert "+two\n" in patch.stdout
    assert "Binary files a/x.bin and /dev/null differ" in patch.stdout
    assert llc("diff", "l", "fix").stdout == patch.stdout == llc("diff", "l", "2").stdout
    assert llc("diff", "l", "i2").stderr == "effect 3 (check) changed no files\n"
    assert llc("diff", "--name-only").stdout == "c.txt\nignored.txt\nok\nsrc/a.txt\nx.bin\n"
    assert " src/a.txt      |   1 +\n" in llc("diff", "l", "--stat").stdout
    report = json.loads(llc("diff", "--json").stdout)
    assert [(file["status"], file["path"], file["added"], file["removed"]) for file in report["files"]] == [
        ("R", "c.txt", 0, 0),
        ("A", "ignored.txt", 1, 0),
        ("A", "ok", 1, 0),
        ("M", "src/a.txt", 1, 0),
        ("D", "x.bin", None, None),
    ]
    assert report["files"][0]["from"] == "b.txt"
    assert report["patch"] == patch.stdout


def test_errors_suggest_a_fix(llc: Run, git: Git, project_dir: Path) -> None:
    """No run, no such step, a step before the first agent, lost trees."""
    write_agent(project_dir, "echo new > ok")
    assert "this project has no runs yet" in llc("diff").stderr
    llc("run", "l")
    assert "there is no effect, iteration or state `nope`" in llc("diff", "l", "nope").stderr
    refused = llc("diff", "l", "1")
    assert refused.returncode == 2
    assert "no trees were recorded for effect 1 (check)" in refused.stderr
    assert "record_files: all" in refused.stderr
    assert "exclude each other" in llc("diff", "--stat", "--json").stderr
    (run,) = (project_dir / ".loops/.history").glob("l-*")
    subprocess.run(["rm", "-r", str(run / "trees")], check=True)
    assert "do not exist any more" in llc("diff").stderr


@pytest.mark.parametrize(("mode", "count"), [("off", 0), ("agents", 4), ("all", 6)])
def test_record_files_decides_when_trees_are_taken(
    llc: Run, git: Git, project_dir: Path, mode: str, count: int
) -> None:
    write_agent(project_dir, "echo new > ok")
    with (project_dir / ".loops/config.yaml").open("a") as file:
        file.write(f"\nrecord_files: {mode}\n")
    assert llc("run", "l").returncode == 0
    (journal,) = (project_dir / ".loops/.history").glob("l-*/*.jsonl")
    assert sum('"event":"tree"' in line for line in journal.read_text().splitlines()) == count


def test_objects_of_the_repository_that_a_diff_needs_are_kept(llc: Run, git: Git, project_dir: Path) -> None:
    """A rewritten history, `git gc` or a removed repository does not change the diff."""
    write_agent(project_dir, "echo two >> src/a.txt; echo new > ok")
    git("add", "-A")
    git("commit", "-qm", "second")
    llc("run", "l")
    patch = llc("diff").stdout
    git("checkout", "-q", "--orphan", "other")
    git("rm", "-rqf", "--cached", "src")
    git("commit", "-qm", "other")
    git("branch", "-D", "main")
    git("reflog", "expire", "--expire=now", "--all")
    git("gc", "-q", "--prune=now")
    assert llc("diff").stdout == patch
    subprocess.run(["rm", "-rf", str(project_dir / ".git")], check=True)
    assert llc("diff").stdout == patch


def test_a_fork_shows_its_own_changes(llc: Run, git: Git, project_dir: Path) -> None:
    write_agent(project_dir, "date +%N >> b.txt; echo new > ok")
    llc("run", "l")
    git("add", "-A")
    git("commit", "-qm", "second")
    (project_dir / "ok").unlink()
    forked = llc("fork", "l", "--at", "2")
    assert forked.returncode == 0, forked.stderr
    report = json.loads(llc("diff", "--json").stdout)
    assert [file["path"] for file in report["files"]] == ["b.txt", "ok"]
    assert report["run"] != "l"


def test_clean_removes_the_trees(llc: Run, git: Git, project_dir: Path) -> None:
    write_agent(project_dir, "echo new > ok")
    llc("run", "l")
    assert llc("clean", "l", "--keep", "0").returncode == 0
    assert not list((project_dir / ".loops/.history").glob("l-*"))
    assert "this project has no runs yet" in llc("diff").stderr


def test_control_characters_are_removed_on_a_terminal(
    llc: Run, git: Git, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only llc's colours are shown; a pipe gets the bytes, with secrets masked."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    write_agent(
        project_dir, "printf '\\033]0;title\\007\\033[2J hunter2-hunter2\\n' > \"$(printf 'ok\\n\\033[31m')\""
    )
    (project_dir / ".loops/l.yaml").write_text(LOOP.replace("next: check", "next: done"))
    assert llc("run", "l").returncode == 0
    piped = llc("diff").stdout
    assert "+\x1b]0;title\x07\x1b[2J ***\n" in piped
    assert 'b/ok\\n\\033[31m"' in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = llc("diff").stdout
    assert "\x1b[32m+ ***\x1b[0m\n" in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert llc("diff").stdout == piped


def test_concurrent_effects_are_named(llc: Run, git: Git, project_dir: Path) -> None:
    """Their changes cannot be distinguished; the event and `llc diff` name them."""
    write_agent(project_dir, "")
    (project_dir / ".loops/config.yaml").write_text("record_files: all")
    (project_dir / ".loops/two.sexp").write_text(
        '(parallel-map (lambda (n) (system:write_file (file_path n) (content "x"))) (list "new-1" "new-2"))\n'
    )
    done = llc("run", "two")
    assert done.returncode == 0, done.stderr
    (journal,) = (project_dir / ".loops/.history").glob("two-*/*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    after = {event["seq"]: event for event in events if event["event"] == "tree" and event["when"] == "after"}
    assert [after[1].get("concurrent"), after[2].get("concurrent")] == [[2], [1]]
    assert "performed at the same time, changes included" in llc("diff", "two", "1").stderr
    assert llc("diff", "two", "--name-only").stdout == "new-1\nnew-2\n"


def test_trees_are_read_in_the_order_of_the_journal(llc: Run, git: Git, project_dir: Path) -> None:
    """The second of two concurrent effects may take its tree first."""
    write_agent(project_dir, "")
    (project_dir / ".loops/config.yaml").write_text("record_files: all")
    (project_dir / ".loops/two.sexp").write_text(
        '(begin (system:write_file "new-1" "x") (system:write_file "new-2" "x"))\n'
    )
    assert llc("run", "two").returncode == 0
    (journal,) = (project_dir / ".loops/.history").glob("two-*/*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    begins = [event for event in events if event["event"] == "tree" and event["when"] == "before"]
    # Simulates concurrent effects of which the first took its tree after the change of the second.
    (first, second) = begins
    first["tree"], second["tree"] = (
        next(event["tree"] for event in events if event["event"] == "tree" and event["when"] == "after"),
        first["tree"],
    )
    starts = [event for event in events if event["event"] in ("action_start", "effect_start")]
    rest = [event for event in events if event not in (*begins, *starts)]
    lines = [rest[0], *starts, second, first, *rest[1:]]
    journal.write_bytes(b"".join(codec.seal({k: v for k, v in line.items() if k != "crc"}) for line in lines))
    assert llc("diff", "two", "--name-only").stdout == "new-1\nnew-2\n"


# --- states of a repository -----------------------------------------------------------------------


def test_a_repository_without_commits(project_dir: Path, git: Git) -> None:
    subprocess.run(["rm", "-rf", str(project_dir / ".git")], check=True)
    git("init", "-q", ".")
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    trees.take()
    (project_dir / "new").write_text("x")
    assert changes(trees) == {"new": "A"}


def test_a_merge_with_conflicts(trees: GitTrees, git: Git, project_dir: Path) -> None:
    git("checkout", "-qb", "side")
    (project_dir / "src/a.txt").write_text("side\n")
    git("commit", "-qam", "side")
    git("checkout", "-q", "main")
    (project_dir / "src/a.txt").write_text("main\n")
    git("commit", "-qam", "main")
    merged = subprocess.run(["git", "merge", "side"], cwd=project_dir, capture_output=True)
    assert merged.returncode == 1
    during = GitTrees.create("trees-of-run-2", "")
    (project_dir / "trees-of-run-2/info/exclude").write_text("trees-of-run*\n")
    before = user_state(git, project_dir)
    during.take()
    (project_dir / "src/a.txt").write_text("both\n")
    assert changes(during) == {"src/a.txt": "M"}
    assert user_state(git, project_dir) == before


@pytest.mark.parametrize("content", [b"", b"DIRC garbage", b"\0" * 500])
def test_a_damaged_index(git: Git, project_dir: Path, content: bytes) -> None:
    (project_dir / ".git/index").write_bytes(content)
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    trees.take()
    (project_dir / "src/a.txt").write_text("changed\n")
    (project_dir / "b.txt").unlink()
    assert changes(trees) == {"src/a.txt": "M", "b.txt": "D"}
    assert (project_dir / ".git/index").read_bytes() == content


def test_a_split_index(git: Git, project_dir: Path) -> None:
    git("update-index", "--split-index")
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    trees.take()
    (project_dir / "src/a.txt").write_text("changed\n")
    assert changes(trees) == {"src/a.txt": "M"}


def test_a_change_of_the_same_size_at_the_same_time_is_detected(
    trees: GitTrees, git: Git, project_dir: Path
) -> None:
    """The index is copied with its time, so git reads files that changed when it was written."""
    for number in range(20):
        (project_dir / "src/a.txt").write_text(f"{number:03}\n")
        git("add", "-A")
        (project_dir / "src/a.txt").write_text(f"{number:03}\n"[::-1].strip() + "\n")
        store = GitTrees.create(f"trees-of-run/t{number}", "")
        tree = store.take()
        expected = (project_dir / "src/a.txt").read_text()
        shown = subprocess.run(
            ["git", "cat-file", "blob", f"{tree.id}:src/a.txt"],
            env={**os.environ, "GIT_DIR": store.path},
            capture_output=True,
            text=True,
        )
        assert shown.stdout == expected


def test_links_are_never_followed(trees: GitTrees, project_dir: Path, tmp_path: Path) -> None:
    """A link out of the project is recorded as a link, also where it replaces a folder."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "a.txt").write_text("outside\n")
    (project_dir / "link").symlink_to(outside)
    subprocess.run(["rm", "-r", str(project_dir / "src")], check=True)
    (project_dir / "src").symlink_to(outside)
    assert changes(trees) == {"link": "A", "src": "A", "src/a.txt": "D"}


def test_a_folder_replaces_a_file_and_vice_versa(trees: GitTrees, project_dir: Path) -> None:
    (project_dir / "b.txt").unlink()
    (project_dir / "b.txt").mkdir()
    (project_dir / "b.txt/inner").write_text("x")
    subprocess.run(["rm", "-r", str(project_dir / "src")], check=True)
    (project_dir / "src").write_text("x")
    assert changes(trees) == {"b.txt": "D", "b.txt/inner": "A", "src": "A", "src/a.txt": "D"}


def test_unusual_file_names(trees: GitTrees, project_dir: Path) -> None:
    names = ["line\nbreak", "\x1b[31mred", "--option", ":(top)magic", "*", 'quo"te', "ümlaut", "tab\t"]
    for name in names:
        (project_dir / name).write_text("x\n")
    Path(os.fsdecode(os.fsencode(project_dir) + b"/raw-\xff")).write_text("x\n")
    assert changes(trees) == dict.fromkeys([*names, "raw-\udcff"], "A")


def test_special_files_and_nested_repositories_are_left_out(trees: GitTrees, project_dir: Path) -> None:
    os.mkfifo(project_dir / "fifo")
    (project_dir / "b.txt").unlink()
    os.mkfifo(project_dir / "b.txt")
    subprocess.run(["git", "init", "-q", "nested"], cwd=project_dir, check=True)
    (project_dir / "nested/file").write_text("x")
    tree = trees.take()
    assert [tuple(change) for change in tree.changes or ()] == [("D", "b.txt")]
    assert tree.left_out == (("nested/", "repository"),)


def test_a_large_file_is_recorded_by_size_and_time(trees: GitTrees, project_dir: Path) -> None:
    """200 MB are neither read nor stored; a change is detected."""
    with (project_dir / "large").open("wb") as file:
        file.truncate(200_000_000)
    first = trees.take()
    assert [tuple(change) for change in first.changes or ()] == [("A", "large")]
    assert first.left_out == (("large", "large"),)
    assert changes(trees) == {}
    with (project_dir / "large").open("r+b") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    last = trees.take()
    assert [tuple(change) for change in last.changes or ()] == [("M", "large")]
    assert b"-[llc: large file, content not recorded: 200000000 bytes" in trees.diff(first.id, last.id)
    assert (
        sum(path.stat().st_size for path in (project_dir / "trees-of-run").rglob("*") if path.is_file())
        < 100_000
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_an_unreadable_file(trees: GitTrees, project_dir: Path) -> None:
    (project_dir / "closed").write_text("x")
    (project_dir / "closed").chmod(0)
    tree = trees.take()
    assert tree.left_out == (("closed", "unreadable"),)


def test_no_program_of_the_repository_is_started(git: Git, project_dir: Path) -> None:
    """Hooks, filters, diff drivers and file system monitors of configuration and attributes."""
    alarm = project_dir / "alarm"
    alarm.write_text(f"#!/bin/sh\ntouch {project_dir}/started\ncat\n")
    alarm.chmod(0o755)
    for name in ("post-index-change", "pre-commit", "reference-transaction"):
        hook = project_dir / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(alarm.read_text())
        hook.chmod(0o755)
    (project_dir / ".gitattributes").write_text("*.txt filter=f diff=f\n")
    for key in ("filter.f.clean", "filter.f.smudge", "diff.f.command", "diff.f.textconv", "core.fsmonitor"):
        git("config", key, str(alarm))
    git("config", "filter.f.required", "true")
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    first = trees.take()
    (project_dir / "src/a.txt").write_text("changed\n")
    last = trees.take()
    assert b"+changed" in trees.diff(first.id, last.id)
    assert not (project_dir / "started").exists()


def test_a_submodule_is_recorded_by_its_commit(git: Git, project_dir: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "sub"], cwd=tmp_path, check=True)
    commit = ["git", "commit", "-q", "--allow-empty", "-m"]
    subprocess.run([*commit, "one"], cwd=tmp_path / "sub", check=True)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "sub"), "sub")
    git("commit", "-qm", "sub")
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    trees.take()
    subprocess.run([*commit, "two"], cwd=project_dir / "sub", check=True)
    assert changes(trees) == {"sub": "M"}


def test_a_sparse_checkout(git: Git, project_dir: Path) -> None:
    """Files outside the sparse checkout are in no difference."""
    git("sparse-checkout", "set", "--cone", "src")
    (project_dir / "other").mkdir()
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    trees.take()
    (project_dir / "src/a.txt").write_text("changed\n")
    assert changes(trees) == {"src/a.txt": "M"}


def test_a_repository_with_sha256(project_dir: Path, git: Git) -> None:
    subprocess.run(["rm", "-rf", str(project_dir / ".git")], check=True)
    git("init", "-q", "--object-format=sha256", ".")
    git("add", "-A")
    git("commit", "-qm", "first")
    trees = GitTrees.create("t", "")
    (project_dir / "t/info/exclude").write_text("t\n")
    first = trees.take()
    (project_dir / "src/a.txt").write_text("changed\n")
    (project_dir / "b.txt").unlink()
    last = trees.take()
    assert len(last.id) == 64
    assert b"+changed" in trees.diff(first.id, last.id)


def test_without_git_or_a_repository_there_is_no_git_tree(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoTree, match="not a git repository"):
        GitTrees.create("t", "")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(NoTree, match="git is not installed"):
        GitTrees.create("t", "")


# --- manifests -------------------------------------------------------------------------------------


def run_with_manifest(llc: Run, project_dir: Path) -> None:
    """A run in a folder that is not a repository."""
    (project_dir / "src").mkdir()
    (project_dir / "src/a.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    (project_dir / "b.txt").write_text("b\n")
    (project_dir / "x.bin").write_bytes(b"\0\1")
    (project_dir / "gone").write_text("no newline")
    edits = "sed -i 's/line 7/line seven/' src/a.txt; mv b.txt c.txt; rm gone"
    write_agent(project_dir, f"{edits}; printf '\\0' > x.bin; echo new > ok")
    assert llc("run", "l").returncode == 0


def test_a_manifest_gives_the_same_patch_as_git(
    llc: Run, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git can apply the patch."""
    run_with_manifest(llc, project_dir)
    patch = llc("diff").stdout
    assert "@@ -5,7 +5,7 @@\n line 4\n line 5\n line 6\n-line 7\n+line seven\n" in patch
    assert "rename from b.txt\nrename to c.txt\n" in patch
    assert "-no newline\n\\ No newline at end of file\n" in patch
    assert llc("diff", "--name-only").stdout == "c.txt\ngone\nok\nsrc/a.txt\nx.bin\n"
    assert " src/a.txt      | 2 +-\n" in llc("diff", "--stat").stdout
    report = json.loads(llc("diff", "--json").stdout)
    assert report["store"] == "manifest"
    assert [(file["status"], file["path"], file["added"], file["removed"]) for file in report["files"]] == [
        ("R", "c.txt", 0, 0),
        ("D", "gone", 0, 1),
        ("A", "ok", 1, 0),
        ("M", "src/a.txt", 1, 1),
        ("M", "x.bin", None, None),
    ]
    text = patch.partition("diff --git a/x.bin")[0]
    subprocess.run(["git", "apply", "-R", "-"], input=text, text=True, cwd=project_dir, check=True)
    assert (project_dir / "gone").read_text() == "no newline"
    assert "line 7\n" in (project_dir / "src/a.txt").read_text()


def test_a_damaged_manifest_is_an_error_with_its_place(llc: Run, project_dir: Path) -> None:
    run_with_manifest(llc, project_dir)
    for path in project_dir.glob(".loops/.history/l-*/trees/manifests/*.json"):
        path.write_text('[["a"]]')
    refused = llc("diff")
    assert refused.returncode == 2
    assert "a manifest is damaged" in refused.stderr
    assert "trees\n" in refused.stderr


def test_a_manifest_of_links_and_large_files(project_dir: Path) -> None:
    trees = ManifestTrees.create(".loops/.cache/t", "")
    trees.take()
    (project_dir / "link").symlink_to("/etc")
    with (project_dir / "large").open("wb") as file:
        file.truncate(200_000_000)
    (project_dir / "line\nbreak").write_text("x")
    tree = trees.take()
    assert tree.left_out == (("large", "large"),)
    assert {change.path for change in tree.changes or ()} == {"link", "large", "line\nbreak"}
