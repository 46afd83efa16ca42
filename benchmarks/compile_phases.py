"""Compiles one loop in this process and prints what each phase took, as JSON (seconds of CPU).

A script of its own, because a compiler that has already compiled is another process than one that
starts: `python compile_phases.py LOOP.yaml`. The collector rests as it does in `llc`
(`runtime/entry.py`).
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any


def main(path: str) -> None:
    gc.disable()
    phases: dict[str, float] = {}

    def phase(name: str, action: Callable[[], Any]) -> Any:
        begun = process_time()
        result = action()
        phases[name] = process_time() - begun
        return result

    def imports() -> Any:
        from llc.frontend import check, documents, lower, paradigms, structure
        from llc.vm import emit

        return check, documents, lower, paradigms, structure, emit

    check, documents, lower, paradigms, structure, emit = phase("import", imports)
    source = phase("read the file", lambda: documents.read_source(path))
    spec, document, _ = phase("YAML to a loop", lambda: structure.read_loop(source))
    loop = phase("desugar", lambda: paradigms.to_fsm(spec))
    phase("check", lambda: list(check.check(loop, document)))
    program = phase("lower", lambda: lower.lower(loop, (source,), document.within, "model"))
    image = phase("emit", lambda: emit.emit(program))
    phase("to bytes", image.to_bytes)
    print(json.dumps(phases))


if __name__ == "__main__":
    main(sys.argv[1])
