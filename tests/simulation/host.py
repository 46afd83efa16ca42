"""The simulated operating system: the parts of `host.protocol` over `scheduler` and `disk`."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import queue
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from types import SimpleNamespace
from typing import IO, Any

from llc.runtime.host import processes as real_processes

from .disk import Change, Disk, Node, failure
from .scheduler import TICK_S, Killed, Process, Scheduler, Thread

PROJECT = "/project"
EPOCH = 1_800_000_000.0
PIPE_SIZE = 1 << 16
POLLIN, POLLOUT, POLLHUP, POLLNVAL = 1, 4, 16, 32
# Access of the real modules to /proc, which is simulated.
_FROM_PROC = {
    name: getattr(real_processes, name)
    for name in ("start_time", "has_living", "group_members", "find_marked")
}


class Machine:
    """A computer: scheduler, disk, boot.

    programs: the programs on PATH by name: a function of the machine, the process and its arguments that
    returns an exit code. fail: returns an error number for a call that writes, None for success. wall: offset
    of the wall clock in seconds.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.disk = Disk(EPOCH)
        self.boot = 1
        self.wall = 0.0
        self.programs: dict[str, Callable[[Machine, Process, list[str]], int]] = {}
        self.fail: Callable[[str], int | None] = lambda call: None
        self.on_write: Callable[[Process | None, Node], None] = lambda process, node: None
        self.on_sync: Callable[[Node], None] = lambda node: None
        self.on_names: Callable[[Process | None, Sequence[Change]], None] = lambda process, changes: None
        self.on_lock: Callable[[], None] = lambda: None
        self.on_spawn: Callable[[Process], None] = lambda process: None
        self.null = Node(stat.S_IFCHR, 0o666, EPOCH)
        self.observer = Process(scheduler, 1, None, {})
        self.observer.about["cwd"] = PROJECT

    @property
    def process(self) -> Process:
        return self.scheduler.process or self.observer

    def wall_time(self) -> float:
        return EPOCH + self.scheduler.now + self.wall

    def lose_power(self) -> None:
        """All processes end at once; the disk keeps what it may. The machine boots again."""
        for process in self.scheduler.living():
            self.scheduler.end(process, 9)
        for process in self.scheduler.processes.values():
            process.is_reaped = True
        self.disk.lose_power(self.scheduler.random)
        self.boot += 1

    def change(self, *changes: Change) -> None:
        """Change names, all at once."""
        self.on_names(self.scheduler.process, changes)
        self.disk.change(*changes)

    def find_program(self, path: str, env: dict[bytes, bytes]) -> str:
        if "/" in path:
            self.disk.find(path, PROJECT)
            return path
        for folder in env.get(b"PATH", b"/bin").decode().split(":"):
            try:
                self.disk.find(f"{folder}/{path}", PROJECT)
            except OSError:
                continue
            return f"{folder}/{path}"
        raise failure(errno.ENOENT, path)

    def send(self, process: Process, number: int) -> None:
        """Deliver a signal."""
        if number == signal.SIGCONT:
            process.is_stopped = False
        elif number == signal.SIGSTOP:
            process.is_stopped = True
        elif number == signal.SIGKILL:
            self.scheduler.end(process, number)
        else:
            handler = process.handlers.get(number, signal.SIG_DFL)
            if callable(handler):
                process.signals.append(number)
            elif handler == signal.SIG_DFL and number != signal.SIGCHLD:
                self.scheduler.end(process, number)


# --- open files -------------------------------------------------------------------------------


