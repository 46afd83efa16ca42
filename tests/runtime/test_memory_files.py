"""Files that the memory index reads: git-ignored files, binaries, secrets, links and unusual names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from memory_projects import ask, found, git, go_on, left_out, listed, repository, update, write

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
    """A home with excludes of its own."""
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


# Patterns that are none, that an engine of expressions would choke on, or whose bytes are no text.
HOSTILE = (
    b"[\n(((\n[[:alpha:]\n{a,b\nf[z-a]*\n!\n!!\n\\\n*\\\n***\n" + b"*a" * 40 + b"b\n"
    b"/**/**/**/c\n\xff*.txt\r\nd?.md\n" + b"x" * 100_000 + b"\n#e.py\n\\#f.py\n"
)


def test_hostile_patterns_ignore_what_git_ignores(tmp_path: Path) -> None:
    """In a repository git is asked, elsewhere the patterns are read here: the same files, and soon."""
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
    assert listed(tmp_path / "plain") == listed(tmp_path / "git")
    assert "\udcfez.txt" in listed(tmp_path / "plain")
    assert "\udcffz.txt" not in listed(tmp_path / "plain")


def test_many_patterns_are_read(tmp_path: Path) -> None:
    """More than an engine takes at once; the last that says something counts."""
    text = "*.py\n" + "".join(f"x{i}*y**/[a-z]{i}\n" for i in range(3000)) + "!a.py\n"
    assert listed(write(tmp_path / "project", {".gitignore": text, "a.py": "", "b.py": ""})) == [
        ".gitignore",
        "a.py",
    ]


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    """Ignore files at every level, info/exclude and the user's excludes; tracked files are not ignored."""
    folder = repository(tmp_path / "project", {**IGNORED, "tracked.log": "a"})
    (folder / ".git/info/exclude").write_text("excluded.md\n")
    git(folder, "add", "-f", "tracked.log")
    assert listed(folder) == [
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


def test_folders_are_walked_by_the_same_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, what git would list is found: the same files from the same ignore files."""
    folder = repository(tmp_path / "project", IGNORED)
    (folder / ".git/info/exclude").write_text("excluded.md\n")
    by_git = list_files(str(folder), go_on)
    monkeypatch.setattr(environment, "which", lambda name: None)
    by_walk = list_files(str(folder), go_on)
    assert (by_git.by, by_walk.by) == ("git", "folders")
    assert by_git.entries == by_walk.entries


def test_a_folder_that_is_no_repository_respects_its_ignore_files(tmp_path: Path) -> None:
    """git says nothing there; `.gitignore` does."""
    folder = write(tmp_path / "project", {".gitignore": "*.log\n", "a.py": "", "b.log": "", "c.bak": ""})
    assert listed(folder) == [".gitignore", "a.py"]


def test_a_project_inside_a_folder_that_a_repository_ignores_is_read(tmp_path: Path) -> None:
    """The repository around it has nothing to say of it."""
    outer = repository(tmp_path / "outer", {".gitignore": "scratch/\n", "scratch/project/a.py": "a"})
    assert listed(outer / "scratch/project") == ["a.py"]


def test_a_part_of_a_repository_is_a_project(tmp_path: Path) -> None:
    """Files beside it are none of its; ignore files above it count."""
    folder = repository(
        tmp_path / "outer", {".gitignore": "*.log\n", "a.py": "", "part/b.py": "", "part/c.log": ""}
    )
    assert listed(folder / "part") == ["b.py"]


def test_repositories_inside_are_read_by_their_own_rules(tmp_path: Path) -> None:
    """Submodules and repositories that nobody added."""
    library = repository(tmp_path / "library", {"lib.py": "a"})
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    folder = repository(tmp_path / "project", {"a.py": "a"})
    git(folder, "submodule", "-q", "add", str(library), "vendored")
    repository(folder / "own/nested", {"n.py": "a", ".gitignore": "*.log\n", "n.log": "a"})
    assert listed(folder) == [
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
    assert listed(folder) == ["a.py"]
    assert not mark.exists()


def test_variables_of_a_hook_do_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIT_DIR and GIT_INDEX_FILE of another repository mean nothing here."""
    other = repository(tmp_path / "other", {"o.py": "a"})
    folder = repository(tmp_path / "project", {"a.py": "a"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert listed(folder) == ["a.py"]


def test_what_is_no_text_to_read_is_left_out_with_its_reason(tmp_path: Path) -> None:
    """Binaries, large files, secrets, links, pipes; UTF-16 is text."""
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
    assert sorted(found(folder, "word")) == [".env.example", "a.py", "exact.txt", "wide.txt"]


@pytest.mark.parametrize(
    ("name", "is_one"),
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
def test_secrets_are_known_by_their_names(name: str, is_one: bool) -> None:
    """Keys and files of passwords; not what explains them, nor public keys, nor programs."""
    assert is_secret(name.encode()) is is_one


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    """Not by links to files, not by links to folders, not where a tracked folder became a link."""
    outside = write(tmp_path / "outside", {"secret.txt": "treasure", "deep/gold.txt": "treasure"})
    folder = repository(tmp_path / "project", {"a.py": "treasure", "sub/gold.txt": "treasure"})
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "folder").symlink_to(outside)
    (folder / "sub/gold.txt").unlink()
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(outside / "deep")
    assert found(folder, "treasure") == ["a.py"]
    assert set(left_out(folder)) == {"file", "folder", "sub", "sub/gold.txt"}
    assert read_entry(str(folder), b"sub/gold.txt") is None
    assert read_entry(str(folder), b"file") is None


def test_names_may_be_anything(tmp_path: Path) -> None:
    """Newlines, quotes, blanks, leading dashes and bytes that are no UTF-8 go in and come out."""
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


def test_a_project_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """And no empty index."""
    with pytest.raises(OSError, match="No such file"):
        list_files(str(tmp_path / "nowhere"), go_on)


def test_looking_can_be_stopped(tmp_path: Path) -> None:
    """What `check` raises comes out, also while git is at work."""
    folder = repository(tmp_path / "project", {"a.py": "a"})

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        list_files(str(folder), stop)


def test_files_that_vanish_are_no_trouble(tmp_path: Path) -> None:
    """Listed by git, since tracked, and not there."""
    folder = repository(tmp_path / "project", {"a.py": "word", "b.py": "word"})
    git(folder, "add", ".")
    (folder / "b.py").unlink()
    assert found(folder, "word") == ["a.py"]


def test_there_is_a_bound_on_how_many_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it they are left out, and that is said."""
    monkeypatch.setattr(ignore, "MAX_FILES", 2)
    folder = repository(tmp_path / "project", {"a": "", "b": "", "c": ""})
    assert listed(folder) == ["a", "b"]
    assert left_out(folder) == {"c": "too-many"}


def test_the_index_does_not_find_itself(tmp_path: Path) -> None:
    """Nor the journals of runs, whatever ignore files say; loops are files like others."""
    files = {
        f".loops/{name}": "treasure" for name in (".cache/x", ".running/r/x", ".history/r/x", "fix.yaml")
    }
    folder = write(tmp_path / "project", files)
    assert found(folder, "treasure") == [".loops/fix.yaml"]
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    assert found(folder, "treasure") == [".loops/fix.yaml"]
