"""The page of `llc report` in a browser, loaded from disk without network."""

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

# Markup and control characters that any text may contain; the page shows them as text.
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
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def _no_problems(browser: Browser) -> Iterator[None]:
    """Check that a test causes no error on the console, policy violation or request."""
    browser.problems.clear()
    browser.resize(1280)
    browser.prefer()
    yield
    assert browser.problems == []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run of `shown`, a run of `long` with 10,000 effects, and their reports."""
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


def text_of(browser: Browser, selector: str = "#details") -> str:
    text: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
    return text


def wait_for_row(browser: Browser, row: int) -> None:
    """Wait until the page shows a row."""
    browser.wait(f"document.documentElement.dataset.shown === '{row}'")


def test_contents_are_text(browser: Browser, project: Path) -> None:
    """Markup, escape sequences, control and bidirectional characters of an output have no effect."""
    browser.open(project / "shown.html")
    assert browser.evaluate("window.bad") is None
    text = text_of(browser)
    assert "</script><script>window.bad=1</script><img src=x onerror=window.bad=1>" in text
    assert "⟨U+202E⟩evil⟨U+202C⟩" in text
    assert "⟨U+2028⟩" in text
    assert "␇" in text
    assert "\x1b" not in text
    assert browser.evaluate("document.querySelector('#details .ink1').textContent") == "red"
    assert "\u202e" not in text_of(browser, "html")


def test_the_policy_forbids_added_content(browser: Browser, project: Path) -> None:
    """Added scripts and styles have no effect, and nothing can be fetched."""
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
    """Every step can be reached without a mouse, and each shows its own output."""
    browser.open(project / "long.html")
    moves = [("ArrowRight", 1), ("j", 2), ("ArrowDown", 3), ("k", 2), ("ArrowLeft", 1), ("PageDown", 11)]
    moves += [("PageUp", 1), ("End", 9999), ("Home", 0), ("n", 2), ("p", 0)]
    for key, row in moves:
        browser.press(key)
        wait_for_row(browser, row)
        assert browser.evaluate("document.querySelector('.row.current').id") == f"row-{row}"
    browser.press("n")
    wait_for_row(browser, 2)
    assert "src/a.py:1: error 7" in text_of(browser)
    browser.press("Escape")
    # Tab moves the focus to the controls, the list and the details.
    seen = set()
    for _ in range(25):
        browser.press("Tab")
        seen.add(
            browser.evaluate("document.activeElement.id || document.activeElement.closest('[id]')?.id || ''")
        )
    assert {"next", "slider", "query", "list", "figures"} <= seen


def test_the_fragment_selects_a_step(browser: Browser, project: Path) -> None:
    """By position or by the number of an effect; the fragment follows the cursor."""
    browser.open(project / "long.html", "#step=5001")
    wait_for_row(browser, 5001)
    browser.open(project / "long.html", "#e=42")
    wait_for_row(browser, 41)
    assert "llc fork long-" in text_of(browser)
    browser.press("ArrowRight")
    wait_for_row(browser, 42)
    assert browser.evaluate("location.hash") == "#step=42"


def test_search_finds_outputs(browser: Browser, project: Path) -> None:
    """The search finds a text that occurs in one output only."""
    browser.open(project / "long.html")
    browser.press("/")
    for ch in "a.py:4321:":
        browser.press(ch)
    browser.press("Enter")
    wait_for_row(browser, 8642)
    assert text_of(browser, "#found") == "1 found"
    assert text_of(browser, "#details mark") == "a.py:4321:"


def test_long_outputs_are_folded(browser: Browser, project: Path) -> None:
    """200 lines are shown, and a button shows the rest."""
    browser.open(project / "shown.html", "#step=1")
    wait_for_row(browser, 1)
    lines = "document.querySelectorAll('#details .part pre.text')[0].textContent.split('\\n').length"
    assert browser.evaluate(lines) in (200, 201)
    browser.evaluate("document.querySelector('#details .more').click()")
    assert browser.evaluate(lines) in (1000, 1001)


def test_long_lines_are_shown_in_parts(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each click shows more of a line of a megabyte; escape sequences are colours or removed."""
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
    wait_for_row(browser, 0)
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


def test_changed_slots_are_shown_first(browser: Browser, project: Path) -> None:
    """A button leads to the step that set the slot."""
    browser.open(project / "shown.html", "#step=1")
    wait_for_row(browser, 1)
    rows = browser.evaluate(
        "[...document.querySelectorAll('.slots tr.changed th')].map((cell) => cell.textContent)"
    )
    assert {"iteration", "state", "last"} <= set(rows)
    browser.evaluate("document.querySelector('.slots tr.changed button').click()")
    wait_for_row(browser, 0)


