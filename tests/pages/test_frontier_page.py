"""The frontier's page: complete in itself, escaped, in whole sentences, and moved by a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from browser import drawn, in_a_browser
from frontier_examples import campaign, found, told
from frontier_examples import page as render

from outlay.core.errors import OutlayError
from outlay.core.wording import change, number
from outlay.estimators.windowed import Window
from outlay.evaluating.budget_curve import BudgetCurve, CurveMember, OldPolicy
from outlay.evaluating.goals import asked, reached, stops
from outlay.evaluating.totals import Total
from outlay.pages import frontier_words
from outlay.pages.amounts import Names
from outlay.pages.frontier import Axes, marginal_axes, within
from outlay.pages.frontier_answers import CurveAnswers
from outlay.pages.frontier_words import out_of_reach
from telling import missing

NASTY = "<b>\"x\"</b> & {{ 7*7 }} </script><script>alert('x')"
PRICES = ("(0.891, 0.120)", "(0.831, 0.120)")  # of the two members that the campaign's budget mixes


class _Page(HTMLParser):
    """Tags with their attributes, what stands where the script writes, rows of the tables, the text to read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.rows: list[str] = []
        self.text = ""
        self._json = ""
        self._in_row = False
        self._inside: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag, dict(attrs)
        self.tags.append(self._inside)
        if tag == "tr":
            self.rows.append("")
            self._in_row = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = (f"/{tag}", {})
        self._in_row = self._in_row and tag != "tr"

    def handle_data(self, data: str) -> None:
        tag, attrs = self._inside
        if tag == "script" and attrs.get("id") == "records":
            self._json += data
        elif tag not in ("script", "style"):
            self.text += data
            if self._in_row:
                self.rows[-1] += data.strip() + " "
            if attrs.get("data-text"):
                self.texts[str(attrs["data-text"])] = data

    @property
    def records(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self._json)
        return listed

    @property
    def shapes(self) -> dict[str, list[str]]:
        """Paths of the figures by the name of what they show, in both sizes."""
        shapes: dict[str, list[str]] = {}
        group = ""
        for tag, attrs in self.tags:
            if tag == "g" and "_marks" in str(attrs.get("class")):
                group = re.findall(r"(\S+)_marks", str(attrs["class"]))[0].removesuffix("_path").replace("_group", "")
            elif tag == "g" and "role-mark" not in str(attrs.get("class", "role-mark")):
                group = ""
            if tag == "path" and group and attrs.get("class") is None and attrs.get("d"):
                shapes.setdefault(group, []).append(str(attrs["d"]))
        return shapes

    def attributes(self, key: str, value: str) -> dict[str, str | None]:
        return next(attrs for _, attrs in self.tags if attrs.get(key) == value)


@cache
def page(budgets: int = 1, per: str = "decision", certified: float | None = None) -> _Page:
    return _Page(render(found(budgets, per=per, certified=certified)))


def each(content: BudgetCurve, **changes: Any) -> BudgetCurve:
    """The curve with changes of all its points."""
    curve, requested = (tuple(replace(p, **changes) for p in of) for of in (content.curve, content.requested))
    return replace(content, curve=curve, requested=requested)


def with_unit(content: BudgetCurve, unit: str) -> BudgetCurve:
    return replace(content, unit=unit, budgets=tuple(replace(b, unit=unit) for b in content.budgets))


@pytest.mark.parametrize("certified", [None, 0.4])
@pytest.mark.parametrize("per", ["decision", "user"])
@pytest.mark.parametrize("budgets", [1, 2, 3])
def test_every_budget_of_the_slider_has_words_for_every_place_and_nothing_is_missing(
    budgets: int, per: str, certified: float | None
) -> None:
    got = page(budgets, per, certified)
    places = {str(attrs["data-text"]) for _, attrs in got.tags if "data-text" in attrs}
    assert {f"spend{j}" for j in range(budgets)} < places
    assert ({"certificate", "least", *(f"bound{j}" for j in range(budgets))} < places) == (certified is not None)
    assert len(got.records) == 102, "the curve and the campaign's budget"
    for record in got.records:
        assert places <= set(record["text"])
        assert all(record["text"].values())
        assert all(0 <= part <= 100 for part in (*record["curve"], *record["marginal"]))
    assert not re.search(r"\b(nan|none|undefined|inf)\b", got.text + json.dumps(got.records), re.IGNORECASE)
    for _, attrs in got.tags:
        assert not re.search(r"nan|None", str(attrs.get("d", "")) + str(attrs.get("style", "")))


