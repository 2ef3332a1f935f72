"""The page of an A/B test: a sentence to repeat, honest about what is blocked, drawn by a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from browser import drawn, in_a_browser
from experiment_examples import REASON, compared, course, decision, effect, example, lift, point

from outlay.experiments import words
from outlay.experiments.lift import ArmDifference, IntervalEstimate, Lift, Withheld
from outlay.experiments.results import Analysis, ArmComparison, Change, Outcome
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.pages import experiment, experiment_words
from outlay.pages.experiment import render
from telling import missing

NASTY = "<script>alert('x')</script> & \"q\" {{ 7*7 }} </script>"
SECTIONS = ["lift-0", "guardrails-0", "metrics", "spend", "ratio", "segments-0", "promised", "power", "settings"]


class _Page(HTMLParser):
    """Tags with their attributes, the rows of each section's tables, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {"": []}  # section → rows of cells
        self.text, self.json = "", ""
        self._section, self._in_cell = "", False
        self._inside: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)
        self.text = " ".join(self.text.split())

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
        self._in_cell = self._in_cell and tag not in ("th", "td")
        self._inside = (f"/{tag}", {})

    def handle_data(self, data: str) -> None:
        tag, attrs = self._inside
        if tag == "script" and attrs.get("id") == "figures":
            self.json += data
        elif tag not in ("script", "style"):
            self.text += data + " "
            if self._in_cell:
                row = self.rows[self._section][-1]
                row[-1] = f"{row[-1]} {data.strip()}".strip()

    @property
    def figures(self) -> dict[str, Any]:
        specs: dict[str, Any] = json.loads(self.json)["specs"]
        return specs

    @property
    def sections(self) -> list[str]:
        return [name for name in self.rows if name]

    def row(self, section: str, name: str) -> list[str]:
        return next(row for row in self.rows[section] if row[0].startswith(name))


def page(*comparisons: ArmComparison, day: int = 14) -> _Page:
    return _Page(render(example(*comparisons, day=day)))


def sentence(analysis: Analysis, place: int = 0) -> str:
    return words.headline(analysis, analysis.contestants[place])


def test_every_section_and_a_valid_specification_for_every_place() -> None:
    got = page(compared(), compared("other", "undecided", 0.001), compared("none", None, -0.08))
    assert got.sections[:6] == ["lift-0", "guardrails-0", "lift-1", "guardrails-1", "lift-2", "guardrails-2"]
    assert page().sections == SECTIONS
    assert sorted(str(a["id"]) for _, a in got.tags if a.get("class") == "plot") == sorted(got.figures)
    for spec in got.figures.values():
        alt.LayerChart.validate(spec) if "layer" in spec else alt.Chart.validate(spec)


def test_a_part_that_is_missing_takes_its_section_along() -> None:
    bare = replace(compared(), segments=[], courses=compared().courses[:1])
    analysis = replace(
        example(bare), promised=(), arms=[replace(arm, spent=None, spent_by_day=[]) for arm in example().arms]
    )
    assert _Page(render(analysis)).sections == ["lift-0", "metrics", "ratio", "power", "settings"]


@pytest.mark.parametrize(
    ("outcome", "value", "day", "said"),
    [
        (
            "better",
            0.031,
            14,
            "Take “new”: active is 3.1% higher than under “old”; cost is 2.5% lower; no change in redemption shows.",
        ),
        (
            "worse",
            -0.031,
            14,
            "Keep “old”: under “new”, active is 3.1% lower; cost is 2.5% lower; no change in redemption shows.",
        ),
        (
            "harm",
            -0.031,
            5,
            "Stop “new”: active is 3.1% lower than under “old”; cost is 2.5% lower; no change in redemption shows.",
        ),
        (
            "undecided",
            0.002,
            14,
            "Keep “old”, unless its cost decides: no difference in active was found under “new”; "
            "cost is 2.5% lower; no change in redemption shows.",
        ),
        ("blocked", 0.031, 14, "No verdict on “new”, and none of its numbers should be used."),
    ],
)
def test_the_verdict_is_one_sentence(outcome: Outcome, value: float, day: int, said: str) -> None:
    analysis = example(compared("new", outcome, value, day), day=day)
    assert sentence(analysis) == said
    assert said in _Page(render(analysis)).text
    assert said in words.verdict(analysis), "the terminal says the same"