class OpenFile:
    """An open file: a node, an offset, a lock; shared by duplicated handles."""

    def __init__(self, machine: Machine, node: Node, flags: int) -> None:
        self.machine = machine
        self.node = node
        self.offset = 0
        self.appends = bool(flags & os.O_APPEND)
        self.references = 1
        self.text: bytes | None = None  # content of a file in /proc

    def release(self) -> None:
        self.references -= 1
        if not self.references:
            self.unlock()

    def unlock(self) -> None:
        node = self.node
        node.shared.discard(self)
        if node.exclusive is self:
            node.exclusive = None

    def can_lock(self, is_exclusive: bool) -> bool:
        node = self.node
        if node.exclusive not in (None, self):
            return False
        return not is_exclusive or not (node.shared - {self})

    def lock(self, is_exclusive: bool) -> None:
        self.unlock()
        if is_exclusive:
            self.node.exclusive = self
            self.node.times_locked += 1
            self.machine.on_lock()
        else:
            self.node.shared.add(self)

    def events(self) -> int:
        return POLLIN | POLLOUT

    def read(self, length: int) -> bytes:
        if self.node is self.machine.null:
            return b""
        if self.node.is_folder:
            raise failure(errno.EISDIR)
        source = self.node.data if self.text is None else self.text
        data = bytes(source[self.offset : self.offset + length])
        self.offset += len(data)
        return data

    def write(self, data: bytes, offset: int | None = None) -> int:
        node, machine = self.node, self.machine
        if node is machine.null:
            return len(data)
        if offset is None:
            offset = len(node.data) if self.appends else self.offset
            self.offset = offset + len(data)
        machine.disk.write(node, offset, data, machine.wall_time())
        machine.on_write(machine.scheduler.process, node)
        return len(data)


class Pipe:
    def __init__(self) -> None:
        self.data = bytearray()
        self.readers = self.writers = 0


class PipeEnd:
    """An end of a pipe; blocking by default."""

    def __init__(self, machine: Machine, pipe: Pipe, writes: bool) -> None:
        self.machine = machine
        self.pipe = pipe
        self.writes = writes
        self.blocks = True
        self.references = 1
        if writes:
            pipe.writers += 1
        else:
            pipe.readers += 1

    def release(self) -> None:
        self.references -= 1
        if not self.references:
            if self.writes:
                self.pipe.writers -= 1
            else:
                self.pipe.readers -= 1

    def events(self) -> int:
        if self.writes:
            return POLLOUT if len(self.pipe.data) < PIPE_SIZE or not self.pipe.readers else 0
        return (POLLIN if self.pipe.data else 0) | (0 if self.pipe.writers else POLLHUP)

    def read(self, length: int) -> bytes:
        pipe = self.pipe
        if not pipe.data and pipe.writers:
            if not self.blocks:
                raise BlockingIOError(errno.EAGAIN, "the pipe is empty")
            self.machine.scheduler.wait(lambda: pipe.data or not pipe.writers)
        data = bytes(pipe.data[:length])
        del pipe.data[:length]
        return data

    def write(self, data: bytes, offset: int | None = None) -> int:
        pipe = self.pipe
        if not pipe.readers:
            raise BrokenPipeError(errno.EPIPE, "the pipe has no reader")
        if len(pipe.data) >= PIPE_SIZE:
            if not self.blocks:
                raise BlockingIOError(errno.EAGAIN, "the pipe is full")
            self.machine.scheduler.wait(lambda: len(pipe.data) < PIPE_SIZE or not pipe.readers)
        part = data[: PIPE_SIZE - len(pipe.data)]
        pipe.data += part
        return len(part)


