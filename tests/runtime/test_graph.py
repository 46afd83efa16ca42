"""`llc graph`: every output format is well formed and contains the complete loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_cases import CASES
from keepers import KILL

from llc.frontend.compile import compile_file
from llc.frontend.loop.schema import CURRENT, Loop
from llc.ir.diagnostics import CompileError
from llc.runtime.graph import commands, diagram, layout, picture, text_forms
from llc.runtime.graph.loop_graph import graph_of_loop
from llc.runtime.graph.model import Edge, Graph, Node
from llc.runtime.graph.simplify import MAX_NODES, simplify
from llc.runtime.host.errors import UserError
from llc.runtime.host.screen import Screen, columns

LOOPS = [case / "loop.yaml" for case in CASES if case.parent.name in ("loops", "rules")]
IDS = [f"{path.parent.parent.name}/{path.parent.name}" for path in LOOPS]
HOSTILE = (
    "\x1b[31mred\x1b[0m <script>alert(1)</script> \"q\" 'q' \\ ]]> -- & \u202egnp.exe #quot; {rank=same} \n x"
)


def compile_loop(path: Path) -> Loop:
    try:
        loop = compile_file(str(path)).loop
    except CompileError:
        pytest.skip("refused by the compiler")
    if loop is None:
        pytest.skip("no loop of states")
    return loop


def screen(unicode: bool = True) -> Screen:
    screen = Screen(None)
    screen.unicode = unicode
    return screen


def routes_of(loop: Loop) -> Iterator[tuple[str, str]]:
    """Source and target of every route of a loop."""
    for state in loop.states.values():
        if state.is_terminal:
            restart_target = loop.restart_of(state)
            targets = [] if restart_target is None else [restart_target]
        else:
            targets = [*state.routes.values(), *([state.next] if state.next is not None else [])]
        yield from ((state.name, state.name if target == CURRENT else target) for target in targets)


def shown_routes(graph: Graph) -> set[tuple[str, str]]:
    """Source and target of every route that a graph shows, as a line, a chip or a badge."""
    routes = {(edge.source, edge.target) for edge in graph.edges}
    for node in graph.nodes:
        routes |= {(node.name, chip.rpartition(" → ")[2]) for chip in node.chips}
        routes |= {(node.name, node.name)} if node.badges else set()
    return routes


# --- the model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOOPS, ids=IDS)
def test_every_route_is_shown(path: Path) -> None:
    """All states are shown in the order of the file and each route once, with and without chips."""
    loop = compile_loop(path)
    for all_edges in (False, True):
        graph = simplify(graph_of_loop(loop), all_edges)
        assert [node.name for node in graph.nodes] == list(loop.states)
        assert {(a, b if b in loop.states else b[:60]) for a, b in routes_of(loop)} == shown_routes(graph)


def test_crowded_targets_and_errors_are_chips() -> None:
    """Of five routes to one state only one is a line; error routes are chips, unless all edges are shown."""
    graph = crowded_graph(6)
    assert [edge.source for edge in graph.edges if edge.target == "end"] == ["s0"]
    assert graph.node("s3").chips == ["error → end", "success → end"]
    assert len(crowded_graph(6, all_edges=True).edges) == 17
    assert [edge.source for edge in crowded_graph(4).edges if edge.target == "end"] == [
        "s0",
        "s1",
        "s2",
        "s3",
    ]


def crowded_graph(count: int, all_edges: bool = False) -> Graph:
    names = [f"s{number}" for number in range(count)]
    graph = Graph("crowd", "loop", [Node(name, "action") for name in [*names, "end"]], [], "s0")
    for name, successor in zip(names, [*names[1:], None], strict=True):
        graph.edges += [Edge(name, "end", ["success"], "good"), Edge(name, "end", ["error"], "error")]
        graph.edges += [Edge(name, successor, ["failure"], "bad")] if successor else []
    return simplify(graph, all_edges)


@pytest.mark.parametrize("inner", [3, 10])
def test_large_graphs_are_folded(inner: int) -> None:
    """Inner loops are folded to one node each until at most 80 nodes remain; all other routes are kept."""
    names = [f"s{number}" for number in range(300)]
    graph = Graph("large", "loop", [Node(name, "action") for name in names], [], "s0")
    for number, name in enumerate(names):
        if number + 1 < len(names):
            graph.edges.append(Edge(name, names[number + 1], ["success"]))
        if number % inner == inner - 1:
            graph.edges.append(Edge(name, names[number - inner + 1], ["failure"]))
    graph.edges.append(Edge(names[-1], "s0", ["again"]))
    folded = simplify(graph)
    assert len(folded.nodes) <= MAX_NODES
    assert folded.initial == "s0"
    assert {edge.source for edge in folded.edges} | {edge.target for edge in folded.edges} == set(
        folded.by_name
    )
    assert sum(node.states for node in folded.nodes) == 300


# --- pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOOPS, ids=IDS)
def test_picture_is_readable(path: Path) -> None:
    """Boxes and labels do not overlap, the first state is in the top row, and the output is deterministic."""
    graph = simplify(graph_of_loop(compile_loop(path)))
    placed = layout.lay_out(graph)
    boxes = list(placed.boxes.values())
    for number, box in enumerate(boxes):
        for other in boxes[:number]:
            assert not (
                abs(box.x - other.x) < (box.width + other.width) / 2
                and abs(box.y - other.y) < (box.height + other.height) / 2
            )
    for edge, line in zip(graph.edges, placed.paths, strict=True):
        if line.label is not None:
            width = columns(edge.label) * layout.LABEL_SIZE * 0.6
            assert not any(
                abs(box.x - line.label[0]) < (box.width + width) / 2 - 1
                and abs(box.y - line.label[1]) < box.height / 2
                for box in boxes
            )
    if graph.initial in placed.boxes:
        assert placed.boxes[graph.initial].y == min(box.y for box in boxes)
    svg = picture.as_svg(graph)
    assert svg == picture.as_svg(simplify(graph_of_loop(compile_loop(path))))
    texts = "".join(ElementTree.fromstring(svg).itertext())
    assert all(name[:40] in texts for name in graph.by_name)


def test_300_states_are_laid_out_completely() -> None:
    """With all edges, and without folding."""
    names = [f"state_{number}" for number in range(300)]
    graph = Graph("large", "loop", [Node(name, "action", "pytest -q") for name in names], [], names[0])
    for number, name in enumerate(names[1:], 1):
        graph.edges.append(Edge(names[number // 3], name, ["success"]))
        if number % 3 == 0:
            graph.edges.append(Edge(name, names[number // 3], ["failure"]))
    placed = layout.lay_out(simplify(graph, all_edges=True))
    assert (len(placed.boxes), len(placed.paths)) == (300, 398)


def test_effort_of_graphviz_is_limited_for_long_routes() -> None:
    """Routes to the end of a chain of 300 states pass many rows; in a tree of 300 states they are short."""
    names = [f"state_{number}" for number in range(300)]
    nodes = [Node(name, "action") for name in names]
    hub, tree = (Graph("large", "loop", nodes, [], names[0]) for _ in range(2))
    for number, name in enumerate(names[1:]):
        hub.edges += [Edge(names[number], name, ["success"]), Edge(name, names[-1], ["error"], "error")]
        tree.edges.append(Edge(names[number // 3], name, ["success"]))
        tree.edges.append(Edge(name, names[number // 3], ["failure"], "bad"))
    assert "nslimit" in layout._effort(hub)
    assert layout._effort(tree) == "splines=true"


# --- hostile contents ---------------------------------------------------------------------------


def hostile_graph() -> Graph:
    nodes = [Node(HOSTILE, kind, HOSTILE, [f"{HOSTILE} → x"], [HOSTILE]) for kind in ("action",)]
    nodes += [Node("b" * 5000, "agent", "d" * 10_000_000), Node("wide 漢字 é", "ask", "漢" * 300)]
    edges = [Edge(nodes[0].name, nodes[1].name, [HOSTILE]), Edge(nodes[1].name, nodes[0].name, ["v" * 3000])]
    return Graph(HOSTILE, "loop", nodes, edges, HOSTILE, [HOSTILE])


def test_hostile_names_are_text_in_a_picture() -> None:
    """They add no element, style, escape sequence or reordering character."""
    plain = Graph("x", "loop", [Node("a", "action"), Node("b", "agent"), Node("c", "ask")], [], "a")
    plain.edges = [Edge("a", "b", ["v"]), Edge("b", "a", ["w"])]
    graph = hostile_graph()
    graph.nodes[1].detail = "d" * 100
    for render in (picture.as_svg, picture.as_html):
        text = render(graph)
        assert "<script" not in text
        assert not set("\x1b\u202e\x00") & set(text)
    svg, expected = (
        ElementTree.fromstring(picture.as_svg(graph_to_draw)) for graph_to_draw in (graph, plain)
    )
    assert {element.tag for element in svg.iter()} == {element.tag for element in expected.iter()}
    page = picture.as_html(graph)
    assert "default-src 'none'" in page
    assert "src=" not in page.replace("style-src", "")


def test_hostile_names_are_text_in_text_forms() -> None:
    """Graphviz reads three nodes, JSON keeps the names, and Mermaid gets no character with a meaning."""
    graph = hostile_graph()
    graph.nodes[1].detail = ""
    parsed = json.loads(layout.run_graphviz(text_forms.as_dot(graph), "json0"))
    assert sum("pos" in item for item in parsed["objects"]) == 3
    assert json.loads(text_forms.as_json(graph))["nodes"][0]["name"] == HOSTILE
    mermaid = text_forms.as_mermaid(graph)
    assert not {"\x1b", "\u202e", "<script", "'", "\\"} & set(mermaid)
    labels = [line.split('"')[1] for line in mermaid.splitlines() if '"' in line]
    assert not any(set(text.replace("<br/>", "")) & set("<>[](){}|`&\n") for text in labels)


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_hostile_names_in_a_terminal(width: int, unicode: bool) -> None:
    """No escape sequence reaches the terminal, and no line exceeds its width."""
    text = diagram.as_diagram(hostile_graph(), screen(unicode), width)
    assert not set("\x1b\u202e\x00") & set(text)
    assert all(columns(line) <= width for line in text.splitlines())


def test_reordering_characters_are_shown_by_their_code() -> None:
    """The command is not displayed in a misleading order; the page of a run shows the same code."""
    graph = Graph("g", "loop", [Node("a", "action", "cat \u202egnp.exe\u200b")], [], "a")
    escaped = "cat ⟨U+202E⟩gnp.exe⟨U+200B⟩"
    assert escaped in picture.as_svg(graph)
    assert escaped in text_forms.as_dot(graph)
    assert "#10216;U#43;202E#10217;gnp" in text_forms.as_mermaid(graph)
    assert escaped in diagram.as_diagram(graph, screen(), 80)
    assert "cat <U+202E>gnp.exe<U+200B>" in diagram.as_diagram(graph, screen(unicode=False), 80)


# --- terminal diagrams --------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOOPS, ids=IDS)
def test_diagram_fits_and_its_lines_lead_to_their_targets(path: Path) -> None:
    """At three widths, each arrow leads from the box of its source to the box of its target."""
    loop = compile_loop(path)
    for width in (60, 80, 160):
        graph = simplify(graph_of_loop(loop))
        lines = diagram.as_diagram(graph, screen(), width).splitlines()
        assert all(columns(line) <= width for line in lines)
        assert all(ord(ch) < 128 for ch in diagram.as_diagram(graph, screen(False), width) if ch in "┌│▸✓→")
        if lines[0].startswith("┌"):
            assert sorted(trace_lines(lines)) == sorted((edge.source, edge.target) for edge in graph.edges)


@pytest.mark.parametrize("count", [5, 30])
@pytest.mark.parametrize("unicode", [True, False])
def test_long_names_differ_in_a_terminal(count: int, unicode: bool) -> None:
    """They are shortened in the middle; a replacement is as wide as the character that it replaces."""
    names = [f"a-state-with-a-rather-long-descriptive-name-日本語-number-{number}" for number in range(count)]
    graph = Graph("long", "loop", [Node(name, "action", "日本語") for name in names], [], names[0])
    graph.edges = [Edge(name, names[number - 1], ["success"]) for number, name in enumerate(names)]
    lines = diagram.as_diagram(graph, screen(unicode), 60).splitlines()
    assert all(columns(line) <= 60 for line in lines)
    for number in range(count):
        assert any(f"-number-{number} " in f"{line} " for line in lines)
    assert unicode or "".join(lines).isascii()


def test_long_names_differ_in_a_picture() -> None:
    """They are shortened in the middle, as in a terminal; the action is shortened at its end."""
    names = [f"a-state-with-a-rather-long-descriptive-name-日本語-number-{number}" for number in range(3)]
    graph = Graph("long", "loop", [Node(name, "action", "日本語" * 20) for name in names], [], names[0])
    boxes = layout.lay_out(graph).boxes
    for number, name in enumerate(names):
        title, detail = boxes[name].lines
        assert title.startswith("a-state-")
        assert title.endswith(f"-number-{number}")
        assert columns(title) <= 46
        assert columns(detail) <= 46
        assert detail.endswith("…")


def trace_lines(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Source and target of each line of a diagram, traced along its characters."""
    names, owner, name = {}, [], ""
    for row, line in enumerate(lines):
        if line.startswith("┌"):
            words = [word for word in lines[row + 1].split() if word not in "│▸✓✗✎?ƒ├│"]
            name = words[0]
        owner.append(name)
        names[row] = name
    for row, line in enumerate(lines):
        edge = line.find("├")
        if edge <= 0 or line[edge : edge + 2] in ("├◀", "├"):
            continue
        at = edge + 1
        while line[at] in "─┼":
            at += 1
        step = 1 if line[at] == "┐" else -1 if line[at] == "┘" else 0
        for way in (step,) if step else (1, -1):
            end = row + way
            while 0 <= end < len(lines) and at < len(lines[end]) and lines[end][at] in "│┼┤┐┘":
                if "◀" in lines[end] and lines[end][at] in "┤┐┘":
                    yield owner[row], names[end]
                    break
                end += way
            else:
                continue
            break


