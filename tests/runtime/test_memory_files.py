"""Files that the memory index reads: git-ignored files, binaries, secrets, links and unusual names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from memory_projects import (
    ask,
    git,
    listed_paths,
    matching_paths,
    no_check,
    omitted_paths,
    repository,
    update,
    write,
)

from llc.runtime.host import environment
from llc.runtime.host.secret_files import is_secret
from llc.runtime.memory import ignore
from llc.runtime.memory.ignore import list_files, read_entry

IGNORED = {
    ".gitignore": "*.log\n/build/\n!keep.log\ndocs/*.tmp\nnode_modules\n\\#odd\ntrailing \n[invalid\n",
    "a.py": "a",
    "a.log": "a",
    "keep.log": "a",
    "build/x.py": "a",
    "sub/build/x.py": "a",
    "docs/x.tmp": "a",
    "docs/deep/x.tmp": "a",
    "node_modules/p/index.js": "a",
    "#odd": "a",
    "sub/.gitignore": "!a.log\n*.py\n/own/\n",
    "sub/a.log": "a",
    "sub/b.py": "a",
    "sub/own/x.md": "a",
    "sub/deeper/.gitignore": "!c.py\n",
    "sub/deeper/c.py": "a",
    "sub/deeper/d.py": "a",
    "name with blank": "a",
    "excluded.md": "a",
    "mine.bak": "a",
    "ünï/cödé.txt": "a",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with its own file of git excludes."""
    home = tmp_path / "home"
    write(
        home,
        {
            ".gitconfig": "[user]\n  name = Ada\n[core]\n\texcludesFile = ~/.excludes\n",
            ".excludes": "*.bak\n",
        },
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


# Invalid patterns, patterns that are slow for a regular expression engine, and bytes that are not UTF-8.
HOSTILE = (
    b"[\n(((\n[[:alpha:]\n{a,b\nf[z-a]*\n!\n!!\n\\\n*\\\n***\n" + b"*a" * 40 + b"b\n"
    b"/**/**/**/c\n\xff*.txt\r\nd?.md\n" + b"x" * 100_000 + b"\n#e.py\n\\#f.py\n"
)


def test_hostile_patterns_have_the_same_effect_as_in_git(tmp_path: Path) -> None:
    """Patterns that llc reads itself, outside of a repository, exclude the same files."""
    names = [
        "a" * 200,
        "b",
        "c",
        "d1.md",
        "d\xef.md",
        "e.py",
        "#f.py",
        "fy",
        "{a,b",
        "(((",
        "[",
        "sub/c",
        "!",
        "g",
    ]
    files = dict.fromkeys(names, "a")
    for folder in (tmp_path / "plain", repository(tmp_path / "git", {})):
        write(folder, {**files, ".gitignore": HOSTILE.replace(b"***\n", b"")})
        for name in (b"\xffz.txt", b"\xfez.txt"):
            (Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))).write_text("a")
    assert listed_paths(tmp_path / "plain") == listed_paths(tmp_path / "git")
    assert "\udcfez.txt" in listed_paths(tmp_path / "plain")
    assert "\udcffz.txt" not in listed_paths(tmp_path / "plain")


def test_thousands_of_patterns_are_read(tmp_path: Path) -> None:
    """The last matching pattern counts."""
    text = "*.py\n" + "".join(f"x{i}*y**/[a-z]{i}\n" for i in range(3000)) + "!a.py\n"
    assert listed_paths(write(tmp_path / "project", {".gitignore": text, "a.py": "", "b.py": ""})) == [
        ".gitignore",
        "a.py",
    ]


