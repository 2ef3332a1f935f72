"""Targets are printed and parsed alike, whatever the names of budgets hold."""

from __future__ import annotations

import pytest

from outlay.core.estimate import Target, longest_total


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Target("reward"), "reward"),
        (Target("reward", 7), "reward@7"),
        (Target("reward", kind="discounted"), "reward/discounted"),
        (Target("reward", kind="long run"), "reward/long run"),
        (Target("cost", kind="decision"), "cost/decision"),
        (Target("cost@home", 3), "cost@home@3"),
        (Target("cost/user"), "cost/user"),
        (Target("cost@home"), "cost@home"),
    ],
)
def test_a_target_is_parsed_as_it_was_printed(target: Target, text: str) -> None:
    assert str(target) == text
    assert Target.parse(text) == target


def test_the_longest_total_is_of_the_reward() -> None:
    assert longest_total(["reward", "reward@7", "reward@30", "coupon_cost@90"]) == "reward@30"
    assert longest_total(["coupon_cost@7", "reward", "reward/discounted"]) == "reward"
    assert longest_total(["coupon_cost@7", "reward/discounted"]) is None
