"""Single requests get what `Bundle.decide` gives a table; what is stored of a draw, and the guard of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError, structs

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.core.actions import ActionNames
from outlay.core.schema import MISSING_TEXTS, Categorical, Numeric, Schema
from outlay.serve.config import ValueLimits
from outlay.serve.deciding.decider import (
    VALUE_LIMIT,
    ChosenAction,
    Decider,
    DrawRecord,
    EncodedRequest,
    decode_draw,
    encode_draw,
    value_refusal,
)
from outlay.serve.deciding.features import FeatureValueError, RowEncoder, arrays

LEVELS: list[Any] = [1, 2, 3, 1.0, 2.5, "3", "NA", None, True, 99]
CITIES: list[Any] = ["Lyon", "Ulm", "Oslo", "", None]


def decider(bundle: Bundle, **changes: Any) -> Decider:
    return replace(Decider(Pool(bundle), bundle.weights, none=0.0, fallback=1.5), **changes)


def states(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "level": LEVELS[rng.integers(len(LEVELS))],
            "city": CITIES[rng.integers(len(CITIES))],
            "spend": (float(rng.normal(10, 8)), int(rng.integers(-200, 200)), None)[rng.integers(3)],
            "more": "is ignored",
        }
        for _ in range(count)
    ]


def cases(bundle: Bundle, count: int, seed: int = 0, allowed: Any = None) -> list[EncodedRequest]:
    encoder = RowEncoder(bundle.schema)
    return [
        EncodedRequest(f"r{seed}-{i}", f"user-{i}", encoder.encode(state), allowed)
        for i, state in enumerate(states(count, seed))
    ]


def by_table(bundle: Bundle, count: int, seed: int = 0, allowed: list[Any] | None = None) -> list[dict[str, Any]]:
    """Each case as a table of its own: a column has one type, a request need not."""
    rows = []
    for i, state in enumerate(states(count, seed)):
        columns = {name: [state[name]] for name in ("level", "city", "spend")} | {"user_id": [f"user-{i}"]}
        if allowed is not None:
            columns["allowed"] = [allowed[i]]
        table = pa.table(columns)
        every = bundle.decide(table, members=True)["action_index"].to_pylist()
        rows.append(bundle.decide(table).to_pylist()[0] | {"members": every})
    return rows


def check(choices: Sequence[ChosenAction], wanted: Sequence[dict[str, Any]], weights: list[float]) -> None:
    for choice, row in zip(choices, wanted, strict=True):
        assert (choice.member, choice.index, choice.action, choice.probability) == (
            row["member"],
            row["action_index"],
            row["action"],
            row["probability"],
        )
        assert structs.replace(decode_draw(choice.members), allowed=None) == DrawRecord([0, 1], row["members"], weights)
        assert (choice.arm, choice.reason, choice.forced) == ("policy", "policy", False)


def test_a_decision_equals_the_tables_alone_and_among_others(bundle: Bundle) -> None:
    asked = cases(bundle, 400)
    wanted = by_table(bundle, 400)
    weights = bundle.weights.tolist()
    check(decider(bundle).decide(asked, "coupons"), wanted, weights)
    check([decider(bundle).decide([case], "coupons")[0] for case in asked], wanted, weights)
    assert len({row["action_index"] for row in wanted}) > 1
    assert 0 < sum(row["member"] for row in wanted) < 400


def test_only_eligible_actions_are_given_and_the_imitation_threshold_holds(eligible_bundle: Bundle) -> None:
    rng = np.random.default_rng(1)
    lists = [None if rng.random() < 0.3 else [[0.0], [1.5, 3.0], [0.0, 3.0]][rng.integers(3)] for _ in range(200)]
    masks = [None if one is None else np.isin(eligible_bundle.actions, one) for one in lists]
    asked = [case._replace(eligible=mask) for case, mask in zip(cases(eligible_bundle, 200, 1), masks, strict=True)]
    wanted = by_table(eligible_bundle, 200, 1, lists)
    check(decider(eligible_bundle).decide(asked, "coupons"), wanted, eligible_bundle.weights.tolist())


def test_a_new_episode_draws_anew(bundle: Bundle) -> None:
    asked = cases(bundle, 300)
    one, two = (np.array([choice.member for choice in decider(bundle).decide(asked, name)]) for name in ("a", "b"))
    assert 0.3 < (one != two).mean() < 0.7


def test_new_weights_move_users_to_the_member_that_gained(bundle: Bundle) -> None:
    asked = cases(bundle, 300)
    before = decider(bundle).decide(asked, "a")
    after = decider(bundle, weights=np.array([0.3, 0.7])).decide(asked, "a")
    moved = [(b.member, a.member) for b, a in zip(before, after, strict=True) if b.member != a.member]
    assert set(moved) == {(0, 1)}
    assert abs(len(moved) / 300 - 0.3) < 0.1


SCHEMA = Schema(
    (Categorical("c", ("1", "2.5", "true", "x", "-3", "1e+30", str(2**62), "0")),), (Numeric("n", 0.3, 0.7),)
)
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.sampled_from(["1", "2.5", "true", "x", "-3", "nan", "1.0", *MISSING_TEXTS]) | st.text()


HASHED = replace(SCHEMA, categorical=(replace(SCHEMA.categorical[0], buckets=7),))


@given(
    st.sampled_from([SCHEMA, HASHED]),
    st.sampled_from([0, 3, 100]),
    NUMBERS | TEXTS,
    NUMBERS | st.sampled_from(MISSING_TEXTS),
)
def test_values_are_encoded_as_in_a_column(schema: Schema, most: int, category: Any, number: Any) -> None:
    if isinstance(category, str) and any(0xD800 <= ord(c) < 0xE000 for c in category):
        return  # neither JSON nor Arrow has them
    wanted = schema.encode(pa.table({"c": [category], "n": [number]}))
    with mock.patch("outlay.serve.deciding.features.IN_DICTIONARIES", most):  # the rest are looked up in the index
        encoder = RowEncoder(schema)
    row = encoder.encode({"c": category, "n": number})
    assert row is not None
    codes, numbers = arrays([row])
    assert np.array_equal(codes, wanted.codes)
    assert np.array_equal(numbers, wanted.numbers)
    assert codes.dtype == wanted.codes.dtype
    assert numbers.dtype == wanted.numbers.dtype
    assert encoder.unknown["c"] == wanted.unknown


def test_absent_and_wrong_features_are_told_apart() -> None:
    encoder = RowEncoder(SCHEMA)
    assert encoder.encode({"c": 1}) is None
    assert encoder.encode({"c": 1, "n": None}) is not None
    assert encoder.absent == {"c": 0, "n": 1}
    with pytest.raises(FeatureValueError, match="'n' is the text 'much'"):
        encoder.encode({"c": 1, "n": "much"})


def test_an_absent_feature_gets_the_fallback_and_no_one_else_does(bundle: Bundle) -> None:
    good, bad = cases(bundle, 2)
    alone = decider(bundle).decide([good], "coupons")
    found = decider(bundle).decide([bad._replace(row=None), good], "coupons")
    assert found[0] == ChosenAction("policy", None, 1, 1.5, 1.0, "{}", "missing_features", True)
    assert found[1:] == alone


def test_a_fallback_that_is_not_allowed_becomes_none(bundle: Bundle) -> None:
    bad = EncodedRequest("r", "u", None, np.array([False, False, True]))
    (found,) = decider(bundle).decide([bad], "coupons")
    assert (found.action, found.reason) == (0.0, "not_eligible")
    (found,) = decider(bundle, fallback=0.0).decide([bad], "coupons")
    assert (found.action, found.reason) == (0.0, "missing_features")


def test_nothing_eligible_is_none_even_without_features(bundle: Bundle) -> None:
    (case,) = cases(bundle, 1, allowed=np.zeros(3, np.bool_))
    for asked in (case, case._replace(row=None)):
        (found,) = decider(bundle, none=-1.0).decide([asked], "coupons")
        assert found == ChosenAction("policy", None, -1, -1.0, 1.0, "{}", "not_eligible", True)


def test_a_model_that_fails_gets_the_fallback(bundle: Bundle) -> None:
    with mock.patch.object(Bundle, "choices", side_effect=RuntimeError("broken")):
        found = decider(bundle).decide(cases(bundle, 2), "coupons")
    assert {(choice.action, choice.reason, choice.forced) for choice in found} == {(1.5, "model_error", True)}


def test_the_random_slice_is_a_fixed_share_of_users_with_even_actions(bundle: Bundle) -> None:
    """Four standard errors of the share and of each action's share."""
    allowed = np.array([False, True, True])
    asked = cases(bundle, 4_000, allowed=allowed)
    chosen = decider(bundle, random_share=0.2).decide(asked, "coupons")
    random = [choice for choice in chosen if choice.arm == "random"]
    assert abs(len(random) / 4_000 - 0.2) < 4 * (0.16 / 4_000) ** 0.5
    assert {(c.probability, c.member, c.reason, c.forced) for c in random} == {(0.5, None, "random", False)}
    share = np.mean([choice.index == 1 for choice in random])
    assert {choice.index for choice in random} == {1, 2}
    assert abs(share - 0.5) < 4 * (0.25 / len(random)) ** 0.5
    # The rest is untouched, and whoever is in the slice stays in it when it grows.
    plain = decider(bundle).decide(asked, "coupons")
    assert all(
        (c.index, c.member, c.probability) == (p.index, p.member, p.probability)
        for c, p in zip(chosen, plain, strict=True)
        if c.arm == "policy"
    )
    assert {decode_draw(choice.members).random for choice in chosen} == {0.2}
    larger = decider(bundle, random_share=0.4).decide(asked, "coupons")
    assert all(b.arm == "random" for a, b in zip(chosen, larger, strict=True) if a.arm == "random")