def test_the_diagram_shows_the_state(browser: Browser, project: Path) -> None:
    """The node of the current state is marked; a click on a node selects its next step."""
    browser.open(project / "shown.html")
    wait_for_row(browser, 0)
    assert text_of(browser, ".node.cursor .name") == "check"
    browser.evaluate(
        "document.querySelector('[data-node=\"1\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    wait_for_row(browser, 1)
    assert text_of(browser, ".node.cursor .name") == "mend"


@pytest.mark.parametrize("width", [360, 800, 1024, 1600])
@pytest.mark.parametrize("name", ["shown", "long", "two"])
def test_no_horizontal_scrolling_at_any_width(browser: Browser, project: Path, name: str, width: int) -> None:
    """Also in both colour schemes, whose text has contrast."""
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


def test_the_printed_page_is_a_table_of_all_steps(browser: Browser, project: Path) -> None:
    """Controls are not printed."""
    browser.open(project / "shown.html")
    pdf = browser.call("Page.printToPDF", printBackground=True)
    assert len(pdf["data"]) > 1000
    browser.prefer(media="print")
    assert browser.evaluate("getComputedStyle(document.getElementById('cursor')).display") == "none"
    assert browser.evaluate("document.querySelectorAll('#print tbody tr').length") == 4


def test_a_page_applies_updates(browser: Browser, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New steps of a live view are added, and a cursor at the end stays at the end."""
    monkeypatch.chdir(project)
    browser.open(project / "shown.html")
    with RunModel(find_run("shown")) as model:
        update = as_data(model.update())
    steps, values = update["steps"], update["values"]
    browser.evaluate("report.runs[0].chunks = [], report.runs[0].cache = {at: -1, frames: []}")
    first = {**update, "steps": steps[:2], "first_value": 0}
    browser.evaluate(f"report.runs[0].steps = [], report.update({json.dumps(first)})")
    wait_for_row(browser, 0)
    assert browser.evaluate("document.getElementById('slider').max") == "1"
    browser.press("End")
    wait_for_row(browser, 1)
    more = {**update, "from": 1, "steps": steps[1:], "values": [], "first_value": len(values)}
    del more["program"]
    browser.evaluate(f"report.update({json.dumps(more)})")
    wait_for_row(browser, len(steps) - 1)
    assert text_of(browser, "#position") == "3 of 3"


def test_right_to_left_names_do_not_reorder_the_step_number(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is shown to the right of the name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    loop = LOOP.replace("check", "\u05d1\u05d3\u05d9\u05e7\u05d4").replace("cat text; ", "")
    (tmp_path / ".loops" / "named.yaml").write_text(loop, "utf-8")
    assert run_llc("run", "named", "--quiet").returncode == 0
    assert run_llc("report", "named", "-o", "named.html").returncode == 0
    browser.open(tmp_path / "named.html", "#step=2")
    wait_for_row(browser, 2)
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


def test_a_slot_links_to_its_next_reader(browser: Browser, project: Path) -> None:
    """The link is the next step in a state whose code reads the slot, if there is one."""
    browser.open(project / "shown.html", "#step=1")
    wait_for_row(browser, 1)
    readers = browser.evaluate(
        """Object.fromEntries([...document.querySelectorAll('.slots tbody tr')].map(
        (row) => [row.querySelector('th').textContent, row.lastElementChild.textContent]))"""
    )
    assert readers["iteration"] == "mend (1)"
    assert readers["seen.check"] == "check (2)"
    assert readers["state"] == ""
    browser.evaluate("report.go(0)")
    wait_for_row(browser, 0)


def test_keys_select_a_range(browser: Browser, project: Path) -> None:
    """`[` and `]` set its ends in any order, also for steps without duration; Escape removes it."""
    browser.open(project / "long.html", "#step=5001")
    wait_for_row(browser, 5001)
    assert browser.evaluate("report.timeline.isEven")
    browser.press("[")
    browser.press("PageUp")
    wait_for_row(browser, 4991)
    browser.press("]")
    assert browser.evaluate("report.range") == [4991, 5001]
    assert text_of(browser, "#range").startswith("11 effects")
    browser.press("Escape")
    assert browser.evaluate("report.range") is None


def test_a_button_fits_the_diagram_to_its_area(browser: Browser, project: Path) -> None:
    browser.resize(1024)
    browser.open(project / "shown.html")
    browser.evaluate("document.getElementById('fit').click()")
    assert browser.evaluate("document.getElementById('fit').getAttribute('aria-pressed')") == "true"
    assert browser.evaluate(
        "document.querySelector('#figures svg').getBoundingClientRect().height <= 24 * 16"
    )


def test_the_comparison_starts_at_the_first_difference(browser: Browser, project: Path) -> None:
    """Each row shows both runs; `d` selects the next difference."""
    browser.open(project / "two.html")
    assert "The first difference is at row 0" in text_of(browser, "#verdict")
    assert browser.evaluate("document.querySelectorAll('#details .columns > *').length") == 2
    browser.press("d")
    browser.wait("document.documentElement.dataset.shown > 0")


def test_only_visible_rows_exist(browser: Browser, project: Path) -> None:
    """Of 10,000 rows fewer than 100 are in the page, and many moves of the cursor are drawn once."""
    browser.open(project / "long.html")
    assert browser.evaluate("report.rows.length") == 10_000
    for row in (9999, 5000, 1):
        browser.evaluate(f"report.go({row})")
        wait_for_row(browser, row)
        assert browser.evaluate("document.querySelectorAll('.row').length") < 100
    before = browser.evaluate("report.turn")
    browser.evaluate("for (let row = 0; row < 5000; row += 1) report.go(row)")
    wait_for_row(browser, 4999)
    assert browser.evaluate("report.turn") - before < 10


def test_the_page_is_accessible(browser: Browser, project: Path) -> None:
    """axe-core finds no serious violation."""
    for name in ("shown", "two"):
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(project / f"{name}.html", "#step=2")
            wait_for_row(browser, 2)
            assert violations(browser) == []


def test_every_recorded_run_opens(browser: Browser, tmp_path: Path) -> None:
    """The first and the last step of runs of earlier versions are shown without an error."""
    folders = sorted((Path(__file__).parents[1] / "journals").glob("*.*/*/*/*-*"))
    assert folders
    page = tmp_path / "run.html"
    for folder in folders:
        result = run_llc("report", str(folder), "-o", str(page), RECORD_API_KEY="sesame-0123456789")
        assert result.returncode == 0, result.stderr
        browser.open(page)
        last = browser.evaluate("report.rows.length") - 1
        browser.press("End")
        wait_for_row(browser, last)
        assert browser.problems == [], folder
