"""Messages between a keeper of actions and the processes that drive runs.

Messages are datagrams on local sockets, with file handles. A request to start an action is `marshal` data;
all other messages are constants of this module.
"""

from __future__ import annotations

import os
import sys

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Maximum size of a message in bytes. A larger request is passed in a file, and IN_FILE is sent instead.
LARGEST = 1 << 16
IN_FILE = b"f"
# Messages about one action: to the keeper, and from it. A name of `STREAMS`, sent to the keeper, comes with
# the file that receives this stream.
RELEASE, UNSAFE, RELEASED = b"r", b"u", b"."
STARTED, FAILED, EXITED = b"p", b"e", b"x"
STREAMS = "output", "stderr"
# From a process that resumes a run: list the actions. The process then connects once for each action and
# sends its effect id.
LIST = b"list"
# From a process that stops a run: end its actions. The answer is `RELEASED`.
STOP = b"stop"
# Names in the folder of a run: socket of the keeper after the death of the driver, and folder for the results
# of actions that ended after the death of the driver.
SOCKET = "keeper"
FOLDER = "kept"

_DEFERRED: dict[str, tuple[str, ...]] = {
    "_socket": (
        "AF_UNIX",
        "MSG_CMSG_CLOEXEC",
        "SCM_RIGHTS",
        "SOCK_SEQPACKET",
        "SOL_SOCKET",
        "socket",
        "socketpair",
    )
}


def of_socket(name: str) -> Any:
    """Return a name of the C module `_socket`; importing `socket` would take 2 ms more."""
    return globals().get(name) or load(globals(), _DEFERRED, name)


def pair() -> tuple[Any, Any]:
    """Create two connected sockets."""
    both: tuple[Any, Any] = of_socket("socketpair")(of_socket("AF_UNIX"), of_socket("SOCK_SEQPACKET"))
    return both


def send(connection: Any, data: bytes, handles: Sequence[int]) -> None:
    """Send a message with handles. Raises OSError."""
    packed = b"".join(handle.to_bytes(4, sys.byteorder) for handle in handles)
    connection.sendmsg([data], [(of_socket("SOL_SOCKET"), of_socket("SCM_RIGHTS"), packed)])


def receive(connection: Any, count: int) -> tuple[bytes, list[int]]:
    """Receive a message and its handles. Raises OSError, and ValueError for fewer than `count` handles."""
    size, space, flags = LARGEST * 2, 4 * 32, of_socket("MSG_CMSG_CLOEXEC")
    try:
        data, ancillary, _, _ = connection.recvmsg(size, space, flags)
    except ConnectionResetError:
        # The other process has died without reading all messages. The system reports this once, before the
        # messages that the process had sent, which can still be read.
        data, ancillary, _, _ = connection.recvmsg(size, space, flags)
    handles = [
        int.from_bytes(packed[at : at + 4], sys.byteorder)
        for _, _, packed in ancillary
        for at in range(0, len(packed) - 3, 4)
    ]
    if len(handles) < count:
        raise ValueError("a message without its handles")
    return data, handles


def unnamed_file(folder: str) -> int:
    """Create an unnamed file on the disk of a folder; return its handle. Raises OSError.

    (Importing `tempfile` would take several milliseconds.)
    """
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600)
    except OSError:  # the file system does not support unnamed files
        path = os.path.join(folder, f".unnamed.{os.getpid()}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        return handle


def place_of(folder: str, effect_id: str) -> str:
    """Return the path for the result of an action, without the file extension."""
    return os.path.join(folder, FOLDER, effect_id.rpartition("/")[2])
