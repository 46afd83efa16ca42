"""Loop lookup: resolves loop names and paths to files."""

from __future__ import annotations

import os.path

from ..host import files
from ..host.errors import UserError, suggest
from ..host.paths import COMPILED_SUFFIXES, CONFIG, LOOPS, ROOT, SOURCE_SUFFIXES, TOOLS


def loop_files(root: str = ROOT) -> dict[str, str]:
    """List the loops of a project: name → path relative to `root`, sorted by name."""
    try:
        names = sorted(files.listdir(os.path.join(root, LOOPS)))
    except OSError:
        return {}
    found: dict[str, str] = {}
    for file in names:
        stem, suffix = os.path.splitext(file)
        # `x.fsm.yaml` is an output of `llc compile -o`; it can be run by its path only.
        if (
            file not in (CONFIG, TOOLS)
            and suffix in SOURCE_SUFFIXES
            and not file.startswith(".")
            and not stem.endswith(".fsm")
        ):
            found.setdefault(stem, os.path.join(LOOPS, file))
    return dict(sorted(found.items()))


def files_below() -> list[str]:
    """List the source files in subfolders of `.loops/`, sorted, without tasks (tasks are not loops)."""
    sources = []
    top = os.path.join(ROOT, LOOPS)
    for folder, inner, names in files.walk(top):
        is_top = folder == top
        inner[:] = [name for name in inner if not name.startswith(".") and not (is_top and name == "tasks")]
        if not is_top:
            paths = [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
            sources += [path for path in paths if path.endswith(SOURCE_SUFFIXES)]
    return sorted(sources)


def is_path(target: str) -> bool:
    """Whether a target is a path and not the name of a loop."""
    return os.path.sep in target or target.endswith((*SOURCE_SUFFIXES, *COMPILED_SUFFIXES))


def is_loop(target: str, root: str = ROOT) -> bool:
    """Whether `target` is the name of a loop or the path of a file."""
    return target in loop_files(root) or (is_path(target) and files.isfile(os.path.join(root, target)))


def resolve_loop(target: str, root: str = ROOT) -> str:
    """Return the file of a loop by its name or path. Raises UserError."""
    if is_path(target):
        if files.isfile(os.path.join(root, target)):
            return target
        if files.isdir(os.path.join(root, target)):
            raise UserError("not-a-loop", f"`{target}` is a directory", "name a loop file in it")
        if not files.lexists(os.path.join(root, target)):
            raise UserError("unknown-file", f"there is no file `{target}`", _suggest_path(target, root))
        return target  # a pipe or a device; reading it reports errors
    for suffix in SOURCE_SUFFIXES:
        path = os.path.join(LOOPS, target + suffix)
        if not target or target + suffix == CONFIG or not files.lexists(os.path.join(root, path)):
            continue
        if files.isfile(os.path.join(root, path)):
            return path
        kind = _describe_file(os.path.join(root, path))
        raise UserError("not-a-loop", f"`{path}` is {kind}", "a loop must be a file")
    raise UserError("unknown-loop", f"no loop named `{target}` in {LOOPS}/", _suggest_name(target, root))


def _describe_file(path: str) -> str:
    """Describe the type of a path that is not a regular file."""
    if files.isdir(path):
        return "a directory"
    if files.exists(path):
        return "not a regular file"
    return f"a link to `{files.readlink(path)}`, which does not exist"


def _suggest_name(target: str, root: str) -> str:
    if files.isfile(os.path.join(root, target)):
        return f"to run the file `{target}`, write `./{target}`"
    return suggest(target, loop_files(root), "loops here") or (
        f"write the loop to {LOOPS}/{target or 'name'}.yaml, or give a path"
    )


def _suggest_path(target: str, root: str) -> str | None:
    folder, file = os.path.split(target)
    own = [os.path.join(LOOPS, file), *(os.path.join(LOOPS, target + suffix) for suffix in SOURCE_SUFFIXES)]
    loop = next((path for path in own if files.isfile(os.path.join(root, path))), None)
    if loop is not None:
        return f"did you mean `{loop}`?"
    try:
        entries = files.listdir(os.path.join(root, folder or "."))
    except OSError:
        return f"there is no directory `{folder}` either" if folder else None
    loops = [os.path.join(folder, file) for file in entries if is_path(file)]
    return suggest(target, sorted(loops), "loops there")
