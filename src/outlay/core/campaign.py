"""The campaign file: what the log means, what may be spent, how to train.

    campaign = Campaign.load("campaign.toml")

Unknown keys and impossible values are errors that name the file, the key, what was found and the nearest right key.
"""

from __future__ import annotations

import codecs
import datetime
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from outlay.core.actions import ActionNames, Given, Holds, named, shown
from outlay.core.addresses import Place, absolute, mistake
from outlay.core.errors import CampaignError, nearest
from outlay.core.event_tables import OF_EVENTS, EventTable, RowsSection
from outlay.core.settings import Section, Settings, impossible
from outlay.core.wording import in_units, plain, readable

Positive = Annotated[int, Field(gt=0)]
OneOrMore = Annotated[str, Field(min_length=1)] | tuple[Annotated[str, Field(min_length=1)], ...]
Delay = Annotated[int, Field(ge=0, le=3650)]
_WORD = re.compile(r"\w{1,40}")
_SUMMARY = re.compile(r"(mean|sum|count|decayed|last|since)\((.+)\) over (\d+) \w+", re.DOTALL)
ONCE = {"discount": 0.0, "horizon_days": 1, "report_days": (1,)}  # of a log in which each user has one row
DAYS_OF = {"hour": 1 / 24, "day": 1, "week": 7, "month": 365.25 / 12}  # in a unit of time
MOST_BINS = 50
MOST_LAGS = 60  # days that are a feature each
# What keeps the money budget: a margin below it, as proof; the cap of a server; or the one where there is no cap, and
# the other where there is.
Hold = Literal["auto", "certified", "serving"]
Summary = Literal["mean", "sum", "count", "decayed", "last", "since", "lags"]
SUMMARIES: tuple[Summary, ...] = ("mean", "decayed", "last", "since")  # those of [log.history] if it names none


def _action(value: Any) -> Given:
    """An action as it stands in the file: true and false are labels, as a column of them has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise impossible(f"is {value!r}; expected: a finite number, or a label in quotes")


class Meta(Section):
    """`[campaign]`: names, units and the horizon."""

    name: str = Field(min_length=1)
    unit: str = "money"  # of money, for words and axes
    discount: float = Field(default=0.8, ge=0, lt=1)  # γ per day (per unit of `time`)
    horizon_days: Positive = 7
    report_days: tuple[Positive, ...] = (1, 3, 7)
    none: Given | None = None  # the action that means "no incentive"
    users: Positive | None = None  # whom totals on pages are for; default: the users of the log

    @field_validator("none", mode="before")
    @classmethod
    def _called(cls, value: Any) -> Any:
        return None if value is None else _action(value)


class Features(Section):
    """`[log.features]`: the state, known before the decision. Columns or SQL expressions."""

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    known_before: tuple[str, ...] = ()  # those that are, although they look like results of it

    @property
    def names(self) -> tuple[str, ...]:
        """All feature names, categorical first."""
        return self.categorical + self.numeric


def _summary(text: str) -> tuple[str, str, int]:
    """Summary, column and days of `sum(spend) over 28 days`."""
    parts = _SUMMARY.fullmatch(text)
    if parts is None or not 0 < int(parts[3]) <= 365:
        known = ", ".join(name for name in get_args(Summary) if name != "lags")
        raise impossible(
            f"features lists {text!r}; expected: a summary over 1 to 365 days, as 'sum(spend) over 28 days'. "
            f"Summaries: {known}"
        )
    return parts[1], parts[2].strip(), int(parts[3])


class HistorySection(Section):
    """`[log.history]`: summaries of each user's past days, which join the state (`core/history.py`)."""

    days: Annotated[int, Field(gt=0, le=365)] = 14
    columns: tuple[str, ...] | None = None  # action, reward, budgets' names, columns, SQL; absent: the first three
    summaries: tuple[Summary, ...] = Field(default=SUMMARIES, min_length=1)
    features: tuple[str, ...] | None = None  # in place of the three: single summaries, as "sum(spend) over 28 days"
    recorded: bool = False  # the log has a column of each summary: what decisions were made on; null: to be computed

    @model_validator(mode="before")
    @classmethod
    def _one_by_one(cls, content: Any) -> Any:
        """Days and columns of `features`, which says them."""
        listed = content.get("features") if isinstance(content, dict) else None
        if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
            return content
        found = [_summary(text) for text in listed]
        if not found:
            raise impossible("features is empty; leave it out to summarise the action, the reward and every cost")
        lags = [name for name in content.get("summaries") or () if name == "lags"]  # which a job adds
        told: dict[str, Any] = {
            "days": max(days for _, _, days in found),
            "columns": [*dict.fromkeys(column for _, column, _ in found)],
            "summaries": [*dict.fromkeys(summary for summary, _, _ in found), *lags],
        }
        for key, value in told.items():
            given = content.get(key)
            if given is not None and (list(given) if isinstance(given, tuple) else given) != value:
                raise impossible(f"features and {key} are given: each of features says its own {key}. Leave {key} out")
        return {**content, **told}

    @property
    def single(self) -> tuple[tuple[str, str, int], ...]:
        """(summary, column, days) of `features`."""
        return tuple(map(_summary, self.features or ()))

    @model_validator(mode="after")
    def _once(self) -> Self:
        lists = ("columns", self.columns or ()), ("summaries", self.summaries), ("features", self.single)
        for key, listed in lists:
            twice = {name for name in listed if listed.count(name) > 1}
            if twice:
                raise impossible(f"{key} lists {sorted(twice)} twice")
        if self.columns == ():
            raise impossible("columns is empty; leave it out to summarise the action, the reward and every cost")
        if "lags" in self.summaries and self.days > MOST_LAGS:
            raise impossible(
                f"summaries lists 'lags' with days = {self.days}: a feature for each day; at most {MOST_LAGS}"
            )
        return self