def test_files_ignored_by_git_are_left_out(tmp_path: Path) -> None:
    """Ignore files at every level, `info/exclude` and the user's excludes apply; tracked files are not
    ignored.
    """
    folder = repository(tmp_path / "project", {**IGNORED, "tracked.log": "a"})
    (folder / ".git/info/exclude").write_text("excluded.md\n")
    git(folder, "add", "-f", "tracked.log")
    assert listed_paths(folder) == [
        *(
            ".gitignore",
            "a.py",
            "docs/deep/x.tmp",
            "keep.log",
            "name with blank",
            "sub/.gitignore",
            "sub/a.log",
            "sub/deeper/.gitignore",
            "sub/deeper/c.py",
            "tracked.log",
            "ünï/cödé.txt",
        )
    ]


def test_a_walk_without_git_lists_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "project", IGNORED)
    (folder / ".git/info/exclude").write_text("excluded.md\n")
    by_git = list_files(str(folder), no_check)
    monkeypatch.setattr(environment, "which", lambda name: None)
    by_walk = list_files(str(folder), no_check)
    assert (by_git.by, by_walk.by) == ("git", "folders")
    assert by_git.entries == by_walk.entries


def test_ignore_files_apply_outside_a_repository(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", {".gitignore": "*.log\n", "a.py": "", "b.log": "", "c.bak": ""})
    assert listed_paths(folder) == [".gitignore", "a.py"]


def test_a_project_in_an_ignored_folder_of_a_repository_is_read(tmp_path: Path) -> None:
    """The patterns of the outer repository do not apply."""
    outer = repository(tmp_path / "outer", {".gitignore": "scratch/\n", "scratch/project/a.py": "a"})
    assert listed_paths(outer / "scratch/project") == ["a.py"]


def test_a_folder_of_a_repository_can_be_a_project(tmp_path: Path) -> None:
    """Files outside the folder are not listed; ignore files of its parent folders apply."""
    folder = repository(
        tmp_path / "outer", {".gitignore": "*.log\n", "a.py": "", "part/b.py": "", "part/c.log": ""}
    )
    assert listed_paths(folder / "part") == ["b.py"]


def test_nested_repositories_have_their_own_ignore_files(tmp_path: Path) -> None:
    """Submodules and untracked repositories."""
    library = repository(tmp_path / "library", {"lib.py": "a"})
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    folder = repository(tmp_path / "project", {"a.py": "a"})
    git(folder, "submodule", "-q", "add", str(library), "vendored")
    repository(folder / "own/nested", {"n.py": "a", ".gitignore": "*.log\n", "n.log": "a"})
    assert listed_paths(folder) == [
        ".gitmodules",
        "a.py",
        "own/nested/.gitignore",
        "own/nested/n.py",
        "vendored/lib.py",
    ]


def test_a_repository_cannot_make_git_start_a_program(tmp_path: Path) -> None:
    """`core.fsmonitor` of a hostile repository is not run."""
    folder = repository(tmp_path / "project", {"a.py": "a"})
    mark = tmp_path / "ran"
    git(folder, "config", "core.fsmonitor", f"touch {mark}; false")
    assert listed_paths(folder) == ["a.py"]
    assert not mark.exists()


def test_git_variables_of_the_environment_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and GIT_WORK_TREE of another repository have no effect."""
    other = repository(tmp_path / "other", {"o.py": "a"})
    folder = repository(tmp_path / "project", {"a.py": "a"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert listed_paths(folder) == ["a.py"]


def test_files_that_are_not_indexed_have_a_reason(tmp_path: Path) -> None:
    """Binaries, large files, secrets, links and pipes are left out; UTF-16 is text."""
    folder = repository(
        tmp_path / "project",
        {
            "a.py": "word",
            "b.bin": b"word\0",
            "c.txt": "word " * 300_000,
            "exact.txt": b"word".ljust(1 << 20),
            ".env": "word",
            "certs/server.pem": "word",
            "id_ed25519": "word",
            ".env.example": "word",
            "notes": "-----BEGIN OPENSSH PRIVATE KEY-----\nword\n",
            "wide.txt": "word".encode("utf-16"),
        },
    )
    (folder / "link.py").symlink_to("a.py")
    os.mkfifo(folder / "pipe")
    report = dict(update(folder).left_out)
    assert {os.fsdecode(path): why for path, why in report.items()} == {
        "b.bin": "binary",
        "c.txt": "large",
        ".env": "secret",
        "certs/server.pem": "secret",
        "id_ed25519": "secret",
        "notes": "secret",
        "link.py": "link",
    }
    assert sorted(matching_paths(folder, "word")) == [".env.example", "a.py", "exact.txt", "wide.txt"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".env", True),
        (".ENV", True),
        (".env.production", True),
        ("app.env", True),
        (".env.example", False),
        ("env.py", False),
        ("id_rsa", True),
        ("id_rsa.pub", False),
        ("id_map.py", False),
        ("x/id_ecdsa", True),
        ("a.key", True),
        ("keys.py", False),
        ("home/.aws/credentials", True),
        ("credentials", False),
        (".npmrc", True),
    ],
)
def test_secret_files_are_recognised_by_name(name: str, expected: bool) -> None:
    """Keys and password files; not examples, public keys or programs."""
    assert is_secret(name.encode()) is expected


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    """Links to files and folders are not followed, nor a tracked folder that became a link."""
    outside = write(tmp_path / "outside", {"secret.txt": "treasure", "deep/gold.txt": "treasure"})
    folder = repository(tmp_path / "project", {"a.py": "treasure", "sub/gold.txt": "treasure"})
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "folder").symlink_to(outside)
    (folder / "sub/gold.txt").unlink()
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(outside / "deep")
    assert matching_paths(folder, "treasure") == ["a.py"]
    assert set(omitted_paths(folder)) == {"file", "folder", "sub", "sub/gold.txt"}
    assert read_entry(str(folder), b"sub/gold.txt") is None
    assert read_entry(str(folder), b"file") is None


def test_file_names_may_contain_any_bytes(tmp_path: Path) -> None:
    """Newlines, quotes, blanks, leading dashes and invalid UTF-8."""
    names = [
        b"new\nline.txt",
        b'qu"ote.txt',
        b" lead.txt",
        b"-rf.txt",
        b"raw\xff\xfe.txt",
        b"tab\t.txt",
        b"back\\slash.txt",
    ]
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in names:
        (Path(os.fsdecode(bytes(folder) + b"/" + name))).write_text("treasure")
    matches = ask(folder, "treasure").matches
    assert sorted(os.fsencode(match.path) for match in matches) == sorted(names)
    assert all((folder / match.path).read_text() == "treasure" for match in matches)


def test_a_missing_project_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        list_files(str(tmp_path / "nowhere"), no_check)


def test_listing_can_be_stopped(tmp_path: Path) -> None:
    """An exception of `check` is raised, also while git runs."""
    folder = repository(tmp_path / "project", {"a.py": "a"})

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        list_files(str(folder), stop)


def test_removed_files_are_skipped(tmp_path: Path) -> None:
    """Git lists a tracked file that no longer exists."""
    folder = repository(tmp_path / "project", {"a.py": "word", "b.py": "word"})
    git(folder, "add", ".")
    (folder / "b.py").unlink()
    assert matching_paths(folder, "word") == ["a.py"]


def test_the_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond the limit are left out with a reason."""
    monkeypatch.setattr(ignore, "MAX_FILES", 2)
    folder = repository(tmp_path / "project", {"a": "", "b": "", "c": ""})
    assert listed_paths(folder) == ["a", "b"]
    assert omitted_paths(folder) == {"c": "too-many"}


def test_files_of_llc_are_not_indexed(tmp_path: Path) -> None:
    """Index and journals are left out whatever ignore files say; loops are indexed."""
    files = {
        f".loops/{name}": "treasure" for name in (".cache/x", ".running/r/x", ".history/r/x", "fix.yaml")
    }
    folder = write(tmp_path / "project", files)
    assert matching_paths(folder, "treasure") == [".loops/fix.yaml"]
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    assert matching_paths(folder, "treasure") == [".loops/fix.yaml"]