def test_the_headline_says_what_the_campaigns_budget_buys_and_what_one_more_would() -> None:
    for per, budget, bought, interval, more in (
        ("decision", "0.65 yuan per decision", "0.473 active days per decision", "0.469 to 0.477", "yuan per decision"),
        ("user", "19.5 yuan per user", "14.19 active days per user in 30 days", "14.07 to 14.31", "user over 30 days"),
    ):
        content = found(1, per=per)
        wording = frontier_words.CurveWording.of(content, campaign(content))
        buys, how = headline = frontier_words.headline(content.requested[0], wording, 0.95)
        assert not missing(buys, "The campaign’s", budget, bought)
        assert how.startswith(f"95% interval: {interval}. ")
        assert not missing(how, more, "0.278 active days", "0.222 to 0.334")
        assert not missing(page(per=per).text, *headline)
    assert "one more unit of money" in _Page(render(with_unit(found(), "money"))).text


def test_a_curve_that_the_log_cannot_tell_begins_with_that() -> None:
    content = found(1, certified=0.0)
    why = "not certified: not checked: the behaviour model does not fit the log"
    asked = replace(content.requested[0], withheld=True, certified=False, certificate=why)
    got = _Page(render(replace(content, requested=(asked, *content.requested[1:]))))
    assert not missing(got.text, "This log cannot tell what the campaign’s budget of 0.65 yuan", "Not certified: not")
    assert "budget of 0.65 yuan per decision buys" not in got.text


def test_the_slider_begins_at_the_campaigns_budget_and_the_panel_says_so_without_the_script() -> None:
    got = page(2)
    start = int(str(got.attributes("id", "slider")["value"]))
    record = got.records[start]["text"]
    assert got.texts == {name: record[name] for name in got.texts}
    assert record["budget"] == "0.650"
    assert record["command"].split() == ["outlay", "frontier", "run", "--budget", "0.65", "--out", "run-0.65"]
    assert record["gain"] == "+27.9%"
    assert record["spend0"] == "0.648"
    members = record["mixture"].split("\n")
    assert [missing(each, prices, "50%") for each, prices in zip(members, PRICES, strict=True)] == [[], []]
    left, top = got.records[start]["curve"]
    marks = {attrs["style"] for _, attrs in got.tags if attrs.get("data-mark") == "curve"}
    assert marks == {f"left:{left}%;top:{top}%"}
    assert "hidden" in got.attributes("class", "slide"), "a slider that cannot move is not shown"


def test_budgets_rise_along_the_slider_and_no_command_asks_for_less_than_the_least() -> None:
    content = found()
    first, *others = content.curve
    least = 0.0123456789
    content = replace(content, least=least, curve=(replace(first, budget=least), *others))
    given = [float(re.findall(r"--budget (\S+)", r["text"]["command"])[0]) for r in _Page(render(content)).records]
    assert given == sorted(given)
    assert given[0] == 0.0123457, "rounded down, the command would ask for less than can be kept"


def test_the_comparison_with_the_old_policy_waits_below_the_headline_for_a_look_at_the_certify_users() -> None:
    content = found()
    spend, value = np.array([p.spend for p in content.curve]), np.array([p.value for p in content.curve])
    reached, cost = np.interp(0.45, spend[:, 0], value), np.interp(0.37, value, spend[:, 0])
    head, below = frontier_words.beside_old(content, frontier_words.CurveWording.of(content, campaign(content)))
    assert not missing(head, "0.010 to 1.180", "yuan per decision")
    with_as_much, with_less, warning, *_ = re.split(r"\. (?=[A-Z])", below)
    assert not missing(with_as_much, "0.450", f"{reached:.3f}", "0.370", change(reached / 0.37 - 1))
    assert not missing(with_less, "0.370", f"{cost:.3f}", change(cost / 0.45 - 1))
    assert not missing(warning, "select users", "certify users")
    assert not missing(page().text, head, below)
    beyond = replace(content, old=OldPolicy(value=0.05, low=0.04, high=0.06, spend=(2.0,)))
    bare = frontier_words.beside_old(beyond, frontier_words.CurveWording.of(beyond, campaign(beyond)))
    assert bare == (head, ""), "the old policy is off the curve"
    assert not missing(_Page(render(beyond)).text, head)
    assert "the old policy spends" not in _Page(render(beyond)).text