@pytest.mark.parametrize(("day", "due"), [(3, 7), (10, 14)])
def test_a_test_that_runs_says_when_the_next_decision_is_due(day: int, due: int) -> None:
    content = example(compared("new", "open", 0.02, day), day=day)
    assert not missing(sentence(content), "Let it run", "“new”", f"day {due}")
    got = _Page(render(content))
    so_far = words.certainty(content, content.contestants[0])
    assert not missing(so_far, "active", "+2.0% (+0.5% to +3.5%)")
    assert not missing(experiment_words.period(content), f"day {day} of 14", "2 March 2026", f"{day + 1} March 2026")
    assert not missing(got.text, sentence(content), so_far, experiment_words.period(content))
    marks = [d["day"] for d in _values(got.figures["lift-0-0"]) if d.get("words") == "decision"]
    assert marks[0] == due


def test_the_verdict_tells_the_size_of_the_last_decision_and_the_day_of_the_first() -> None:
    """On the day on which an effect first crosses a bound it is overstated."""
    arm = compared()
    first = decision(7, 3.4, 2.96, 0.05, 0.021)
    arm = replace(arm, decisions=[first, arm.decisions[1]])
    rests_on = words.certainty(example(arm), arm)
    assert not missing(rests_on, "day 7", "95%", "active", "day 14", "+2.1% and +4.1%")
    assert not missing(page(arm).text, rests_on, "active is 3.1% higher")
    back = replace(arm.decisions[1], z=1.2)
    assert "active is 5.0% higher" in page(replace(arm, decisions=[first, back])).text, "as on the day that decided"
    level = compared("new", "undecided", 0.002)
    rests_on = words.certainty(example(level), level)
    assert not missing(rests_on, "active", "day 14", "−0.8%")
    assert not missing(page(level).text, rests_on)


def test_an_end_near_0_does_not_look_like_0() -> None:
    near = ArmDifference(IntervalEstimate(0.03, -0.0004, 0.06), IntervalEstimate(0.0074, -0.0001, 0.0149))
    assert words.ends(near) == "−0.01% to +1.49%"
    assert words.ends(ArmDifference(near.absolute, None)) == "−0.0004 to +0.0600 per user"


def test_to_stop_for_harm_needs_no_planned_day() -> None:
    arm = compared("new", "harm", -0.031, day=5)
    got = page(arm, day=5)
    assert "✕ Doing harm: stop it" in got.text
    rests_on = words.certainty(example(arm, day=5), arm)
    assert not missing(rests_on, "active", "−4.6% and −1.6%")
    assert not missing(got.text, rests_on)


def test_a_guardrail_on_the_wrong_side_is_for_the_reader_to_weigh() -> None:
    arm = compared("new", "open", 0.02, 3)
    dear = course("cost", 0.2, 0.05, 3, wanted=-1)
    content = example(replace(arm, courses=[arm.courses[0], dear, arm.courses[2]]), day=3)
    assert not missing(sentence(content), "Let it run", "unless", "cost is 20.0% higher", "“new”", "day 7")


def test_where_less_is_better_a_lower_value_takes_the_arm() -> None:
    content = example(compared("new", "better", -0.031), better="lower")
    assert not missing(sentence(content), "Take “new”", "active is 3.1% lower", "“old”")
    got = _Page(render(content))
    assert got.row("lift-0", "after day 7")[1] == "✓ better"
    bars = [d["side"] for d in _values(got.figures["lift-0-0"]) if d.get("what") == experiment.PLANNED]
    assert bars == ["1", "1"]


def test_money_has_a_unit_where_the_file_names_one() -> None:
    got = _Page(render(example(unit="yuan")))
    assert "Money, in yuan" in got.text
    assert "of 59,000 yuan" in got.text
    assert got.row("metrics", "cost yuan per user")
    assert "money" not in page().text.replace("same money", "").replace("policy and money", "").replace(
        "unit money", ""
    )


