"""Graphs of a compiled program: its functions with their calls, or the states of its IR."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.analysis import expressions, functions_named
from ...ir.compile_options import LIBRARY_FOLDER
from .model import BAD, ERROR, GOOD, PLAIN, Edge, Graph, Node, kind_of_verdict


def graph_of_functions(program: ir.Program) -> Graph:
    """The functions of a program and the functions that they name, without library functions."""
    own = [function for function in program.functions if not _is_library(function)]
    names = {function.name for function in own}
    graph = Graph(program.name, "functions", [], [], program.entry if program.entry in names else None)
    for function in own:
        effects = sorted({state.exit.kind for state in function.states if isinstance(state.exit, ir.Perform)})
        line = function.span.line if function.span is not None else None
        graph.nodes.append(Node(function.name, "function", ", ".join(effects), line=line))
        called: dict[str, None] = {}
        for state in function.states:
            for part in (*state.body, state.exit):
                for expr in expressions(part):
                    called.update(dict.fromkeys(functions_named(expr)))
        graph.edges += [Edge(function.name, name) for name in called if name in names]
    return graph


def graph_of_ir(program: ir.Program) -> Graph:
    """The states of the functions of a program, without library functions."""
    own = [function for function in program.functions if not _is_library(function)]
    graph = Graph(program.name, "ir", [], [])
    for function in own:
        prefix = f"{function.name}: " if len(own) > 1 else ""
        if function.name == program.entry:
            graph.initial = prefix + function.states[0].name
        for state in function.states:
            line = state.span.line if state.span is not None else None
            graph.nodes.append(Node(prefix + state.name, *_kind_and_detail(state), line=line))
            graph.edges += [
                Edge(prefix + state.name, prefix + target, [label] if label else [], kind)
                for label, target, kind in _exits(state)
            ]
    return graph


def _is_library(function: ir.Function) -> bool:
    return function.span is not None and function.span.path.startswith(LIBRARY_FOLDER)


def _kind_and_detail(state: ir.State) -> tuple[str, str]:
    """The kind and the detail of the node of an IR state."""
    match state.exit:
        case ir.Perform(kind=kind):
            return "effect", kind
        case ir.Call() | ir.TailCall():
            return "call", "call"
        case ir.Parallel():
            return "call", "parallel"
        case ir.Return():
            return "success", "return"
        case ir.Fail():
            return "failure", "fail"
        case _:
            return "state", ""


def _exits(state: ir.State) -> list[tuple[str, str, str]]:
    """The exits of an IR state: label, target and kind."""
    match state.exit:
        case ir.Goto(target=target):
            exits = [("", target, PLAIN)]
        case ir.Branch(then=then, otherwise=otherwise):
            exits = [("true", then, GOOD), ("false", otherwise, BAD)]
        case ir.Switch(cases=cases, default=default):
            exits = [(case, target, kind_of_verdict(case)) for case, target in cases]
            if default is not None:
                exits.append(("else", default, PLAIN))
        case ir.Call() | ir.Perform() | ir.Parallel() as exit:
            exits = [("", exit.next, PLAIN)]
        case _:
            exits = []
    if state.handler is not None:
        exits.append(("fault", state.handler.target, ERROR))
    return exits