class EventsSection(Section):
    """`[log.events]`: a table of outcomes that come later, each credited to the row whose decision brought it."""

    source: str = Field(min_length=1)  # as that of the log
    query: str | None = None
    user: str | None = None
    time: str
    decision: str | None = None  # column or SQL of both tables: the decision that an event belongs to
    outcomes: dict[str, str] = Field(min_length=1)  # reward or a budget's name → what an event adds to it

    @model_validator(mode="after")
    def _matched(self) -> Self:
        if found := mistake(self.source, self.query):
            raise impossible(found)
        if (self.user is None) == (self.decision is None):
            raise impossible("give exactly one of user and decision: by which an event finds its row")
        return self


class ReadingSection(Section):
    """`[log.reading]`: how texts of the files are read; without it, as DuckDB reads them."""

    delimiter: str | None = Field(default=None, min_length=1, max_length=4)  # between the columns of CSV
    encoding: str | None = None  # of CSV: utf-8, latin-1, utf-16, cp1252 …
    decimal: Literal[".", ","] | None = None  # in numbers that are text; the other one sets thousands apart
    dates: str | None = None  # of texts that are dates, as %d.%m.%Y
    sheet: str | None = None  # of an Excel file; default: the longest

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        try:
            return value if value is None else codecs.lookup(value).name
        except LookupError:
            raise impossible(f"is {value!r}; expected: an encoding, as utf-8, latin-1, cp1252 or utf-16") from None

    @field_validator("dates")
    @classmethod
    def _format(cls, value: str | None) -> str | None:
        if value is not None and not ("%d" in value and any(month in value for month in ("%m", "%b", "%B"))):
            raise impossible(f"is {value!r}; expected: the places of day, month and year, as %d.%m.%Y")
        return value