def test_the_same_user_gets_other_random_actions_in_other_requests(bundle: Bundle) -> None:
    (case,) = cases(bundle, 1)
    asked = [case._replace(request_id=f"day-{i}") for i in range(60)]
    everyone = decider(bundle, random_share=1.0)
    assert {choice.index for choice in everyone.decide(asked, "a")} == {0, 1, 2}
    assert everyone.decide(asked, "a") == everyone.decide(asked, "a")


def test_a_state_that_the_log_never_showed_is_marked(bundle: Bundle, table_bundle: Bundle) -> None:
    encoder = RowEncoder(table_bundle.schema)
    rows = [encoder.encode({"level": level, "city": "Ulm", "spend": 10.0}) for level in (1, 2, 3)]
    requests = [EncodedRequest(str(i), f"user-{i}", row) for i, row in enumerate(rows)]
    assert [choice.unseen for choice in decider(table_bundle).decide(requests, "e")] == [False, False, True]
    assert not any(choice.unseen for choice in decider(bundle).decide(requests, "e"))


@pytest.mark.parametrize(
    ("limits", "passes"),
    [
        (ValueLimits(), True),
        (ValueLimits(at_most=3.0), True),
        (ValueLimits(at_most=2.9), False),
        (ValueLimits(at_least=3.0), True),
        (ValueLimits(at_least=3.1), False),
        (ValueLimits(allowed=(1.5, 3.0)), True),
        (ValueLimits(allowed=(1.5,)), False),
        (ValueLimits(allowed=()), False),
    ],
)
def test_a_value_out_of_bounds_is_refused(limits: ValueLimits, passes: bool) -> None:
    assert value_refusal(limits, 3.0, none=0.0, names=ActionNames()) == (None if passes else VALUE_LIMIT)