def test_the_headline_says_how_much_of_the_gain_is_sure() -> None:
    content = found(certified=1.0)
    spend = np.array([p.spend[0] for p in content.curve])
    at = np.flatnonzero(spend <= 0.45)[-1]
    bound = content.curve[at].gain_bound
    assert bound is not None
    first = next(i for i, p in enumerate(content.curve) if (p.gain_bound or 0) >= 0)
    text = _Page(render(content)).text
    assert f"a gain of {change(bound / 0.37)} is 97.5% sure" in text
    assert not missing(text, f"{spend[first]:.3f} ({change(spend[first] / 0.45 - 1)}) is enough to be 97.5% sure")
    assert "no gain is 97.5% sure" in _Page(render(each(content, gain_bound=-0.01))).text
    unbounded = each(content, gain_bound=None)
    assert "the old policy spends" not in _Page(render(unbounded)).text, "nothing bounds it"


def test_an_old_policy_that_breaks_another_limit_is_said_to() -> None:
    for certified in (None, 1.0):
        content = found(2, certified=certified)
        assert "does not keep" not in _Page(render(content)).text
        assert content.old is not None
        content = replace(content, old=replace(content.old, spend=(content.old.spend[0], 0.2)))
        text = _Page(render(content)).text
        assert "keep reach at least 0.3" in text


def test_the_table_holds_eleven_budgets_and_those_requested() -> None:
    content = found(2)
    content = replace(content, requested=(*content.requested, replace(content.requested[0], budget=0.7)))
    rows = _Page(render(content)).rows
    assert len(rows) == 1 + 11 + 2
    assert [row.split()[1:3] for row in rows if "campaign’s" in row] == [["the", "campaign’s"]]
    assert [row.split()[0] for row in rows if "requested" in row] == ["0.700"]


def test_a_line_of_the_table_has_every_figure_with_its_interval_for_page_and_terminal() -> None:
    content = found(2, certified=0.4)
    table = frontier_words.table(content, frontier_words.CurveWording.of(content, campaign(content)))
    assert [column.head for column in table.columns] == [
        *("budget", "buys", "over the old policy", "spends", "reach", "marginal reward", "certified", "mixture")
    ]
    row = next(row for row in table.rows if row.look == "chosen")
    *figures, mixture = (cell.line for cell in row.cells)
    assert figures == [
        "0.650 (the campaign’s)",
        "0.473 ±0.004",
        "+27.9%",
        "0.648 ±0.004",
        "0.520 ±0.003",
        "0.278 (0.222 to 0.334)",
        "no",
    ]
    assert [missing(each, prices, "50%") for each, prices in zip(mixture.split("; "), PRICES, strict=True)] == [[], []]
    losing = table.rows[0].cells[2]
    assert losing.text == "−59.5%"
    assert not missing(losing.note, "loss", "−56.8%", "97.5%")


def test_a_budget_above_the_curve_is_said_to_buy_nothing_more() -> None:
    content = found()
    beyond = replace(content.curve[-1], budget=5.0, marginal=0.0, slack=True)
    content = replace(content, budgets=(replace(content.budgets[0], limit=5.0),), requested=(beyond,))
    got = _Page(render(content))
    assert "they spend 1.176 at most." in got.text
    assert "budget of 5 lies outside" in got.text
    assert got.attributes("id", "slider")["value"] == "100"
    assert "campaign’s budget 5" not in got.text, "no rule in the figures"
    assert "campaign’s budget 0.65" in page().text


@pytest.mark.parametrize("certified", [None, 1.0])
def test_a_page_without_an_old_policy_that_could_be_measured(certified: float | None) -> None:
    content = found(certified=certified)
    band = None if content.band is None else replace(content.band, old=None)
    page = render(replace(content, old=None, band=band))
    assert "too little about its own" in page
    assert "could not be measured" in page
    assert "nan" not in page.lower().replace("finance", "")
    assert ">today<" not in page
    assert ">today<" in render(content)


def test_one_policy_alone_makes_a_page() -> None:
    content = found()
    last = content.curve[-1]
    content = replace(content, least=content.most, curve=(last,) * 101, requested=(last,))
    got = _Page(render(content))
    assert len(got.records) == 1
    assert not missing(got.texts["mixture"], "λ = 0", "all users")


def test_what_rounding_leaves_of_a_policy_is_no_member() -> None:
    content = found()
    members = (
        CurveMember(multiplier=(0.5,), weight=1 - 1e-15, fold=0),
        CurveMember(multiplier=(0.4,), weight=1e-15, fold=0),
    )
    content = replace(content, requested=(replace(content.requested[0], members=members),))
    mixture = _Page(render(content)).texts["mixture"]
    assert not missing(mixture, "λ = 0.500", "all users")
    assert "\n" not in mixture, "one member, one line"


