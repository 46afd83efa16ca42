"""axe-core findings for a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Browser


def violations(browser: Browser) -> list[Any]:
    """The serious and critical violations of a page; skips the test if axe-core is not installed."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    script = next(Path(axe.__file__).parent.rglob("axe.min.js")).read_text("utf-8")
    browser.evaluate(f"{script}; undefined")
    found = browser.evaluate(
        """axe.run(document, {resultTypes: ["violations"]}).then((all) => all.violations.map(
        (one) => [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 300))]))"""
    )
    return [one for one in found if one[0] in ("serious", "critical")]
