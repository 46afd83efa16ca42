"""Compile a loop or a flow in this process and print the processor time of each phase as JSON, in seconds.

Usage: `python compile_phases.py LOOP.yaml`, or a flow. A separate script, because a compiler in a fresh
process has other costs than one that has already compiled. The garbage collector is paused as in `llc`
(`runtime/cli/entry.py`).
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any


class Phases:
    """Processor time of each phase."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}

    def __call__(self, name: str, action: Callable[[], Any]) -> Any:
        started_at = process_time()
        result = action()
        self.taken[name] = process_time() - started_at
        return result


def main(path: str) -> None:
    gc.disable()
    phase = Phases()
    program = flow(path, phase) if path.endswith(".sexp") else loop(path, phase)
    from llc.vm.code import emit

    image = phase("emit", lambda: emit.emit(program))
    phase("to bytes", image.to_bytes)
    print(json.dumps(phase.taken))


def loop(path: str, phase: Phases) -> Any:
    def imports() -> Any:
        from llc.frontend.loop import checks as check
        from llc.frontend.loop import paradigms
        from llc.frontend.loop import reader as structure
        from llc.frontend.lower import loop as lower
        from llc.frontend.source import files
        from llc.vm.code import emit

        return check, files, lower, paradigms, structure, emit

    check, files, lower, paradigms, structure, _ = phase("import", imports)
    source = phase("read the file", lambda: files.read_source(path))
    spec, document, _ = phase("YAML to a loop", lambda: structure.read_loop(source))
    loop = phase("desugar", lambda: paradigms.to_fsm(spec))
    phase("check", lambda: list(check.check(loop, document)))
    return phase("lower", lambda: lower.lower(loop, (source,), document.within, "model"))


def flow(path: str, phase: Phases) -> Any:
    def imports() -> Any:
        from llc.frontend.expand import program as expand
        from llc.frontend.link import flow as flow_source
        from llc.frontend.lower import program as flows
        from llc.frontend.sexp import reader
        from llc.frontend.source import files
        from llc.vm.code import emit

        return files, expand, flow_source, flows, reader, emit

    files, expand, flow_source, flows, reader, _ = phase("import", imports)
    source = phase("read the file", lambda: files.read_source(path))
    data, _ = phase("text to data", lambda: reader.read(source))
    expansion = phase("expand and check", lambda: expand.expand(data, source))
    body = expansion.program.body
    return phase("lower", lambda: flows.lower_flow(body, "flow", (source,), flow_source.definition))


if __name__ == "__main__":
    main(sys.argv[1])