def test_an_effect_that_fades_is_told_beside_the_verdict() -> None:
    fades = Change(
        day=14,
        users=9000,
        first=lift("active", 0.1, 0.02),
        since=lift("active", 0.03, 0.02),
        z=-3.1,
        p_value=0.002,
        alpha=0.05,
    )
    fading = replace(compared(), change=fades)
    got = page(fading)
    course_of_it = ("+10.0% (+8.0% to +12.0%) in week 1", "+3.0% (+1.0% to +5.0%) in week 2", "p = 0.0020")
    assert not missing(words.lasting(fading), "fading", *course_of_it)
    assert not missing(got.text, words.lasting(fading))
    assert got.row("lift-0", "fading")[1:] == ["+10.0% +8.0% to +12.0%", "+3.0% +1.0% to +5.0%", "0.0020"]
    steady = page(replace(compared(), change=replace(fades, p_value=0.2)))
    assert "The effect" not in steady.text
    assert steady.row("lift-0", "steady")


def test_users_with_a_row_are_a_second_view() -> None:
    arm = compared()
    got = page(replace(arm, exposed=arm.lifts))
    assert "active under “new”: +3.1%" in got.text
    assert "never decides" in got.text
    assert len([row for row in got.rows["metrics"] if row[0].startswith("active")]) == 2
    assert "with at least one row" not in page().text


def test_the_day_that_lost_users_is_named() -> None:
    content = example(compared("new", "blocked"))
    lost = replace(content.ratios[0], part="who came on 2026-03-05", control=500, treatment=210)
    got = _Page(render(replace(content, ratios=[*content.ratios, lost])))
    (row,) = (row for row in got.rows["ratio"] if lost.part in row[0])
    assert row[0].startswith("new")
    assert row[1:4] == ["✕ no", "500", "210"]


def test_several_arms_may_have_been_promised() -> None:
    content = example(compared(), compared("other", "undecided", 0.001))
    other = replace(content.promised[1], arm="other")
    got = _Page(render(replace(content, promised=(*content.promised, other))))
    parts = experiment_words.promised(replace(content, promised=(*content.promised, other))).split("; ")
    assert [missing(part, "active", "7 days", "+9.0%", "+3.1%") for part in parts] == [[], []]
    assert not missing(got.text, *parts)
    assert got.row("promised", "other: active, 7 days")


def test_several_arms_never_give_two_orders() -> None:
    content = example(compared(), compared("other", "undecided", 0.001), compared("third", "worse", -0.03))
    assert sentence(content, 1).startswith("No difference in active")
    assert sentence(content, 2).startswith("Do not take “third”")
    assert "3.0% lower" in sentence(content, 2)
    both = example(compared(), compared("other", "better", 0.05))
    assert sentence(both).startswith("“new” beats “old”")
    assert "3.1% higher" in sentence(both)
    text = _Page(render(both)).text
    assert words.between_winners(both) in text
    assert "with 97.5% confidence since several" in text


def test_a_guardrail_that_moved_and_came_back_is_not_said_to_be_moved() -> None:
    level = course("cost", 0.01, 0.02, 14)
    dear = {d: point(d, effect(0.5, 0.1), effect(0.5, 0.2)) for d in (1, 2, 3)}
    back = replace(level, points=[dear[p.day] if p.day in (2, 3) else p for p in level.points])
    assert (back.moved, back.seen, back.now) == (1, (2, 3), 0)
    arm = replace(compared(), courses=[compared().courses[0], back])
    said = words.guardrail(example(), back)
    assert not missing(said, "cost", "higher", "3 days", "14 days")
    assert sentence(example(arm)).endswith(f"; {said}.")
    assert experiment_words.guardrails(example(arm), arm) == said
    once = replace(level, points=[dear[1], *level.points[1:]])
    arm = replace(arm, courses=[arm.courses[0], once])
    assert not missing(words.guardrail(example(), once), "cost", "higher", "first day", "14 days")
    assert words.guardrail(example(), once) in sentence(example(arm))
    cost, redemption = experiment_words.guardrails(example(), compared()).split("; ")
    assert not missing(cost, "cost is 2.5% lower", "day 6")
    assert not missing(redemption, "no change", "redemption")


