"""The comparison's page: complete in itself, escaped, honest about ties, limits and what was refused."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import pytest
from browser import drawn, in_a_browser
from comparison_examples import found
from report_examples import example

from outlay.comparing.results import Comparison, MethodRow, SeedMean
from outlay.core.campaign import BudgetLimit
from outlay.pages import report
from outlay.pages.comparison import render
from outlay.pages.comparison_table import lead, ties
from telling import missing

NASTY = "<script>alert('x')</script> & \"q\" {{ 7*7 }} </script>"


class _Page(HTMLParser):
    """Tags with their attributes, the rows of each section's tables, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {}  # section → rows of cells
        self.marked: dict[str, list[str]] = {"best": [], "over": []}  # class → texts
        self.text = ""
        self.json = ""
        self._section = ""
        self._in_cell = False
        self._inside: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag, dict(attrs)
        self.tags.append(self._inside)
        if tag == "section":
            self._section = str(self._inside[1]["id"])
            self.rows[self._section] = []
        if tag == "tr":
            self.rows[self._section].append([])
        if tag in ("th", "td"):
            self.rows[self._section][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._in_cell = False
            self.rows[self._section][-1][-1] = self.rows[self._section][-1][-1].strip()
        self._inside = (f"/{tag}", {})

    def handle_data(self, data: str) -> None:
        tag, attrs = self._inside
        if tag == "script" and attrs.get("id") == "figures":
            self.json += data
        elif tag not in ("script", "style"):
            self.text += data
            if str(attrs.get("class")) in self.marked:
                self.marked[str(attrs["class"])].append(data)
            if self._in_cell:
                self.rows[self._section][-1][-1] += data.strip() + "\n"

    @property
    def figures(self) -> dict[str, Any]:
        specs: dict[str, Any] = json.loads(self.json)["specs"]
        return specs

    def names(self, section: str) -> list[str]:
        """What stands first in each row of a section's tables, the head left out."""
        return [row[0].split("\n")[0] for row in self.rows[section] if len(row) > 1][1:]

    def row(self, section: str, name: str) -> list[str]:
        return next(row for row in self.rows[section] if row and row[0].startswith(name))


@cache
def full(budgets: int = 1) -> _Page:
    return _Page(render(found(budgets)))


def of(content: Comparison, name: str, control: str) -> MethodRow:
    return next(row for row in content.rows if (row.name, row.control) == (name, control))


def put(content: Comparison, name: str, control: str, target: str, **numbers: float | None) -> None:
    """Change one figure of one row in place."""
    figures = of(content, name, control).figures
    figures[target] = replace(figures.get(target, SeedMean()), **numbers)


def refused(content: Comparison, name: str, control: str, why: str) -> Comparison:
    row = of(content, name, control)
    return replace(content, rows=tuple(replace(one, refused=why) if one is row else one for one in content.rows))


def only(*names: str, seeds: int = 3) -> Comparison:
    """The example with a few methods only."""
    content = found(seeds=seeds, truth=False)
    return replace(content, rows=tuple(row for row in content.rows if row.name in names))


def under(content: Comparison, control: str) -> Comparison:
    return replace(content, rows=tuple(row for row in content.rows if row.control == control))


@pytest.mark.parametrize("budgets", [1, 2])
def test_every_section_and_a_valid_specification_for_every_place(budgets: int) -> None:
    got = full(budgets)
    assert [a["id"] for tag, a in got.tags if tag == "section"] == ["immediate", "total", "stored"]
    assert sorted(str(a["id"]) for _, a in got.tags if a.get("class") == "plot") == sorted(got.figures)
    assert sum(name.startswith("total-plane-") for name in got.figures) == budgets
    for spec in got.figures.values():
        alt.LayerChart.validate(spec) if "layer" in spec else alt.Chart.validate(spec)


def test_rows_go_from_the_old_policy_to_two_stage_to_looking_ahead() -> None:
    names = full().names("immediate")
    assert names[:2] == ["old policy", "DeepFM, 1-day label"]
    assert names[6:8] == ["DIN, 7-day label", "DDQN, single-best"]
    assert names[-5:] == ["BCQ, lp", "frontier, ddqn", "frontier, edrr", "frontier, bcq", "frontier, counted"]
    assert len(names) == 1 + 6 + 12 + 4
    assert full().names("total")[1].startswith("best constants")


def test_the_heading_says_who_how_many_and_that_nothing_is_certified() -> None:
    text = " ".join(full().text.split())
    for words in (
        "29,874 users",
        "never used",
        "3 seeds",
        "at most 1.81 yuan",
        "coupon_cost at most 2 yuan",
        "Nothing is certified",
    ):
        assert not missing(text, words)


def test_a_cell_holds_the_mean_its_spread_its_interval_and_the_truth() -> None:
    content = only("old policy", "BCQ, lp")
    put(
        content, "BCQ, lp", "immediate", "reward@7", value=4.7, low=4.66, high=4.74, sd=0.012, truth=4.71, truth_sd=0.02
    )
    cell = _Page(render(content)).row("immediate", "BCQ, lp")[3]
    assert cell.split() == ["4.700", "±", "0.012", "4.660", "to", "4.740", "true", "4.710", "±", "0.020"]


def test_what_is_ahead_by_more_than_two_deviations_is_bold_alone_and_ties_are_bold_together() -> None:
    content = only("BCQ, lp", "EDRR, lp", "DDQN, lp")
    for name, value in (("BCQ, lp", 4.80), ("EDRR, lp", 4.79), ("DDQN, lp", 4.70)):
        put(content, name, "immediate", "reward@7", value=value, sd=0.01)
        figures = of(content, name, "immediate").figures
        for other in figures.keys() - {"reward@7"}:
            del figures[other]
    content = under(content, "immediate")
    assert [text.split()[0].rstrip("0") for text in _Page(render(content)).marked["best"]] == ["4.79", "4.8"]
    assert ties(content, "immediate").endswith(" over seeds: EDRR, lp")
    put(content, "EDRR, lp", "immediate", "reward@7", value=4.77)  # 0.03 > 2 · √2 · 0.01
    assert [text.split()[0].rstrip("0") for text in _Page(render(content)).marked["best"]] == ["4.8"]
    assert ties(content, "immediate").startswith("BCQ, lp leads")


def test_a_method_that_breaks_a_limit_is_orange_and_never_the_best() -> None:
    content = only("old policy", "BCQ, lp", "EDRR, lp")
    put(content, "BCQ, lp", "total", "reward@7", value=6.5)
    put(content, "BCQ, lp", "total", "coupon_cost", value=2.0021)
    got = _Page(render(content))
    assert "breaks the limit" in got.row("total", "BCQ, lp")[5]
    put(content, "BCQ, lp", "total", "coupon_cost", value=2.0019)
    assert "breaks the limit" not in _Page(render(content)).row("total", "BCQ, lp")[5], "a thousandth is nothing"
    assert "breaks the limit" not in got.row("total", "EDRR, lp")[5]
    assert "breaks the limit" not in " ".join(got.row("immediate", "BCQ, lp")), "no limit holds under this control"
    assert not [text for text in got.marked["best"] if text.startswith("6.5")]


def test_with_two_budgets_a_floor_is_broken_from_below() -> None:
    content = found(2)
    put(content, "BCQ, lp", "total", "reach", value=0.5, truth=0.5)
    got = _Page(render(content))
    assert "at least 0.52 per decision" in got.rows["total"][0][6]
    assert "breaks the limit" in got.row("total", "BCQ, lp")[6]
    assert "breaks the limit" not in got.row("total", "EDRR, lp")[6]
    assert "at least 0.52" in json.dumps(got.figures["total-plane-1"])


def test_the_spend_stands_against_the_limit_in_percent_true_where_that_is_known() -> None:
    content = found()
    put(content, "BCQ, lp", "total", "coupon_cost", value=1.95, truth=1.984)
    put(content, "EDRR, lp", "total", "coupon_cost", value=2.0161, truth=None)
    got = _Page(render(content))
    assert got.rows["total"][0][6:] == ["against the limit\ncoupon_cost", "stored parameters", "training\nall of it"]
    assert got.row("total", "BCQ, lp")[6:] == ["99.2%\ntrue", "353,028", "64 s"]
    assert got.row("total", "EDRR, lp")[6] == "100.8%\nestimated"
    assert "100.8%" in got.marked["over"]
    assert "99.2%" not in got.marked["over"]
    assert got.row("total", "old policy")[6:] == ["115.2%\nestimated", "–", "–"]
    assert got.row("total", "frontier, bcq")[7:] == ["32,361", "8.2 s"]
    assert "against the limit" not in " ".join(got.rows["immediate"][0]), "no limit holds under this control"
    assert got.row("immediate", "BCQ, lp")[6:] == ["353,028", "64 s"]


def test_a_share_of_nothing_is_not_told() -> None:
    content = found(2)
    content = replace(content, budgets=(replace(content.budgets[0], limit=0.0), content.budgets[1]))
    put(content, "BCQ, lp", "total", "reach", value=None, truth=None)
    got = _Page(render(content))
    assert got.rows["total"][0][7:9] == ["against the limit\ncoupon_cost", "against the limit\nreach"]
    assert got.row("total", "BCQ, lp")[7:9] == ["–", "–"]
    assert got.row("total", "EDRR, lp")[8].endswith("%\ntrue")


def test_a_refused_method_says_why_and_stands_in_no_figure() -> None:
    got = full()
    assert not missing(got.row("total", "DIN, 1-day label")[1], "refused", "2.07")
    assert "DIN, 1-day label" not in json.dumps(got.figures["total-rewards"])
    assert "DIN, 1-day label" in json.dumps(got.figures["immediate-rewards"])


def test_a_method_refused_with_some_seeds_keeps_its_figures() -> None:
    content = refused(found(), "BCQ, lp", "total", "the least is 2.3")
    row = _Page(render(content)).row("total", "BCQ, lp")
    assert not missing(row[0], "refused", "some seeds", "2.3")
    assert row[3].strip()


def test_without_a_known_truth_no_truth_is_spoken_of() -> None:
    content = found(truth=False)
    got = _Page(render(content))
    assert "true " not in got.text.lower()
    assert "truth" not in got.text
    assert not missing(lead(content, "total"), "Estimated", "active days", "7 days")
    assert not missing(got.text, lead(content, "total"))


def test_one_seed_has_no_spread_and_no_best() -> None:
    got = _Page(render(found(seeds=1)))
    assert got.marked["best"] == []
    assert "is of one seed" in got.text
    assert "±" not in got.text
    assert "nothing is marked as best" in got.text
    assert "two standard deviations" not in got.text, "nothing is said to lead or to tie"


def leads(content: Comparison) -> list[str]:
    return re.findall('<p class="finding">(.*)</p>', render(content))


def test_the_lead_is_the_best_of_each_kind_that_keeps_the_limit() -> None:
    content = only(
        "old policy",
        "best constants (1.5 for 38% of users, 2 for 62% of users)",
        "BCQ, lp",
        "EDRR, lp",
        "DIN, 7-day label",
    )
    for row in content.rows:
        gain = {"BCQ, lp": 5.9, "EDRR, lp": 4.9, "DIN, 7-day label": 4.8}.get(row.name, 4.7)
        put(content, row.name, row.control, "reward@7", value=gain)
    put(content, "BCQ, lp", "total", "coupon_cost", value=2.01)
    (about, first), (about_limited, second) = (line.split(": ") for line in leads(content)[:2])
    assert not missing(about, "Estimated", "active days", "7 days")
    assert "limit" not in about
    assert not missing(about_limited, "Estimated", "active days", "7 days", "limit")
    assert first.split("; ") == ["BCQ, lp 5.90", "DIN, 7-day label 4.80", "old policy 4.70"]
    *kept, old = second.split("; ")
    assert kept == ["EDRR, lp 4.90", "DIN, 7-day label 4.80", "best constants 4.70"]
    assert not missing(old, "old policy 4.70", "not keep")
    put(content, "EDRR, lp", "total", "coupon_cost", value=2.01)
    assert "looking ahead none; DIN" in leads(content)[1]


def test_the_lead_goes_by_the_truth_where_it_is_known_of_all_methods() -> None:
    content = only("old policy", "BCQ, lp", "EDRR, lp")
    for name, value, truth, cost in (("BCQ, lp", 5.9, 4.5, 1.9), ("EDRR, lp", 4.9, 4.6, 2.1)):
        put(content, name, "total", "reward@7", value=value, truth=truth)
        put(content, name, "total", "coupon_cost", value=cost, truth=1.9)
        put(content, name, "immediate", "reward@7", truth=truth)
    led = leads(content)[1]
    assert led.startswith("True")
    assert "EDRR, lp 4.60" in led
    old = led.split("; ")[-1]
    assert not missing(old, "old policy", "estimated", "not keep"), "the old policy's truth is not known"
    put(content, "BCQ, lp", "total", "reward@7", truth=None)
    assert not missing(leads(content)[1].split("; ")[0], "Estimated", "BCQ, lp 5.90")


def test_a_budget_per_user_stands_against_the_reward_of_the_same_days() -> None:
    content = found(truth=False)
    content = replace(content, budgets=(replace(content.budgets[0], per="user", limit=13.0),), horizon_days=5)
    for row in content.rows:
        if row.figures:
            row.figures["reward@5"] = replace(row.figures["reward@7"], value=3.25)
            put(content, row.name, row.control, "coupon_cost", value=12.5)
    spec = _Page(render(content)).figures["total-plane-0"]
    points = spec["layer"][-1]
    data = spec["datasets"][points["data"]["name"]]
    assert {(d["reward"], d["cost"]) for d in data} == {(3.25, 12.5)}
    assert not missing(points["encoding"]["x"]["title"], "coupon_cost", "yuan per user", "5 days")
    assert not missing(points["encoding"]["y"]["title"], "active days per user", "5 days")


def test_stored_parameters_show_the_rules_of_the_first_oracle_and_the_original_method() -> None:
    spec = full().figures["stored-parameters"]
    (band, line), data = spec["layer"], spec["datasets"][spec["data"]["name"]]
    assert list(dict.fromkeys(d["rule"] for d in data)) == [
        "single-best",
        "aim-mean",
        "aim-greedy",
        "lp",
        "frontier",
        "original method",
    ]
    assert [(d["step"], d["value"]) for d in data if d["rule"] == "frontier"] == [(0, 32_361), (30_000, 32_361)]
    assert len(set(line["encoding"]["color"]["scale"]["range"])) == 6, "no two lines have one colour"
    spread = {(round(d["high"] - d["value"]), round(d["value"] - d["low"])) for d in data if d["rule"] == "lp"}
    assert spread == {(11_768, 11_768)}, "one standard deviation over seeds on either side"
    assert (band["encoding"]["y"]["field"], band["encoding"]["y2"]["field"]) == ("low", "high")
    text = " ".join(full().text.split())
    assert not missing(text, "lp 353,028", "frontier 32,361", "original method")
    for row in found().rows:  # the figure's lines end where the tables stand
        if row.oracle == "ddqn" and row.stored_parameters:
            last = [d["value"] for d in data if d["rule"] == row.rule][-1]
            assert last == pytest.approx(row.stored_parameters, rel=1e-4)
    assert "one network for every λ" in text
    assert not missing(text, "DDQN as the oracle"), "and nothing of oracles that are not drawn"


def test_one_seed_has_no_band() -> None:
    assert "layer" not in _Page(render(found(seeds=1))).figures["stored-parameters"]


def test_captured_shares_have_a_column_where_they_are_known() -> None:
    content = found()
    assert "captured share" not in _Page(render(content)).text
    put(content, "BCQ, lp", "total", "captured share", truth=0.618, truth_sd=0.049)
    got = _Page(render(content))
    place = got.rows["total"][0].index("captured share\ntrue")
    cells = {line[0]: line[place] for line in got.rows["total"][1:] if len(line) > place}
    assert " ".join(cells["BCQ, lp"].split()) == "0.62 ± 0.05"
    assert cells["BCQ, aim-mean"] == "–"


def test_without_methods_that_look_ahead_nothing_is_said_of_storing() -> None:
    content = found()
    content = replace(content, rows=tuple(row for row in content.rows if row.group != "rl"), stored={})
    got = _Page(render(content))
    assert "stored" not in got.rows
    assert "one network for every λ" not in got.text
    assert "lp" not in json.dumps(got.figures["total-plane-0"]["layer"][-1]["encoding"]["shape"])


def test_the_page_asks_for_nothing_from_outside() -> None:
    html = render(found(2))
    got = _Page(html)
    assert not [a for _, attrs in got.tags for key, a in attrs.items() if key in ("src", "href", "data", "srcset")]
    assert not [tag for tag, _ in got.tags if tag in ("link", "iframe", "img", "object", "base", "form")]
    policy = next(attrs["content"] for _, attrs in got.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    assert "unsafe-eval" not in str(policy)
    assert "http" not in got.json
    assert not re.search(r"@import|url\(", html[: html.index("</style>")])


def test_both_pages_have_the_same_look() -> None:
    styles = [
        html.partition("<style>")[2].partition("</style>")[0] for html in (report.render(example()), render(found()))
    ]
    shared = (Path(report.__file__).parent / "style.css").read_text(encoding="utf-8").rstrip()
    assert len(shared) > 2_000
    assert all(style.lstrip().startswith(shared) for style in styles)


def test_both_pages_draw_their_figures_with_the_same_script() -> None:
    scripts = [
        re.findall(r"<script>\n?(const figures.*?)</script>", html, re.DOTALL)
        for html in (report.render(example()), render(found()))
    ]
    assert len(scripts[0]) == 1
    assert scripts[0] == scripts[1]


def test_names_from_files_are_escaped_everywhere() -> None:
    content = found()
    rows = tuple(
        replace(row, figures={name.replace("coupon_cost", NASTY): figure for name, figure in row.figures.items()})
        for row in content.rows
    )
    budget = BudgetLimit(name=NASTY, limit=2.0, per="user", unit=NASTY)
    content = replace(
        content, rows=rows, budgets=(budget,), campaign=NASTY, unit=NASTY, reward_label=NASTY, money=NASTY
    )
    content = refused(content, "BCQ, lp", "total", NASTY)
    html = render(content)
    got = _Page(html)
    assert html.count("<script") == 3
    assert html.count("</script>") == 3
    assert "<script>alert" in got.text, "shown as text"
    assert "{{ 7*7 }}" in got.text, "not run as a template"
    assert len(got.names("total")) == 24


def test_the_page_is_the_same_from_the_file_and_survives_what_is_not_finite() -> None:
    content = found()
    assert render(msgspec.json.decode(json.dumps(asdict(content)), type=Comparison)) == render(content)
    put(content, "BCQ, lp", "total", "reward@7", value=None, low=None, high=None, sd=None)
    put(content, "EDRR, lp", "total", "reward", value=float("nan"))
    assert _Page(render(content)).row("total", "BCQ, lp")[3].startswith("–")


def test_a_truth_is_shown_where_every_estimate_is_withheld() -> None:
    content = found()
    content = replace(content, rows=tuple(row for row in content.rows if row.oracle != "din"))
    for row in content.rows:
        for target in row.figures:
            put(content, row.name, row.control, target, value=None, low=None, high=None, sd=None)
    got = _Page(render(content))
    assert got.row("total", "BCQ, lp")[3].split() == ["–", "true", "4.730", "±", "0.005"]
    assert not missing(leads(content)[1].partition(":")[0], "True", "active days", "7 days")
    assert list(got.figures) == ["immediate-rewards", "total-rewards", "stored-parameters"], "no figure without data"


@in_a_browser
def test_a_real_browser_draws_every_figure(tmp_path: Path) -> None:
    html = render(found(2))
    dom = drawn(html, tmp_path)
    places = {name: dom[dom.index(f'id="{name}"') :].partition("</figure>")[0] for name in _Page(html).figures}
    assert [name for name, place in places.items() if "<svg" not in place or "role-mark" not in place] == []
    assert "could not be drawn" not in _Page(dom).text
    assert "BCQ, aim-greedy" in places["total-rewards"]


@pytest.mark.parametrize("truth", [False, True])
def test_labels_of_budgets_stand_where_their_names_would(truth: bool) -> None:
    html = render(replace(found(2, truth=truth), names={"coupon_cost": "coupon money", "reach": "users reached"}))
    shown = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", html, flags=re.DOTALL)
    assert "coupon_cost" not in shown
    assert not missing(shown, "coupon money on day one", "users reached at least 0.52 per decision")