def test_a_marginal_value_beyond_all_others_does_not_flatten_the_figure() -> None:
    content = found()
    first, *others = content.curve
    got = _Page(render(replace(content, curve=(replace(first, marginal=1e6), *others))))
    assert got.records[0]["marginal"][1] == 0, "on the edge of the plot area"
    assert got.records[50]["marginal"][1] < 90


def test_no_marginal_value_is_drawn_lower_than_the_table_has_it() -> None:
    """The line leaves the figure at its top, and the finding says how far; before, it ran along the top."""
    content = found()
    high = [replace(p, marginal=1e6 - i) if i < 3 or i in (40, 41) else p for i, p in enumerate(content.curve)]
    axes = marginal_axes(high, Axes.around([0.0, 1.2], [0.0, 1.0]))
    pieces: dict[int, list[tuple[float, float]]] = {}
    for row in within(high, axes.top):
        pieces.setdefault(row["run"], []).append((row["budget"], row["value"]))
    assert len(pieces) == 2
    truth = np.array([(p.budget, p.marginal) for p in high])
    for piece in pieces.values():
        for budget, value in piece:
            assert value == pytest.approx(np.interp(budget, *truth.T))
            assert value <= axes.top
    assert [piece[end][1] for piece in pieces.values() for end in (0, -1)][:3] == [axes.top] * 3
    got = _Page(render(replace(content, curve=tuple(high))))
    assert "it reaches 1,000,000 at 0.01" in got.text
    assert "above the figure" not in page().text


def test_before_the_look_the_page_says_how_to_get_one() -> None:
    assert "Not certified yet" in page().text
    assert "outlay evaluate run" in page().text
    assert "no interval of the difference" in page().text
    assert {"line", "band"} <= page().shapes.keys()
    assert not {"open", "sure"} & page().shapes.keys()


def test_after_the_look_every_budget_says_whether_it_is_certified_and_what_is_sure() -> None:
    got = page(2, certified=0.4)
    assert "41 of 101 budgets" in got.text
    assert "certified at 97.5%" in got.text
    assert "Look 1 at 14,871 certify" in got.text
    assert got.text.count("33 mixtures") == got.text.count("2.78 standard errors") == 1
    assert "stays under 2.5%" in got.text
    first, last = got.records[0]["text"], got.records[-1]["text"]
    assert first["certificate"] == "✓ certified at 97.5%"
    assert last["certificate"].startswith("✕ not certified")
    assert not missing(last["certificate"], "coupon_cost", "0.0118", "1.192", "1.18")
    assert last["bound0"] == "at most 1.192 (97.5% sure)"
    assert last["bound1"].startswith("at least 0.6")
    assert last["least"] == "+51.4% at least (97.5% sure)"
    assert [d.count("M") for d in got.shapes["open"]] == [1, 1], "one stretch, from the first that is not certified on"
    assert [d.count("L") for d in got.shapes["sure"]] == [len(got.records) - 1] * 2, "wide and narrow"
    assert [row.split()[-1] for row in got.rows if "✓" in row or "✕" in row]
    assert len([row for row in got.rows if "✓ yes" in row]) == 5
    assert len([row for row in got.rows if "✕ no" in row]) == 7
    assert "costs no further look" in got.text
    whole = page(certified=1.0)
    assert "Every budget" in whole.text
    assert "certified at 97.5%" in whole.text
    assert "open" not in whole.shapes
    assert "None of 101 budgets" in page(certified=-1.0).text


def test_the_campaigns_own_budget_is_certified_first_where_others_are_not() -> None:
    """It has a share of the look for itself, so it may be certified where no budget of the curve is."""
    none = replace(found(certified=-1.0), requested=found(certified=1.0).requested)
    own = replace(none, requested=(replace(none.requested[0], confidence=0.9938),))
    assert frontier_words.judged(own).startswith("Your budget is certified at 99.38%; 0 of 101 budgets")
    assert frontier_words.badge(own).title.startswith("Your budget is certified at 99.38%; none of 101 budgets")
    assert frontier_words.badge(own).kind == "open"
    assert frontier_words.judged(found(certified=-1.0)).startswith("0 of 101 budgets")
    assert frontier_words.badge(found(certified=1.0)).title.startswith("Every budget")


def badge(got: _Page) -> str | None:
    return next(attrs["class"] for _, attrs in got.tags if "badge" in str(attrs.get("class")))


