"""Cache of compiled and verified images, in `.loops/.cache/`.

The name of an entry is a digest of everything that the image depends on: the source, its path, the
options, files of the project, this version of llc. A missing, damaged or foreign entry is compiled again;
the folder may be deleted at any time. An entry is used without verification, so it carries a keyed digest:
a repository from elsewhere cannot contain an entry that replaces a loop.
"""

from __future__ import annotations

import os.path

from ...ir.python_internals import blake2b, sha256, suppress
from ...vm.code.image import Image, ImageError
from ..host import environment, files, processes
from ..host.paths import CONFIG, LOOPS, TOOLS, make_private, read_regular, regular_handle
from ..journal.journal import JournalError, write_file
from ..runs.program_file import holds_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = os.path.join(LOOPS, ".cache")
SUFFIX = ".cached"
# An empty entry: the image with this digest is verified.
SOUND = ".sound"
MOST_ENTRIES = 64  # of each
_MAC = 32
# What an image is made by; a change in there makes all entries old.
_MAKERS = ("ir", "frontend", "vm", "stdlib")
_SOURCES = (".py", ".sexp")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def entry_key(source: bytes, path: str, settings: Iterable[str]) -> str:
    """The name of the entry for a source compiled under `settings` by this llc."""
    digest = blake2b(digest_size=20)
    for part in (b"1", _makers(), path.encode("utf-8", "surrogateescape"), source):
        digest.update(b"%d:" % len(part) + part)
    for text in settings:
        part = text.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def project_files(root: str, has_flows: bool) -> list[str]:
    """The files of a project that a program depends on besides its sources, each with a content digest.

    The configuration names agents and prices; tools and tasks can be called by flows. A file that appears or
    disappears is a change, and so is one that becomes unreadable.
    """
    paths = [os.path.join(root, LOOPS, CONFIG)]
    if has_flows:
        tasks = os.path.join(root, LOOPS, "tasks")
        paths.append(os.path.join(root, LOOPS, TOOLS))
        with suppress(OSError):
            names = sorted(files.listdir(tasks))
            paths += [os.path.join(tasks, name) for name in names if name.endswith(".xml")]
    found = []
    for path in paths:
        if not files.lexists(path):
            continue
        digest = "unreadable"
        with suppress(OSError):
            digest = blake2b(read_regular(path), digest_size=16).hexdigest()
        found.append(f"{path} {digest}")
    return found


def load(root: str, key: str) -> Image | None:
    """The image kept under `key`, None where there is none that can be trusted."""
    data = _read(root, key, SUFFIX)
    if data is None:
        return None
    try:
        return Image.from_bytes(data)
    except ImageError:
        return None


def is_sound(root: str, data: bytes) -> bool:
    """Whether the image of these bytes was made or verified here before, by this llc."""
    return _read(root, _sound_key(data), SOUND) == b""


def remember_sound(root: str, data: bytes) -> None:
    """From now on the image of these bytes is known to be sound, where there is a project to know it."""
    if files.isdir(os.path.join(root, LOOPS)):
        _write(root, _sound_key(data), SOUND, b"")


def _sound_key(data: bytes) -> str:
    return entry_key(data, "", ())


def is_current(image: Image) -> bool:
    """Whether each further file that an image was compiled from still says the same.

    The first is in the entry's key; these are known only once it has been compiled.
    """
    for source in image.sources[1:]:
        try:
            text = read_regular(source.path).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return False
        if sha256(text.encode()).hexdigest() != source.sha256:
            return False
    return True


def store(root: str, key: str, image: Image) -> None:
    """Keep an image that was compiled, which is sound; where that cannot be done, it is not kept."""
    if holds_secret(image):
        return
    data = image.to_bytes()
    _write(root, key, SUFFIX, data)
    remember_sound(root, data)


def _read(root: str, key: str, suffix: str) -> bytes | None:
    """What an entry holds, None where there is none that this user made."""
    try:
        data = read_regular(os.path.join(root, FOLDER, key + suffix))
    except OSError:
        return None
    secret = _secret(make=False)
    return data[_MAC:] if secret is not None and data[:_MAC] == _mac(secret, key, data[_MAC:]) else None


def _write(root: str, key: str, suffix: str, data: bytes) -> None:
    secret = _secret(make=True)
    if secret is None:
        return
    folder = os.path.join(root, FOLDER)
    with suppress(OSError, JournalError):
        make_private(folder)
        _prune(folder, suffix)
        write_file(
            os.path.join(folder, key + suffix), _mac(secret, key, data) + data, durable=False, mode=0o600
        )


def _prune(folder: str, suffix: str) -> None:
    """Make room: of too many entries, those go that were made first."""
    entries = [os.path.join(folder, name) for name in files.listdir(folder) if name.endswith(suffix)]
    if len(entries) >= MOST_ENTRIES:
        entries.sort(key=files.getmtime)
        for path in entries[: len(entries) - MOST_ENTRIES + 1]:
            files.unlink(path)


def _makers() -> bytes:
    """The version of llc; for a working copy, also the size and time of each of its source files."""
    from ... import __version__

    facts = [__version__]
    folders = list(_MAKERS)
    for folder in folders:
        try:
            with files.scandir(os.path.join(_PACKAGE, folder)) as found:
                for item in found:
                    if item.is_dir():
                        folders += [f"{folder}/{item.name}"] if item.name != "__pycache__" else []
                    elif item.name.endswith(_SOURCES):
                        state = item.stat()
                        facts.append(f"{folder}/{item.name} {state.st_size} {state.st_mtime_ns}")
        except OSError:
            facts.append(folder)
    return "\n".join(sorted(facts)).encode()


def _mac(secret: bytes, key: str, data: bytes) -> bytes:
    return blake2b(
        data, digest_size=_MAC, key=secret, person=b"llc-image", salt=bytes.fromhex(key)[:16]
    ).digest()


def _secret(make: bool) -> bytes | None:
    """This user's key, kept where only they can read it; None where there is none to be had."""
    home = environment.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(home, "llc", "key")
    if not os.path.isabs(path):
        return None
    try:
        fd = regular_handle(path, files.O_RDONLY)
    except FileNotFoundError:
        return _make_secret(path) if make else None
    except OSError:
        return None
    try:
        state = files.fstat(fd)
        secret = files.read(fd, 64)
    finally:
        files.close(fd)
    is_ours = state.st_uid == environment.geteuid() and not state.st_mode & 0o077
    return secret if is_ours and len(secret) == 32 else None


def _make_secret(path: str) -> bytes | None:
    secret = environment.urandom(32)
    try:
        files.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        scratch = f"{path}.{processes.getpid()}"
        fd = files.open_handle(scratch, files.O_WRONLY | files.O_CREAT | files.O_EXCL, 0o600)
        try:
            files.write(fd, secret)
        finally:
            files.close(fd)
        try:
            files.link(scratch, path)
        finally:
            files.unlink(scratch)
    except OSError:
        return None  # or another process was quicker; its key serves the next time
    return secret
