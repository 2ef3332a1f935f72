"""Are the log's arms the ones that the experiment file draws? A sample of users is drawn again.

Where they are, a user's first row in an arm may not be of a day before the ramp let the user in: such outcomes are from
before the assignment. Where they are not, another system has assigned, which is allowed and said.

Source: ours.
"""

from __future__ import annotations

from outlay.core.errors import LogError
from outlay.experiments.design import Experiment
from outlay.experiments.rows import Run
from outlay.experiments.split import OUTSIDE, entries

SAMPLE = 20_000  # users, about
OURS = 0.99  # of them in the file's arm: then the file has assigned


def check_agreement(run: Run, experiment: Experiment) -> list[str]:
    """Notes about who assigned; reads the view `test_rows` that `read_sums` made.

    Raises:
        LogError: if the file has assigned, and users have outcomes from before the ramp let them in.
    """
    rows = run('SELECT approx_count_distinct("user") FROM test_rows')[0][0]
    part = max(1, rows // SAMPLE)
    found = run(
        f'SELECT "user", any_value(arm), min(day) FROM test_rows WHERE hash("user") % {part} = 0 GROUP BY "user"'
    )
    if not found:
        return []
    users, arms, first = zip(*found, strict=True)
    names = [arm.name for arm in experiment.arms]
    drawn, since = entries(experiment, users)
    ours = [d != OUTSIDE and names[d] == arm for d, arm in zip(drawn, arms, strict=True)]
    if sum(ours) < OURS * len(users):
        return [
            f"{sum(ours) / len(users):.1%} of the users looked at are in the arm that the experiment file draws: "
            "another system has assigned them. Its shares and its ramp must be the file's."
        ]
    early = [k for k in range(len(users)) if ours[k] and first[k] < since[k]]
    if early:
        k = early[0]
        raise LogError(
            f"{len(early)} of {len(users)} users looked at have outcomes before they were assigned, as user "
            f"{users[k]!r} on day {first[k]}, whom the ramp lets in on day {since[k]}.", where="arm",
            way_out="Leave the arm empty in rows from before a user was let in.",
        )  # fmt: skip
    return []