def test_a_curve_that_is_certified_and_loses_is_not_green_and_says_so() -> None:
    """Below a spend of 0.35 or so the policies bring less than the old one at its 0.45."""
    got = page(certified=1.0)
    lost = sum(point.loses for point in found(certified=1.0).curve)
    assert 20 < lost < 40
    assert badge(got) == "badge open"
    assert f"certified at 97.5%; {lost} lose" in got.text
    assert frontier_words.CERTIFIED in got.text
    assert f"{lost} of 101 budgets" in got.text
    assert "budgets from 0.0100 to" in got.text
    assert not missing(got.records[0]["text"]["least"], "loss", "−56.8%", "97.5%")
    gains = each(found(certified=1.0), gain_most=0.1)
    assert badge(_Page(render(gains))) == "badge yes"
    assert "lose against" not in _Page(render(gains)).text
    assert badge(page(certified=-1.0)) == "badge no"


def test_what_the_run_serves_is_told_at_the_confidence_of_its_own_bounds() -> None:
    """The look has a share for it: 98.12% where all others are at 97.5% together."""
    content = found(certified=1.0)
    own = replace(content.requested[0], confidence=0.98125)
    wording = frontier_words.CurveWording.of(content, campaign(content))
    others, its = wording.panel(content.curve[50]), wording.panel(own)
    assert (others["certificate"], its["certificate"]) == ("✓ certified at 97.5%", "✓ certified at 98.12%")
    for name in ("bound0", "least"):
        assert "(97.5% sure)" in others[name]
        assert "(98.12% sure)" in its[name]
    rows = {row.cells[0].note: row for row in frontier_words.table(replace(content, requested=(own,)), wording).rows}
    assert rows["the campaign’s"].cells[-2].line == "yes (at 98.12%)"
    assert rows[""].cells[-2].line == "yes"
    assert "its bounds are at 98.12%" in _Page(render(replace(content, requested=(own,)))).text
    assert "its bounds are at" not in _Page(render(content)).text


def test_what_could_not_be_measured_has_no_bound() -> None:
    why = "not certified: coupon_cost could not be measured (no support)"
    content = each(
        found(certified=1.0),
        certified=False,
        certificate=why,
        bounds=(None,),
        gain=None,
        gain_bound=None,
        gain_most=None,
    )
    got = _Page(render(content))
    assert got.texts["certificate"] == f"✕ {why}"
    assert got.texts["bound0"] == got.texts["least"] == "no bound"


def test_the_foot_says_what_the_figures_rest_on_and_mean() -> None:
    for said in (
        "14,902 select users",
        "95% intervals",
        "costs fall as λ grows",
        "(discounted)",
        "certified on other users",
    ):
        assert said in page().text
    assert "They had no part" in page(certified=0.4).text
    assert "a total per user" in page(per="user").text


def test_the_page_says_on_what_condition_and_about_which_days() -> None:
    assert page().text.count(found().condition) == 1
    content = replace(found(1), window=Window(7, 0.48, "Claims are about a user's first 7 days in the log."))
    text = _Page(render(content)).text
    assert content.window is not None
    assert content.window.words in text
    assert not missing(text, "first 7 days")
    assert "(discounted)" not in text