# --- the command --------------------------------------------------------------------------------

STEPS = """name: steps
initial: check
max_iterations: 9
states:
  check: {action: "test -e b", on_success: done, on_failure: fix, on_error: lost}
  fix: {action: "test -e a && touch b; touch a", next: check}
  lost: {terminal: true, status: failure}
  done: {terminal: true}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "steps.yaml").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def llc(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "llc", *words], capture_output=True, text=True, check=False)


def test_graph_of_a_run_shows_visits_and_routes(project: Path) -> None:
    """Visits, taken routes and untaken routes."""
    assert llc("run", "steps", "-q").returncode == 0
    graph = json.loads(llc("graph", "steps", "--run", "steps", "--json").stdout)
    visits = {node["name"]: node["visits"]["count"] for node in graph["nodes"]}
    assert visits == {"check": 3, "fix": 2, "lost": 0, "done": 1}
    taken_counts = {(edge["source"], edge["target"]): edge["taken"] for edge in graph["edges"]}
    assert taken_counts == {("check", "done"): 1, ("check", "fix"): 2, ("fix", "check"): 2}
    shown = llc("graph", graph["run"]).stdout
    assert "3× · " in shown
    assert "not entered" in shown


def test_action_is_shown_with_context_values(project: Path) -> None:
    """A loop shows its own values, a run those of its options; other variables stay variables."""
    (project / ".loops" / "say.yaml").write_text(
        "name: say\ninitial: say\ncontext: {word: first, many: [1, 2]}\nstates:\n"
        "  say: {action: 'echo ${context.word} ${state.iteration} ${context.many}', next: end}\n"
        "  end: {terminal: true}\n"
    )

    def detail(*words: str) -> str:
        return json.loads(llc("graph", "say", "--json", *words).stdout)["nodes"][0]["detail"]

    assert detail() == "echo first ${state.iteration} [1, 2]"
    assert llc("run", "say", "-q", "--context", "word=second").returncode == 0
    assert detail("--run", "say") == "echo second ${state.iteration} [1, 2]"


def test_graph_of_an_unfinished_run_marks_its_state(project: Path) -> None:
    """The state of the interruption is marked."""
    text = STEPS.replace("test -e a && touch b; touch a", KILL)
    (project / ".loops" / "steps.yaml").write_text(text)
    llc("run", "steps", "-q")
    graph = json.loads(llc("graph", "steps", "--run", "steps", "--json").stdout)
    assert [node["name"] for node in graph["nodes"] if node["visits"].get("is_current")] == ["fix"]


def test_file_suffix_selects_the_format(project: Path) -> None:
    starts = {"svg": b"<svg", "html": b"<!doctype", "png": b"\x89PNG", "mmd": b"flowchart", "dot": b"digraph"}
    for suffix, start in starts.items():
        done = llc("graph", "steps", "-o", f"x.{suffix}")
        assert (done.returncode, done.stderr) == (0, "")
        assert (project / f"x.{suffix}").read_bytes().startswith(start)
    refused = llc("graph", "steps", "-o", "x.gif")
    assert (refused.returncode, ".svg, .html" in refused.stderr) == (2, True)
    missing = llc("graph", "steps", "-o", "no/x.svg")
    assert (missing.returncode, "no" in missing.stderr, "Traceback" in missing.stderr) == (2, True, False)


def test_graphs_of_flows_images_and_invalid_loops(project: Path) -> None:
    """Functions of a flow, states of the IR, an image, and a loop with errors."""
    flow = '(define (a x) (b x))\n(define (b x) (system:execute_shell_command x))\n(a "true")\n'
    (project / "flow.sexp").write_text(flow)
    graph = json.loads(llc("graph", "flow.sexp", "--json").stdout)
    assert {(edge["source"], edge["target"]) for edge in graph["edges"]} >= {("a", "b")}
    assert "check/enter" in llc("graph", "steps", "--level", "ir").stdout
    assert llc("compile", "steps", "-o", "x.llb").returncode == 0
    assert llc("graph", "x.llb").stdout == llc("graph", "steps").stdout
    (project / ".loops" / "broken.yaml").write_text(STEPS.replace("on_error: lost", "on_eror: lost"))
    broken = llc("graph", "broken")
    assert (broken.returncode, "the loop has 1 error" in broken.stdout) == (0, True)
    refused = llc("graph", "flow.sexp", "--level", "loop")
    assert (refused.returncode, "has no states" in refused.stderr) == (2, True)
    unknown = llc("graph", "stpes")
    assert (unknown.returncode, "no loop and no run `stpes`" in unknown.stderr) == (2, True)
    assert "did you mean `steps`?" in unknown.stderr


def test_missing_graphviz_is_an_error_with_a_remedy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text formats do not need Graphviz."""
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    graph = commands.graph_of("steps", None, None, False)
    with pytest.raises(UserError, match="Graphviz") as refused:
        commands.written(graph, "x.svg")
    assert refused.value.id == "no-layout"
    assert "llc-loops[graph]" in (refused.value.help or "")
    assert commands.written(graph, "x.mmd").startswith(b"flowchart")
