"""The campaign file of a simulated log, with the comments that a newcomer needs.

Source: ours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

TEMPLATE = """\
# A simulated coupon campaign whose truth is known ({truth}). Made by: outlay simulate {name}

[campaign]
name = "{name}"
unit = "yuan"             # of money, for words and axes
discount = {discount}            # per day: how much a day counts against the day before
horizon_days = {horizon_days}          # the days that a total per user spans
report_days = {report_days}   # windows of the tables{none}

[log]
source = "log.parquet"    # one row per user and day; relative to this file
user = "user_id"
time = "day"
action = "coupon"         # the value given, in yuan
actions = {actions}
reward = "{reward}"         # {about_reward}
propensity = "propensity" # probability with which the log gave that coupon: {propensity}{more}
segment = "{segment}"   # groups of the tables, by first row
contrast = {contrast}     # the two coupons that the effect table compares

[log.features]            # the state, known before the decision
categorical = {categorical}{numeric}   # {about_features}

[[budget]]
name = "coupon_cost"
cost = "cost"             # the coupon, paid only on active days
at_most = {at_most}             # yuan per decision; change it and train again
per = "decision"
reserve = "coupon"        # set aside when the coupon is given: it may be used
money = true
"""
LINE = 110  # characters of a line of the feature list


def campaign_text(
    *,
    name: str,
    discount: float,
    horizon_days: int,
    report_days: Sequence[int],
    none: float | None,
    actions: Sequence[float],
    propensity: str,
    more: str = "",
    reward: str = "active",
    about_reward: str = "1 if the user was active that day",
    segment: str,
    contrast: Sequence[float],
    categorical: Sequence[str],
    numeric: Sequence[str] = (),
    about_features: str,
    at_most: float,
    truth: str,
) -> str:
    """campaign.toml.

    Args:
        name: of the campaign.
        discount: γ per day.
        horizon_days: span of a total per user, no longer than the log.
        report_days: windows of the tables, no longer than the log.
        none: the value that means no coupon, if there is one.
        actions: the values that a policy may choose.
        propensity: what the log's probabilities are, in words.
        more: further lines of `[log]`, each after a line break.
        reward: its column.
        about_reward: the reward in words.
        segment: column or SQL expression of the groups.
        contrast: two actions that the effect table compares.
        categorical: feature columns.
        numeric: feature columns.
        about_features: what they are, in words.
        at_most: the limit, in money per decision.
        truth: the files that hold the truth.
    """
    return TEMPLATE.format(
        name=name,
        discount=discount,
        horizon_days=horizon_days,
        report_days=list(report_days),
        none="" if none is None else f"\nnone = {none}                # the value that means no coupon",
        actions=list(actions),
        propensity=propensity,
        more=more,
        reward=reward,
        about_reward=about_reward,
        segment=segment,
        contrast=list(contrast),
        categorical=_list(categorical),
        numeric=f"\nnumeric = {_list(numeric)}" if numeric else "",
        about_features=about_features,
        at_most=at_most,
        truth=truth,
    )


def _list(names: Sequence[str]) -> str:
    """A TOML array of texts, on several lines where one would be too long."""
    array = ", ".join(f'"{name}"' for name in names)
    return f"[{array}]" if len(array) <= LINE else f"[\n{textwrap.fill(array, LINE)}\n]"
