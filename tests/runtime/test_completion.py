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
Typed = Callable[[str], list[str]]


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
    """A bash on a terminal that has both programs' scripts, as `--install-completion` gives them."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    scripts = []
    # Which shell it is for is seen by who called it, so bash must not give way to its one command.
    env = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "HOME": str(project)}
    for name in ("llc", "ll-loop"):
        done = subprocess.run(
            ["bash", "-c", f"{name} --show-completion && :"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        scripts.append(done.stdout)
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
def typed(bash: Any) -> Typed:
    """The words of a line that was typed, with its control characters, as bash has them then."""

    def typed(keys: str) -> list[str]:
        bash.send(keys + "\x01printf '<%s>' \r")
        bash.expect(r"\r\n((?:<[^>]*>)+)ready\$ ")
        return str(bash.match[1])[1:-1].split("><")[1:]

    return typed


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
def test_a_line_goes_on(typed: Typed, keys: str, words: list[str]) -> None:
    """Verbs, loops, tasks and their parameters, though bash takes words apart at `:` and `=`."""
    assert typed(keys) == words


def test_all_that_may_stand_next_is_offered(typed: Typed) -> None:
    """Behind a task's name its parameters and llc's options; behind its prefix the tasks."""
    told = typed("llc task user:entitle \x1b*")
    assert {"text=", "--funny", "--script", "--help"} <= set(told)
    assert not {"--text", "user:entitle"} & set(told[2:])
    assert "user:entitle" in typed("llc task \x1b*")
    assert set(SUBCOMMANDS) == set(typed("llc \x1b*"))


def script(project: Path, shell: str, *options: str) -> dict[str, str]:
    """The environment of a shell whose script, as llc gives it, is the file `script` in its project."""
    env = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "HOME": str(project)}
    # Which shell it is for is seen by who called it.
    words = [shell, *options, "-c", "llc --show-completion; true"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    (project / f"script.{shell}").write_text(done.stdout)
    return env


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs a real fish, which few machines have")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("llc resu", "resume\tResume an unfinished run."),
        ("llc run ti", "tidy"),
        ("llc task user:ent", "user:entitle"),
        ("llc task user:entitle te", "text="),
        ("llc run tidy --flame REA", "README.md"),
    ],
)
def test_a_line_goes_on_in_fish(project: Path, line: str, told: str) -> None:
    """A real one, with its script."""
    env = script(project, "fish", "--no-config")
    command = f"source script.fish; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", command], cwd=project, env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"{told}\n", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs a real zsh, which few machines have")
def test_a_line_goes_on_in_zsh(project: Path) -> None:
    """A real one on a terminal, with its script."""
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
    # What was typed comes by a file: zsh draws a line several times. Completion is over when it says so.
    for line in (
        "autoload -U compinit; compinit -u -D; source script.zsh",
        'tell() { print -r -l -- "$@" > told.new; mv told.new told }',
        "done-completing() { zle complete-word; print -n COMPLETED }; zle -N done-completing",
        "bindkey '^I' done-completing",
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
        zsh.send(f"{after}\x01tell \r")
        end = time.monotonic() + 60
        while not (project / "told").exists():
            assert time.monotonic() < end, keys
            time.sleep(0.02)
        assert (project / "told").read_text().split()[1:] == words
        (project / "told").unlink()
    zsh.close(force=True)


def test_what_is_wrong_is_not_said_in_a_line(project: Path) -> None:
    """A configuration that cannot be read ends completion, without a word."""
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


def asked(project: Path, shell: str, line: str, **more: str) -> tuple[int, str]:
    """The exit code and what `llc` tells a shell that is not bash about a line."""
    env = {"_LLC_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, **more}
    done = subprocess.run(
        [project / "bin" / "llc"], cwd=project, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_zsh_is_told_what_words_mean(project: Path) -> None:
    """In the form that typer's script evaluates; where nothing is known, files may stand."""
    told = """_arguments '*: :(("resume":"Resume an unfinished run."))'\n"""
    assert asked(project, "zsh", "llc resu") == (0, told)
    assert asked(project, "zsh", "llc run ti") == (0, """_arguments '*: :(("tidy"))'\n""")
    assert asked(project, "zsh", "llc run tidy --flame ") == (0, "_files\n")
    told = asked(project, "zsh", "llc run --max-iter")[1]
    assert told == """_arguments '*: :(("--max-iterations":"Override the loop''s limit of iterations."))'\n"""


def test_fish_asks_first_whether_there_is_anything(project: Path) -> None:
    """Where there is nothing, it offers files."""
    for line, code in (("llc resu", 0), ("llc run tidy --flame ", 1)):
        assert asked(project, "fish", line, _TYPER_COMPLETE_FISH_ACTION="is-args") == (code, "")
    told = "resume\tResume an unfinished run.\n"
    assert asked(project, "fish", "llc resu", _TYPER_COMPLETE_FISH_ACTION="get-args") == (0, told)


def test_powershell_names_the_word_that_is_typed(project: Path) -> None:
    """Beside the line."""
    told = asked(project, "powershell", "llc run ti", _TYPER_COMPLETE_WORD_TO_COMPLETE="ti")
    assert told == (0, "tidy::: \n")


def test_what_was_given_is_not_offered_again(project: Path) -> None:
    """Unless it may be repeated; behind `--` nothing is an option, and an option's value is no name."""

    def words(line: str) -> list[str]:
        told = asked(project, "fish", line, _TYPER_COMPLETE_FISH_ACTION="get-args")[1]
        return [row.partition("\t")[0] for row in told.splitlines()]

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
