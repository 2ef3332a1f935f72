"""What a policy is worth beyond the days that the log shows, used to choose between policies, never in a claim.

    V(s)      E[(1−γ) Σ_t γᵗ r_t | s] of the log's policy, linear in features of the state, learned on *learn* users
    x_t       r_t + (γ^Δ V(s_{t+1}) − V(s_t)) / (1−γ)                                     the advantage, as logged
    LONG_RUN    mean V(s_0) + (1/k) Σ_{t<k} E_π[x_t]
    log states  mean V(s_0) + (1/k) Σ_{t<k} E[E[x_t | s_t, a_t = π(s_t)]]     as if the days before were the log's

A policy's discounted value is that of the log's policy plus the mean of x over the days that it visits. Its first k
days stand for all of them here, so that a policy which builds habits in a week of log is credited with them, where the
total of the week is not. The total of x is measured like every other total; only V is a model. If features leave out
something that lasts (who is eager), V takes it for a habit: claims therefore rest on totals of the window.

`LONG_RUN` follows a policy from day to day (`sequential.py`) and so is noisy after many days. In the log's states, each
day rests on every row of it in which the log did as the policy does, and errs several times less, but what days in a
row do to each other is left out: coupons that tire, habits that add up. So are costs. Choosing draws a line of the
second through the first (`choosing/candidates.py`).

Source: Kakade & Langford (2002) for the difference of two policies, and for x in the states of the old policy;
Bradtke & Barto (1996) for V.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlay.core.estimate import Target
from outlay.core.transitions import LEARN
from outlay.estimators.basis import Array
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import hinges, plain_features, standardised

LONG_RUN = str(Target("reward", kind="long run"))
MOST_USERS = 40_000  # learn users that V is learned from
RIDGE = 1e-4  # of the mean square of a feature


def in_log_states(name: str) -> str:
    """Return the target of what is chosen by as if each day's states were the log's: of `reward`, a cost, decisions."""
    return str(Target(name, kind="log states"))


def is_told(panel: Panel) -> NDArray[np.bool_]:
    """`[n]` whether it is known what follows a row: its next row is, its story ends, or what follows does not count."""
    return (panel.following >= 0) | panel.terminal | (panel.discount == 0)


def advantages(panel: Panel) -> tuple[Array, Array]:
    """X of every row `[n]`, 0 where what follows is not known (`is_told`); V of every row `[n]`.

    Takes 8 bytes for each row and feature of `MOST_USERS` learn users and of the panel.
    """
    value = _values(panel)
    follows, gamma = panel.following >= 0, panel.discount
    after = np.zeros(len(panel))
    after[follows] = gamma ** panel.gap[follows] * value[panel.following[follows]]
    return np.where(is_told(panel), panel.outcome[:, 0] + (after - value) / (1 - gamma), 0.0), value


def _values(panel: Panel) -> Array:
    """`[n]` V of the log's policy in the rows of a panel, by least-squares temporal differences on *learn* users.

    Σ φ (φ − γ^Δ φ')ᵀ w = (1−γ) Σ φ r        over rows of which it is known what follows
    """
    data, learn = panel.data, Panel.of(panel.data, LEARN, MOST_USERS)
    both = (learn, panel)
    rows = np.concatenate([each.rows for each in both])
    first = np.concatenate([learn.first[learn.user], len(learn) + panel.first[panel.user]])
    bent = hinges(data.features(rows)[1][:, ::2], first)
    columns = standardised(np.hstack([plain_features(data, rows), bent]))
    features = np.hstack([columns, np.ones((len(rows), 1))], dtype=np.float64)
    here = features[: len(learn)]
    follows = learn.following >= 0
    after = np.zeros_like(here)
    after[follows] = (learn.discount ** learn.gap[follows])[:, None] * here[learn.following[follows]]
    known = is_told(learn)
    here, after = here[known], after[known]
    penalty = np.full(here.shape[1], RIDGE * len(here))
    penalty[-1] = 0.0
    weights = np.linalg.solve(
        here.T @ (here - after) + np.diag(penalty), (1 - learn.discount) * here.T @ learn.outcome[known, 0]
    )
    return np.asarray(features[len(learn) :] @ weights)
