"""Python's collector rests while much is made that is kept: it would take half of the time."""

from __future__ import annotations

import gc


class CollectorRests:
    """Context manager: disable the garbage collector inside, and restore its previous state."""

    def __enter__(self) -> None:
        self._was_collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_collecting:
            gc.enable()
