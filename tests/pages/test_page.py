"""The page as a whole: complete in itself, escaped, gracefully shorter, and drawn by a real browser."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from browser import drawn, in_a_browser
from report_examples import CLIPPED, FEW, NO_PATH, campaign, certified, evaluated, example, run

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import Agreement
from outlay.evaluating.checks import CHECKS, of_agreement
from outlay.evaluating.next_test import PlannedTest, SettlingTest
from outlay.evaluating.randomising import RandomisingCost
from outlay.pages import evaluation_words
from outlay.pages.report import render
from outlay.pages.results import RunResults
from telling import missing

SECTIONS = [
    "policies",
    "certificate",
    "evidence",
    "shares",
    "segments",
    "plane",
    "estimates",
    "paths",
    "training",
    "stored",
    "settings",
    "glossary",
]
NASTY = "<script>alert('x')</script> & \"q\" {{ 7*7 }} </script>"


class _Page(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.json = ""
        self._inside: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = self.tags[-1]

    def handle_endtag(self, tag: str) -> None:
        self._inside = (f"/{tag}", {})

    def handle_data(self, data: str) -> None:
        tag, attrs = self._inside
        if tag == "script" and attrs.get("id") == "figures":
            self.json += data
        elif tag not in ("script", "style"):
            self.text += data

    @property
    def sections(self) -> list[str | None]:
        return [attrs.get("id") for tag, attrs in self.tags if tag == "section"]

    @property
    def plots(self) -> list[str | None]:
        return [attrs["id"] for tag, attrs in self.tags if attrs.get("class") == "plot"]

    @property
    def figures(self) -> dict[str, Any]:
        specs: dict[str, Any] = json.loads(self.json)["specs"]
        return specs


@cache
def full(budgets: int) -> str:
    return render(example(budgets))


def bare(**changes: Any) -> RunResults:
    """A run without candidates, members and evaluation; `changes` to the manifest."""
    return RunResults(run(**changes), (), None)


@pytest.mark.parametrize("budgets", [1, 2])
def test_a_full_report_has_every_section_and_a_specification_for_every_place(budgets: int) -> None:
    page = _Page(full(budgets))
    assert page.sections == SECTIONS
    assert sorted(map(str, page.plots)) == sorted(page.figures)
    assert sum(name.startswith("plane-") for name in page.figures) == budgets


@pytest.mark.parametrize("budgets", [1, 2])
def test_every_specification_is_valid_vega_lite(budgets: int) -> None:
    for spec in _Page(full(budgets)).figures.values():
        alt.LayerChart.validate(spec) if "layer" in spec else alt.Chart.validate(spec)


def test_the_page_asks_for_nothing_from_outside_and_stays_below_a_megabyte_and_a_half() -> None:
    html = full(2)
    page = _Page(html)
    places = [a for _, attrs in page.tags for key, a in attrs.items() if key in ("src", "href", "data", "srcset")]
    assert all(str(place).startswith("#") for place in places)
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "img", "object", "base", "form")]
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'")
    assert "unsafe-eval" not in str(policy)
    assert "http" not in page.json
    assert not re.search(r"@import|url\(", html[: html.index("</style>")])
    assert len(html.encode()) < 1_500_000
    assert html.count("window.vegaEmbed=") == 1


def test_names_from_files_are_escaped_everywhere() -> None:
    budget = {"name": NASTY, "cost": "c", "at_most": 2.0}
    example_one, doubted = example().evaluated, Reason(ReasonKind.DOUBTED, {"found": NASTY})
    line = dataclasses.replace(example_one.certificate.budgets[0], budget=NASTY)
    evaluation = dataclasses.replace(
        example_one,
        verdict=dataclasses.replace(example_one.verdict, words=NASTY),
        policies=dict.fromkeys(example_one.policies, NASTY),
        notes=dict.fromkeys(example_one.policies, NASTY),
        estimates=tuple(
            dataclasses.replace(e, target=e.target.replace("coupon_cost", NASTY), caution=doubted, recommended=False)
            for e in example_one.estimates
        ),
        segments=tuple(dataclasses.replace(e, segment=NASTY) for e in example_one.segments[:3]),
        shares=(dataclasses.replace(example_one.shares[0], segment=NASTY),),
        certificate=dataclasses.replace(example_one.certificate, budgets=(line,)),
        diagnostics=dataclasses.replace(
            example_one.diagnostics,
            checks={
                name: dataclasses.replace(found, words=NASTY) for name, found in example_one.diagnostics.checks.items()
            },
            overlap=(dataclasses.replace(example_one.diagnostics.overlap[1], segment=NASTY),),
        ),
    )
    about = campaign(1, name=NASTY, unit=NASTY)
    manifest: dict[str, Any] = {
        "campaign": about | {"budget": [budget]},
        "method": NASTY,
        "notes": [NASTY],
        "versions": {NASTY: NASTY},
        "candidates_measured_by": NASTY,
    }
    html = render(RunResults(run(**manifest), example().candidates[:1], evaluation))
    page = _Page(html)
    assert "alert(" not in "".join(str(tag) + str(list(attrs)) for tag, attrs in page.tags)
    assert html.count("<script") == 3
    assert html.count("</script>") == 3
    assert "<script>alert" in page.text, "shown as text"
    assert "{{ 7*7 }}" in page.text, "not run as a template"
    assert NASTY in json.dumps(page.figures, ensure_ascii=False).replace("\\", "")


def test_a_report_before_training_and_evaluation_is_only_a_heading() -> None:
    html = render(bare())
    page = _Page(html)
    assert page.sections == ["settings"]
    assert "Not evaluated yet" in page.text
    assert len(html) < 20_000, "no scripts without figures"


@pytest.mark.parametrize("field", ["shares", "segments"])
def test_a_part_that_is_missing_takes_its_section_along(field: str) -> None:
    page = _Page(render(evaluated(example(), **{field: ()})))
    assert page.sections == [name for name in SECTIONS if name != field]


def test_where_one_model_answers_every_price_there_is_no_course_of_training() -> None:
    results = dataclasses.replace(example(), run=run(method="frontier", members=example().run.manifest["members"]))
    assert _Page(render(results)).sections == [name for name in SECTIONS if name not in ("training", "stored")]


def test_a_report_after_training_alone_shows_the_plane_without_evaluation() -> None:
    page = _Page(render(dataclasses.replace(example(), evaluation=None)))
    assert page.sections == ["plane", "training", "stored", "settings"]


def test_members_without_a_comparable_fitted_figure_are_drawn_all_the_same() -> None:
    budget = {"name": "coupon_cost", "cost": "coupon_cost", "at_most": 14.0, "per": "user"}
    results = example()
    per_user = dataclasses.replace(
        results, run=run(campaign=campaign(1) | {"budget": [budget]}, members=results.run.manifest["members"])
    )
    page = _Page(render(per_user))
    assert "member, critic" in json.dumps(page.figures["plane-0"])
    assert "fitted" not in json.dumps(page.figures["plane-0"]), "a total per user has no place among means per decision"


def test_labels_that_would_cover_one_another_are_left_to_tooltips() -> None:
    members = [dict(member) for member in example().run.manifest["members"]]
    members = [{**members[0], "weight": 0.25} for _ in range(3)] + [{**members[1], "weight": 0.25}]
    results = dataclasses.replace(example(), run=run(members=members))
    plane = _Page(render(results)).figures["plane-0"]
    names = [
        [row["name"] for row in (layer["data"].get("values") or plane["datasets"][layer["data"]["name"]])]
        for layer in plane["layer"]
        if layer["mark"]["type"] == "text" and layer["encoding"]["text"].get("field") == "label"
    ]
    assert names == [["member 0", "member 3"]] * 2, "a label and its halo; members 1 and 2 stand where 0 does"


def test_a_refused_certificate_says_why_and_shows_no_bound() -> None:
    line = dataclasses.replace(example().evaluated.certificate.budgets[0], value=None, bound=None, kept=False)
    words = "Too few users gave the policy's actions."
    page = _Page(render(certified(example(), budgets=(line,), reason=Reason(ReasonKind.UNSUPPORTED, {"found": words}))))
    assert words in page.text
    assert "Not certified" in page.text
    assert "What it guarantees" not in page.text


def test_the_estimators_their_doubts_and_the_checks_stand_on_the_page() -> None:
    text = _Page(full(1)).text
    said = (
        "fitted Q evaluation",
        "marginalised importance sampling",
        FEW.words,
        CLIPPED.words,
        NO_PATH.words,
        "Every check was passed",
        "What it brings beyond second (lp)",
        "The model of the old policy fits",
    )
    for words in said:
        assert words in text
    assert CHECKS["agreement"].consequence not in text, "what follows is said where a check failed"


def test_a_check_that_was_not_passed_says_what_follows() -> None:
    diagnostics = example().evaluated.diagnostics
    failed = dataclasses.replace(
        diagnostics,
        checks=dict(diagnostics.checks)
        | {"agreement": of_agreement(Agreement(Reason(ReasonKind.NOT_CHECKED, {"found": "few users follow it"}), ()))},
    )
    page = _Page(render(evaluated(example(), diagnostics=failed)))
    assert "Not passed: agreement" in page.text
    assert CHECKS["agreement"].consequence in page.text


def test_the_planned_test_and_its_command_stand_below_the_verdict() -> None:
    test = PlannedTest(
        part=0.5,
        lift=0.015,
        days=14,
        users_per_arm=65_000,
        clusters_per_arm=None,
        log_users=20_000,
        power=0.8,
        alpha=0.05,
        enough=False,
        words="The log has 20,000 users, and 130,000 would be needed.",
        command="outlay experiment plan --days 14",
        placeholders="START is the date of its first day.",
    )
    text = _Page(render(evaluated(example(), test=test))).text
    assert not missing(text, test.words, test.command, test.placeholders.rstrip("."))
    assert text.index(test.words) < text.index(test.command) < text.index(test.placeholders.rstrip("."))
    assert "outlay experiment plan" not in _Page(full(1)).text


def test_a_segment_without_a_number_keeps_its_row() -> None:
    alone = tuple(e for e in example().evaluated.segments if e.segment == "new")
    page = _Page(render(evaluated(example(), segments=alone)))
    assert not missing(page.text, evaluation_words.segments_finding(evaluated(example(), segments=alone)))
    assert not [name for name in page.figures if name.startswith("segments-")]


def test_what_is_not_finite_never_reaches_the_page() -> None:
    results = example()
    wild = dataclasses.replace(results.candidates[0], measured=(float("nan"), float("inf")))
    render(dataclasses.replace(results, candidates=(wild, *results.candidates[1:])))  # json would refuse NaN


@in_a_browser
def test_a_real_browser_draws_every_figure(tmp_path: Path) -> None:
    html = full(2)
    dom = drawn(html, tmp_path)
    places = {name: dom[dom.index(f'id="{name}"') :].partition("</figure>")[0] for name in _Page(html).figures}
    assert [name for name, place in places.items() if "<svg" not in place or "role-mark" not in place] == []
    assert "could not be drawn" not in _Page(dom).text
    assert all(f"member {i}" in places["plane-0"] for i in range(2))


def test_a_certified_policy_that_is_sure_to_lose_has_no_green_badge() -> None:
    sure, loses = (_Page(render(certified(example(), gain_most=most))) for most in (0.03, -0.01))
    assert [
        next(attrs["class"] for tag, attrs in page.tags if "badge" in str(attrs.get("class"))) for page in (sure, loses)
    ] == ["badge yes", "badge open"]
    assert "a loss against" in loses.text
    assert "a loss against" not in sure.text


def test_what_would_settle_it_and_what_random_draws_cost_are_on_the_page() -> None:
    settling = SettlingTest(
        actions=(0.0, 1.0),
        days=7,
        precision=0.05,
        users_per_arm=400,
        clusters_per_arm=None,
        share=0.04,
        log_users=20_000,
        enough=True,
        words="A test settles it.",
        command="outlay experiment plan --days 7",
        placeholders="START is the date of its first day.",
    )
    cost = RandomisingCost(share=0.05, reward=0.1, relative=0.1, spend=None, words="From now on, draw some at random.")
    page = render(evaluated(example(), settling=settling, randomising=cost))
    places = [page.index(told) for told in (settling.words, f"<code>{settling.command}</code>", "START is the date")]
    assert places == sorted(places)
    assert cost.words in page
    assert "<code>outlay experiment plan" not in render(example())
