"""Are the log's arms the ones that the experiment file draws? A sample of users is drawn again.

Where they are, a user's first row in an arm may not be of a day before the ramp let the user in: such outcomes are from
before the assignment. Where nearly all come on the day before or on the day after, it is the log's days that are wrong.
Where the arms are not the file's, another system has assigned, which is allowed and said.

Source: ours.
"""

from __future__ import annotations

from outlay.core.errors import LogError
from outlay.experiments.design import Experiment
from outlay.experiments.rows import Run
from outlay.experiments.split import OUTSIDE, entries

SAMPLE = 20_000  # users, about
OURS = 0.99  # of them in the file's arm: then the file has assigned
SHIFTED = 0.9  # of users who came too early, a day too early: then days are shifted
ENOUGH = 30  # users who came the day after, and none on the day: if days were right it would be chance of 1 in 2^30
QUESTION = "Are days counted from 1, or told in another time zone?"


def check_agreement(run: Run, experiment: Experiment) -> list[str]:
    """Notes about who assigned; reads the view `test_rows` that `read_sums` made.

    Raises:
        LogError: if the file has assigned, and users have outcomes from before the ramp let them in, or all have
            none on the day on which it did.
    """
    rows = run('SELECT approx_count_distinct("user") FROM test_rows')[0][0]
    part = max(1, rows // SAMPLE)
    found = run(
        'SELECT "user", any_value(arm), min(day), min(day) FILTER (NOT marker) FROM test_rows '
        f'WHERE hash("user") % {part} = 0 GROUP BY "user"'
    )
    if not found:
        return []
    users, arms, first, came = zip(*found, strict=True)
    names = [arm.name for arm in experiment.arms]
    drawn, since = entries(experiment, users)
    ours = [d != OUTSIDE and names[d] == arm for d, arm in zip(drawn, arms, strict=True)]
    wrong = len(users) - sum(ours)
    if wrong > (1 - OURS) * len(users):
        return [
            f"{sum(ours) / len(users):.1%} of the users looked at are in the arm that the experiment file draws: "
            "another system has assigned them. Its shares and its ramp must be the file's."
        ]
    notes = [] if not wrong else [
        f"{wrong:,} of {len(users):,} users looked at are in another arm than the file draws, as user "
        f"{users[ours.index(False)]!r}: what put them there may not have been chance."
    ]  # fmt: skip
    early = [k for k in range(len(users)) if ours[k] and first[k] < since[k]]
    if early:
        k = early[0]
        shifted = sum(first[k] == since[k] - 1 for k in early) >= SHIFTED * len(early)
        raise LogError(
            f"{len(early)} of {len(users)} users looked at have outcomes before they were assigned, as user "
            f"{users[k]!r} on day {first[k]}, whom the ramp lets in on day {since[k]}"
            f"{f'; nearly all a day early. {QUESTION}' if shifted else '.'}", where="day" if shifted else "arm",
            way_out=_shift("+") if shifted else "Leave the arm empty in rows from before a user was let in.",
        )  # fmt: skip
    late = [came[k] - since[k] for k in range(len(users)) if ours[k] and came[k] is not None]
    if 0 not in late and late.count(1) >= ENOUGH:
        raise LogError(
            f"none of {len(late)} users looked at has a row on the day on which the ramp lets them in, and "
            f"{late.count(1)} have the first on the day after. {QUESTION}", where="day",
            way_out=f"{_shift('-')} If nothing happens on such a day, give the users rows of 0.",
        )  # fmt: skip
    return notes


def _shift(sign: str) -> str:
    return f'If so, shift them: --column "day=day {sign} 1".'
