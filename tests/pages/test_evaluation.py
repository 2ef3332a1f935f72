"""What the page says of the evaluation: which estimators to believe, what the certificate promises, what failed."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import BUDGETS, CLIPPED, FEW, NO_PATH, campaign, certified, evaluated, example, run

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.evaluating.check_result import CheckResult
from outlay.pages import evaluation_charts, evaluation_words, tables
from outlay.pages.results import RunResults
from outlay.pages.tables import Cell, Table
from telling import missing


def reasons(content: RunResults) -> list[str]:
    return evaluation_words.reasons(content.evaluated, content.campaign)


def test_the_certificate_says_each_bound_beside_its_limit() -> None:
    (line,) = example().evaluated.certificate.budgets
    assert line.kept
    said = evaluation_words.certificate_finding(example())
    assert not missing(said, "97.5%", "coupon_cost", "at most 1.976", "yuan per decision", "inside", "2")


def test_a_certificate_of_one_mixture_promises_nothing_about_others() -> None:
    said = evaluation_words.guarantee(example().evaluated.certificate)
    assert not missing(said, "this mixture", "at most 2.5%")
    assert "every" not in said


def test_a_certificate_of_a_frontier_promises_every_mixture_and_budget() -> None:
    said = evaluation_words.guarantee(certified(example(), policies=65).evaluated.certificate)
    assert not missing(said, "65 policies", "every mixture", "every budget", "one look", "at most 2.5%")
    assert "this mixture" not in said


def test_the_gain_is_said_with_its_lower_bound() -> None:
    objective = example().quantity("reward")
    assert not missing(evaluation_words.gain(example()), "old policy", "+0.021", objective, "97.5%", "at least +0.012")
    per_user = run(campaign=campaign(1) | {"budget": [BUDGETS[0] | {"per": "user"}]})
    loss = dataclasses.replace(certified(example(), gain=-0.1, gain_bound=-0.3), run=per_user)
    assert not missing(evaluation_words.gain(loss), "−0.10", loss.quantity("reward@7"), "97.5%", "at least −0.30")
    assert "could not be measured" in evaluation_words.gain(certified(example(), gain=None))


def test_segments_are_said_by_the_size_of_their_change_and_chance_is_named() -> None:
    about, _, segments = evaluation_words.segments_finding(example()).partition(": ")
    assert not missing(about, "Gain", "old policy", example().quantity("reward@7"))
    more, less = segments.split("; ")
    assert more == "inactive +0.34"
    assert not missing(less, "active −0.05", "may be none")


def test_where_no_segment_has_a_number_no_gain_is_said() -> None:
    only = evaluated(example(), segments=tuple(e for e in example().evaluated.segments if e.segment == "new"))
    assert not missing(evaluation_words.segments_finding(only), "No gain")
    made = tables.segments(only.evaluated, only.campaign)
    assert [table.rows[0].cells[2:] for table in made] == [(Cell("–"),) * 3] * 2


def test_the_longest_total_is_told_by_those_that_can_be_relied_on() -> None:
    told, others = evaluation_words.estimates_finding(example()).split("; ")
    assert not missing(told, example().quantity("reward@7"), "5.09 by fqe", "5.09 by mis")
    assert not missing(others, "dr", "snpdis", "cannot")


def test_where_nothing_can_be_relied_on_no_figure_is_said() -> None:
    doubted = tuple(dataclasses.replace(e, recommended=False) for e in example().evaluated.estimates)
    assert not missing(evaluation_words.estimates_finding(evaluated(example(), estimates=doubted)), "No estimate")


def test_every_reason_is_said_once_with_all_that_it_is_about() -> None:
    said = reasons(example(2))
    for words, told in zip(
        said,
        (
            ("dr", "not recommended", "totals of 3 days", FEW.words),
            ("snpdis", "not recommended", "totals of 3 days", CLIPPED.words),
            ("dr and snpdis", "no number", "totals of 7 days", NO_PATH.words),
        ),
        strict=True,
    ):
        assert not missing(words, *told)
    assert "snpdis" not in said[0]


def test_a_reason_for_some_quantities_names_them() -> None:
    estimates = [
        Estimate(
            policy="mixture",
            estimator="fqe",
            target=target,
            value=1.0,
            caution=Reason(ReasonKind.DOUBTED, {"found": "it is doubted"}),
        )
        for target in ("reward", "reward@7")
    ]
    (said,) = reasons(evaluated(example(), estimates=tuple(estimates)))
    week = example().quantity("reward@7")
    assert not missing(said, "fqe", "not recommended", example().quantity("reward"), week, "it is doubted")
    both = [*estimates, dataclasses.replace(estimates[0], target="coupon_cost")]
    (said,) = reasons(evaluated(example(), estimates=tuple(both)))
    assert not missing(said, "discounted means", week)
    assert "coupon_cost" not in said
    (said,) = reasons(evaluated(example(), estimates=(*estimates, estimates[1])))
    assert said.count(week) == 1


def by_estimator(content: RunResults) -> Table:
    return tables.by_estimator(content.evaluated, content.campaign)


def test_side_by_side_has_a_column_for_each_estimator_and_marks_what_is_doubted() -> None:
    table = by_estimator(example())
    assert [column.head for column in table.columns] == ["quantity", "fqe", "mis", "dr", "snpdis"]
    rows = {row.cells[0].text: row.cells[1:] for row in table.rows}
    fitted = Cell("2.181", "2.163 to 2.199", "2.181 ±0.018")
    doubted = Cell("1.963", "1.663 to 2.263", "1.963 ±0.300", look="doubted")
    assert rows["active, total of 3 days"] == (fitted, fitted, doubted, doubted)
    assert rows[example().quantity("reward@7")][2] == Cell("–"), "a withheld number is not marked as doubted"
    assert rows["coupon_cost, yuan per decision"][2] == Cell("–"), "nor one that nobody tried"
    assert (fitted.line, doubted.line) == ("2.181 ±0.018", "1.963 ±0.300*"), "as a terminal shows them"


def test_the_table_of_results_marks_what_is_doubted_and_what_is_certified() -> None:
    content = example(2)
    doubted = tuple(
        dataclasses.replace(e, caution=Reason(ReasonKind.DOUBTED, {"found": "for a reason"}))
        if e.target == "reward@7" and e.policy == "constants"
        else e
        for e in content.evaluated.beside
    )
    table = tables.policies(evaluated(content, beside=doubted).evaluated, content.campaign)
    assert [(column.head, column.note) for column in table.columns[3:6]] == [
        ("active", "total of 7 days"),
        *((budget.name, tables.limit(budget)) for budget in content.budgets),
    ]
    looks = {row.cells[0].text: [cell.look for cell in row.cells[3:]] for row in table.rows}
    assert looks["best constant mixture"] == ["doubted", "", "", ""]
    assert looks["aim-greedy, as served"] == ["", "", "", "yes"]
    assert [row.look for row in table.rows[:3]] == ["old", "constant", "chosen"]


def test_the_table_of_the_certificate_has_the_margin_of_a_run_only() -> None:
    content = example()
    assert [cell.text for cell in content.certificate.rows[0].cells] == [
        "coupon_cost",
        tables.limit(content.budgets[0]),
        "0.031",
        "1.958",
        "1.976",
        "yes",
    ]
    bare = tables.certificate(content.evaluated, content.campaign)
    assert [column.head for column in bare.columns] == ["budget", "limit", "estimate", "97.5% bound", "kept"]


def test_the_figures_take_the_longest_total_and_the_budgets_first() -> None:
    shown = [estimates[0].target for estimates in evaluation_charts.compared(example(2))]
    assert shown == ["reward@7", "coupon_cost", "reach", "reward"]


def test_an_estimator_without_a_number_has_its_place_in_the_figure() -> None:
    content = example()
    week = next(each for each in evaluation_charts.compared(content) if each[0].target == "reward@7")
    spec = evaluation_charts.estimators(content, week)
    rows = (
        [row for values in spec["datasets"].values() for row in values]
        if "datasets" in spec
        else [row for layer in spec["layer"] for row in layer.get("data", spec.get("data", {}))["values"]]
    )
    absent = {row["name"]: (row["label"], row["why"]) for row in rows if row.get("value") is None and "name" in row}
    assert absent == {"dr": ("no number", NO_PATH.words), "snpdis": ("no number", NO_PATH.words)}


@pytest.mark.parametrize(
    ("oks", "said"),
    [
        ((True, True, True, True, True), "Every check was passed"),
        ((True, True, True, True, None), "was passed … not checked: agreement"),
        ((True, False, True, True, None), "Not passed: reproduction"),
        ((False, False, None, True, None), "Not passed: propensities and reproduction"),
    ],
)
def test_the_heading_names_what_was_not_passed(oks: tuple[bool | None, ...], said: str) -> None:
    names = example().evaluated.diagnostics.checks
    checks = {name: CheckResult(ok=ok, words="") for name, ok in zip(names, oks, strict=True)}
    assert not missing(evaluation_words.evidence_finding(checks), said)
    assert ("Not passed" in evaluation_words.evidence_finding(checks)) == (False in oks)


def test_what_the_log_never_gave_is_named_by_segment() -> None:
    (said,) = evaluation_words.unseen(example().evaluated, example().campaign)
    assert not missing(said, "segment active", "0.31%", "5.5, 6")


def test_a_certificate_stands_for_one_policy_unless_it_says_otherwise() -> None:
    assert example().evaluated.certificate.policies == 1