def test_a_blocked_verdict_stands_large_with_its_reason_and_without_cards_of_lift() -> None:
    html = render(example(compared("new", "blocked")))
    got = _Page(html)
    box = html[html.index('<div class="stop"') :].partition("</div>")[0]
    assert REASON.words in box
    assert [what for what, _, _ in experiment_words.cards(example(compared("new", "blocked")))] == [
        "users",
        "spent by all arms",
    ]
    assert got.sections[0] == "ratio", "the cause comes first"
    assert got.row("ratio", "new in the log")[1] == "✕ no"
    assert not missing(got.text, experiment_words.ratio_consequence(example(compared("new", "blocked"))))
    assert "Take" not in got.text
    assert f"Because {REASON.words}." in got.text
    assert [row[1] for row in got.rows["lift-0"][1:3]] == ["no verdict", "no verdict"]
    assert got.text.count("Not to be trusted: ") == 3, "course, guardrails, segments"
    assert "happened (not to be trusted)" in got.text
    diamonds = [d["side"] for d in _values(got.figures["lift-0-0"]) if d.get("what") == experiment.PLANNED]
    assert diamonds == ["0", "0"], "not filled"


def test_a_metric_that_cannot_be_compared_leaves_no_course_but_the_reason() -> None:
    withheld = Withheld("active", NoteKind.CONSTANT(treatment=14, control=14))
    arm = compared("new", "blocked")
    courses = [replace(arm.courses[0], points=[]), *arm.courses[1:]]
    arm = replace(arm, lifts=[withheld], courses=courses, decisions=[], segments=[], detectable=None)
    got = page(arm)
    assert "lift-0" not in got.sections
    assert f"Because {REASON.words}." in got.text
    assert "none of its numbers" in got.text
    assert "none of its numbers" not in words.headline(replace(example(arm), ratios=[]), arm)
    assert "cost is 2.5% lower" in got.text
    assert "first seen on day 6" in got.text
    assert got.row("guardrails-0", "14")[1].startswith("−2.5%")
    assert got.row("metrics", "active")[1] == f"not shown: {withheld.reason.words}"
    assert "It is not known" in got.text
    assert "That is the effect that" not in got.text


def test_an_arm_without_a_verdict_is_shown_and_not_judged() -> None:
    content = example(compared(), compared("none", None, -0.08))
    got = _Page(render(content))
    assert "active under “none”: −8.0%" in got.text
    assert "this arm gets no verdict" in got.text
    assert [what for what, *_ in experiment_words.cards(content)] == [
        "active",
        "cost",
        "redemption",
        "users",
        "spent by all arms",
    ]
    assert "was not planned to decide" not in got.text


def test_bounds_of_decisions_and_of_all_days_are_told_apart() -> None:
    got = page()
    values = _values(got.figures["lift-0-0"])
    band = [d for d in values if d.get("what") == experiment.ALWAYS]
    bars = [d for d in values if d.get("what") == experiment.PLANNED]
    assert [d["day"] for d in band] == list(range(1, 15))
    assert [(d["day"], d["side"]) for d in bars] == [(7, "1"), (14, "1")]
    assert (band[-1]["low"], bars[-1]["low"]) == pytest.approx((0.016, 0.021))
    assert not [d for d in _values(got.figures["guardrails-0-0"]) if d.get("what") == experiment.PLANNED]
    assert got.row("lift-0", "after day 7") == ["after day 7", "✓ better", "+3.1% +1.0% to +5.2%", "3.40", "±2.96"]


