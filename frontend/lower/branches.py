"""Lowering of `parallel:` to two functions: one runs a single branch by its number, one joins all branches.

    checks           a `parallel` exit over the branches, then their combined verdict
    checks/branch    the call of one loop; a fault in it becomes the outcome `error`

Must not contain: the states of the calling loop (`calls`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.builder import FunctionBuilder, prim, record
from ...ir.nodes import Call, Closure, Expr, Function, Handler, Parallel, Return, Slot, Switch
from ..core.program_parts import BranchesPart

_ENDED, _FAULT = Slot("ended"), Slot("fault")
_SUCCESS = prim("eq", prim("get", _ENDED, "status"), "success")
_BROKEN = {"status": "error", "terminated_by": "error", "error": prim("get", _FAULT, "message")}


def functions_of(part: BranchesPart, callees: Sequence[Closure], names: tuple[str, str]) -> list[Function]:
    """The functions for the branches.

    callees: the loop of each branch. names: the names of the joining function and of the branch function.
    """
    return [_joined(part, names), _branch(part, callees, names[1])]


def _joined(part: BranchesPart, names: tuple[str, str]) -> Function:
    given = {f"context.{key}": Slot(f"context.{key}") for key in part.given}
    builder = FunctionBuilder(names[0], [*given])
    items = [record({"branch": name, **given}) for name, _ in part.branches]
    ran = Parallel(Closure(names[1]), prim("list", *items), "results", "joined", span=part.span)
    builder.state("start", (), ran, span=part.span)
    results = [prim("nth", Slot("results"), number) for number in range(len(items))]
    passed: Expr = prim("add", 0, *(prim("select", prim("get", one, "passed"), 1, 0) for one in results))
    status = prim("select", prim("ge", passed, part.least), "success", "failure")
    names_ = [name for name, _ in part.branches]
    captured = {name: prim("get", one, "captured") for name, one in zip(names_, results, strict=True)}
    ended = {"status": status, "terminated_by": "branches", "passed": passed, "captured": record(captured)}
    builder.state("joined", (), Return(record(ended)), span=part.span)
    return builder.build(part.span)


def _branch(part: BranchesPart, callees: Sequence[Closure], name: str) -> Function:
    builder = FunctionBuilder(name, ["branch"])
    cases = tuple((branch, f"run_{number}") for number, (branch, _) in enumerate(part.branches, 1))
    which = prim("get", Slot("branch"), "branch")
    builder.state("start", (), Switch(which, cases, cases[-1][1]), span=part.span)
    faulted = Handler("failed", _FAULT.name)
    for (_, target), (_, loop), callee in zip(cases, part.branches, callees, strict=True):
        args = tuple(prim("get", Slot("branch"), f"context.{key}") for key in loop.given)
        call = Call(callee, args, _ENDED.name, "ended", span=part.span)
        builder.state(target, (), call, handler=faulted, span=part.span)
    how = {"status": prim("get", _ENDED, "status"), "terminated_by": prim("get", _ENDED, "terminated_by")}
    captured = prim("merge", prim("get", _ENDED, "captured"), record(how))
    builder.state("ended", (), Return(record({"passed": _SUCCESS, "captured": captured})), span=part.span)
    broken = record({"passed": False, "captured": record(_BROKEN)})
    builder.state("failed", (), Return(broken), span=part.span)
    return builder.build(part.span)
