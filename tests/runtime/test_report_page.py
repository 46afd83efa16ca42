"""The page of `llc report` in a browser, from disk and without network."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from accessibility import violations
from browser import NAMES, Browser, browser_program
from in_process import run_llc

from llc.runtime.recordings.find import find_run
from llc.runtime.report.model import RunModel, as_data

Llc = Callable[..., subprocess.CompletedProcess[str]]

# What every kind of text may hold; the page shows it as text.
HOSTILE = (
    "</script><script>window.bad=1</script><img src=x onerror=window.bad=1> <!-- & &lt; ${x} "
    "\u202eevil\u202c \u2028 \x07 \x1b]0;title\x07 \x1b[31mred\x1b[0m"
)
LOOP = """
name: shown
initial: check
states:
  check:
    action: "cat text; test -e fixed"
    capture: found
    on_success: done
    on_failure: mend
  mend:
    action: "touch fixed; seq 1 1000"
    next: check
  done: {terminal: true}
"""
LONG = """
name: long
initial: check
max_iterations: 100000
states:
  check: {action: "mypy src/", capture: found, on_success: done, on_failure: fix}
  fix: {action: "repair", next: check}
  done: {terminal: true}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if browser_program() is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed, and LLC_BROWSER is not set")
    found = Browser()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _sound(browser: Browser) -> Iterator[None]:
    """No test leaves an error on the console, a violation of the policy or a request."""
    browser.problems.clear()
    browser.resize(1280)
    browser.prefer()
    yield
    assert browser.problems == []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run of `shown`, one of `long` with 10,000 effects, and their reports."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        (folder / ".loops").mkdir()
        (folder / ".loops" / "shown.yaml").write_text(LOOP)
        (folder / ".loops" / "long.yaml").write_text(LONG)
        (folder / "text").write_text(HOSTILE + "\n")
        results = [{"exit_code": 1, "output": f"src/a.py:{n}: error {n * 7 % 1000}\n"} for n in range(4999)]
        rules = [
            {"state": "check", "results": [*results, {"exit_code": 0}]},
            {"state": "fix", "output": "Fixed."},
        ]
        (folder / "world.yaml").write_text(json.dumps({"rules": rules}))
        assert run_llc("run", "shown", "--quiet").returncode == 0
        assert run_llc("run", "long", "--script", "world.yaml", "--quiet").returncode == 0
        for name in ("shown", "long"):
            assert run_llc("report", name, "-o", f"{name}.html").returncode == 0
        assert run_llc("report", "shown", "long", "-o", "two.html").returncode == 0
    return folder


def shown(browser: Browser, selector: str = "#details") -> str:
    text: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
    return text


def at(browser: Browser, row: int) -> None:
    """Wait until the page shows a row."""
    browser.wait(f"document.documentElement.dataset.shown === '{row}'")


def test_contents_are_text(browser: Browser, project: Path) -> None:
    """Markup, escapes, control and bidirectional characters of an output are shown and do nothing."""
    browser.open(project / "shown.html")
    assert browser.evaluate("window.bad") is None
    text = shown(browser)
    assert "</script><script>window.bad=1</script><img src=x onerror=window.bad=1>" in text
    assert "⟨U+202E⟩evil⟨U+202C⟩" in text
    assert "⟨U+2028⟩" in text
    assert "␇" in text
    assert "\x1b" not in text
    assert browser.evaluate("document.querySelector('#details .ink1').textContent") == "red"
    assert "\u202e" not in shown(browser, "html")


def test_the_policy_forbids_what_is_not_in_the_page(browser: Browser, project: Path) -> None:
    """A script that is added does not run, a style is not applied, nothing can be fetched."""
    browser.open(project / "shown.html")
    browser.evaluate(
        """(() => { const script = document.createElement("script"); script.textContent = "window.bad = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<p style='color: red' id=p>x</p>"); })()"""
    )
    assert browser.evaluate("window.bad") is None
    assert browser.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    assert (
        browser.evaluate("fetch('https://example.org/').then(() => 'got it', () => 'refused')") == "refused"
    )
    assert browser.problems
    browser.problems.clear()


