"""Every page in a real browser, on a phone and a desk, light and dark: no overflow, nothing serious for axe."""

from __future__ import annotations

import html as text_of_html
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

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
AFTER = "addEventListener('load', () => setTimeout(() => {{ {} }}, 1500));"  # figures are drawn then
DARK = "@media screen and (prefers-color-scheme: dark)"


def axe() -> str | None:
    """The script of axe-core, from any package that has it."""
    for name in ("axe_playwright_python", "axe_core_python"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            script = next(Path(spec.origin).parent.rglob("axe.min.js")).read_text(encoding="utf-8")
            return script.replace("</script", "<\\/script")
    return None


def inside(html: str, folder: Path, width: int, script: str) -> str:
    """Run a script in the page as wide as that; it hands back a text by `told(text)`."""
    told = "const told = (text) => { parent.document.getElementById('told').textContent = text; };"
    call = f"<script>{told}{script}</script>"
    framed = html[: html.rindex("</body>")] + call + html[html.rindex("</body>") :]
    outer = (
        f'<!doctype html><body><pre id="told"></pre><iframe style="width:{width}px;height:2000px;border:0" '
        f'srcdoc="{text_of_html.escape(framed, quote=True)}"></iframe></body>'
    )
    found = re.search(r'<pre id="told">(.*?)</pre>', drawn(outer, folder, "1500,2200"), re.DOTALL)
    assert found is not None
    return text_of_html.unescape(found[1])


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_wider_than_the_page(tmp_path: Path, page: str, width: int) -> None:
    wide = AFTER.format("told(document.documentElement.scrollWidth);")
    assert 0 < int(inside(PAGES[page](), tmp_path, width, wide)) <= width


@in_a_browser
@pytest.mark.skipif(axe() is None, reason="axe-playwright-python is not installed")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("page", PAGES)
def test_axe_has_nothing_serious_to_say(tmp_path: Path, page: str, width: int, dark: bool) -> None:
    html = PAGES[page]()
    assert DARK in html
    serious = "r.violations.filter(v => v.impact == 'serious' || v.impact == 'critical')"
    told = f"told(JSON.stringify({serious}.map(v => [v.id, v.nodes[0].html.slice(0, 200)])))"
    script = f"{axe()};{AFTER.format(f'axe.run().then(r => {told});')}"
    shown = html.replace(DARK, "@media screen") if dark else html
    assert json.loads(inside(shown, tmp_path, width, script)) == []


@in_a_browser
@pytest.mark.parametrize(("page", "last"), [("report", 1), ("frontier", 2), ("frontier before the look", 1)])
def test_on_paper_the_decision_comes_first_and_its_evidence_behind_it(tmp_path: Path, page: str, last: int) -> None:
    """`last`: the leaf that the decision ends on; the appendix begins the next."""
    begins = [leaf.lstrip().startswith("Appendix") for leaf in leaves(PAGES[page](), tmp_path)]
    assert begins.index(True) <= last


@in_a_browser
@pytest.mark.parametrize("page", PAGES)
def test_on_paper_no_heading_is_torn_from_what_it_heads(tmp_path: Path, page: str) -> None:
    html = PAGES[page]()
    found = re.findall(r'<(h[123]|p class="finding"|figcaption|tr class="group")[^>]*>(.*?)</(?:h|p|figc|tr)', html)
    headings = [" ".join(text_of_html.unescape(re.sub(r"<[^>]*>", "", text)).split()) for _, text in found]
    assert len(headings) > 3
    ends = [leaf.strip().split("\n")[-1] for leaf in leaves(html, tmp_path)]
    assert not [end for end in ends if " " in end and any(end in heading for heading in headings)]


@in_a_browser
def test_pictures_of_a_page_are_taken_by_one_command(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.html").write_text(whole(), encoding="utf-8")
    script = Path(__file__).parents[2] / "examples" / "screenshots.py"
    subprocess.run([sys.executable, script, tmp_path / "run", tmp_path / "out"], check=True, timeout=4 * PATIENCE)
    found = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert set(found) == {"report-1280.png", "report-400.png", "report-dark.png", "report.pdf"}
    assert min(found.values()) > 20_000
