"""Every page in a real browser, on a phone and a desk, light and dark: no overflow, nothing serious for axe."""

from __future__ import annotations

import html as text_of_html
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import comparison_examples
import experiment_examples
import frontier_examples
import index_examples
import log_examples
import pytest
from browser import drawn, in_a_browser, leaves
from test_page_one import whole

from outlay.pages import comparison, experiment, index, log_health
from patience import PATIENCE

PAGES = {
    "report": lambda: whole(2),
    "frontier": lambda: frontier_examples.page(frontier_examples.told(2)),
    "frontier before the look": lambda: frontier_examples.page(frontier_examples.found(2)),
    "experiment": lambda: experiment.render(experiment_examples.example()),
    "comparison": lambda: comparison.render(comparison_examples.found()),
    "check": lambda: log_health.render(log_examples.broken(), log_examples.campaign()),
    "index": lambda: index.render("runs", index_examples.runs(), [index.OtherPage("test of <b>/page.html")]),
}
WIDTHS = [400, 1280]
# Figures are drawn then.
AFTER = "addEventListener('load', () => setTimeout(async () => {{ {} }}, 1500));"
# What axe says is serious, as it is and in the dark, where nothing but colours can differ; null without axe. Colours of
# charts it does not judge.
SERIOUS = """
const serious = async (options, what = document) => window.axe
  ? (await axe.run(what, {resultTypes: ['violations'], ...options})).violations
      .filter(v => v.impact == 'serious' || v.impact == 'critical').map(v => [v.id, v.nodes[0].html.slice(0, 200)])
  : null;
const darken = () => [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
  .filter(rule => rule.media?.mediaText.includes('(prefers-color-scheme: dark)'))
  .map(rule => { rule.media.mediaText = 'screen'; }).length;
"""
WIDE = "wide: document.documentElement.scrollWidth"
LOOK = f"""
const light = await serious({{}}), darkened = darken();
const dark = await serious({{runOnly: ['color-contrast']}}, {{exclude: [['svg']]}});
told(JSON.stringify({{{WIDE}, light, darkened, dark}}));
"""


@cache
def html_of(page: str) -> str:
    return PAGES[page]()


def axe() -> str | None:
    """The script of axe-core, from any package that has it."""
    for name in ("axe_playwright_python", "axe_core_python"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            script = next(Path(spec.origin).parent.rglob("axe.min.js")).read_text(encoding="utf-8")
            return script.replace("</script", "<\\/script")
    return None


def framed(html: str, script: str, width: int, number: int) -> str:
    """A frame as wide as that, in which the page runs a script; it hands back a text by `told(text)`."""
    told = f"const told = (text) => {{ parent.document.getElementById('told-{number}').textContent = text; }};"
    end = html.rindex("</body>")
    page = f"{html[:end]}<script>{told}{script}</script>{html[end:]}"
    return (
        f'<pre id="told-{number}"></pre><iframe style="width:{width}px;height:2000px;border:0" '
        f'srcdoc="{text_of_html.escape(page, quote=True)}"></iframe>'
    )


Looks = Callable[[str], dict[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> Looks:
    """What is found in a page, by its width: side by side, since a browser takes long to start.

    `wide`: pixels that it takes; on a phone also `light` and `dark`: what axe says is serious, where it is installed.
    """

    @cache
    def looks(page: str) -> dict[int, dict[str, Any]]:
        html = html_of(page)
        scripts = [f"{axe() or ''};{SERIOUS}{AFTER.format(LOOK)}", AFTER.format(f"told(JSON.stringify({{{WIDE}}}))")]
        frames = [framed(html, script, *of) for script, *of in zip(scripts, WIDTHS, range(2), strict=True)]
        outer = f"<!doctype html><body>{''.join(frames)}</body>"
        shown = drawn(outer, tmp_path_factory.mktemp("browser"), "1500,4300")
        found = re.findall(r'<pre id="told-\d">(.*?)</pre>', shown, re.DOTALL)
        return dict(zip(WIDTHS, [json.loads(text_of_html.unescape(text)) for text in found], strict=True))

    return looks


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_wider_than_the_page(looks: Looks, page: str, width: int) -> None:
    assert 0 < looks(page)[width]["wide"] <= width


@in_a_browser
@pytest.mark.skipif(axe() is None, reason="axe-playwright-python is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_axe_has_nothing_serious_to_say(looks: Looks, page: str) -> None:
    found = looks(page)[400]
    assert found["light"] == []
    assert found["darkened"] > 0
    assert found["dark"] == []


Printed = Callable[[str], tuple[str, list[str]]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """A page, and the text of each leaf of it."""

    @cache
    def printed(page: str) -> tuple[str, list[str]]:
        html = html_of(page)
        return html, leaves(html, tmp_path_factory.mktemp("paper"))

    return printed


@in_a_browser
@pytest.mark.parametrize(("page", "last"), [("report", 1), ("frontier", 2), ("frontier before the look", 1)])
def test_on_paper_the_decision_comes_first_and_its_evidence_behind_it(printed: Printed, page: str, last: int) -> None:
    """`last`: the leaf that the decision ends on; the appendix begins the next."""
    begins = [leaf.lstrip().startswith("Appendix") for leaf in printed(page)[1]]
    assert begins.index(True) <= last


@in_a_browser
@pytest.mark.parametrize("page", PAGES)
def test_on_paper_no_heading_is_torn_from_what_it_heads(printed: Printed, page: str) -> None:
    html, paper = printed(page)
    found = re.findall(r'<(h[123]|p class="finding"|figcaption|tr class="group")[^>]*>(.*?)</(?:h|p|figc|tr)', html)
    headings = [" ".join(text_of_html.unescape(re.sub(r"<[^>]*>", "", text)).split()) for _, text in found]
    assert len(headings) > 3
    ends = [leaf.strip().split("\n")[-1] for leaf in paper]
    assert not [end for end in ends if " " in end and any(end in heading for heading in headings)]


@in_a_browser
def test_pictures_of_a_page_are_taken_by_one_command(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.html").write_text(html_of("check"), encoding="utf-8")
    script = Path(__file__).parents[2] / "examples" / "screenshots.py"
    subprocess.run([sys.executable, script, tmp_path / "run", tmp_path / "out"], check=True, timeout=4 * PATIENCE)
    found = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert set(found) == {"report-1280.png", "report-400.png", "report-dark.png", "report.pdf"}
    assert min(found.values()) > 20_000
