"""Parts of a world: what performers keep from one effect to the next, such as helper processes.

Owns how long a part is kept. A performer gets the parts of its world and makes its own on first use:

    def perform(args, context, parts):
        return parts.keep("shell", Shell).perform(args, context)
"""

from __future__ import annotations

from ..host.effect_context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    from ..models.worker_pool import SharedWorkers

    class Part(Protocol):
        def close(self) -> None: ...

    P = TypeVar("P", bound=Part)


class Parts:
    """The parts of one world, by name.

    kinds: the effect kinds that the program can request, empty if that is not known. workers: model
    clients that many runs share, None if the run has its own. common: parts that worlds which perform
    effects of one run at the same time have in common; the world that creates the map closes them.
    """

    def __init__(
        self,
        kinds: frozenset[str] = frozenset(),
        workers: SharedWorkers | None = None,
        common: dict[str, Part] | None = None,
    ) -> None:
        self.kinds = kinds
        self.workers = workers
        self._owns_common = common is None
        self._common: dict[str, Part] = {} if common is None else common
        self._lasting: dict[str, Part] = {}
        self._of_run: dict[str, Part] = {}

    def perform_kind(self, kind: str, args: dict[str, Any], context: Context) -> dict[str, Any]:
        """Perform an effect as a part of another one."""
        raise NotImplementedError  # `World` performs

    def keep(self, name: str, make: Callable[[], P]) -> P:
        """A part that can serve a later run too."""
        return self._kept(self._lasting, name, make)

    def keep_for_run(self, name: str, make: Callable[[], P]) -> P:
        """A part that ends with the run."""
        return self._kept(self._of_run, name, make)

    def keep_common(self, name: str, make: Callable[[], P]) -> P:
        """A part that exists once in a run, whichever thread asks for it."""
        part: Any = self._common.get(name) or self._common.setdefault(name, make())
        return part  # type: ignore[no-any-return]

    def has(self, name: str) -> bool:
        return any(name in parts for parts in (self._lasting, self._of_run, self._common))

    def take_over(self, used: Parts) -> None:
        """Adopt the lasting parts of a world that no run uses any more."""
        used.end_run()
        for name in list(used._lasting):
            if name not in self._lasting:
                self._lasting[name] = used._lasting.pop(name)
        used.close()

    def end_run(self) -> None:
        """Close the parts that belong to the run."""
        _close(self._of_run)

    def close(self) -> None:
        self.end_run()
        _close(self._lasting)
        if self._owns_common:
            _close(self._common)

    @staticmethod
    def _kept(parts: dict[str, Part], name: str, make: Callable[[], P]) -> P:
        part: Any = parts.get(name)
        if part is None:
            part = parts[name] = make()
        return part  # type: ignore[no-any-return]


def _close(parts: dict[str, Part]) -> None:
    while parts:
        parts.popitem()[1].close()