def test_keys_move_the_cursor(browser: Browser, project: Path) -> None:
    """Without a mouse every step can be reached, and each shows its own output."""
    browser.open(project / "long.html")
    moves = [("ArrowRight", 1), ("j", 2), ("ArrowDown", 3), ("k", 2), ("ArrowLeft", 1), ("PageDown", 11)]
    moves += [("PageUp", 1), ("End", 9999), ("Home", 0), ("n", 2), ("p", 0)]
    for key, row in moves:
        browser.press(key)
        at(browser, row)
        assert browser.evaluate("document.querySelector('.row.current').id") == f"row-{row}"
    browser.press("n")
    at(browser, 2)
    assert "src/a.py:1: error 7" in shown(browser)
    browser.press("Escape")
    # Tab leads to the controls, the list and the details.
    seen = set()
    for _ in range(25):
        browser.press("Tab")
        seen.add(
            browser.evaluate("document.activeElement.id || document.activeElement.closest('[id]')?.id || ''")
        )
    assert {"next", "slider", "query", "list", "figures"} <= seen


def test_addresses_lead_to_steps(browser: Browser, project: Path) -> None:
    """By position and by the number of an effect; the address follows the cursor."""
    browser.open(project / "long.html", "#step=5001")
    at(browser, 5001)
    browser.open(project / "long.html", "#e=42")
    at(browser, 41)
    assert "llc fork long-" in shown(browser)
    browser.press("ArrowRight")
    at(browser, 42)
    assert browser.evaluate("location.hash") == "#step=42"


def test_search_finds_outputs(browser: Browser, project: Path) -> None:
    """A text that only one output has; the next Enter stays there."""
    browser.open(project / "long.html")
    browser.press("/")
    for ch in "a.py:4321:":
        browser.press(ch)
    browser.press("Enter")
    at(browser, 8642)
    assert shown(browser, "#found") == "1 found"
    assert shown(browser, "#details mark") == "a.py:4321:"


def test_long_outputs_are_folded(browser: Browser, project: Path) -> None:
    """Two hundred lines, then a button for all."""
    browser.open(project / "shown.html", "#step=1")
    at(browser, 1)
    lines = "document.querySelectorAll('#details .part pre.text')[0].textContent.split('\\n').length"
    assert browser.evaluate(lines) in (200, 201)
    browser.evaluate("document.querySelector('#details .more').click()")
    assert browser.evaluate(lines) in (1000, 1001)


