"""Messages between a keeper of actions and the processes that drive runs.

They are datagrams on sockets of this machine, with handles of files. A request to start an action is
`marshal` data; all others are one of the words below.
"""

from __future__ import annotations

import os
import sys

from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# A request that is longer is passed in a file, and this word represents it.
LARGEST = 1 << 16
IN_FILE = b"f"
# About one action, to the keeper and from it; `STREAMS`, to the keeper, with the file that a stream goes to.
RELEASE, UNSAFE, RELEASED = b"r", b"u", b"."
STARTED, FAILED, EXITED = b"p", b"e", b"x"
STREAMS = "output", "stderr"
# From a process that resumes a run: what is there? It then connects once for each action, with its effect.
LIST = b"list"
# From one that stops a run: its actions are to end. The answer is `RELEASED`.
STOP = b"stop"
# The name of the socket of a keeper whose process has died, and of the folder for the results of actions that
# ended after their run; both in the folder of the run.
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
    """A name of the module in C that `socket` wraps, which takes another 2 ms to load."""
    return globals().get(name) or load(globals(), _DEFERRED, name)


def pair() -> tuple[Any, Any]:
    """Two connected sockets."""
    both: tuple[Any, Any] = of_socket("socketpair")(of_socket("AF_UNIX"), of_socket("SOCK_SEQPACKET"))
    return both


def send(connection: Any, data: bytes, handles: Sequence[int]) -> None:
    """Raises OSError."""
    packed = b"".join(handle.to_bytes(4, sys.byteorder) for handle in handles)
    connection.sendmsg([data], [(of_socket("SOL_SOCKET"), of_socket("SCM_RIGHTS"), packed)])


def receive(connection: Any, count: int) -> tuple[bytes, list[int]]:
    """A message and its handles. Raises OSError, and ValueError where there are fewer than `count`."""
    size, space, flags = LARGEST * 2, 4 * 32, of_socket("MSG_CMSG_CLOEXEC")
    try:
        data, ancillary, _, _ = connection.recvmsg(size, space, flags)
    except ConnectionResetError:
        # The other process has died and had not read all of ours. The system says so first, and once;
        # what it had sent before is still to be read.
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
    """A handle of a new file without a name on the disk of a folder. Raises OSError.

    (`tempfile` would take several milliseconds to load.)
    """
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600)
    except OSError:  # a file system without such files
        path = os.path.join(folder, f".unnamed.{os.getpid()}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        return handle


def place_of(folder: str, effect_id: str) -> str:
    """Where the result of an action is kept, without the ending of the name."""
    return os.path.join(folder, FOLDER, effect_id.rpartition("/")[2])
