"""Performer of the `shell` effect: selects the shell, and runs plain commands without one (`loops.md` 10)."""

from __future__ import annotations

import errno
import os.path

from ..host import environment, files
from ..host.effect_context import Context
from .performers import Parts
from .process import NotStarted, Runner, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Removes the characters that have no special meaning to a shell, except that blanks separate words. Compiling
# a regular expression would take longer than the other steps of a short run.
_PLAIN = str.maketrans("", "", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:,@%+=- \t")
# Words that bash or sh does not look up on PATH, except `true` and `false`, whose programs do the same.
_SHELL_WORDS = (
    " ! . : [ [[ ]] alias bg bind break builtin caller case cd command compgen complete compopt continue "
    "coproc declare dirs disown do done echo elif else enable esac eval exec exit export fc fg fi for "
    "function getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd "
    "read readarray readonly return select set shift shopt source suspend test then time times trap "
    "type typeset ulimit umask unalias unset until wait while { } "
)
# Environment variables that change the behaviour of a shell for a plain command.
_SHELL_SETTINGS = (b"BASH_ENV", b"BASHOPTS", b"SHELLOPTS", b"POSIXLY_CORRECT")


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform a `shell` effect."""
    return shell_of(parts).perform(args, context)


def shell_of(parts: Parts) -> Shell:
    return parts.keep("shell", Shell)


class Shell:
    """Runs commands in `bash` if it is installed, otherwise in `sh`."""

    def __init__(self, runner: Runner | None = None) -> None:
        self.runner = runner or Runner()
        self._path = self.runner.find("bash") or self.runner.find("sh") or "/bin/sh"
        env = self.runner.env
        self._plain = b"PATH" in env and not any(
            name in _SHELL_SETTINGS or name.startswith(b"BASH_FUNC_") for name in env
        )

    def close(self) -> None:
        self.runner.close()

    def perform(self, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Run `args["command"]`; return the result of the effect."""
        command = args["command"]
        folder = args.get("cwd")
        if folder is not None:
            return self._perform_in(folder, command, args, context)
        try:
            argv = plain_words(command) if self._plain else []
            if argv and environment.environb.get(b"PATH") == self.runner.env[b"PATH"]:
                try:
                    return self.runner.run(argv[0], argv, args, context)
                except NotStarted as error:
                    # The shell handles a missing program and a missing `#!` line, or reports the error.
                    if error.errno not in (errno.ENOEXEC, errno.ENOENT, errno.EACCES):
                        raise
            return self.runner.run(self._path, [os.path.basename(self._path), "-c", command], args, context)
        except NotStarted as error:
            return error.result(context)

    def _perform_in(
        self, folder: str, command: str, args: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        """Run a command in another folder; a shell changes to it, so the run's own folder stays the same."""
        path = os.path.abspath(folder) if "\0" not in folder else ""
        if not files.isdir(path):
            message = f"cannot run a command in `{folder}`: it is not a folder"
            return failure(context, 126, kind="no-folder", message=message)
        name = os.path.basename(self._path)
        argv = [name, "-c", 'cd -- "$1" && shift && exec "$@"', name, path, self._path, "-c", command]
        try:
            return self.runner.run(self._path, argv, args, context)
        except NotStarted as error:
            return error.result(context)


def plain_words(command: str) -> list[str]:
    """The words of a command that is one program with plain arguments; [] for any other command.

    A shell would only find and run the program, and starting bash doubles the time of a short step
    (`benchmarks/`). A command with anything that a shell may treat specially (an assignment, a builtin, an
    expansion) is not plain.
    """
    text = command.strip(" \t\n")
    if not text or text.translate(_PLAIN):
        return []
    words = text.split()
    name = words[0]
    is_plain = name[0] not in ":,%" and "=" not in name and f" {name} " not in _SHELL_WORDS
    return words if is_plain else []