def test_wide_bounds_of_the_first_days_do_not_squeeze_the_rest() -> None:
    wide = ArmDifference(IntervalEstimate(2.0, -4.9, 1e250), IntervalEstimate(0.4, -0.98, 1e250))
    settled = course("active", 0.031, 0.01, 14, wanted=1)
    wild = replace(settled, points=[point(1, effect(0.031, 0.05), wide), *settled.points[1:]])
    got = page(replace(compared(), courses=[wild, *compared().courses[1:]]))
    y = next(layer["encoding"]["y"] for layer in got.figures["lift-0-0"]["layer"] if layer["mark"]["type"] == "area")
    assert y["scale"]["domain"][1] < 0.1
    assert not missing(got.row("lift-0", "1")[1], "+40.0%", "−98.0%", "+1,000%")


def test_without_a_relative_effect_the_unit_is_per_user() -> None:
    plain = ArmDifference(IntervalEstimate(-3.22, -3.31, -3.13), None)
    assert (words.value(plain), words.ends(plain)) == ("−3.22 per user", "−3.31 to −3.13 per user")
    assert words.span(plain) == f"{words.value(plain)} ({words.ends(plain)})"
    lower = replace(course("cost", -0.5, 0.1, 14), points=[point(d, plain, plain) for d in range(1, 15)])
    got = page(replace(compared(), courses=[compared().courses[0], lower]))
    assert not missing(got.text, "cost", "3.22 per user lower")
    assert "first seen on day 1" in got.text
    assert "change in cost, per user" in json.dumps(got.figures["guardrails-0-0"])


def test_a_large_difference_per_user_stays_in_the_frame() -> None:
    effects = {d: ArmDifference(IntervalEstimate(-30.0 * d, -31.0 * d, -29.0 * d), None) for d in range(1, 15)}
    falling = replace(course("cost", -0.5, 0.1, 14), points=[point(d, x, x) for d, x in effects.items()])
    got = page(replace(compared(), courses=[compared().courses[0], falling]))
    scale = next(
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in got.figures["guardrails-0-0"]["layer"]
        if layer["mark"]["type"] == "area"
    )
    assert scale[0] < -434


def test_a_log_without_days_has_one_interval_and_no_course_of_spending() -> None:
    whole = course("active", 0.031, 0.01, 14, wanted=1)
    arm = replace(compared(), courses=[replace(whole, points=whole.points[-1:])])
    arms = [replace(arm, spent_by_day=[]) for arm in example().arms]
    got = _Page(render(replace(example(arm), arms=arms)))
    assert "Day by day" not in got.text
    assert "bar" in [layer["mark"]["type"] for layer in got.figures["lift-0-0"]["layer"]]
    assert "area" not in [layer["mark"]["type"] for layer in got.figures["lift-0-0"]["layer"]]
    assert "spend-0" not in got.figures
    assert got.row("spend", "old")[4:6] == ["21,000", "70.0%"]
    assert not [a for tag, a in got.tags if tag == "details"]


def test_spending_stands_beside_the_arms_own_budget_and_the_ramps_plan() -> None:
    content = example(compared("new", "open", day=7), day=7)
    got = _Page(render(content))
    assert not missing(experiment_words.spending(content), "old 35%", "new 36%", "43%", "day 7")
    assert not missing(got.text, experiment_words.spending(content))
    assert got.row("spend", "new") == ["new bundle", "6,000", "29,000", "12,361", "10,500", "36.2%", "1.75"]
    plan = [d["share"] for d in _values(got.figures["spend-0"]) if d.get("arm") == experiment.PLAN]
    assert (plan[0], plan[-1], len(plan)) == (0, 1, 15)
    assert plan[1] == pytest.approx(0.1 / 12.2, rel=1e-4)
    assert "Budgets per user differ" in got.text
    over = [replace(arm, spent=31_000.0) for arm in content.arms]
    assert "Over its budget: old, new." in _Page(render(replace(content, arms=over))).text


def test_segments_promises_power_and_cuped_are_told() -> None:
    text = page().text
    for part in (
        "+3.1% in lapsed",
        "+3.1% in regular",
        "+9.0% promised",
        "+3.1% happened",
        "by fqe",
        "a difference of 1.4%",
        "a probability of 80%",
        "60% of the variance",
        "2.50 times the users",
        "16 days",
        "after day 14",
    ):
        assert not missing(text, part)
    assert page().row("promised", "active, 7 days")[-1] == "✕ no"
    running = page(compared("new", "open", day=3), day=3).text
    assert "a difference of 1.4% in" in running
    assert not missing(running, "after day 3")
    assert "smaller until day 14" in running
    assert "CUPED saves nothing" in page(replace(compared(), saved={})).text


