"""The wide campaign: the habit campaign's people behind many categorical fields, as in a full log.

    value of field j = perm_j[code_j(state) + K_j · ⌊n · u³⌋]        u uniform, drawn by day or once for a user
                                                                     n the number of values of that code

A tenth of the fields, at least two, show the state: by turns `yesterday` (K = 2 codes), `level` (5), and both (10).
Each of their values belongs to one code, and a code has several values, the first of them the most common; so the state
can be read off without error from any two fields that show the parts, and from any one that shows both. All other
fields are noise (K = 1), by turns kept by a user and drawn every day. The numbers of values are heavy-tailed (Zipf)
over the fields, and so is how often the values of a field are seen. Which field is which follows from `fields` and
`values` alone, so that logs of different seeds have the same truth.

The true state is not in the log. The column `segment` (`inactive`, `active`) is there for tables, as a team would have
it; it is no feature. states.parquet holds one row a state, in which every field has the most common of its values.

Source: ours; the sizes of the full data set of the paper are 1,000 fields and 100,000 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import OutlayError
from outlay.simulators import habit
from outlay.simulators.simulator import Feature, Simulator

FIELDS = 50
VALUES = 5000
INFORMATIVE = 10  # one field in ten shows the state


@dataclass(frozen=True, slots=True, eq=False)
class FieldLayout:
    """The fields of the log.

    Attributes:
        sizes: `[F]` number of values.
        codes: `[F, S]` code of the field in a state: 0…K−1.
        num_codes: `[F]` K; 1 for noise.
        by_user: `[F]` whether a user keeps the value.
        order: `[Σ sizes]` the perm_j, one after the other.
    """

    sizes: NDArray[np.intp]
    codes: NDArray[np.int32]
    num_codes: NDArray[np.int32]
    by_user: NDArray[np.bool_]
    order: NDArray[np.int32]

    def show(self, user: np.random.Generator, day: np.random.Generator, state: NDArray[np.intp]) -> NDArray[np.integer]:
        """`[F, n·days]` values for states `[n, days]`."""
        n, days = state.shape
        u = np.empty((len(self.sizes), n, days), dtype=np.float32)
        kept = int(self.by_user.sum())
        u[self.by_user] = user.random((n, kept), dtype=np.float32).T[:, :, None]
        u[~self.by_user] = day.random((len(u) - kept, n, days), dtype=np.float32)
        return self.values(u.reshape(len(u), -1), state.ravel())

    def values(self, u: NDArray[np.float32], state: NDArray[np.intp]) -> NDArray[np.integer]:
        """`[F, N]` values from uniform draws `[F, N]` and states `[N]`; u = 0 gives the most common value."""
        K = self.num_codes[:, None]
        shared = ((self.sizes[:, None] - self.codes + K - 1) // K).astype(np.float32)  # values of each code, `[F, S]`
        first = (self.sizes.cumsum() - self.sizes).astype(np.int32)[:, None] + self.codes
        which = np.minimum(u * u * u * shared[:, state], shared[:, state] - 1).astype(np.int32)  # u³n rounds up to n
        which *= K
        which += first[:, state]
        values: NDArray[np.integer] = self.order[which]
        return values


def layout(fields: int = FIELDS, values: int = VALUES) -> FieldLayout:
    """The fields of a wide campaign.

    Raises:
        OutlayError: if there are fewer than 2 fields, or too few values for them.
    """
    if fields < 2:
        raise OutlayError(f"is {fields}; must be at least 2, as two fields show the state.", where="fields",
                          way_out="Give 2 or more.")  # fmt: skip
    rng = np.random.default_rng(fields)
    yesterday, level = habit.states()
    parts = [yesterday, level, yesterday * habit.LEVELS + level]
    codes = np.zeros((fields, len(level)), dtype=np.int32)
    informative = np.sort(rng.choice(fields, size=max(2, fields // INFORMATIVE), replace=False))
    for turn, field in enumerate(informative):
        codes[field] = parts[turn % len(parts)]
    num_codes = codes.max(axis=1) + 1
    least = np.maximum(num_codes, 2)
    if values < least.sum():
        raise OutlayError(
            f"is {values}; {fields} fields have at least {least.sum()} values in all.",
            where="values",
            way_out="Give more values, or fewer fields.",
        )
    weight = 1 / (1 + rng.permutation(fields))
    sizes = least + np.floor((values - least.sum()) * weight / weight.sum()).astype(np.intp)
    sizes[sizes.argmax()] += values - sizes.sum()
    noise = np.setdiff1d(np.arange(fields), informative)
    by_user = np.zeros(fields, dtype=np.bool_)
    by_user[noise[::2]] = True
    order = np.concatenate([rng.permutation(size) for size in sizes]).astype(np.int32)
    return FieldLayout(sizes, codes, num_codes, by_user, order)


def simulator(fields: int = FIELDS, values: int = VALUES) -> Simulator:
    """The campaign.

    Args:
        fields: number of categorical fields, 2 or more.
        values: number of distinct values, over all fields; the rare ones only show in a large log.

    Raises:
        OutlayError: as in `layout`.
    """
    wide = layout(fields, values)
    people = habit.simulator()
    digits = len(str(fields - 1))
    num_states = len(people.model.start)
    inactive = habit.states()[1] <= habit.INACTIVE_UP_TO
    return Simulator(
        name="wide",
        model=people.model,
        features=tuple(
            Feature(f"field_{j:0{digits}d}", np.arange(size, dtype=np.int32)) for j, size in enumerate(wide.sizes)
        ),
        codes=wide.values(np.zeros((fields, num_states), dtype=np.float32), np.arange(num_states)),
        show=wide.show,
        log_days=people.log_days,
        horizon_days=people.horizon_days,
        report_days=people.report_days,
        at_most=people.at_most,
        contrast=people.contrast,
        segment="segment",
        segment_column=np.where(inactive, "inactive", "active"),
        about_features=f"{fields} fields with {values} values in all; some show the state, most are noise",
    )
