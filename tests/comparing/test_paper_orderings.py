"""Which orderings hold: by one kind of number for both sides, within the limits, proven by more than one seed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from outlay.comparing.results import CONTROLS, MethodRow, SeedMean
from outlay.core.campaign import BudgetLimit
from paper_orderings import Ordering, count, orderings
from telling import missing

COST = BudgetLimit(name="cost", limit=2.0)


def figure(value: float, sd: float | None = 0.01, truth: float | None = None) -> SeedMean:
    return SeedMean(value, sd=sd, truth=truth, truth_sd=None if truth is None else sd)


def row(name: str, value: float, sd: float | None = 0.01, **more: Any) -> MethodRow:
    """A method by its name; `truth` and `cost` go into its figures, for 1, 3 and 7 days alike."""
    truth, cost, control = more.get("truth"), more.get("cost", 1.9), more.get("control", "total")
    figures = {f"reward@{k}": figure(value, sd, truth) for k in (1, 3, 7)}
    figures["cost"] = SeedMean(cost, sd=sd, truth=more.get("true_cost", cost if truth else None))
    oracle, _, rest = name.partition(", ")
    if "label" in rest:
        return MethodRow(name, "two-stage", control, oracle.lower(), None, int(rest[0]), figures)
    return MethodRow(name, "rl", control, oracle.lower(), rest, None, figures)


def no_worse(first: str, second: str) -> str:
    """The claim that one row is no worse than another."""
    return f"{first} ≥ {second}"


def looking_ahead(labels: int, days: int, side: str = "above") -> str:
    """The claim that what looks ahead is above a response model of so many days, over so many."""
    return f"looking ahead {side} {labels}-day labels over {days} day{'s' * (days > 1)}"


def by_claim(
    rows: list[MethodRow], days: tuple[int, ...] = (7,), limits: tuple[BudgetLimit, ...] = (COST,)
) -> dict[str, Ordering]:
    return {one.claim: one for one in orderings(rows, limits, days)}


def test_a_difference_within_two_deviations_is_a_tie() -> None:
    said = by_claim(
        [
            row("DeepFM, 1-day label", 5.0),
            row("BCQ, aim-greedy", 5.2),
            row("BCQ, single-best", 5.19),
            row("BCQ, aim-mean", 5.3),
            row("BCQ, bisection", 5.1),
        ]
    )
    assert said[no_worse("BCQ, aim-greedy", "BCQ, bisection")].verdict == "holds"
    assert said[looking_ahead(1, 7)].verdict == "holds"
    assert said[no_worse("BCQ, aim-greedy", "BCQ, single-best")].verdict == "a tie"
    assert said[no_worse("BCQ, single-best", "BCQ, aim-mean")].verdict == "does not hold"
    assert all(one.proven for one in said.values())


def test_the_report_days_decide_which_claims_are_made_and_the_last_one_orders_the_rules() -> None:
    rows = [
        row("DeepFM, 1-day label", 5.0),
        row("DeepFM, 3-day label", 5.0),
        row("DIN, 7-day label", 5.0),
        row("BCQ, lp", 5.2),
        row("EDRR, lp", 5.1),
    ]
    found = orderings(rows, [], (3, 1))
    assert [(one.claim, one.verdict) for one in found] == [
        (looking_ahead(1, 1, "below"), "does not hold"),
        (looking_ahead(7, 1, "below"), "does not hold"),
        (looking_ahead(1, 3), "holds"),
        (looking_ahead(7, 3), "holds"),
        (no_worse("BCQ, lp", "EDRR, lp"), "holds"),
    ]
    assert found[-1].target == "reward@3"


def test_the_frontier_is_held_against_aim_greedy_of_its_oracle_under_the_limits_only() -> None:
    def frontier(name: str, value: float, **more: Any) -> MethodRow:
        made = row(f"frontier, {name}", value, **more)
        return replace(made, oracle={"counted": "tabular"}.get(name, name), rule="frontier")

    rows = [
        row("BCQ, aim-greedy", 5.1),
        row("EDRR, aim-greedy", 5.0),
        row("DeepFM, 1-day label", 4.9),
        row("BCQ, aim-greedy, re-solved", 5.15),
        row("EDRR, aim-greedy, re-solved", 5.05),
        frontier("bcq", 5.2),
        frontier("edrr", 4.95),
        frontier("counted", 5.3),
    ]
    found = orderings(rows, [COST], (7,))
    assert [(one.claim, one.verdict) for one in found] == [
        (looking_ahead(1, 7), "holds"),
        (no_worse("BCQ, aim-greedy", "EDRR, aim-greedy"), "holds"),
        (no_worse("frontier, bcq", "BCQ, aim-greedy, re-solved"), "holds"),
        (no_worse("frontier, edrr", "EDRR, aim-greedy, re-solved"), "does not hold"),
        (no_worse("frontier, counted", "frontier, bcq"), "holds"),
        (no_worse("frontier, counted", "frontier, edrr"), "holds"),
    ]
    assert found[0].first == "frontier, counted", "it looks ahead too"
    free = [replace(one, control="immediate") for one in rows]
    assert [one.claim for one in orderings(free, [COST], (7,))] == [
        looking_ahead(1, 7),
        no_worse("BCQ, aim-greedy", "EDRR, aim-greedy"),
    ]
    alone = by_claim([frontier("bcq", 5.2), row("EDRR, aim-greedy, re-solved", 5.0)])
    assert not alone, "no pair of one oracle"


def test_two_true_values_decide_even_against_the_estimates() -> None:
    said = by_claim([row("BCQ, lp", 5.0, truth=5.3), row("EDRR, lp", 5.2, truth=5.1)])[no_worse("BCQ, lp", "EDRR, lp")]
    assert (said.verdict, said.kind, said.first_value, said.second_value) == ("holds", "truth", 5.3, 5.1)
    assert "true active in 7 days" in said.sentence("active")


def test_truth_on_one_side_only_is_not_mixed_with_an_estimate() -> None:
    """By the truth of the one against the estimate of the other it would hold."""
    said = by_claim([row("BCQ, lp", 5.0, truth=5.5), row("EDRR, lp", 5.2)])[no_worse("BCQ, lp", "EDRR, lp")]
    assert (said.verdict, said.kind, said.first_value, said.second_value) == ("does not hold", "value", 5.0, 5.2)
    assert "estimated active in 7 days" in said.sentence("active")
    assert "true" not in said.sentence("active")


def test_the_best_of_a_side_is_sought_among_numbers_of_one_kind() -> None:
    """DIN has no truth, so its side and the other are ranked by the estimate, whatever the truths are."""
    rows = [
        row("BCQ, lp", 5.0, truth=5.5),
        row("EDRR, lp", 5.1, truth=4.0),
        row("DeepFM, 7-day label", 4.9, truth=9.0),
        row("DIN, 7-day label", 4.95),
    ]
    said = by_claim(rows)[looking_ahead(7, 7)]
    assert (said.first, said.second, said.kind, said.verdict) == ("EDRR, lp", "DIN, 7-day label", "value", "holds")


def test_the_best_keeps_the_limit_where_one_holds() -> None:
    rich: dict[str, Any] = {"cost": 2.5}
    rows = [row("BCQ, lp", 6.0, **rich), row("EDRR, lp", 5.1), row("DIN, 7-day label", 5.0)]
    said = by_claim(rows)
    assert said[looking_ahead(7, 7)].first == "EDRR, lp"
    assert said[no_worse("BCQ, lp", "EDRR, lp")].over == ("BCQ, lp",)
    assert (
        said[no_worse("BCQ, lp", "EDRR, lp")].sentence("active").partition("; ")[2].startswith("BCQ, lp breaks a limit")
    )
    beyond = by_claim([row("BCQ, lp", 6.0, **rich), row("DIN, 7-day label", 5.0)])
    assert beyond[looking_ahead(7, 7)].over == ("BCQ, lp",), "the only one, and it is told"
    free = [MethodRow(**{**vars(one), "control": "immediate"}) for one in rows]
    said = by_claim(free)
    assert said[looking_ahead(7, 7)].first == "BCQ, lp", "no limit holds under this control"
    assert said[no_worse("BCQ, lp", "EDRR, lp")].over == ()


def test_a_limit_is_judged_by_the_same_kind_of_number_and_a_thousandth_of_it_is_nothing() -> None:
    rows = [row("BCQ, lp", 6.0, truth=6.0, cost=2.5, true_cost=2.0019), row("EDRR, lp", 5.1, truth=5.1)]
    assert by_claim(rows)[no_worse("BCQ, lp", "EDRR, lp")].over == ()
    rows = [row("BCQ, lp", 6.0, truth=6.0, cost=1.9, true_cost=2.0021), row("EDRR, lp", 5.1, truth=5.1)]
    assert by_claim(rows)[no_worse("BCQ, lp", "EDRR, lp")].over == ("BCQ, lp",)


@pytest.mark.parametrize("truth", [None, 5.2])
def test_one_seed_proves_nothing(truth: float | None) -> None:
    said = by_claim([row("BCQ, lp", 5.2, None, truth=truth), row("EDRR, lp", 5.1, None, truth=truth and 5.1)])
    one = said[no_worse("BCQ, lp", "EDRR, lp")]
    assert (one.verdict, one.proven) == ("holds", False)
    told = (CONTROLS[one.control], one.claim, "one seed", "BCQ, lp 5.2000", "EDRR, lp 5.1000")
    assert not missing(one.sentence("active"), *told)


def test_what_is_withheld_is_not_judged() -> None:
    gone = row("BCQ, lp", 5.0)
    gone.figures["reward@7"] = SeedMean()
    assert orderings([gone, row("EDRR, lp", 5.1), row("DIN, 1-day label", 5.0)], [COST], (7,))[0].first == "EDRR, lp"
    assert no_worse("BCQ, lp", "EDRR, lp") not in by_claim([gone, row("EDRR, lp", 5.1)])
    assert orderings([], [COST], (7,)) == []


def test_orderings_with_some_refused_seeds_are_counted_apart() -> None:
    rows = [row("BCQ, lp", 5.2), row("EDRR, lp", 5.1), row("DDQN, lp", 5.1, None)]
    proven, one_seed = count(orderings(rows, [COST], (7,))).split(". ")
    assert re.findall(r"\d+", proven) == ["1", "0", "0"], "hold, ties, do not hold"
    assert re.findall(r"\d+", one_seed) == ["0", "1", "0"]
    assert not missing(one_seed, "one seed")
