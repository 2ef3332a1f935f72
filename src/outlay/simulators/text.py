"""The campaign file of a simulated log, with the comments that a newcomer needs.

Source: ours.
"""

from __future__ import annotations

import textwrap

from outlay.simulators.simulator import Held, Simulator

TEMPLATE = """\
# A simulated coupon campaign whose truth is known (truth.npz, states.parquet). Made by: outlay simulate {name}

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
reward = "active"         # 1 if the user was active that day
propensity = "propensity" # probability with which the log gave that coupon: {propensity}{forced}
segment = "{segment}"   # groups of the tables, by first row
contrast = {contrast}     # the two coupons that the effect table compares

[log.features]            # the state, known before the decision
categorical = {categorical}   # {about_features}

[[budget]]
name = "coupon_cost"
cost = "cost"             # the coupon, paid only on active days
at_most = {at_most}             # yuan per decision; change it and train again
per = "decision"
reserve = "coupon"        # set aside when the coupon is given: it may be used
money = true
"""
LINE = 110  # characters of a line of the feature list


def campaign_text(simulator: Simulator, days: int, held: Held = None) -> str:
    """campaign.toml for a log of `simulator.generate`.

    With `held` the actions are the two held coupons: the log says nothing about the others, so no policy may choose
    them (the truth keeps all), and the contrast of the effect table is that pair.
    """
    coupons = simulator.model.coupons.tolist()
    none = simulator.none if held is None or simulator.none in held else None
    return TEMPLATE.format(
        name=simulator.name,
        discount=simulator.model.discount,
        horizon_days=min(days, simulator.horizon_days),
        report_days=[k for k in simulator.report_days if k <= days],
        none="" if none is None else f"\nnone = {none}                # the value that means no coupon",
        actions=coupons if held is None else sorted(held),
        propensity=f"1/{len(coupons)} each day, independent" if held is None else "1/2 on the first day, 1 after it",
        forced="" if held is None else '\nforced = "forced"         # rows without a choice: after the first day',
        segment=simulator.segment,
        contrast=list(simulator.contrast) if held is None else sorted(held),
        categorical=_list([feature.name for feature in simulator.features]),
        about_features=simulator.about_features,
        at_most=simulator.limit(held),
    )


def _list(names: list[str]) -> str:
    """A TOML array of texts, on several lines where one would be too long."""
    array = ", ".join(f'"{name}"' for name in names)
    return f"[{array}]" if len(array) <= LINE else f"[\n{textwrap.fill(array, LINE)}\n]"
