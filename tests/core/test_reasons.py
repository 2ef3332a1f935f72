"""How each kind of reason reads: tests quote these sentences nowhere else; and that files give them back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest
from pydantic import TypeAdapter

from outlay.core.reasons import WITHHOLDING, WORDS, Reason, ReasonKind

K = ReasonKind
FEW = Reason(K.FEW_EFFECTIVE, {"count": 8.4, "needed": 100.0})
FEW_WORDS = "it rests on the weights of 8 effective users; 100 are needed"
SIZE = {"correlation": 0.0512, "error": 0.0101}
PAST: dict[str, Any] = {"source": "reward on the day before", "outcome": "reward", **SIZE}
SHORT = Reason(K.SHORT, PAST)
SHORT_WORDS = (
    "the state does not say enough: given state and action, reward on the day before still predicts reward "
    "(correlation +0.051 ± 0.010)"
)
HARDLY = "on 9.1% of its paths the policy gives what users in that state hardly ever got in the log"
TOO_LITTLE = ", so the log says too little about them; at most 1.0% may be so"

READS: dict[ReasonKind, tuple[Mapping[str, Any], str]] = {
    K.UNSUPPORTED: ({"found": FEW}, FEW_WORDS),
    K.REPRODUCTION: (
        {"target": "cost@7", "fitted": 1.23456, "observed": 2.0},
        "the estimator does not reproduce the old policy's observed totals: cost@7 is fitted as 1.235 and observed "
        "as 2",
    ),
    K.MISFIT: ({}, "the behaviour model does not fit the log"),
    K.STATE: ({"found": SHORT, "way_out": "Look back further"}, f"{SHORT_WORDS}. Look back further"),
    K.BALANCE: ({"found": "it looked", "way_out": "Log it"}, "it looked. Log it"),
    K.CONTRADICTED: (
        {"estimator": "dr", "target": "r", "other": 4.0, "fitted": 10.0, "errors": 6.04, "beyond": 2, "count": 4},
        "estimates disagree: r is 10 by the fitted evaluation and 4 by dr, 6.0 standard errors apart "
        "(2 of 4 such comparisons disagree)",
    ),
    K.NOT_CHECKED: ({"found": FEW}, f"not checked: {FEW_WORDS}"),
    K.NOT_COMPARED: (
        {"found": Reason(K.NO_OTHER)},
        "not checked: no other estimate can be relied on",
    ),
    K.AGREES: (
        {"count": 10, "less": 4},
        "all 10 other estimates that can be relied on agree with it, 4 of them assume less",
    ),
    K.DOUBTED: ({"found": "a check of yours"}, "a check of yours"),
    K.SHARED: (
        {"budgets": "cost is"},
        "cost is shared: what it costs or brings depends on how many others get it, and the log shows that only for as "
        "many as got it then",
    ),
    K.UNASSIGNED: ({}, "the campaign file does not say how the log's actions were drawn (log.propensity)"),
    K.APPROXIMATE: (
        {},
        "the policy reads single past days that the log's state lacks, so its estimates rest on the pasts that the "
        'log\'s own policy left behind. Add "lags" to the summaries of [log.history], and prepare and train again',
    ),
    K.NOT_MEASURED: ({}, "too few rows of the log say what it would be"),
    K.FEW_USERS: ({"count": 12, "units": "users", "needed": 30}, "it rests on 12 users, and 30 are needed"),
    K.LIMIT: ({}, "a limit is not kept"),
    K.DAYS: ({"found": "shocks of 3%"}, "as days differ (shocks of 3%)"),
    K.HELD: (
        {
            "budget": "coupon_cost",
            "label": "coupon_cost",
            "value": 2.2134567,
            "low": 2.134567,
            "high": 2.29,
            "limit": 2.2,
        },
        "coupon_cost is estimated at 2.213 (2.135 to 2.29) where 2.2 is allowed, with no margin kept: the cap "
        "of the ledger holds it",
    ),
    K.REPRODUCED: ({}, "the estimator reproduces the old policy's observed totals"),
    K.NO_TOTAL: ({}, "not compared: no user has as many days in the log as an estimated total counts"),
    K.NOT_TESTED: ({}, "not tested: too few users, or clusters of them, have two days with a choice"),
    K.ONE_ROW: ({}, "nothing to test: each user has one row, so nothing comes before it"),
    K.NOT_ALL_GIVEN: (
        {},
        "not tested: for some users the log's policy never gave some of the allowed actions, so nothing says what they "
        "would do",
    ),
    K.ENOUGH: (
        SIZE,
        "the features say enough about a user: given them and the action, the days before predict nothing of what "
        "follows (at most a correlation of +0.051 ± 0.010)",
    ),
    K.SHORT: (PAST, SHORT_WORDS),
    K.BALANCED: ({}, "given the state, the action does not depend on what users did on the days before"),
    K.MISSTATED: (
        {**PAST, "outcome": "the amount given"},
        "log.propensity is not the probability with which actions were drawn: weighted by it and given the state, the "
        "amount given depends on reward on the day before (correlation +0.051 ± 0.010)",
    ),
    K.LOOKED_BACK: (
        {**PAST, "outcome": "the amount given"},
        "the old policy looked at something of the past that is not in the features: given the state, the amount given "
        "depends on reward on the day before (correlation +0.051 ± 0.010)",
    ),
    K.DRIVEN: ({"drivers": "the action goes with {city}"}, "the action goes with {city}"),
    K.DRIVEN_AND: ({"drivers": "the action goes with the city", "found": FEW}, f"the action goes with the city; {FEW}"),
    K.NO_PROPENSITIES: ({}, "the log has no propensities"),
    K.NOBODY: ({}, "none of the users asked for is in the log"),
    K.NOT_SHOWN: ({"days": 30}, "no user's window covers 30 days"),
    K.NO_PATH: ({}, "no user's logged path is the policy's"),
    K.NO_PATH_SO_LONG: ({"days": 7}, "no user's logged path is the policy's for 7 days"),
    K.NO_DECISION: ({}, "the policy meets no decision"),
    K.ALL_FORCED: ({}, "every row is forced: there is no decision"),
    K.NOTHING_FOLLOWS: (
        {},
        "no row has a next row or a terminal end, so the log does not show what follows a decision",
    ),
    K.UNSTABLE: ({}, "the fitted value lies outside what the outcomes can add up to: the system is unstable"),
    K.NEVER_GIVEN: ({"action": 5.50}, "the policy gives 5.5, which these users were never given"),
    K.NEVER_GIVEN_IN_USE: (
        {"action": 2.0},
        "the policy gives 2, which these users were never given in a row that can be used",
    ),
    K.NEVER_GIVEN_ON: (
        {},
        "the policy's paths go on where these users were never given what it gives in a row that can be used",
    ),
    K.NEVER_GIVEN_AFTER: ({"days": 2}, "after 2 days none of these users was given what the policy gives"),
    K.HARDLY_GIVEN: ({"share": 0.0909, "most": 0.01}, f"{HARDLY}{TOO_LITTLE}"),
    K.HARDLY_GIVEN_MOST: (
        {"share": 0.0909, "action": 3.0, "most": 0.01},
        f"{HARDLY} (most often 3){TOO_LITTLE}",
    ),
    K.HARDLY_ANY: ({"needed": 10.0}, "fewer than 10 users were given, by chance, what the policy gives"),
    K.UNLIKE: (
        {"share": 0.124, "most": 0.05},
        "12% of the users joined so late that the log ends before these days, and their features are unlike those of "
        "all users whose days it shows (at most 5% may be): take fewer days, or a longer log",
    ),
    K.FEW_IN_SEGMENT: ({"count": 1, "needed": 30}, "1 of these users are in it; 30 are needed"),
    K.FEW_EFFECTIVE: (FEW.figures, FEW_WORDS),
    K.FEW_ROWS: ({"count": 12.3, "needed": 40}, "some 12 rows stand behind each of its states; 40 are needed"),
    K.HEAVY_USER: ({"share": 0.0114, "most": 0.01}, "one user has 1.1% of the weight; at most 1% may"),
    K.CLIPPED: ({"share": 0.09263}, "the clip binds for 9.26% of the weights, which biases it"),
    K.SOME_USERS: (
        {"share": 0.6},
        "it is of the 60% of users whom the log shows for so many days; other estimates are of all",
    ),
    K.MEAN_RATIO: (
        {"mean": 1.2345, "error": 0.0123},
        "π/p has mean 1.234 ± 0.012, where right propensities give 1",
    ),
    K.ONE_USER: ({}, "there is no interval: it rests on a single user"),
    K.SKEWED: ({"skewness": 1.26}, "rare outcomes skew its error (skewness 1.3), so its interval would miss too often"),
    K.UNVARYING: (
        {},
        "it is the same for all of these users but not in the whole log, so ±0 does not measure its error",
    ),
    K.BEYOND_DAYS: (
        {"share": 0.478, "days": 7},
        "48% of its weight lies after the first 7 days, which are taken to go on as their later half: take the means "
        "over those days, a longer log or a shorter discount",
    ),
    K.BEYOND_DAYS_WITHIN: (
        {"share": 0.478, "days": 7, "low": 0.12345, "high": 0.9},
        "48% of its weight lies after the first 7 days, which are taken to go on as their later half. By what a day "
        "can bring it lies between 0.1235 and 0.9 for the reward: take the means over those days, a longer log or a "
        "shorter discount",
    ),
    K.NO_SECOND: ({"found": FEW}, f"the estimate that assumes less gives no interval: {FEW_WORDS}"),
    K.EXTRAPOLATED: (
        {"share": 0.87, "most": 0.6},
        "it leads users to states that hardly any user of the log is in, so the values of its later days are "
        "extrapolated beyond the log (for 87% of the users' weight; at most 60% may be)",
    ),
    K.NO_STEPS: ({}, "no total could be compared with single steps"),
    K.FEW_STEPS: ({"found": FEW}, f"few steps of the log follow the policy: {FEW_WORDS}"),
    K.IMPRECISE: (
        {"target": "reward@7", "error": 0.123, "claimed": 0.0456},
        "the log rarely did what the policy does in the same states. By the propensities reward@7 has a standard error "
        "of 0.12, but the fitted evaluation claims 0.046: it extrapolates",
    ),
    K.NO_OTHER: ({}, "no other estimate can be relied on"),
}


def test_every_kind_has_words_and_an_example_of_them() -> None:
    assert set(READS) == set(WORDS) == set(ReasonKind)


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_how_a_reason_reads(kind: ReasonKind) -> None:
    figures, words = READS[kind]
    reason = Reason(kind, figures)
    assert reason.words == str(reason) == words
    assert reason.withholds == (kind in WITHHOLDING)
    assert not words.endswith(".")


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_a_file_gives_a_reason_back(kind: ReasonKind) -> None:
    """With its kind, its figures (another reason among them) and its words; a copy is the same reason."""
    reason = Reason(kind, READS[kind][0])
    stored = json.loads(json.dumps(asdict(reason), allow_nan=False))
    assert stored["words"] == reason.words
    again = TypeAdapter(Reason | None).validate_python(stored)
    assert again == reason
    assert {again, reason} == {reason}


def test_reasons_differ_by_kind_and_figures() -> None:
    assert Reason(K.NOT_SHOWN, {"days": 7}) != Reason(K.NOT_SHOWN, {"days": 8})
    assert Reason(K.NO_PATH_SO_LONG, {"days": 7}) != Reason(K.NOT_SHOWN, {"days": 7})


def test_a_reason_without_its_figures_is_an_error_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="needs the figure 'days'"):
        Reason(K.NOT_SHOWN)
