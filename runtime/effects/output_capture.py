"""Capture of an action's output: shows it immediately, keeps a limited part in memory, the whole on disk.

Processes blocks of bytes as they are read, never lines.
"""

from __future__ import annotations

import os.path

from ..host import files, secrets
from ..host.effect_context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


# Output up to this size in bytes is kept in memory; of larger output, the first and last KEPT_END bytes.
CAPTURE_LIMIT = 1 << 20
KEPT_END = CAPTURE_LIMIT // 2


class Capture:
    """One output stream, kept in memory up to CAPTURE_LIMIT; larger output is on disk, its ends in memory."""

    def __init__(self, stream: str, context: Context) -> None:
        self.stream = stream
        self.total = 0
        self.copy = ""  # clause about the copy on disk, or why there is none
        self._tail = bytearray()
        self._head = b""
        self._file = -1
        self._directory = context.output_dir
        self._name = f"{context.effect_id.rpartition('/')[2]}-{stream}.txt"
        self._show = context.on_output
        self._masked: secrets.Stream | None = None  # masks secrets in the copy
        self._decode: Callable[[bytes, bool], str] | None = None

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        tail = self._tail
        tail += data
        if len(tail) > CAPTURE_LIMIT:
            if not self._head:
                self._head = bytes(tail[:KEPT_END])
                self._open()
                self._write(tail)
            else:
                self._write(data)
            del tail[:-KEPT_END]
        elif self._head:
            self._write(data)
        if self._show is not None:
            if self._decode is None:
                import codecs

                self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
            text = self._decode(data, False)
            if text:
                self._show(self.stream, text)

    def finish(self) -> str:
        """The captured text; for large output, the first and last part with a marker line in between."""
        if self._decode is not None and self._show is not None:
            rest = self._decode(b"", True)
            if rest:
                self._show(self.stream, rest)
        if not self._head:
            return self._tail.decode("utf-8", "replace")
        if self._file >= 0:
            if self._masked is not None:
                masked, self._masked = self._masked, None
                self._write(masked.finish())
            self.close()
        # Do not split a character at either cut.
        head = self._head[: len(self._head) - _incomplete(self._head)]
        tail = self._tail[-KEPT_END:]
        start = 0
        while start < 3 and 0x80 <= tail[start] < 0xC0:
            start += 1
        left_out = self.total - len(head) - len(tail) + start
        marker = f"\n[llc: {left_out} of {self.total} bytes are left out here; {self.copy}]\n"
        return head.decode("utf-8", "replace") + marker + tail[start:].decode("utf-8", "replace")

    def close(self) -> None:
        if self._file >= 0:
            files.close(self._file)
            self._file = -1

    @property
    def is_truncated(self) -> bool:
        return bool(self._head)

    def _open(self) -> None:
        if self._directory is None:
            self.copy = "no full copy was kept"
            return
        path = os.path.join(self._directory, self._name)
        try:
            files.makedirs(self._directory, mode=0o700, exist_ok=True)
            self._file = files.open_handle(path, files.O_WRONLY | files.O_CREAT | files.O_TRUNC, 0o600)
            if secrets.known:
                self._masked = secrets.Stream(is_text=False)
        except OSError as error:
            self.copy = f"no full copy: {error.strerror}"
        else:
            self.copy = f"all of it is in {path}"

    def _write(self, data: bytes | bytearray) -> None:
        if self._file < 0:
            return
        if self._masked is not None:
            data = self._masked.feed(bytes(data))
        try:
            with memoryview(data) as view:
                done = 0
                while done < len(view):
                    done += files.write(self._file, view[done:])
        except OSError as error:  # a full disk only prevents the copy
            self.copy = f"no full copy: {error.strerror}"
            self.close()


def _incomplete(data: bytes) -> int:
    """The number of bytes at the end that belong to an incomplete UTF-8 character."""
    for count in range(1, min(4, len(data) + 1)):
        byte = data[-count]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if length > count else 0
        if byte < 0x80:
            return 0
    return 0