def test_figures_have_numbers_and_units_in_their_words() -> None:
    figures = page().figures
    for name, part in {
        "lift-0-0": "+3.1% (+1.6% to +4.6%) … after day 14 … after day 7: +3.1% (+1.0% to +5.2%)",
        "spend-0": "old 70%, new 72%",
        "metrics-0-0": "cost −2.5% (−3.5% to −1.5%)",
        "promised-0": "active, 7 days … +9.0% (+8.0% to +10.0%)",
    }.items():
        assert not missing(figures[name]["description"], part)


def test_the_page_asks_for_nothing_from_outside() -> None:
    html = render(example())
    got = _Page(html)
    assert not [a for _, attrs in got.tags for key, a in attrs.items() if key in ("src", "href", "data", "srcset")]
    assert not [tag for tag, _ in got.tags if tag in ("link", "iframe", "img", "object", "base", "form")]
    assert "http" not in got.json
    assert not re.search(r"@import|url\(", html[: html.index("</style>")])
    assert len(html.encode()) < 1_400_000


def test_names_from_files_are_escaped_everywhere() -> None:
    arm = compared(NASTY, "blocked")
    lifts: list[Lift | Withheld] = [
        lift(NASTY, 0.1),
        lift(NASTY, 0.1),
        Withheld(NASTY, NoteKind.NO_DENOMINATOR(column=NASTY)),
    ]
    arm = replace(
        arm,
        blocked=[NoteKind.NO_USERS(arm=NASTY)],
        segments=[replace(segment, name=NASTY, lifts=lifts) for segment in arm.segments],
        lifts=lifts,
        courses=[course(NASTY, 0.1, 0.1, 14), course(f"2{NASTY}", 0.1, 0.1, 14)],
    )
    content = replace(
        example(arm, name=NASTY, campaign=NASTY, metric=NASTY), notes=(NoteKind.OTHER_CONTROL(control=NASTY),)
    )
    html = render(content)
    got = _Page(html)
    assert "alert(" not in "".join(str(tag) + str(list(attrs)) for tag, attrs in got.tags)
    assert html.count("<script") == html.count("</script>") == 3
    assert "<script>alert" in got.text, "shown as text"
    assert "{{ 7*7 }}" in got.text, "not run as a template"


@in_a_browser
def test_a_real_browser_draws_every_figure(tmp_path: Path) -> None:
    html = render(example(compared(), compared("other", "undecided", 0.001), compared("none", None, -0.08)))
    dom = drawn(html, tmp_path)
    places = {name: dom[dom.index(f'id="{name}"') :].partition("</figure>")[0] for name in _Page(html).figures}
    assert [name for name, place in places.items() if "<svg" not in place or "role-mark" not in place] == []
    assert "could not be drawn" not in dom.partition("<script")[0]


def _values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every row of data in a specification."""
    return [row for rows in spec["datasets"].values() for row in rows]


@pytest.mark.parametrize("blocked", [[], [NoteKind.NOT_COMPARED(metric="active", reason="it is constant")]])
def test_labels_stand_where_columns_would(blocked: list[ExperimentNote]) -> None:
    names = {"active": "visits", "cost": "coupon money", "redemption": "use"}
    a = replace(example(replace(compared(), blocked=blocked)), names=names, segment_names={"lapsed": "away"})
    got = _Page(render(a))
    text = f"{got.text.partition('How the test was planned')[0]} {json.dumps(got.figures)} {words.verdict(a)}"
    assert not re.search(r"\b(active|cost|redemption|lapsed)\b", text)
    assert not missing(text, "visits", "coupon money", "away")


def test_a_label_in_the_plural_has_its_verb() -> None:
    a = replace(example(), names={"active": "active days"})
    assert "active days are 3.1% higher than under “old”; cost is" in words.verdict(a)
