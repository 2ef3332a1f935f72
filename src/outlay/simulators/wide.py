"""The wide campaign: the city's people behind many categorical fields, as in a full log.

    value of field j = perm_j[code + K·⌊n u³⌋]        u uniform, drawn by day or once for a user
                                                      n the number of values of that code

Each of the city's 20 features is shown by one field: a category by its code, a number by the interval of `INTERVALS`
that it lies in (habit and fatigue by the nearest point of their grids); K is their number. Each value of the field
belongs to one code, and a code may have many values, the first of them the most common. Ten of these fields matter,
most of them only together with others: a channel alone says nothing, but with a kind and a mix of baskets it tells deal
seekers (`city.py`). All other fields are noise (K = 1), by turns kept by a user and drawn every day. The numbers of
values are heavy-tailed (Zipf) over the fields. Which field shows what follows from `fields` and `values` alone, so that
logs of different seeds have the same truth.

    world = simulator(fields=1000, values=100_000)
    PolicyValues(CityTruth(world.city), show=world.show)              # values of policies that read the fields

The optimum is that of the city (`city_truth.py`), which knows the numbers behind the intervals.

Source: ours; the sizes of the full data set of the paper are 1,000 fields and 100,000 values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import write_json
from outlay.simulators.city import CATEGORICAL, DAYS, F_GRID, H_GRID, NUMERIC, City
from outlay.simulators.city_people import CityWorld, Features, People, log_of, no_held
from outlay.simulators.simulator import Held
from outlay.simulators.write import Columns

FIELDS = 50
VALUES = 5000
WIDE_FILE = "wide.json"  # beside city.json: number of fields and values
LEVELS = 16  # intervals of most numbers
CELLS = 32_000_000  # rows times fields in memory at a time: a row group of the log
NORMAL = ndtri(np.arange(1, LEVELS) / LEVELS)
INTERVALS: dict[str, NDArray[np.float64]] = {  # inner bounds
    "habit": (H_GRID[1:] + H_GRID[:-1]) / 2,
    "fatigue": (F_GRID[1:] + F_GRID[:-1]) / 2,
    "gap": np.array([1.5, 2.5, 3.5, 4.5, 5.5, 7.5, 10.5, 15.5]),
    "recent": np.array([0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5]),
    **dict.fromkeys(("engagement", "price_taste", "basket_mix", "age", "score", "balance"), NORMAL),
}
SHOWN = (*CATEGORICAL, *NUMERIC)
DAILY = ("habit", "fatigue", "gap", "recent", "weekday")  # which change from day to day
MATTER = ("habit", "fatigue", "gap", "engagement", "price_taste", "basket_mix", "kind", "plan", "city", "channel")


@dataclass(frozen=True, slots=True, eq=False)
class FieldLayout:
    """The fields of the log.

    Attributes:
        sizes: `[F]` number of values.
        shows: `[F]` the feature of the city that the field shows, as a place in SHOWN; −1 for noise.
        num_codes: `[F]` K; 1 for noise.
        by_user: `[F]` whether a user keeps the value.
        order: `[Σ sizes]` the perm_j, one after the other.
    """

    sizes: NDArray[np.intp]
    shows: NDArray[np.intp]
    num_codes: NDArray[np.int32]
    by_user: NDArray[np.bool_]
    order: NDArray[np.int32]

    def values(
        self, fields: NDArray[np.intp], u: NDArray[np.float32], codes: NDArray[np.int32] | int = 0
    ) -> NDArray[np.int32]:
        """Values of some fields.

        Args:
            fields: `[f]` which.
            u: `[f, n]` uniform draws; 0 gives the most common value.
            codes: `[f, n]` what they show; 0 for noise.

        Returns:
            `[f, n]`.
        """
        K = self.num_codes[fields, None]
        shared = (self.sizes[fields, None] - codes + K - 1) // K  # values of the code
        which = np.minimum(u * u * u * shared.astype(np.float32), shared - 1).astype(np.int32)  # u³n rounds up to n
        which *= K
        which += codes
        which += (self.sizes.cumsum() - self.sizes)[fields, None].astype(np.int32)
        values: NDArray[np.int32] = np.take(self.order, which)
        return values


def codes_of(feature: str, values: NDArray[Any]) -> NDArray[np.int32]:
    """`[n]` what a field shows of a feature of the city."""
    if feature in CATEGORICAL:
        return np.asarray(values, np.int32)
    return np.searchsorted(INTERVALS[feature], values).astype(np.int32)


def layout(fields: int = FIELDS, values: int = VALUES) -> FieldLayout:
    """The fields of a wide campaign.

    Raises:
        OutlayError: if there are fewer fields than features of the city, or too few values for them.
    """
    if fields < len(SHOWN):
        raise OutlayError(
            f"is {fields}; must be at least {len(SHOWN)}, as so many fields show the people.",
            where="fields",
            way_out=f"Give {len(SHOWN)} or more.",
        )
    rng = np.random.default_rng(fields)
    shows = np.full(fields, -1)
    shows[rng.permutation(fields)[: len(SHOWN)]] = np.arange(len(SHOWN))
    sizes_of = np.array([CATEGORICAL.get(name) or len(INTERVALS[name]) + 1 for name in SHOWN])
    num_codes = np.where(shows >= 0, sizes_of[shows], 1).astype(np.int32)
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
    by_user = shows >= 0
    by_user[by_user] = [SHOWN[feature] not in DAILY for feature in shows[by_user]]
    by_user[np.flatnonzero(shows < 0)[::2]] = True
    order = np.concatenate([rng.permutation(size) for size in sizes]).astype(np.int32)
    return FieldLayout(sizes, shows, num_codes, by_user, order)


@dataclass(frozen=True)
class WideWorld:
    """The wide campaign.

    Attributes:
        city: whose people these are.
        fields: number of categorical fields.
        values: number of distinct values, over all fields.
        log_days: default days of log.
    """

    city: City
    fields: int = FIELDS
    values: int = VALUES
    log_days: int = DAYS

    def __post_init__(self) -> None:
        _ = self.layout  # an error now

    @classmethod
    def read(cls, folder: Path) -> WideWorld:
        """Read the campaign in a folder that `outlay simulate wide` wrote.

        Raises:
            FolderError: if there is none.
        """
        try:
            return cls(City.read(folder), **json.loads((folder / WIDE_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise FolderError(
                f"has no wide campaign ({error}).", file=folder, way_out="Run: outlay simulate wide"
            ) from None

    @cached_property
    def layout(self) -> FieldLayout:
        """Which field shows what."""
        return layout(self.fields, self.values)

    @property
    def names(self) -> tuple[str, ...]:
        """`[F]` columns of the log."""
        digits = len(str(self.fields - 1))
        return tuple(f"field_{j:0{digits}d}" for j in range(self.fields))

    @property
    def coupons(self) -> NDArray[np.float64]:
        """`[A]` values given, ascending."""
        return CityWorld(self.city).coupons

    @property
    def num_features(self) -> int:
        """Number of feature columns in the log."""
        return self.fields

    def fields_of(self, *features: str) -> tuple[str, ...]:
        """The fields that show some features of the city, such as those that MATTER."""
        shows = self.layout.shows.tolist()
        return tuple(self.names[shows.index(SHOWN.index(feature))] for feature in features)

    def show(self, people: People, fields: Collection[str] | None = None) -> Features:
        """How these people show in the fields: a function of the features of a day, to be called day by day.

        Args:
            people: the users.
            fields: names of those that are drawn; None: all.
        """
        wide, rng = self.layout, people.shown.spawn(1)[0]
        drawn = np.array([fields is None or name in fields for name in self.names])
        kept, daily = np.flatnonzero(drawn & wide.by_user), np.flatnonzero(drawn & ~wide.by_user)
        stays: NDArray[np.int32] | None = None

        def codes(fields: NDArray[np.intp], table: dict[str, NDArray[Any]], n: int) -> NDArray[np.int32]:
            found = np.zeros((len(fields), n), np.int32)
            for row, feature in enumerate(wide.shows[fields]):
                if feature >= 0:
                    found[row] = codes_of(SHOWN[feature], table[SHOWN[feature]])
            return found

        def shown(table: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            nonlocal stays
            n = len(people.habit)
            if stays is None:
                stays = wide.values(kept, rng.random((len(kept), n), np.float32), codes(kept, table, n))
            changes = wide.values(daily, rng.random((len(daily), n), np.float32), codes(daily, table, n))
            of_field = dict(zip(kept.tolist(), stays, strict=True)) | dict(zip(daily.tolist(), changes, strict=True))
            return {name: of_field[j] for j, name in enumerate(self.names) if drawn[j]}

        return shown

    def generate(self, users: int, days: int, seed: int, *, held: Held = None) -> Iterator[Columns]:
        """Generate a log, as `log_of` does.

        Raises:
            OutlayError: if `held` is given.
        """
        no_held("wide", held)
        chunk = max(1, CELLS // (self.fields * days))
        return log_of(self.city, users, days, seed, show=self.show, chunk_users=chunk)

    def text(self, days: int, held: Held = None) -> str:
        """Return the text of campaign.toml."""
        no_held("wide", held)
        file = replace(
            CityWorld(self.city).file(days),
            name="wide",
            categorical=self.names,
            numeric=(),
            about_features=f"{self.fields} fields with {self.values} values in all; {len(SHOWN)} show something of the "
            f"users, {len(MATTER)} of these matter, and the others are noise",
            propensity="by features behind the fields",
            truth=f"city.json, {WIDE_FILE}",
        )
        return file.text()

    def write_truth(self, folder: Path) -> None:
        """Write the options, which determine the truth."""
        self.city.write(folder)
        write_json(folder / WIDE_FILE, {"fields": self.fields, "values": self.values})


def simulator(fields: int = FIELDS, values: int = VALUES, slow: bool = False) -> WideWorld:
    """Return the campaign.

    Args:
        fields: number of categorical fields, 20 or more.
        values: number of distinct values, over all fields; the rare ones only show in a large log.
        slow: as in `City`.

    Raises:
        OutlayError: as in `layout`.
    """
    return WideWorld(City(slow=slow), fields, values)
