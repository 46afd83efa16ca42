"""Shell completion, in a real bash with the completion script of llc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from llc.runtime.cli.subcommands import SUBCOMMANDS

TASK = """\
<task type="atomic" name="user:entitle">
  <inputs>
    <input name="text" type="string"/>
    <input name="funny" type="boolean" required="false"/>
  </inputs>
  <instructions>Find a title for {{text}}.</instructions>
</task>
"""
LOOP = "name: tidy\ninitial: a\nstates:\n  a: {terminal: true}\n"
TypeKeys = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".loops" / "tasks").mkdir(parents=True)
    (folder / ".loops" / "tasks" / "entitle.xml").write_text(TASK)
    for loop in ("tidy", "odd'\"$HOME`\\ &", "two\nlines"):
        (folder / ".loops" / f"{loop}.yaml").write_text(LOOP)
    (folder / "README.md").touch()
    for name in ("llc", "ll-loop"):
        (folder / "bin").mkdir(exist_ok=True)
        start = "main" if name == "llc" else "main_ll_loop"
        code = f"import sys\nfrom llc.runtime.cli.entry import {start}\nsys.exit({start}())\n"
        (folder / "bin" / name).write_text(f"#!{sys.executable}\n{code}")
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def bash(project: Path) -> Iterator[Any]:
    """A bash on a terminal with the scripts of both programs, as `--install-completion` installs them."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    scripts = []
    # llc detects the shell from its parent process, so bash must not `exec` its only command.
    env = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "HOME": str(project)}
    for name in ("llc", "ll-loop"):
        completed = subprocess.run(
            ["bash", "-c", f"{name} --show-completion && :"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        scripts.append(completed.stdout)
    (project / "scripts").write_text("\n".join(scripts))
    child = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "-i"],
        cwd=str(project),
        env={**env, "PS1": "ready$ ", "TERM": "dumb", "INPUTRC": "/dev/null"},
        encoding="utf-8",
        timeout=30,
        dimensions=(24, 1000),
    )
    child.expect_exact("ready$ ")
    child.sendline("source scripts; bind 'set enable-bracketed-paste off' 'set completion-query-items 0'")
    child.expect_exact("ready$ ")
    yield child
    child.close(force=True)


@pytest.fixture
def type_keys(bash: Any) -> TypeKeys:
    """Types keys, including control characters, and returns the words of the resulting line."""

    def type_keys(keys: str) -> list[str]:
        bash.send(keys + "\x01printf '<%s>' \r")
        bash.expect(r"\r\n((?:<[^>]*>)+)ready\$ ")
        return str(bash.match[1])[1:-1].split("><")[1:]

    return type_keys


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("llc stat\t", ["status"]),
        ("llc run ti\t", ["run", "tidy"]),
        ("llc task user:ent\t", ["task", "user:entitle"]),
        ("llc task us\tent\t", ["task", "user:entitle"]),
        ("llc task system:read\t", ["task", "system:read_files"]),
        ("ll-loop task user:ent\t", ["task", "user:entitle"]),
        ("llc task user:entitle te\tx", ["task", "user:entitle", "text=x"]),
        ('llc task user:entitle text="a b" --fun\t', ["task", "user:entitle", "text=a b", "--funny"]),
        ("llc task --json user:ent\t", ["task", "--json", "user:entitle"]),
        ("llc task user:entitle files=REA\t", ["task", "user:entitle", "files=README.md"]),
        ("llc task user:entitle nothing\t", ["task", "user:entitle", "nothing"]),
        ("llc create -p conv\t", ["create", "-p", "convergence"]),
        ("llc create --paradigm=conv\t", ["create", "--paradigm=convergence"]),
        ("llc run --quiet --max-it\t", ["run", "--quiet", "--max-iterations"]),
        ("llc run --tier inter\t", ["run", "--tier", "interpreter"]),
        ("llc resume --on-unknown=f\t", ["resume", "--on-unknown=fail"]),
        ("llc compile --emit by\t", ["compile", "--emit", "bytecode"]),
        ("llc context --strategy meta\t", ["context", "--strategy", "metadata"]),
        ("llc run od\t", ["run", "odd'\"$HOME`\\ &"]),
        ("llc run 'od\t", ["run", "odd'\"$HOME`\\ &"]),
        ('llc run "od\t', ["run", "odd'\"$HOME`\\ &"]),
        ("llc run two\t", ["run", "two"]),
    ],
)
def test_bash_completes_a_line(type_keys: TypeKeys, keys: str, words: list[str]) -> None:
    """Subcommands, loops, tasks and parameters, although bash splits words at `:` and `=`."""
    assert type_keys(keys) == words


def test_bash_offers_all_candidates(type_keys: TypeKeys) -> None:
    """After the name of a task: its parameters and llc's options; after a prefix: the tasks."""
    candidates = type_keys("llc task user:entitle \x1b*")
    assert {"text=", "--funny", "--script", "--help"} <= set(candidates)
    assert not {"--text", "user:entitle"} & set(candidates[2:])
    assert "user:entitle" in type_keys("llc task \x1b*")
    assert set(SUBCOMMANDS) == set(type_keys("llc \x1b*"))


def script(project: Path, shell: str, *options: str) -> dict[str, str]:
    """Write the completion script of a shell to `script.SHELL`; return the environment of that shell."""
    env = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "HOME": str(project)}
    # llc detects the shell from its parent process.
    words = [shell, *options, "-c", "llc --show-completion; true"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    (project / f"script.{shell}").write_text(done.stdout)
    return env


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs a real fish, which few machines have")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("llc resu", "resume\tResume an unfinished run."),
        ("llc run ti", "tidy"),
        ("llc task user:ent", "user:entitle"),
        ("llc task user:entitle te", "text="),
        ("llc run tidy --flame REA", "README.md"),
    ],
)
def test_fish_completes_a_line(project: Path, line: str, expected: str) -> None:
    """A real fish with its script."""
    env = script(project, "fish", "--no-config")
    command = f"source script.fish; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", command], cwd=project, env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs a real zsh, which few machines have")