class ProcessHandle:
    """A handle of a process: readable once it has ended."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.references = 1

    def release(self) -> None:
        self.references -= 1

    def events(self) -> int:
        return 0 if self.process.is_alive else POLLIN


class _Raw(io.RawIOBase):
    """A file object over an open file. It is invalid after its process or its handle has ended."""

    def __init__(self, host: SimulatedHost, handle: int, mode: str, name: Any, closes: bool) -> None:
        self._host = host
        self._process = host.machine.process
        self._open = self._process.handles[handle]
        self._handle = handle
        self._mode = mode
        self._closes = closes
        self.name = name

    def fileno(self) -> int:
        return self._handle

    def readable(self) -> bool:
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        return "r" not in self._mode or "+" in self._mode

    def seekable(self) -> bool:
        return isinstance(self._open, OpenFile)

    def readinto(self, buffer: Any) -> int:
        self._host.machine.scheduler.point()
        data = self._open.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return self._host.files.write(self._handle, bytes(data))

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._open.offset, len(self._open.node.data))[whence]
        self._open.offset = max(0, base + offset)
        return int(self._open.offset)

    def tell(self) -> int:
        return int(self._open.offset)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self._host.files.ftruncate(self._handle, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closes and self._process.handles.get(self._handle) is self._open:
                del self._process.handles[self._handle]
                self._open.release()


# --- files ------------------------------------------------------------------------------------


class Files:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    @property
    def _machine(self) -> Machine:
        return self._host.machine

    @property
    def _disk(self) -> Disk:
        return self._machine.disk

    def _begin(self, call: str = "") -> Process:
        machine = self._machine
        machine.scheduler.point()
        if call:
            number = machine.fail(call)
            if number is not None:
                raise failure(number)
        return machine.process

    def _handle(self, handle: int) -> Any:
        try:
            return self._machine.process.handles[handle]
        except KeyError:
            raise failure(errno.EBADF) from None

    def new_handle(self, opened: Any) -> int:
        handles = self._machine.process.handles
        number = 3
        while number in handles:
            number += 1
        handles[number] = opened
        return number

    def open(
        self,
        path: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
    ) -> IO[Any]:
        if isinstance(path, int):
            handle = path
        else:
            kind = mode.replace("b", "").replace("t", "")
            flags = {
                "r": os.O_RDONLY,
                "r+": os.O_RDWR,
                "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
                "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
                "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
            }[kind]
            handle = self.open_handle(path, flags)
            node = getattr(self._handle(handle), "node", None)
            if node is not None and node.is_folder:
                self.close(handle)
                raise failure(errno.EISDIR, path)
        raw = _Raw(self._host, handle, mode, path, closefd)
        if buffering == 0:
            return raw  # type: ignore[return-value]
        if "+" in mode:
            binary: Any = io.BufferedRandom(raw)  # type: ignore[arg-type]
        else:
            binary = io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)  # type: ignore[arg-type]
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8", errors, newline)

    def open_handle(self, path: Any, flags: int, mode: int = 0o777, /) -> int:
        path = os.fsdecode(path)
        process = self._begin("open")
        text = self._proc(path)
        if text is not None:
            opened = OpenFile(self._machine, Node(stat.S_IFREG, 0o444, EPOCH), flags)
            opened.text = text
            return self.new_handle(opened)
        if path == "/dev/null":
            return self.new_handle(OpenFile(self._machine, self._machine.null, flags))
        try:
            node = self._disk.find(path, process.about["cwd"])
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            folder, name = self._disk.parent(path, process.about["cwd"])
            node = Node(stat.S_IFREG, mode & ~0o022, self._machine.wall_time())
            node.links = 0
            self._machine.change((folder, name, node))
        else:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise failure(errno.EEXIST, path)
            if node.is_folder and flags & (os.O_WRONLY | os.O_RDWR):
                raise failure(errno.EISDIR, path)
            if flags & os.O_DIRECTORY and not node.is_folder:
                raise failure(errno.ENOTDIR, path)
            if flags & os.O_TRUNC and not node.is_folder:
                self._disk.truncate(node, 0, self._machine.wall_time())
        return self.new_handle(OpenFile(self._machine, node, flags))

    def _proc(self, path: str) -> bytes | None:
        if not path.startswith("/proc/"):
            return None
        if path == "/proc/sys/kernel/random/boot_id":
            return b"boot-%d\n" % self._machine.boot
        _, _, number, name = path.split("/")
        process = self._machine.scheduler.processes.get(int(number)) if number.isdecimal() else None
        if process is None or process.is_reaped:
            raise failure(errno.ENOENT, path)
        if name == "environ":
            return b"\0".join(b"%b=%b" % item for item in process.env.items()) + b"\0"
        state = b"S" if process.is_alive else b"Z"
        parent = process.parent.pid if process.parent is not None else 1
        fields = [state, b"%d" % parent, b"%d" % process.group, b"%d" % process.group, *[b"0"] * 15]
        return b"%d (x) " % process.pid + b" ".join(fields) + b" %d 0 0\n" % process.began

    def read(self, handle: int, length: int, /) -> bytes:
        self._begin("read")
        data: bytes = self._handle(handle).read(length)
        return data

    def write(self, handle: int, data: Any, /) -> int:
        if self._machine.scheduler.current is None and handle not in self._machine.observer.handles:
            return len(data)  # remains of killed processes are removed
        self._begin("write" if isinstance(self._machine.process.handles.get(handle), OpenFile) else "")
        opened = self._handle(handle)
        data = bytes(data)
        random = self._machine.scheduler.random
        if isinstance(opened, OpenFile) and len(data) > 1 and random.random() < 0.02:
            data = data[: random.randrange(1, len(data))]  # a short write
        written: int = opened.write(data)
        self._after()
        return written

    def pwrite(self, handle: int, data: Any, offset: int, /) -> int:
        self._begin("write")
        written: int = self._handle(handle).write(bytes(data), offset)
        self._after()
        return written

    def _after(self) -> None:
        """The process may die after a call as well as before it."""
        self._machine.scheduler.point()

    def close(self, handle: int, /) -> None:
        process = self._begin()
        opened = self._handle(handle)
        del process.handles[handle]
        opened.release()

    def fstat(self, handle: int, /) -> Any:
        self._begin()
        return _stat_of(self._handle(handle).node)

    def fsync(self, handle: int, /) -> None:
        self._begin("sync")
        node = self._handle(handle).node
        if node.is_folder:
            self._disk.sync_names(node)
        else:
            self._disk.sync(node)
            self._machine.on_sync(node)
        self._after()

    def fdatasync(self, handle: int, /) -> None:
        self._begin("sync")
        node = self._handle(handle).node
        self._disk.sync(node)
        self._machine.on_sync(node)
        self._after()

    def ftruncate(self, handle: int, length: int, /) -> None:
        self._begin("truncate")
        opened = self._handle(handle)
        self._disk.truncate(opened.node, length, self._machine.wall_time())
        self._machine.on_write(self._machine.scheduler.process, opened.node)
        self._after()

    def fchmod(self, handle: int, mode: int, /) -> None:
        self._begin()
        self._handle(handle).node.mode = mode

    def flock(self, handle: int, operation: int, /) -> None:
        self._begin()
        opened = self._handle(handle)
        if operation & fcntl.LOCK_UN:
            opened.unlock()
            return
        is_exclusive = bool(operation & fcntl.LOCK_EX)
        if not opened.can_lock(is_exclusive):
            if operation & fcntl.LOCK_NB:
                raise failure(errno.EWOULDBLOCK)
            self._machine.scheduler.wait(lambda: opened.can_lock(is_exclusive))
        opened.lock(is_exclusive)

    def get_inheritable(self, handle: int, /) -> bool:
        return False

    def set_inheritable(self, handle: int, inheritable: bool, /) -> None:
        return None

    # --- names ----------------------------------------------------------------------------------

    def _node(self, path: Any) -> Node:
        if isinstance(path, int):
            node: Node = self._handle(path).node
            return node
        path = os.fsdecode(path)
        process = self._begin()
        if path == "/dev/null":
            return self._machine.null
        if path == "/proc":
            return Node(stat.S_IFDIR, 0o555, EPOCH)
        if self._proc(path) is not None:
            return Node(stat.S_IFREG, 0o444, EPOCH)
        return self._disk.find(path, process.about["cwd"])

    def _find(self, path: Any) -> Node | None:
        try:
            return self._node(path)
        except OSError:
            return None

    def access(self, path: Any, mode: int, /) -> bool:
        node = self._find(path)
        return node is not None and (not mode & os.X_OK or bool(node.mode & 0o111))

    def chmod(self, path: Any, mode: int, /) -> None:
        self._node(path).mode = mode

    def stat(self, path: Any, /) -> Any:
        return _stat_of(self._node(path))

    lstat = stat

    def exists(self, path: Any, /) -> bool:
        return self._find(path) is not None

    lexists = exists

    def isfile(self, path: Any, /) -> bool:
        node = self._find(path)
        return node is not None and node.kind == stat.S_IFREG

    def isdir(self, path: Any, /) -> bool:
        node = self._find(path)
        return node is not None and node.is_folder

    def islink(self, path: Any, /) -> bool:
        return False

    def getsize(self, path: Any, /) -> int:
        return len(self._node(path).data)

    def getmtime(self, path: Any, /) -> float:
        return self._node(path).mtime

    def samefile(self, path: Any, other: Any, /) -> bool:
        return self._node(path) is self._node(other)

    def realpath(self, path: Any, /) -> Any:
        text = os.path.normpath(os.path.join(self._machine.process.about["cwd"], os.fsdecode(path)))
        return os.fsencode(text) if isinstance(path, bytes) else text

    def readlink(self, path: Any, /) -> Any:
        raise failure(errno.EINVAL, path)

    def listdir(self, path: Any = ".", /) -> list[Any]:
        if path == "/proc":
            processes = self._machine.scheduler.processes
            return [str(pid) for pid, process in processes.items() if not process.is_reaped]
        node = self._node(path)
        if not node.is_folder:
            raise failure(errno.ENOTDIR, path)
        names = sorted(node.names)
        self._machine.scheduler.random.shuffle(names)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any = ".", /) -> Any:
        return _Entries(self, path, self.listdir(path))

    def walk(self, path: Any, /) -> Iterator[Any]:
        names = self.listdir(path)
        folders = [name for name in names if self.isdir(os.path.join(path, name))]
        yield path, folders, [name for name in names if name not in folders]
        for name in folders:
            yield from self.walk(os.path.join(path, name))

    def _parent(self, path: Any) -> tuple[Node, str]:
        process = self._begin("name")
        return self._disk.parent(os.fsdecode(path), process.about["cwd"])

    def mkdir(self, path: Any, mode: int = 0o777, /) -> None:
        folder, name = self._parent(path)
        if name in folder.names:
            raise failure(errno.EEXIST, path)
        node = Node(stat.S_IFDIR, mode, self._machine.wall_time())
        node.links = 0
        self._machine.change((folder, name, node))
        self._after()

    def makedirs(self, path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        above = os.path.dirname(os.fsdecode(path))
        if above and not self.exists(above):
            self.makedirs(above, mode, True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: Any, /) -> None:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            raise failure(errno.ENOENT, path)
        if node.names:
            raise failure(errno.ENOTEMPTY, path)
        self._machine.change((folder, name, None))

    def rmtree(self, path: Any, ignore_errors: bool = False) -> None:
        try:
            for name in self.listdir(path):
                inner = os.path.join(path, name)
                if self.isdir(inner):
                    self.rmtree(inner, ignore_errors)
                else:
                    self.unlink(inner)
            self.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def unlink(self, path: Any, /) -> None:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            raise failure(errno.ENOENT, path)
        if node.is_folder:
            raise failure(errno.EISDIR, path)
        self._machine.change((folder, name, None))
        self._after()

    def link(self, path: Any, new: Any, /) -> None:
        node = self._node(path)
        folder, name = self._parent(new)
        if name in folder.names:
            raise failure(errno.EEXIST, new)
        self._machine.change((folder, name, node))

    def rename(self, path: Any, new: Any, /) -> None:
        source, old = self._parent(path)
        target, name = self._parent(new)
        node = source.names.get(old)
        if node is None:
            raise failure(errno.ENOENT, path)
        there = target.names.get(name)
        if there is node:
            return
        if there is not None and there.is_folder and (there.names or not node.is_folder):
            raise failure(errno.ENOTEMPTY, new)
        self._machine.change((target, name, node), (source, old, None))
        self._after()

    replace = rename

    def symlink(self, target: Any, path: Any, /) -> None:
        raise failure(errno.EPERM, path)

    def copyfile(self, path: Any, new: Any, /) -> object:
        with self.open(path, "rb") as source, self.open(new, "wb") as target:
            target.write(source.read())
        return new

    copy2 = copyfile

    def mkstemp(self, suffix: str = "", prefix: str = "tmp", dir: Any = None, text: bool = False) -> Any:
        number = self._machine.scheduler.random.randrange(1 << 40)
        name = f"{os.fsdecode(dir or '/tmp')}/{prefix}{number}{suffix}"
        return self.open_handle(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), name

    def TemporaryFile(self, *words: Any, **named: Any) -> IO[Any]:
        handle, name = self.mkstemp()
        self.unlink(name)
        return self.open(handle, "w+b")


class _Entries:
    """Result of `scandir`."""

    def __init__(self, files: Files, path: Any, names: list[Any]) -> None:
        self._entries = iter([_Entry(files, path, name) for name in names])

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def close(self) -> None:
        return None


class _Entry:
    def __init__(self, files: Files, path: Any, name: Any) -> None:
        self._files = files
        self.name = name
        self.path = os.path.join(path, name)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._files.isdir(self.path)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._files.isfile(self.path)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        return self._files.stat(self.path)


def _stat_of(node: Node) -> os.stat_result:
    when = int(node.mtime)
    fields = (node.kind | node.mode, node.number, 1, node.links, 1000, 1000, len(node.data), when, when, when)
    return os.stat_result(fields, {"st_mtime_ns": int(node.mtime * 1e9), "st_mtime": node.mtime})


# --- pipes ------------------------------------------------------------------------------------


class _Poll:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._wanted: dict[int, int] = {}

    def register(self, handle: Any, events: int = POLLIN | POLLOUT) -> None:
        self._wanted[handle if isinstance(handle, int) else handle.fileno()] = events

    def unregister(self, handle: Any) -> None:
        del self._wanted[handle if isinstance(handle, int) else handle.fileno()]

    def _ready(self) -> list[tuple[int, int]]:
        handles = self._host.machine.process.handles
        found = []
        for handle, wanted in self._wanted.items():
            opened = handles.get(handle)
            events = POLLNVAL if opened is None else opened.events() & (wanted | POLLHUP)
            if events:
                found.append((handle, events))
        return found

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        scheduler = self._host.machine.scheduler
        process = self._host.machine.process

        def is_ready() -> bool:
            handles = process.handles
            for handle, wanted in self._wanted.items():
                opened = handles.get(handle)
                if opened is None or opened.events() & (wanted | POLLHUP):
                    return True
            return False

        forever = milliseconds is None or milliseconds < 0
        scheduler.wait(is_ready, None if forever else (milliseconds or 0) / 1000)
        found = self._ready()
        scheduler.random.shuffle(found)
        return found


class Pipes:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def pipe(self) -> tuple[int, int]:
        machine = self._host.machine
        self._host.files._begin("open")
        pipe = Pipe()
        ends = PipeEnd(machine, pipe, False), PipeEnd(machine, pipe, True)
        return self._host.files.new_handle(ends[0]), self._host.files.new_handle(ends[1])

    def mkfifo(self, path: Any, mode: int = 0o666, /) -> None:
        raise failure(errno.EPERM, path)

    def dup(self, handle: int, /) -> int:
        opened = self._host.files._handle(handle)
        opened.references += 1
        return self._host.files.new_handle(opened)

    def dup2(self, handle: int, other: int, /) -> int:
        raise failure(errno.EBADF)

    def set_blocking(self, handle: int, blocking: bool, /) -> None:
        self._host.files._handle(handle).blocks = blocking

    def poll(self) -> Any:
        return _Poll(self._host)

    def select(self, read: Any, write: Any, other: Any, timeout: float | None = None, /) -> Any:
        poll = _Poll(self._host)
        for handle in read:
            poll.register(handle, POLLIN)
        found = {handle for handle, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return [handle for handle in read if handle in found], [], []

    def create_server(self, address: tuple[str, int], *, backlog: int) -> Any:
        raise failure(errno.EPERM)


# --- clock, threads, signals ------------------------------------------------------------------


class Clock:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.mktime = time.mktime

    def time(self) -> float:
        self._host.machine.scheduler.now += 1e-6
        return self._host.machine.wall_time()

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def monotonic(self) -> float:
        scheduler = self._host.machine.scheduler
        scheduler.now += 1e-6
        return scheduler.now

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def sleep(self, seconds: float, /) -> None:
        self._host.machine.scheduler.wait(lambda: False, seconds)


class _Lock:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._is_held:
            if not blocking:
                return False
            wait = self._host.machine.scheduler.wait
            if not wait(lambda: not self._is_held, None if timeout < 0 else timeout):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class _Semaphore:
    def __init__(self, host: SimulatedHost, count: int = 1) -> None:
        self._host = host
        self._count = count

    def acquire(self) -> bool:
        self._host.machine.scheduler.wait(lambda: self._count > 0)
        self._count -= 1
        return True

    def release(self) -> None:
        self._count += 1


class _Queue:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._host.machine.scheduler.point()
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        scheduler = self._host.machine.scheduler
        if not block:
            return self.get_nowait()
        if not scheduler.wait(lambda: self._items, timeout):
            raise queue.Empty
        return self._items.pop(0)

    def get_nowait(self) -> Any:
        self._host.machine.scheduler.point()
        if not self._items:
            raise queue.Empty
        return self._items.pop(0)

    def empty(self) -> bool:
        return not self._items


class _Thread:
    def __init__(
        self,
        host: SimulatedHost,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        daemon: bool = False,
        name: str = "",
    ) -> None:
        self._host = host
        self._target = target
        self._args = args
        self._thread: Thread | None = None
        self.name = name

    def start(self) -> None:
        scheduler = self._host.machine.scheduler
        scheduler.point()
        self._thread = scheduler.start_thread(self._host.machine.process, lambda: self._target(*self._args))
        self._thread.facade = self

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        self._host.machine.scheduler.wait(lambda: not self.is_alive(), timeout)


class Threads:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def Thread(self, *, target: Callable[..., object], **named: Any) -> _Thread:
        return _Thread(self._host, target, **named)

    def Lock(self) -> _Lock:
        return _Lock(self._host)

    def Semaphore(self, count: int = 1) -> _Semaphore:
        return _Semaphore(self._host, count)

    def SimpleQueue(self) -> _Queue:
        return _Queue(self._host)

    def current_thread(self) -> Any:
        current = self._host.machine.scheduler.current
        return None if current is None else current.facade


class Signals:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def signal(self, number: int, handler: Any, /) -> Any:
        handlers = self._host.machine.process.handlers
        before = handlers.get(number, signal.SIG_DFL)
        handlers[number] = handler
        return before

    def getsignal(self, number: int, /) -> Any:
        return self._host.machine.process.handlers.get(number, signal.SIG_DFL)

    def pthread_sigmask(self, how: int, mask: Iterable[int], /) -> Any:
        return set()

    def set_wakeup_fd(self, handle: int, /, *, warn_on_full_buffer: bool = True) -> int:
        return -1

    def setitimer(self, which: int, seconds: float, interval: float = 0.0, /) -> Any:
        return (0.0, 0.0)


# --- processes --------------------------------------------------------------------------------


class Processes:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.start_time = _FROM_PROC["start_time"]
        self.has_living = _FROM_PROC["has_living"]
        self.group_members = _FROM_PROC["group_members"]
        self.find_marked = _FROM_PROC["find_marked"]

    @property
    def _machine(self) -> Machine:
        return self._host.machine

    def posix_spawnp(
        self,
        path: Any,
        argv: Any,
        env: Any,
        /,
        *,
        file_actions: Any = (),
        setsid: bool = False,
        setsigmask: Any = (),
        setsigdef: Any = (),
    ) -> int:
        machine = self._machine
        own = self._host.files._begin("spawn")
        words = [os.fsdecode(word) for word in argv]
        variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        program = os.path.basename(machine.find_program(os.fsdecode(path), variables))
        process = machine.scheduler.new_process(own, variables)
        process.about["cwd"] = own.about["cwd"]
        process.group = process.pid if setsid else own.group
        process.name = words[-1]
        for _, source, target in file_actions:
            opened = own.handles[source]
            opened.references += 1
            process.handles[target] = opened
        machine.on_spawn(process)
        machine.scheduler.start(process, lambda: machine.programs[program](machine, process, words))
        self._host.files._after()
        return process.pid

    posix_spawn = posix_spawnp

    def Popen(self, *words: Any, **named: Any) -> Any:
        raise failure(errno.EPERM)

    def fork(self) -> int:
        raise failure(errno.EPERM)

    def setsid(self) -> None:
        self._machine.process.group = self._machine.process.pid

    def exit_now(self, status: int) -> Any:
        self._machine.scheduler.end(self._machine.process, status << 8)
        raise Killed

    def waitpid(self, pid: int, options: int, /) -> tuple[int, int]:
        machine = self._machine
        machine.scheduler.point()
        child = machine.scheduler.processes.get(pid)
        if child is None or child.is_reaped or child.parent is not machine.process:
            raise ChildProcessError(errno.ECHILD, "no such child")
        if child.is_alive:
            if options & os.WNOHANG:
                return 0, 0
            machine.scheduler.wait(lambda: not child.is_alive)
        child.is_reaped = True
        return pid, child.status or 0

    def _target(self, pid: int) -> Process:
        process = self._machine.scheduler.processes.get(pid)
        if process is None or process.is_reaped:
            raise ProcessLookupError(errno.ESRCH, "no such process")
        return process

    def kill(self, pid: int, number: int, /) -> None:
        self._machine.scheduler.point()
        process = self._target(pid)
        if number and process.is_alive:
            self._machine.send(process, number)

    def killpg(self, group: int, number: int, /) -> None:
        self._machine.scheduler.point()
        members = [
            process
            for process in self._machine.scheduler.processes.values()
            if process.group == group and not process.is_reaped
        ]
        if not members:
            raise ProcessLookupError(errno.ESRCH, "no such process")
        for process in members:
            if number and process.is_alive:
                self._machine.send(process, number)

    def pidfd_open(self, pid: int, /) -> int:
        self._machine.scheduler.point()
        return self._host.files.new_handle(ProcessHandle(self._target(pid)))

    def pidfd_send_signal(self, handle: int, number: int, /) -> None:
        self._machine.send(self._host.files._handle(handle).process, number)

    def getpid(self) -> int:
        return self._machine.process.pid

    def getpgrp(self) -> int:
        return self._machine.process.group

    def getrlimit(self, resource: int, /) -> tuple[int, int]:
        return (1024, 4096)

    def setrlimit(self, resource: int, limits: tuple[int, int], /) -> None:
        return None

    def boot_id(self) -> str:
        return f"boot-{self._machine.boot}"

    def new_start_time(self, pid: int, since: int) -> str:
        found: str = self.start_time(pid)
        return found

    def tick_now(self) -> int:
        return int(self._machine.scheduler.now / TICK_S)


# --- environment and terminal -----------------------------------------------------------------


class _Variables(MutableMapping[Any, Any]):
    """The environment of the current process."""

    def __init__(self, host: SimulatedHost, is_text: bool) -> None:
        self._host = host
        self._is_text = is_text

    def _own(self) -> dict[bytes, bytes]:
        return self._host.machine.process.env

    def __getitem__(self, name: Any) -> Any:
        value = self._own()[os.fsencode(name)]
        return os.fsdecode(value) if self._is_text else value

    def __setitem__(self, name: Any, value: Any) -> None:
        self._own()[os.fsencode(name)] = os.fsencode(value)

    def __delitem__(self, name: Any) -> None:
        del self._own()[os.fsencode(name)]

    def __iter__(self) -> Iterator[Any]:
        names = list(self._own())
        return iter([os.fsdecode(name) for name in names] if self._is_text else names)

    def __len__(self) -> int:
        return len(self._own())


class Environment:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.environ: MutableMapping[str, str] = _Variables(host, True)
        self.environb: MutableMapping[bytes, bytes] = _Variables(host, False)

    def chdir(self, path: Any, /) -> None:
        self._host.machine.process.about["cwd"] = os.fsdecode(path)

    def getcwd(self) -> str:
        return str(self._host.machine.process.about["cwd"])

    def getcwdb(self) -> bytes:
        return os.fsencode(self.getcwd())

    def geteuid(self) -> int:
        return 1000

    def urandom(self, size: int, /) -> bytes:
        return self._host.machine.scheduler.random.randbytes(size)

    def which(self, cmd: Any, /) -> Any:
        try:
            return self._host.machine.find_program(os.fsdecode(cmd), self._host.machine.process.env)
        except OSError:
            return None


class SimulatedHost:
    """The host for `protocol.installed`. machine: the currently simulated one."""

    def __init__(self) -> None:
        self.machine: Machine
        self.files = Files(self)
        self.pipes = Pipes(self)
        self.clock = Clock(self)
        self.processes = Processes(self)
        self.signals = Signals(self)
        self.threads = Threads(self)
        self.environment = Environment(self)
        self.terminal = SimpleNamespace(
            isatty=lambda handle: False,
            get_terminal_size=lambda handle=1: os.terminal_size((80, 24)),
            tcsetpgrp=lambda handle, group: None,
            tcgetattr=lambda handle: [],
            tcsetattr=lambda handle, when, attributes: None,
            tcflush=lambda handle, queue: None,
            setcbreak=lambda *words: None,
        )