class LogSection(Section):
    """`[log]`: where the rows are and which column or SQL expression plays which role."""

    # Files, globs allowed, relative to the campaign file; or an address; or a list of files. Absent: see [[events]].
    source: OneOrMore | None = None
    query: str | None = None  # of a database: the rows
    where: str | None = None
    user: str | None = None  # absent: each row is a user
    time: str | None = None  # absent: each user has one row
    action: str
    actions: tuple[Given, ...] | None = None  # amounts; or labels, in the order of tables
    amounts: tuple[float, ...] | None = None  # of labels: how much each gives
    bins: int | tuple[float, ...] | None = None  # of amounts: how many, or their edges
    holds: Holds | None = None  # of named actions: what the column holds, as the log was read
    reward: str
    propensity: str | None = None
    randomised: bool = False  # declared: beside the features, nothing drove the actions; for logs without propensity
    forced: str | None = None
    eligible: str | None = None
    terminal: str | None = None
    complete: bool | None = None  # True: fill missing days; False: gaps say nothing; absent: `check` decides
    once: bool | None = None  # each user has one row, so that nothing follows; absent: as the rows are
    start: Literal["first", "latest"] = "first"
    segment: str | None = None
    cluster: str | None = None  # users who may share what happens to them: a city, a household
    contrast: tuple[Given, Given] | None = None
    delays: dict[str, Delay] = Field(default_factory=dict)  # outcome → time units in which its value can still change
    outcomes: tuple[str, ...] = ()  # further columns that follow from the action, and so may go with it
    as_of: int | datetime.date | None = None  # last time of which outcomes were collected; default: that of the log
    features: Features
    events: EventsSection | None = None
    history: HistorySection | None = None
    reading: ReadingSection | None = None

    @field_validator("actions", "contrast", mode="before")
    @classmethod
    def _labels(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        given = tuple(map(_action, value))
        if len({isinstance(each, str) for each in given}) > 1:
            raise impossible(f"lists texts and numbers: {', '.join(map(repr, given))}. Write all of them as texts")
        return given

    @field_validator("as_of", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        if value is None or type(value) in (int, datetime.date):  # neither true nor a time of day
            return value
        try:
            return datetime.date.fromisoformat(value)
        except (TypeError, ValueError):
            raise impossible(f"is {value!r}; expected: a whole number, or a date, as 2027-03-31") from None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.source is not None and (found := mistake(self.source, self.query)):
            raise impossible(found)
        if self.actions is not None and len(set(self.actions)) < 2:
            raise impossible(f"actions has {len(set(self.actions))} distinct value; a choice needs at least two")
        if self.user is None or self.time is None:
            self._alone()
        if self.contrast is not None and self.contrast[0] == self.contrast[1]:
            raise impossible(f"contrast names {named(self.contrast[0])} twice; it needs two different actions")
        self._amounts()
        if not self.features.names:
            raise impossible("features lists no column; give at least one under categorical or numeric")
        if self.action in self.features.names:
            raise impossible(
                f"features lists {self.action!r}, which is the action: it is not known before the decision"
            )
        twice = {name for name in self.features.names if self.features.names.count(name) > 1}
        if twice:
            raise impossible(f"features lists {sorted(twice)} twice")
        if both := [name for name in self.outcomes if name in self.features.names]:
            raise impossible(f"outcomes names {both[0]!r}, which is a feature: known before the decision")
        unknown = [name for name in self.features.known_before if name not in self.features.names]
        if unknown:
            raise impossible(f"features.known_before names {unknown[0]!r}, which is not among the features")
        return self

    def _alone(self) -> None:
        """Raise if a key needs to know the user or the time, which the file does not name."""
        key = "time" if self.time is None else "user"
        needs: dict[str, Any] = {
            "complete": self.complete,
            "terminal": self.terminal,
            "history": self.history,
            "events": self.events,
        }
        needs |= {"delays": self.delays, "as_of": self.as_of}
        if wants := next((name for name, given in needs.items() if given), None):
            raise impossible(f"{wants} is given, and {key} is not: without it, each row is all there is of its user")
        if self.once is False:
            raise impossible(f"once is false, and {key} is not given. Name the column")

    def _amounts(self) -> None:
        """Raise unless labels are distinct, and each has an amount of its own where any has one."""
        if self.labels and len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise impossible(f"actions lists {twice!r} twice")
        if isinstance(self.bins, int) and not 2 <= self.bins <= MOST_BINS:
            raise impossible(f"bins is {self.bins}; expected: from 2 to {MOST_BINS}, or edges, as [0, 5, 10, 20]")
        if isinstance(self.bins, tuple) and (len(self.bins) < 3 or any(a >= b for a, b in pairwise(self.bins))):
            raise impossible(f"bins are {[*self.bins]}; the edges of two bins or more are expected, in ascending order")
        if self.bins is not None and self.actions is not None and (isinstance(self.bins, int) or self.amounts is None):
            raise impossible("bins and actions are both given; the bins are the actions, so leave actions out")
        if self.amounts is None:
            return
        if not self.labels:
            raise impossible("amounts is given without labels under actions. Without labels, actions are the amounts")
        if len(self.amounts) != len(self.labels):
            raise impossible(
                f"amounts has {len(self.amounts)} numbers and actions {len(self.labels)} labels; each label needs one"
            )
        if again := [amount for amount in self.amounts if self.amounts.count(amount) > 1]:
            raise impossible(
                f"amounts has {again[0]:g} twice, and actions of one amount cannot be told apart. Leave amounts out; "
                "what each action costs stands under cost of a [[budget]]"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the actions; none where actions are numbers."""
        return tuple(each for each in self.actions or () if isinstance(each, str))

    @property
    def longest_delay(self) -> int:
        """The time units after which a row is ripe: every outcome of it is known."""
        return max(self.delays.values(), default=0)

    @property
    def known_assignment(self) -> bool:
        """Whether the campaign file says how actions came about: by stated propensities, or declared randomisation."""
        return self.propensity is not None or self.randomised


class Budget(Section):
    """`[[budget]]`: one limit, in the unit that `per` says.

    Inside, every limit is in ≤ form: a floor (`at_least`) has `sign` −1, and its costs and limit are negated.
    """

    name: str = Field(min_length=1)
    cost: str | dict[str, float]  # a column, SQL, or what each action costs whenever it is given
    at_most: float | None = None
    at_least: float | None = None
    per: Literal["decision", "user"] = "decision"
    reserve: str | dict[str, float] | None = None  # SQL of the action, or the most that each can cost
    money: bool | None = None
    shared: bool | None = None  # what it costs or brings depends on how many others get it

    @field_validator("cost", "reserve", mode="before")
    @classmethod
    def _text_or_table(cls, value: Any) -> Any:
        if not isinstance(value, str | dict):
            raise impossible(f"is {value!r}; expected: a text (a column or SQL), or a table of what each action costs")
        for label, price in value.items() if isinstance(value, dict) else ():
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
                raise impossible(f"of {label!r} is {price!r}; expected: a number of at least 0, as 0.5")
        return value

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise impossible("give exactly one of at_most and at_least")
        return self

    @property
    def stated(self) -> bool:
        """Whether the file says the most that each action can cost: by `reserve`, or since its cost is a table."""
        return self.reserve is not None or isinstance(self.cost, dict)

    @property
    def sign(self) -> int:
        """+1 for a ceiling, −1 for a floor."""
        return 1 if self.at_least is None else -1

    @property
    def limit(self) -> float:
        """The limit as written, in the budget's unit."""
        return self.at_most if self.at_most is not None else self.at_least  # type: ignore[return-value]

    @property
    def words(self) -> str:
        """The limit in words: `at most 1.2 per decision`."""
        return f"{'at most' if self.sign > 0 else 'at least'} {plain(self.limit)} per {self.per}"


@dataclass(frozen=True, kw_only=True)
class BudgetLimit:
    """One limit as results and pages show it.

    Attributes:
        name: as in the campaign file.
        limit: as in the campaign file, in `unit` per `per`.
        sign: +1 at most, −1 at least.
        per: `decision`, or `user` for a total over the horizon.
        unit: of its cost, e.g. `yuan`; empty for a pure count.
    """

    name: str
    limit: float
    sign: int = 1
    per: Literal["decision", "user"] = "decision"
    unit: str = ""


class Label(Section):
    """An entry of `[labels]`: what pages call a thing, and the unit of its numbers."""

    label: str = Field(min_length=1)
    unit: str = ""

    @model_validator(mode="before")
    @classmethod
    def _text(cls, content: Any) -> Any:
        if not isinstance(content, str | dict | Label):
            raise impossible(f"is {content!r}; expected: a text, or a table of label and unit")
        return {"label": content} if isinstance(content, str) else content


class Labels(Section):
    """`[labels]`: what the report calls things, where their names say too little. It changes no figure."""

    reward: Label | None = None  # in the plural: "active days"
    action: Label | None = None  # what is given, in the plural: "coupons"
    budgets: dict[str, Label] = Field(default_factory=dict)
    segments: dict[str, Label] = Field(default_factory=dict)
    actions: dict[str, Label] = Field(default_factory=dict)


LabelKind = Literal["reward", "action", "budgets", "segments", "actions"]


class Train(Section):
    """`[train]`: settings of learning. Every one has a default; `preset = "paper"` takes the paper's schedule."""

    preset: Literal["outlay", "paper"] = "outlay"
    shares: tuple[float, float, float] = (0.70, 0.15, 0.15)  # learn / select / certify, shares of users
    salt: str = "outlay"  # of the split by user
    folds: Positive | None = None  # of a frontier: all users certify; 1: one split; default: 4, 2 or 1, by size
    batch: Positive = 512  # rows a gradient step
    layers: tuple[Positive, ...] = (128, 64)  # widths of the hidden layers
    embedding: Positive = 8  # width of a categorical field's embedding
    action_degree: int = Field(default=4, ge=0)  # of the polynomial in the amount given; 0: each action on its own
    learning_rate: float = Field(default=1e-3, gt=0)  # of Adam; the orthogonal critic takes twice as much
    epochs: float = Field(default=4.0, gt=0)  # passes over the learn rows; the orthogonal critic makes twice as many
    min_steps: int = Field(default=2000, ge=0)  # gradient steps at least, for small logs; not of the orthogonal critic
    multiplier_every: Positive = 10  # gradient steps between λ steps
    candidate_every: Positive = 100  # gradient steps between candidates
    warm_up: float = Field(default=0.3, ge=0, lt=1)  # share of the steps before λ moves and candidates count
    spare_candidates: int = Field(default=8, ge=0)  # measured for the last choice beside those that the rule kept
    measured_by: Literal["auto", "critic", "network"] = "auto"  # candidates of a game
    multiplier_max: float | None = Field(default=None, gt=0)  # λ_max in scaled costs; default: found from the data
    scaled_multipliers: bool = True  # OGD in scaled costs; the paper's preset: in raw (1−γ)·J
    target_decay: float = Field(default=0.99, ge=0, lt=1)  # of the weight averages used as target and for acting
    small_q_weight: float = Field(default=0.8, ge=0.5, le=1)  # of the smaller of the two networks in the target
    supervised_weight: float = Field(default=1.0, ge=0)  # EDRR and BCQ: loss weight of the immediate outcome
    imitation_weight: float = Field(default=1.0, ge=0)  # BCQ: loss weight of π_B
    imitation_threshold: float = Field(default=0.3, ge=0, lt=1)  # BCQ: actions below this share of max π_B are left out
    confidence: float = Field(default=0.95, gt=0.5, lt=1)  # of intervals and of the certificate
    margin: float = Field(default=0.90, ge=0.5, lt=1)  # wanted chance that a kept budget is certified (1 − β)
    hold: Hold = "auto"  # the money budget: with that margin, without it, held by a cap, or by whether there is one
    screening: bool = True  # train on the fields that tell anything alone, where a log has many
    min_count: Positive = 1  # values seen in fewer rows are coded as unknown
    max_values: Positive = 65_000  # of a categorical field with codes of their own; the others share 512 codes by hash

    @model_validator(mode="before")
    @classmethod
    def _without_encoder(cls, content: Any) -> Any:
        """Pass over a setting that is gone where it was off, as every folder of an earlier version has it."""
        if not isinstance(content, dict):
            return content
        if content.get("encoder", "none") != "none":
            raise impossible(
                f"encoder is {content['encoder']!r}, but networks no longer read past days through an encoder: the "
                "lags of [log.history], which they read as numbers, teach them as much. Leave encoder and "
                "encoder_width out"
            )
        return {key: value for key, value in content.items() if key not in ("encoder", "encoder_width")}

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise impossible(f"shares are {list(self.shares)}; they must be three positive numbers that sum to 1")
        if self.candidate_every % self.multiplier_every:
            raise impossible(
                f"candidate_every is {self.candidate_every}; it must be a multiple of "
                f"multiplier_every ({self.multiplier_every})"
            )
        return self


PAPER = {
    "preset": "paper",
    "shares": (0.90, 0.05, 0.05),  # the paper's 90/10, its evaluation part halved into select and certify
    "batch": 512,
    "epochs": 2.0,
    "min_steps": 0,
    "multiplier_every": 10,
    "candidate_every": 100,
    "warm_up": 0.0,
    "spare_candidates": 0,
    "measured_by": "network",
    "scaled_multipliers": False,
    "small_q_weight": 0.8,
    "action_degree": 0,
    "folds": 1,
    "screening": False,
    "imitation_weight": 1.0,
    "imitation_threshold": 0.0,  # the paper imitates as a further loss and forbids no action
}
PAPER_DISCOUNT = 0.8


class Campaign(Settings):
    """A campaign file, read and checked.

    Attributes:
        meta: `[campaign]`.
        log: `[log]`.
        events: `[[events]]`, of which the log's rows are made where it has no source.
        rows: `[rows]`, what a row of them is.
        budgets: `[[budget]]`, in the order of the file.
        train: `[train]`.
        labels: `[labels]`.
        path: the file it was read from; relative sources are relative to its folder.
    """

    file_kind: ClassVar[str] = "a campaign.toml"
    if_absent: ClassVar[str] = "Write one with: outlay init LOG --out campaign.toml"
    error: ClassVar[type[CampaignError]] = CampaignError

    meta: Meta = Field(alias="campaign")
    log: LogSection
    events: tuple[EventTable, ...] = ()
    rows: RowsSection = RowsSection()
    budgets: tuple[Budget, ...] = Field(alias="budget", min_length=1)
    train: Train = Train()
    labels: Labels = Labels()
    path: Path = Field(default=Path("campaign.toml"), exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, content: dict[str, Any]) -> dict[str, Any]:
        train, meta = content.get("train"), content.get("campaign")
        if isinstance(train, dict) and isinstance(meta, dict) and train.get("preset") == "paper":
            return {**content, "train": {**PAPER, **train}, "campaign": {"discount": PAPER_DISCOUNT, **meta}}
        return content

    @model_validator(mode="after")
    def _budgets(self) -> Self:
        names = [b.name for b in self.budgets]
        if len(set(names)) < len(names):
            raise impossible(f"budget names are {names}; each must be used once")
        reserved = {"reward"} & set(names)
        if reserved:
            raise impossible("a budget is named 'reward', which tables use for the reward")
        if unknown := next((name for name in self.labels.budgets if name not in names), None):
            near = nearest(unknown, names, "Budgets")
            raise impossible(f"labels.budgets names {unknown!r}, which is no budget. {near}")
        if sum(b.money is True for b in self.budgets) > 1:
            raise impossible("more than one budget has money = true; exactly one budget is money")
        return self

    @model_validator(mode="after")
    def _made(self) -> Self:
        """Raise unless the log has a source or events, and each column of these has one table."""
        log = self.log
        if not self.events:
            if log.source is None:
                raise impossible(
                    "log.source is not given: the file with the log, or [[events]] of which its rows are made"
                )
            if self.rows.until != "all":
                raise impossible("rows.until is given, and [[events]] is not: until when rows are made of them")
            return self
        if self.rows.unit not in (None, *OF_EVENTS):
            raise impossible(f"rows.unit is {self.rows.unit!r}; of [[events]] expected: {', '.join(OF_EVENTS)}")
        for key in ("source", "query", "events"):
            if getattr(log, key) is not None:
                raise impossible(f"log.{key} is given, and so is [[events]]: the rows are made of one of them")
        if log.user is None or log.time is None:
            raise impossible(
                f"log.{'user' if log.user is None else 'time'} is not given: what rows of [[events]] call it"
            )
        columns = [log.user, log.time, *(name for table in self.events for name in table.columns)]
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise impossible(f"{twice[0]!r} is a column of the rows twice: of log.user, log.time and events.columns")
        tables = [table for table in self.events if log.action in table.columns]
        if not tables or tables[0].time is None:
            raise impossible(f"log.action is {log.action!r}; expected: one of the columns of [[events]] with a time")
        return self

    @model_validator(mode="after")
    def _hold(self) -> Self:
        if self.train.hold == "serving" and self.budgets[self.money].sign < 0:
            raise impossible(
                f"train.hold is 'serving', but budget {self.budgets[self.money].name} is a floor, and a cap holds no "
                "floor. Mark a ceiling with money = true, or leave hold out"
            )
        if self.train.hold == "serving" and self.train.preset == "paper":
            raise impossible(
                "train.hold is 'serving', and the preset 'paper' serves the weights that its rule found: it keeps no "
                "margin that could be left out. Leave hold out, or take another preset"
            )
        return self

    @model_validator(mode="after")
    def _delays(self) -> Self:
        history = self.log.history
        past = () if history is None else history.columns or ()
        known = dict.fromkeys(["reward", *(b.name for b in self.budgets), *(c for c in past if c != "action")])
        for name in self.log.delays:
            if name not in known:
                raise impossible(f"log.delays names {name!r}, which is no outcome. {nearest(name, known, 'Outcomes')}")
        events = {} if self.log.events is None else self.log.events.outcomes
        outcomes = ["reward", *(budget.name for budget in self.budgets)]
        for name in events:
            if name not in outcomes:
                raise impossible(
                    f"log.events.outcomes names {name!r}, which is no outcome. {nearest(name, outcomes, 'Outcomes')}"
                )
            if name not in self.log.delays:
                raise impossible(
                    f"log.events.outcomes names {name!r}, but log.delays does not say how much later it can come"
                )
        for column in past:
            if history is not None and (delay := self.log.delays.get(column, 0)) >= history.days:
                raise impossible(
                    f"log.history looks {history.days} days back, and {column!r} is known after {delay} days "
                    "(log.delays), so all of its past would be unknown. Look further back, or leave it out of "
                    "log.history.columns"
                )
        return self

    @property
    def names(self) -> ActionNames:
        """What actions are called."""
        holds = "amounts" if self.log.bins is not None else self.log.holds or "texts"
        found = ActionNames.of(self.log.labels, self.log.amounts or (), self.meta.none, holds)
        return found.with_edges(self.log.bins)

    def given(self, value: float) -> Given:
        """What people and files call the action that is this number inside."""
        return self.names.given(value)

    def label(self, value: float) -> str:
        """What tables and pages call the action that is this number inside."""
        return shown(self.names.given(value))

    @property
    def none(self) -> float | None:
        """The number of the action that means "no incentive"; None where the file names none."""
        if self.meta.none is None:
            return None
        value = self.names.value(self.meta.none)
        return 0.0 if value is None else value

    @property
    def money(self) -> int:
        """Index of the budget that is money: the one that says so, else the first."""
        return next((i for i, b in enumerate(self.budgets) if b.money), 0)

    @property
    def held(self) -> tuple[bool, ...]:
        """`[m]` which budgets a cap holds while serving, so that no margin is kept below them: at most that of money.

        A ledger has caps of money alone, so floors and all other ceilings keep their margins.
        """
        serving = self.train.hold == "serving"
        return tuple(serving and i == self.money and b.sign > 0 for i, b in enumerate(self.budgets))

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the budgets whose cost or effect depends on how many others get the incentive."""
        return tuple(budget.name for budget in self.budgets if budget.shared)

    @property
    def limits(self) -> tuple[BudgetLimit, ...]:
        """The budgets as results and pages show them: the money budget's unit is that of money."""
        return tuple(
            BudgetLimit(name=b.name, limit=b.limit, sign=b.sign, per=b.per, unit=self.meta.unit * (i == self.money))
            for i, b in enumerate(self.budgets)
        )

    @property
    def reward_label(self) -> str:
        """What tables and axes call the reward: its column, or `reward` where the role is an expression."""
        return self.log.reward if _WORD.fullmatch(self.log.reward) else "reward"

    @property
    def action_label(self) -> str:
        """What tables and axes call the action: its column, or `action` where the role is an expression."""
        return self.log.action if _WORD.fullmatch(self.log.action) else "action"

    def called(self, kind: LabelKind, name: str = "") -> Label:
        """What sentences call a thing: by `[labels]`, else its name made readable: `active_days` → `active days`.

        Args:
            kind: what it is.
            name: of a budget, a segment or an action.
        """
        if kind == "reward":
            return self.labels.reward or Label(label=readable(self.reward_label))
        if kind == "action":
            return self.labels.action or Label(label=readable(self.action_label))
        known: dict[str, Label] = getattr(self.labels, kind)
        return known.get(name) or Label(label=readable(name))

    def told(self, kind: LabelKind, name: str = "") -> str:
        """What tables and axes call a thing: by `[labels]`, else by its name or column as it is."""
        if kind == "reward":
            return self.labels.reward.label if self.labels.reward else self.reward_label
        if kind == "action":
            return self.labels.action.label if self.labels.action else self.action_label
        known: dict[str, Label] = getattr(self.labels, kind)
        return known[name].label if name in known else name

    @property
    def told_outcomes(self) -> dict[str, str]:
        """{outcome: what tables call it}: of `reward`, then of the budgets."""
        return {"reward": self.told("reward")} | {b.name: self.told("budgets", b.name) for b in self.budgets}

    @property
    def source(self) -> Place:
        """The log's path or glob, absolute, or several; or its address. Of rows made of events, the tables' paths."""
        if self.log.source is not None:
            return absolute(self.log.source, self.path.parent)
        joined = (table.join.source for table in self.events if table.join is not None)
        sources = (*(table.source for table in self.events), *joined)
        return tuple((self.path.parent / source).resolve() for source in sources)

    @property
    def unit(self) -> str:
        """What one unit of `time` is called: day, week, hour …; where each user has one row, a decision."""
        return "decision" if self.log.once else self.rows.unit or "day"

    def units(self, days: int) -> float:
        """So many days in the log's unit of time; of a log that counts decisions or steps a day is taken as one."""
        return days / DAYS_OF.get(self.unit, 1.0)

    def timed(self, text: str) -> str:
        """A sentence that speaks of days, in the log's unit of time; names are left as the file has them."""
        if self.unit == "day":
            return text
        labels = (*self.labels.budgets.values(), *self.labels.segments.values(), *self.labels.actions.values())
        told = (
            self.called("reward"),
            self.called("action"),
            *labels,
            *(self.called("budgets", b.name) for b in self.budgets),
        )
        own = (self.meta.name, *self.log.features.names, *self.log.labels, *(label.label for label in told))
        return in_units(text, self.unit, own)

    def read_as(self, read: Campaign) -> Campaign:
        """The same campaign with what it leaves open as another was read: labels, units, whether users have one row."""
        open_keys = (key for key in ("actions", "amounts", "holds") if getattr(self.log, key) is None)
        settled = {key: getattr(read.log, key) for key in open_keys} | {"bins": read.log.bins}
        found = self.model_copy(update={"log": self.log.model_copy(update=settled)})
        if self.rows.unit is None:
            found = found.model_copy(update={"rows": self.rows.model_copy(update={"unit": read.rows.unit})})
        return found.with_one_row() if read.log.once else found

    def with_one_row(self) -> Campaign:
        """The same campaign where each user has one row: nothing follows it, so there is no discount or horizon."""
        log, meta = self.log.model_copy(update={"once": True}), self.meta.model_copy(update=ONCE)
        return self.model_copy(update={"log": log, "meta": meta})

    def held_while_serving(self) -> Campaign:
        """The same campaign with the money budget held while serving, whatever preset its settings came from."""
        return self.with_train(hold="serving", preset="outlay")

    def with_train(self, **changes: Any) -> Campaign:
        """The same campaign with some settings of `[train]` replaced (None: left as they are).

        `preset="paper"` replaces whatever the file says of the schedule and the discount; other settings given here
        stand.

        Raises:
            CampaignError: if a value is impossible.
        """
        content = self.model_dump(by_alias=True, mode="python", exclude_none=True)
        given = {key: value for key, value in changes.items() if value is not None}
        if given.get("preset") == "paper":
            given = {**PAPER, **given}
            if not self.log.once:
                content["campaign"] = {**content["campaign"], "discount": PAPER_DISCOUNT}
        content["train"] = {**content["train"], **given}
        return self.parse(content, self.path)

    def lowered(self, margin: Iterable[float]) -> Campaign:
        """The same campaign with limits that leave such a margin `[m]`: lower ceilings, higher floors."""
        changed = tuple(
            b.model_copy(update={"at_most" if b.sign > 0 else "at_least": b.limit - b.sign * float(less)})
            for b, less in zip(self.budgets, margin, strict=True)
        )
        return self.model_copy(update={"budgets": changed})

    def with_money_limit(self, limit: float) -> Campaign:
        """The same campaign with another limit of the money budget, which is a ceiling."""
        money = self.budgets[self.money]
        changed = tuple(b.model_copy(update={"at_most": float(limit)}) if b is money else b for b in self.budgets)
        return self.model_copy(update={"budgets": changed})