def test_zsh_completes_a_line(project: Path) -> None:
    """A real zsh on a terminal, with its script."""
    env = script(project, "zsh", "-f")
    zsh = pexpect.spawn(
        "zsh",
        ["-f", "-i"],
        cwd=str(project),
        env={**env, "PS1": "ready$ ", "TERM": "dumb"},
        encoding="utf-8",
        timeout=30,
        dimensions=(24, 1000),
    )
    # The words come through a file, because zsh redraws a line several times; COMPLETED marks the end.
    for line in (
        "autoload -U compinit; compinit -u -D; source script.zsh",
        'write_words() { print -r -l -- "$@" > words.new; mv words.new words }',
        "complete-and-report() { zle complete-word; print -n COMPLETED }; zle -N complete-and-report",
        "bindkey '^I' complete-and-report",
    ):
        zsh.expect_exact("ready$ ")
        zsh.sendline(line)
    for keys, words in (
        ("llc stat\t", ["status"]),
        ("llc run ti\t", ["run", "tidy"]),
        ("llc task user:ent\t", ["task", "user:entitle"]),
        ("llc task user:entitle te\tx", ["task", "user:entitle", "text=x"]),
        ("llc create --paradigm=conv\t", ["create", "--paradigm=convergence"]),
    ):
        zsh.expect_exact("ready$ ")
        before, _, after = keys.partition("\t")
        zsh.send(before + "\t")
        zsh.expect_exact("COMPLETED")
        zsh.send(f"{after}\x01write_words \r")
        deadline = time.monotonic() + 60
        while not (project / "words").exists():
            assert time.monotonic() < deadline, keys
            time.sleep(0.02)
        assert (project / "words").read_text().split()[1:] == words
        (project / "words").unlink()
    zsh.close(force=True)


def test_errors_are_not_shown_during_completion(project: Path) -> None:
    """If the configuration cannot be read, completion ends without a message."""
    for words in ("llc mcp refresh x", "llc answer no-such-run y"):
        env = {"_LLC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
        (project / ".loops" / "config.yaml").write_text("mcp: [")
        try:
            done = subprocess.run(
                [project / "bin" / "llc"],
                cwd=project,
                env={**os.environ, **env},
                capture_output=True,
                text=True,
            )
        finally:
            (project / ".loops" / "config.yaml").unlink()
        assert (done.stdout, done.stderr) == ("", "")


def request(project: Path, shell: str, line: str, **variables: str) -> tuple[int, str]:
    """Exit code and output of `llc` for a completion request from a shell other than bash."""
    env = {"_LLC_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, **variables}
    completed = subprocess.run(
        [project / "bin" / "llc"], cwd=project, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert completed.stderr == ""
    return completed.returncode, completed.stdout


def test_zsh_gets_descriptions(project: Path) -> None:
    """In the form that Typer's script evaluates; without candidates, zsh offers files."""
    expected = """_arguments '*: :(("resume":"Resume an unfinished run."))'\n"""
    assert request(project, "zsh", "llc resu") == (0, expected)
    assert request(project, "zsh", "llc run ti") == (0, """_arguments '*: :(("tidy"))'\n""")
    assert request(project, "zsh", "llc run tidy --flame ") == (0, "_files\n")
    expected = request(project, "zsh", "llc run --max-iter")[1]
    assert (
        expected
        == """_arguments '*: :(("--max-iterations":"Override the loop''s limit of iterations."))'\n"""
    )


def test_fish_asks_first_whether_there_are_candidates(project: Path) -> None:
    """Without candidates, fish offers files."""
    for line, code in (("llc resu", 0), ("llc run tidy --flame ", 1)):
        assert request(project, "fish", line, _TYPER_COMPLETE_FISH_ACTION="is-args") == (code, "")
    expected = "resume\tResume an unfinished run.\n"
    assert request(project, "fish", "llc resu", _TYPER_COMPLETE_FISH_ACTION="get-args") == (0, expected)


def test_powershell_passes_the_current_word(project: Path) -> None:
    """PowerShell passes the current word separately from the line."""
    result = request(project, "powershell", "llc run ti", _TYPER_COMPLETE_WORD_TO_COMPLETE="ti")
    assert result == (0, "tidy::: \n")


def test_given_options_are_not_offered_again(project: Path) -> None:
    """A repeatable option is offered again; after `--` there are no options."""

    def words(line: str) -> list[str]:
        output = request(project, "fish", line, _TYPER_COMPLETE_FISH_ACTION="get-args")[1]
        return [row.partition("\t")[0] for row in output.splitlines()]

    assert words("llc run --quiet --q") == ["--queue"]
    assert words("llc run -q --qui") == []
    assert words("llc run -vq --qui") == []
    assert words("llc -C . resu") == ["resume"]
    assert words("llc run --arg a=1 --ar") == ["--arg"]
    assert words("llc run -- --q") == []
    assert words("llc run --llm-model ") == []
    assert words("llc run --llm-model x ti") == ["tidy"]
    assert words("llc run tidy ") == []
    assert words("llc --verbose resu") == ["resume"]
    assert words("llc nothing ") == []
    assert words("llc run 'ti") == ["tidy"]