def test_long_lines_are_shown_in_parts(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of a line of a megabyte with each click; escape sequences in it are colours, or nothing."""
    monkeypatch.chdir(tmp_path)
    part = "\x1b[31mx<b>\x1b[0m\x1b]0;title\x07\u202e"
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "wide.yaml").write_text(
        "name: wide\ninitial: one\nstates:\n  one: {action: print, next: done}\n  done: {terminal: true}\n"
    )
    rules = [{"state": "one", "output": part * 40_000 + "\n" + "line\n" * 15_000}]
    (tmp_path / "world.yaml").write_text(json.dumps({"rules": rules}))
    assert run_llc("run", "wide", "--script", "world.yaml", "--quiet").returncode == 0
    assert run_llc("report", "wide", "-o", "wide.html").returncode == 0
    browser.open(tmp_path / "wide.html")
    at(browser, 0)
    block = "document.querySelectorAll('#details .part pre.text')[0]"
    length = browser.evaluate(f"{block}.textContent.length")
    for _ in range(3):
        browser.evaluate(f"{block}.querySelector('.more').click()")
        longer = browser.evaluate(f"{block}.textContent.length")
        assert length + 10_000 < longer < length + 50_000
        length = longer
    assert browser.evaluate(f"{block}.querySelectorAll('.ink1').length") > 1000
    assert browser.evaluate(f"{block}.querySelector('b') === null")
    lines = f"{block}.textContent.split('\\n').length"
    assert browser.evaluate(lines) == 200
    for count in (10_200, 15_001):
        browser.evaluate(f"{block}.nextElementSibling.click()")
        assert browser.evaluate(lines) == count
    assert browser.evaluate(f"{block}.nextElementSibling === null")
    assert browser.problems == []


def test_slots_are_before_and_after(browser: Browser, project: Path) -> None:
    """What changed is first, with the step that set it; its link leads there."""
    browser.open(project / "shown.html", "#step=1")
    at(browser, 1)
    rows = browser.evaluate(
        "[...document.querySelectorAll('.slots tr.changed th')].map((cell) => cell.textContent)"
    )
    assert {"iteration", "state", "last"} <= set(rows)
    browser.evaluate("document.querySelector('.slots tr.changed button').click()")
    at(browser, 0)


def test_the_diagram_shows_the_state(browser: Browser, project: Path) -> None:
    """The node of the cursor is marked; a click on a node leads to its next step."""
    browser.open(project / "shown.html")
    at(browser, 0)
    assert shown(browser, ".node.cursor .name") == "check"
    browser.evaluate(
        "document.querySelector('[data-node=\"1\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    at(browser, 1)
    assert shown(browser, ".node.cursor .name") == "mend"


@pytest.mark.parametrize("width", [360, 800, 1024, 1600])
@pytest.mark.parametrize("name", ["shown", "long", "two"])
def test_no_width_needs_to_be_scrolled_sideways(
    browser: Browser, project: Path, name: str, width: int
) -> None:
    """From telephones to wide screens, in both colour schemes; and its texts have contrast."""
    browser.resize(width)
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(project / f"{name}.html", "#step=2")
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ink, paper = browser.evaluate(
            "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        )
        dark = [sum(map(int, re.findall(r"\d+", color)[:3])) < 384 for color in (ink, paper)]
        assert dark == [scheme == "light", scheme == "dark"]


def test_on_paper(browser: Browser, project: Path) -> None:
    """Printed, all steps are a table, and nothing that needs a mouse is left."""
    browser.open(project / "shown.html")
    pdf = browser.call("Page.printToPDF", printBackground=True)
    assert len(pdf["data"]) > 1000
    browser.prefer(media="print")
    assert browser.evaluate("getComputedStyle(document.getElementById('cursor')).display") == "none"
    assert browser.evaluate("document.querySelectorAll('#print tbody tr').length") == 4


def test_a_page_takes_updates(browser: Browser, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a live view sends: the page has the new steps, and a cursor at the end stays there."""
    monkeypatch.chdir(project)
    browser.open(project / "shown.html")
    with RunModel(find_run("shown")) as model:
        update = as_data(model.update())
    steps, values = update["steps"], update["values"]
    browser.evaluate("report.runs[0].chunks = [], report.runs[0].cache = {at: -1, frames: []}")
    first = {**update, "steps": steps[:2], "first_value": 0}
    browser.evaluate(f"report.runs[0].steps = [], report.update({json.dumps(first)})")
    at(browser, 0)
    assert browser.evaluate("document.getElementById('slider').max") == "1"
    browser.press("End")
    at(browser, 1)
    more = {**update, "from": 1, "steps": steps[1:], "values": [], "first_value": len(values)}
    del more["program"]
    browser.evaluate(f"report.update({json.dumps(more)})")
    at(browser, len(steps) - 1)
    assert shown(browser, "#position") == "3 of 3"


def test_a_name_does_not_reorder_what_follows_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is right of the name of a state in letters that are written from right to left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    loop = LOOP.replace("check", "\u05d1\u05d3\u05d9\u05e7\u05d4").replace("cat text; ", "")
    (tmp_path / ".loops" / "named.yaml").write_text(loop, "utf-8")
    assert run_llc("run", "named", "--quiet").returncode == 0
    assert run_llc("report", "named", "-o", "named.html").returncode == 0
    browser.open(tmp_path / "named.html", "#step=2")
    at(browser, 2)
    name, step = browser.evaluate(
        """(() => { const text = [...document.querySelectorAll('.slots td:last-child button')].find(
        (button) => /^[\\u05d0-\\u05ea]/.test(button.textContent));
        const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
        const left = (letter) => { for (walker.currentNode = text; walker.nextNode();) {
          const at = walker.currentNode.data.search(letter);
          if (at < 0) continue;
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, at + 1);
          return range.getBoundingClientRect().left; } };
        return [left(/[\\u05d0-\\u05ea]/), left(/[0-9]/)]; })()"""
    )
    assert name < step


def test_a_slot_leads_to_its_next_reader(browser: Browser, project: Path) -> None:
    """The next step in a state whose code reads it; none where no state does."""
    browser.open(project / "shown.html", "#step=1")
    at(browser, 1)
    readers = browser.evaluate(
        """Object.fromEntries([...document.querySelectorAll('.slots tbody tr')].map(
        (row) => [row.querySelector('th').textContent, row.lastElementChild.textContent]))"""
    )
    assert readers["iteration"] == "mend (1)"
    assert readers["seen.check"] == "check (2)"
    assert readers["state"] == ""
    browser.evaluate("report.go(0)")
    at(browser, 0)


def test_a_range_is_chosen_by_keys(browser: Browser, project: Path) -> None:
    """`[` and `]` at its ends, in any order, also where no step took any time; Escape shows all."""
    browser.open(project / "long.html", "#step=5001")
    at(browser, 5001)
    assert browser.evaluate("report.timeline.isEven")
    browser.press("[")
    browser.press("PageUp")
    at(browser, 4991)
    browser.press("]")
    assert browser.evaluate("report.range") == [4991, 5001]
    assert shown(browser, "#range").startswith("11 effects")
    browser.press("Escape")
    assert browser.evaluate("report.range") is None


def test_the_whole_diagram_is_shown(browser: Browser, project: Path) -> None:
    """A button scales it to its place."""
    browser.resize(1024)
    browser.open(project / "shown.html")
    browser.evaluate("document.getElementById('fit').click()")
    assert browser.evaluate("document.getElementById('fit').getAttribute('aria-pressed')") == "true"
    assert browser.evaluate(
        "document.querySelector('#figures svg').getBoundingClientRect().height <= 24 * 16"
    )


def test_two_runs_begin_at_their_first_difference(browser: Browser, project: Path) -> None:
    """Both runs are shown at each row; `d` leads to the next difference."""
    browser.open(project / "two.html")
    assert "The first difference is at row 0" in shown(browser, "#verdict")
    assert browser.evaluate("document.querySelectorAll('#details .columns > *').length") == 2
    browser.press("d")
    browser.wait("document.documentElement.dataset.shown > 0")


def test_ten_thousand_effects(browser: Browser, project: Path) -> None:
    """Only the rows that are seen exist, many moves are drawn once; `benchmarks/report_page.py` measures."""
    browser.open(project / "long.html")
    assert browser.evaluate("report.rows.length") == 10_000
    for row in (9999, 5000, 1):
        browser.evaluate(f"report.go({row})")
        at(browser, row)
        assert browser.evaluate("document.querySelectorAll('.row').length") < 100
    before = browser.evaluate("report.turn")
    browser.evaluate("for (let row = 0; row < 5000; row += 1) report.go(row)")
    at(browser, 4999)
    assert browser.evaluate("report.turn") - before < 10


def test_accessibility(browser: Browser, project: Path) -> None:
    """axe-core finds no serious violation."""
    for name in ("shown", "two"):
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(project / f"{name}.html", "#step=2")
            at(browser, 2)
            assert violations(browser) == []


def test_every_recorded_run_opens(browser: Browser, tmp_path: Path) -> None:
    """Crashed, damaged, forked, of agents: the first and the last step are shown without an error."""
    folders = sorted((Path(__file__).parents[1] / "journals").glob("*.*/*/*/*-*"))
    assert folders
    page = tmp_path / "run.html"
    for folder in folders:
        result = run_llc("report", str(folder), "-o", str(page), RECORD_API_KEY="sesame-0123456789")
        assert result.returncode == 0, result.stderr
        browser.open(page)
        last = browser.evaluate("report.rows.length") - 1
        browser.press("End")
        at(browser, last)
        assert browser.problems == [], folder