def test_the_page_asks_for_nothing_from_outside_and_is_small() -> None:
    html = render(found(3, certified=1.0))
    got = _Page(html)
    asked = [a for _, attrs in got.tags for key, a in attrs.items() if key in ("src", "href", "data", "srcset")]
    assert all(str(each).startswith("#") for each in asked)
    assert not [tag for tag, _ in got.tags if tag in ("link", "iframe", "img", "object", "base", "form")]
    policy = next(attrs["content"] for _, attrs in got.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    assert not re.search(r"http|@import|url\(", html.replace("http-equiv", ""))
    assert len(html.encode()) < 180_000


def test_names_from_files_are_escaped_everywhere() -> None:
    content = found(2, certified=1.0)
    budgets = tuple(replace(b, name=NASTY + ("" if b.sign > 0 else "2"), unit=NASTY) for b in content.budgets)
    content = replace(
        content, campaign=NASTY, unit=NASTY, reward_label=NASTY, money=NASTY, check=NASTY, budgets=budgets
    )
    html = render(content)
    got = _Page(html)
    assert html.count("<script") == html.count("</script>") == 2
    assert "<b>" not in html
    assert NASTY in got.text, "shown as text, not run as a template"
    assert NASTY in got.records[0]["text"]["marginal"]


def test_the_page_is_the_same_from_the_file() -> None:
    content = found(2, certified=1.0)
    assert render(msgspec.json.decode(json.dumps(asdict(content)), type=BudgetCurve)) == render(content)


MOVE = """<script>
const texts = () => [...document.querySelectorAll("[data-text]")].map((place) => place.textContent);
const marks = () => [...document.querySelectorAll("[data-mark]")].map((mark) => [mark.style.left, mark.style.top]);
const seen = [];
for (const move of [() => {}, () => slider.stepUp(), () => { slider.value = 0; }, () => { slider.value = 999; }]) {
  move();
  slider.dispatchEvent(new Event("input"));
  seen.push({ texts: texts(), marks: marks(), spoken: slider.getAttribute("aria-valuetext"),
    shown: slider.getClientRects().length, wide: document.documentElement.scrollWidth });
}
document.documentElement.dataset.seen = JSON.stringify(seen);
</script></body>"""
WATCH = """<head><script>addEventListener("error", (e) => { document.documentElement.dataset.error = e.message; });
</script>"""


@in_a_browser
def test_a_real_browser_moves_the_slider_and_the_panel_and_the_marks_follow(tmp_path: Path) -> None:
    html = render(found(2, certified=0.4))
    got = _Page(html)
    html = html.replace("<head>", WATCH, 1).replace("</body>", MOVE, 1)
    dom = drawn(html, tmp_path, "400,900")
    root = _Page(dom).attributes("lang", "en")
    assert "data-error" not in root, root["data-error"]
    names = [str(attrs["data-text"]) for _, attrs in got.tags if "data-text" in attrs]
    start = int(str(got.attributes("id", "slider")["value"]))
    seen = json.loads(str(root["data-seen"]))
    assert len(seen) == 4
    for state, place in zip(seen, (start, start + 1, 0, len(got.records) - 1), strict=True):
        record = got.records[place]
        assert state["texts"] == [record["text"][name] for name in names]
        wanted = [[f"{part}%" for part in record[name]] for name in ("curve", "curve", "marginal", "marginal")]
        assert [[float(x[:-1]) for x in m] for m in state["marks"]] == [[float(x[:-1]) for x in m] for m in wanted]
        assert state["spoken"] == record["text"]["aria"]
        assert state["shown"] == 1, "the script shows the slider"
        assert state["wide"] <= 500, "the page is no wider than its window, which may not be below 500"


# After the look, with totals.


@cache
def totals_page() -> _Page:
    return _Page(render(told(2)))


def test_the_first_line_is_what_today_would_cost_and_what_todays_money_would_bring() -> None:
    """Today: 0.37 · 600,000 = 222,000 active days for 0.45 · 600,000 = 270,000 yuan."""
    answers = CurveAnswers.of(content := told(), campaign(content))
    assert answers is not None
    (least,) = [goal for goal in content.goals if goal.kind == "least money"]
    (money,) = [goal for goal in content.goals if goal.kind == "same money"]
    assert least.sure is not None
    assert least.sure.totals is not None
    assert money.point is not None
    assert money.point.totals is not None
    assert money.point.totals.more is not None
    less = round((270_000 - least.sure.totals.money.value) / 100) * 100
    assert not missing(answers.headline, "today's active days", f"{less:,.0f} yuan less in 30 days", "today on about")
    assert not missing(" ".join(answers.how), answers.limit(least.sure), answers.limit(money.point), "97.5%")
    assert not missing(totals_page().text, "20,000 users", "30 days", "Which budget does it?")


def test_a_headline_that_no_bound_holds_says_by_estimate() -> None:
    content = told()
    goals = tuple(replace(goal, sure=None) for goal in content.goals)
    unsure = CurveAnswers.of(replace(content, goals=goals), campaign(content))
    assert unsure is not None
    assert unsure.headline.startswith("By estimate, keep today's active days for ")
    assert unsure.headline.endswith("; no limit that saves is sure to keep it.")

    def without_bound(goal: Any) -> Any:
        return replace(goal, point=replace(goal.point, totals=replace(goal.point.totals, at_least=-1.0)))

    half = CurveAnswers.of(replace(content, goals=tuple(map(without_bound, content.goals))), campaign(content))
    assert half is not None
    assert half.headline.startswith("Keep today's active days for ")
    assert ", or by estimate, spend what you spend today" in half.headline


def test_a_bound_below_0_is_not_said_to_be_sure() -> None:
    answers = CurveAnswers.of(told(), campaign(told()))
    assert answers is not None
    assert [column.head for column in answers.table.columns][-2:] == ["more than now", "at least"]
    assert "Below 0 it is what may be lost" in totals_page().text


def test_where_todays_reward_costs_more_than_today_both_places_say_that_today_is_cheaper() -> None:
    content = told()
    assert content.totals is not None
    cheap = replace(content, totals=replace(content.totals, money=Total(value=1000.0)))
    answers, goal = CurveAnswers.of(cheap, campaign(cheap)), cheap.goals[0]
    assert answers is not None
    words = "What you do today is cheaper: no limit of this curve keeps today's active days for so little."
    assert words in answers.how
    assert words in answers.line(goal)
    before = CurveAnswers.of(content, campaign(content))
    assert before is not None
    assert "cheaper" not in before.line(goal) + " ".join(before.how)


def test_a_campaign_limit_that_spends_nothing_leaves_money_few_digits() -> None:
    content = told()
    (own,) = content.requested
    assert own.totals is not None
    nothing = replace(own, totals=replace(own.totals, money=Total(value=0.0, low=0.0, high=0.0)))
    answers = CurveAnswers.of(replace(content, requested=(nothing,)), campaign(content))
    assert answers is not None
    assert answers.spends(nothing) == "0 yuan in 30 days"
    assert answers.money.number(233_810.15603897) == "233,800"


def test_what_policies_spend_at_most_is_the_most_of_the_curve_wherever_it_stands() -> None:
    content = told()
    spent = [p.totals.money.value for p in content.curve if p.totals]
    swapped = (content.curve[0], *content.curve[:0:-1])
    goals = tuple(replace(goal, point=None, sure=None) for goal in content.goals)
    assert content.totals is not None
    rich = replace(content.totals, money=Total(value=10 * max(spent)))
    answers = CurveAnswers.of(replace(content, curve=swapped, goals=goals, totals=rich), campaign(content))
    assert answers is not None
    assert answers.how == [f"These policies spend {answers.spends(content.curve[-1])} at most, less than today."]


def test_every_goal_is_met_by_its_budget_and_by_none_below() -> None:
    content = told()
    assert content.totals is not None
    assert content.totals.reward is not None
    now = content.totals.reward.value
    for goal in content.goals:
        assert goal.point is not None
        below = [p for p in content.curve if p.budget < goal.point.budget - 1e-9]
        if goal.kind == "worth":
            continue  # below
        if goal.kind == "same money":
            assert goal.point.totals is not None
            assert goal.point.totals.money.value >= 270_000 > max(p.totals.money.value for p in below if p.totals)
            continue
        level = (1 + (goal.asked or 0.0)) * now
        assert goal.point.totals is not None
        assert goal.point.totals.reward.value >= level > max(p.totals.reward.value for p in below if p.totals)
        assert goal.sure is not None
        assert goal.sure.totals is not None
        assert (goal.sure.totals.at_least or 0.0) >= (goal.asked or 0.0) * now
        assert goal.sure.budget >= goal.point.budget


def rough() -> BudgetCurve:
    """Spend and reward go up and down along the limits, and the log cannot tell the upper half."""
    content, random = told(), np.random.default_rng(3)

    def moved(place: int, point: Any) -> Any:
        money, reward = (
            replace(x, value=x.value * random.uniform(0.7, 1.3)) for x in (point.totals.money, point.totals.reward)
        )
        return replace(point, withheld=place > 50, totals=replace(point.totals, money=money, reward=reward))

    return replace(content, curve=tuple(moved(i, p) for i, p in enumerate(content.curve)))


def test_a_worth_stops_where_it_leaves_the_most_and_a_higher_one_never_earlier() -> None:
    content = rough()
    known = {
        p.budget: (p.totals.money.value, p.totals.reward.value) for p in content.curve if p.totals and not p.withheld
    }
    cheapest, before = min(known.values()), (0.0, 0.0)
    for worth in np.geomspace(0.01, 100.0, 60):
        (goal,) = reached(content, asked(worth=float(worth)), lambda _: content.curve[0])
        money, reward = cheapest if goal.point is None else known[goal.point.budget]
        assert worth * reward - money == pytest.approx(max(worth * r - m for m, r in known.values()))
        assert money >= before[0]
        assert reward >= before[1]
        before = money, reward
    assert before[0] > cheapest[0]


@in_a_browser
def test_the_slider_stops_for_a_worth_where_the_answer_does(tmp_path: Path) -> None:
    content = rough()
    (goal,) = reached(content, asked(worth=1.0), lambda _: content.curve[0])
    assert goal.point is not None
    typed = "const box = document.getElementById('worth'); box.value = 1; box.dispatchEvent(new Event('input'));"
    shown = drawn(render(content).replace("</body>", f"<script>{typed}</script></body>"), tmp_path)
    record = next(r for r in _Page(render(content)).records if r["budget"] == float(f"{goal.point.budget:.12g}"))
    assert re.findall(r'data-text="limit"[^>]*>([^<]*)<', shown) == [record["text"]["limit"]]


def test_one_more_costs_what_the_next_stop_does_and_nothing_beyond_the_last() -> None:
    content = rough()
    names, found = Names(campaign(content)), stops(content)
    for stop, after in pairwise(found):
        assert frontier_words.one_more(stop.point, found, content, names) == f"about {number(after.worth)} yuan"
    assert "is known to bring any" in frontier_words.one_more(found[-1].point, found, content, names)


def test_budgets_that_the_log_cannot_tell_have_stars_and_lead_to_no_headline() -> None:
    """Their estimates are shown, with the reason; nobody is told to save money by one of them."""
    why = "not certified: not checked: it rests on the weights of 93 effective users; 100 are needed"
    content = told()
    assert CurveAnswers.of(content, campaign(content)).doubt == ""  # type: ignore[union-attr]

    def doubted(point: Any) -> Any:
        return point and replace(point, withheld=True, certified=False, certificate=why)

    goals = tuple(replace(goal, point=doubted(goal.point), sure=doubted(goal.sure)) for goal in content.goals)
    content = replace(content, curve=tuple(map(doubted, content.curve)), goals=goals)
    answers = CurveAnswers.of(content, campaign(content))
    assert answers is not None
    assert not missing(answers.doubt, f"{len(content.curve)} of {len(content.curve)} budgets", "93 effective users")
    assert answers.headline == "No budget of this curve is shown to do better than what you do today."
    assert answers.how == []
    stars = [[cell.look for cell in row.cells].count("doubted") for row in answers.table.rows]
    assert set(stars) == {0, 2}, "yours is certified, and has no stars"
    ticked = [row.cells[0].text for row in answers.table.rows if "✓" in row.cells[0].text]
    assert ticked == ["0.65 ✓ (yours)"]
    assert answers.doubt in _Page(render(content)).text


def test_less_than_today_is_asked_for_in_words_that_say_so() -> None:
    content = told()
    (goal,) = reached(content, asked(gain=-0.5), lambda _: content.curve[0])
    answers = CurveAnswers.of(replace(content, goals=(goal,)), campaign(content))
    assert answers is not None
    assert answers.line(goal).startswith("50% fewer active days")


def test_a_goal_beyond_the_curve_is_said_to_be_no_budget_of_it() -> None:
    content = told()
    goals = reached(content, asked(gain=0.99, worth=1e-9), lambda _: content.curve[0])
    assert [goal.point for goal in goals] == [None, None]
    answers = CurveAnswers.of(replace(content, goals=goals), campaign(content))
    assert answers is not None
    for goal in goals:
        assert out_of_reach(goal) in answers.line(goal)
        assert out_of_reach(goal) in str(answers.goals.rows)


@pytest.mark.parametrize(
    "wrong", [{"worth": 0.0}, {"worth": float("nan")}, {"gain": -1.0}, {"gain": 9.0}, {"worth": True}]
)
def test_an_amount_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OutlayError, match=next(iter(wrong))):
        asked(**wrong)