@pytest.mark.parametrize("action", [0.1 + 0.2, 0.30000001192092896, 0.29999998])
@pytest.mark.parametrize("limits", [{"at_most": 0.3}, {"at_least": 0.3}, {"allowed": (0.3,)}])
def test_a_bound_is_the_amount_that_it_says(limits: dict[str, Any], action: float) -> None:
    """0.1 + 0.2, or 0.3 in single precision, is 0.3."""
    assert value_refusal(ValueLimits(**limits), action, none=0.0, names=ActionNames()) is None


def test_none_may_always_be_given() -> None:
    assert value_refusal(ValueLimits(at_least=1.0, allowed=(3.0,)), 0.0, none=0.0, names=ActionNames()) is None


def test_a_draw_comes_back_as_it_was() -> None:
    draw = DrawRecord([3, 17], [0, 2], [0.25, 0.75], 1.1, 0.02, [0, 2])
    assert decode_draw(encode_draw(draw)) == draw
    assert encode_draw(DrawRecord([0], [1], [1.0])) == '{"members":[0],"actions":[1],"weights":[1.0]}'


def test_a_row_without_a_draw_reads_as_an_empty_one() -> None:
    assert decode_draw("{}") == DrawRecord()
    with pytest.raises(DecodeError):
        decode_draw("")
