"""Cache of compiled and verified images, in `.loops/.cache/`.

The cache key is a digest of everything that the image depends on: the source, its path, the options, files of
the project, this version of llc. If an entry is missing, damaged or foreign, the source is compiled again;
the folder may be deleted at any time. A cached image is not verified, so an entry contains a keyed digest: a
repository from elsewhere cannot contain an entry that replaces a loop.
"""

from __future__ import annotations

import os.path

from ... import __version__
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
# Suffix of an empty entry that marks the image with this digest as verified.
VERIFIED_SUFFIX = ".sound"
MAX_ENTRIES = 64  # of each suffix
_MAC_BYTES = 32
# The compiler's folders and source files; a change in them invalidates all entries.
_COMPILER_FOLDERS = ("ir", "frontend", "vm", "stdlib")
_COMPILER_SUFFIXES = (".py", ".sexp")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def entry_key(source: bytes, path: str, settings: Iterable[str]) -> str:
    """The cache key of a source that this llc compiles with `settings`."""
    digest = blake2b(digest_size=20)
    for part in (b"1", _compiler_version(), path.encode("utf-8", "surrogateescape"), source):
        digest.update(b"%d:" % len(part) + part)
    for text in settings:
        part = text.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def project_files(root: str, has_flows: bool) -> list[str]:
    """The project files that a program depends on besides its sources, each with a content digest.

    The configuration names agents and prices; flows can call tools and tasks. The result also changes if a
    file appears, disappears or becomes unreadable.
    """
    paths = [os.path.join(root, LOOPS, CONFIG)]
    if has_flows:
        tasks = os.path.join(root, LOOPS, "tasks")
        paths.append(os.path.join(root, LOOPS, TOOLS))
        with suppress(OSError):
            names = sorted(files.listdir(tasks))
            paths += [os.path.join(tasks, name) for name in names if name.endswith(".xml")]
    digests = []
    for path in paths:
        if not files.lexists(path):
            continue
        digest = "unreadable"
        with suppress(OSError):
            digest = blake2b(read_regular(path), digest_size=16).hexdigest()
        digests.append(f"{path} {digest}")
    return digests


def load(root: str, key: str) -> Image | None:
    """The cached image with `key`; None if there is no trusted entry."""
    data = _read(root, key, SUFFIX)
    if data is None:
        return None
    try:
        return Image.from_bytes(data)
    except ImageError:
        return None


def is_verified(root: str, data: bytes) -> bool:
    """Whether this version of llc compiled or verified the image with these bytes in this project before."""
    return _read(root, _verified_key(data), VERIFIED_SUFFIX) == b""


def remember_verified(root: str, data: bytes) -> None:
    """Mark the image with these bytes as verified, if `root` is a project."""
    if files.isdir(os.path.join(root, LOOPS)):
        _write(root, _verified_key(data), VERIFIED_SUFFIX, b"")


def _verified_key(data: bytes) -> str:
    return entry_key(data, "", ())


def is_current(image: Image) -> bool:
    """Whether the additional source files of an image are unchanged.

    The cache key covers the first source; the additional sources are known only after the compilation.
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
    """Store a compiled image and mark it as verified. A failed write is ignored; secrets are not stored."""
    if holds_secret(image):
        return
    data = image.to_bytes()
    _write(root, key, SUFFIX, data)
    remember_verified(root, data)


def _read(root: str, key: str, suffix: str) -> bytes | None:
    """The data of an entry; None if there is no entry with a valid digest of this user."""
    try:
        data = read_regular(os.path.join(root, FOLDER, key + suffix))
    except OSError:
        return None
    secret = _secret(make=False)
    mac, content = data[:_MAC_BYTES], data[_MAC_BYTES:]
    return content if secret is not None and mac == _mac(secret, key, content) else None


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
    """Delete the oldest entries so that one more fits."""
    entries = [os.path.join(folder, name) for name in files.listdir(folder) if name.endswith(suffix)]
    if len(entries) >= MAX_ENTRIES:
        entries.sort(key=files.getmtime)
        for path in entries[: len(entries) - MAX_ENTRIES + 1]:
            files.unlink(path)


def _compiler_version() -> bytes:
    """The version of llc, and size and modification time of each of its source files."""
    facts = [__version__]
    folders = list(_COMPILER_FOLDERS)
    for folder in folders:
        try:
            with files.scandir(os.path.join(_PACKAGE, folder)) as items:
                for item in items:
                    if item.is_dir():
                        folders += [f"{folder}/{item.name}"] if item.name != "__pycache__" else []
                    elif item.name.endswith(_COMPILER_SUFFIXES):
                        state = item.stat()
                        facts.append(f"{folder}/{item.name} {state.st_size} {state.st_mtime_ns}")
        except OSError:
            facts.append(folder)
    return "\n".join(sorted(facts)).encode()


def _mac(secret: bytes, key: str, data: bytes) -> bytes:
    return blake2b(
        data, digest_size=_MAC_BYTES, key=secret, person=b"llc-image", salt=bytes.fromhex(key)[:16]
    ).digest()


def _secret(make: bool) -> bytes | None:
    """This user's secret key, in a file that only the user can read; None if there is no usable key.

    make: create the key if it does not exist.
    """
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
        temporary = f"{path}.{processes.getpid()}"
        fd = files.open_handle(temporary, files.O_WRONLY | files.O_CREAT | files.O_EXCL, 0o600)
        try:
            files.write(fd, secret)
        finally:
            files.close(fd)
        try:
            files.link(temporary, path)
        finally:
            files.unlink(temporary)
    except OSError:
        return None  # also if another process created the key first; the next call uses that key
    return secret