def test_no_sentence_names_an_option_of_the_command_line_or_a_raw_column() -> None:
    for got in (totals_page(), page(2)):
        text = re.sub(r"outlay (frontier|evaluate) run\S*( --\w+ \S+)*", "", got.text)
        assert "--" not in text
    before_evidence = totals_page().text.split("Appendix")[0]
    assert "coupon_cost" not in before_evidence
    assert "λ" not in before_evidence


def test_lines_of_the_tables_lead_to_their_budget_on_the_slider() -> None:
    got = totals_page()
    links = [float(str(attrs["href"]).removeprefix("#budget=")) for _, attrs in got.tags if "#budget" in str(attrs)]
    assert len(links) > 15
    assert set(links) <= {record["budget"] for record in got.records}


@in_a_browser
def test_the_address_of_the_page_keeps_the_slider(tmp_path: Path) -> None:
    budget = told(2).curve[30].budget
    moved = drawn(render(told(2)).replace("location.hash)", f"'#budget={budget:.12g}')"), tmp_path)
    shown = re.search(r'data-text="limit"[^>]*>([^<]*)<', moved)
    assert shown is not None
    assert shown[1].startswith(f"{budget:.3f}")


def test_a_data_frame_of_the_curve_has_a_column_of_numbers_for_each_budget() -> None:
    curve = found(2)
    frame = curve.to_pandas("curve")
    for place, name in enumerate(("coupon_cost", "reach")):
        assert frame[f"spend_{name}"].tolist() == [point.spend[place] for point in curve.curve]
    assert frame[["spend_low_reach", "spend_high_coupon_cost"]].to_numpy().dtype == float
    assert frame["bounds_reach"].isna().all(), "before the look"
    assert "multiplier_reach" in curve.to_pandas("policies")
