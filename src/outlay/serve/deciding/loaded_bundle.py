"""Loading a bundle for service: it is verified, priced and warmed up, and registered in the ledger.

    loaded = prepare_bundle(path, config)             reads every byte, checks the golden rows, decides once
    register_bundle(ledger, loaded, config, now)      the ledger knows it before the first decision that names it

A broken bundle changes nothing: whatever fails, fails before anything is served by it (`handlers/state.py`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import BudgetEntry, FeatureNames
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.core.actions import ActionNames, Given, all_named, as_text, named
from outlay.core.errors import BundleError, OutlayError, nearest
from outlay.core.reserves import TOO_LOW, WAY_OUT, too_low, unpriced, unpriced_words
from outlay.core.schema import Schema
from outlay.core.wording import four
from outlay.logs.reading import toml_value
from outlay.serve.clock import Moment
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import POLICY, SAME_ACTION, Decider, EncodedRequest
from outlay.serve.deciding.features import FirstPast, RowEncoder, Summaries, request_schema
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Ledger, Note
from outlay.serve.ledger.money import Money
from outlay.serve.ledger.records import ID_LENGTH

NAME_LENGTH = ID_LENGTH - 48  # the number of the episode follows it, and in notes a bundle and a step
BUNDLE, ARM_BUNDLE, SETTINGS = "bundle", "arm bundle", "settings"  # kinds of notes
LEFT_OUT = ("files", "versions")  # keys of a manifest that do not affect decisions


class NotedPolicy(Struct, frozen=True):
    """A policy in the ledger's notes: the salt of its draw."""

    salt: str


class NotedFrontier(Struct, frozen=True):
    """All policies that may be mixed anew."""

    members: tuple[NotedPolicy, ...]


class NotedBundle(Struct, frozen=True, kw_only=True):
    """What is read of the ledger's notes of bundles, which hold the manifests. K actions.

    Attributes:
        id: of the bundle.
        unit: of money.
        none: the value that means "no incentive".
        actions: `[K]` values.
        reserve: `[K]` money to set aside for each; None: the settings say it.
        features: names of what its policies read.
        campaign: the content of the campaign file.
        members: of its mixture.
        frontier: where its mixture may be solved anew.
    """

    id: str
    unit: str
    none: float | None = None
    actions: tuple[float, ...]
    reserve: tuple[float, ...] | None = None
    features: FeatureNames
    campaign: dict[str, Any]
    members: tuple[NotedPolicy, ...]
    frontier: NotedFrontier | None = None

    @property
    def salts(self) -> tuple[str, ...]:
        """Salts of all policies that it may serve."""
        return tuple(each.salt for each in (self.frontier or self).members)


noted_bundle = msgspec.json.Decoder(NotedBundle).decode


@dataclass(frozen=True, eq=False)
class LoadedBundle:
    """A bundle that may go into service, with what its actions cost.

    Attributes:
        path: its folder, absolute.
        decider: decides with the bundle.
        capped: decides behind a cap, which the money budget needs no margin for; the same where there is nothing else.
        amounts: `[K]` minor units to reserve for each action.
        none_index: position of the campaign's none; −1 if it is not one of the actions.
        money: the currency.
        first_past: what was known of users before the ledger began, for a policy that looks at past days; or None.
    """

    path: Path
    decider: Decider
    capped: Decider
    amounts: tuple[int, ...]
    none_index: int
    money: Money
    first_past: FirstPast | None = None

    @property
    def bundle(self) -> Bundle:
        """The bundle itself."""
        return self.decider.pool.bundle

    @cached_property
    def summaries(self) -> Summaries | None:
        """What the policy sees of a user's past; None where it looks at no past days."""
        return Summaries.of(self.bundle)

    @property
    def request_schema(self) -> Schema:
        """The features that a request gives."""
        return request_schema(self.bundle)

    @property
    def campaign(self) -> str:
        """The campaign that pays."""
        return self.bundle.manifest.name

    @property
    def spent(self) -> tuple[float, float]:
        """What the money budget counts of the certified mixture and of the one behind a cap, as they were measured."""
        cost = self.decider.pool.measurements[:, 1 + self.bundle.manifest.budgets.index(self.budget)]
        return float(self.decider.weights @ cost), float(self.capped.weights @ cost)

    @property
    def budget(self) -> BudgetEntry:
        """The money budget."""
        return next(budget for budget in self.bundle.manifest.budgets if budget.money)

    def amount(self, index: int) -> int:
        """Return the minor units to reserve for the action at this position; 0 for none."""
        return 0 if index < 0 or index == self.none_index else self.amounts[index]


def prepare_bundle(
    path: str | Path,
    config: ServeConfig,
    *,
    campaign: str | None = None,
    history: Path | None = None,
    shared: Path | None = None,
) -> LoadedBundle:
    """Load, verify, price and warm up a bundle.

    Args:
        path: the bundle's folder.
        config: settings of the server.
        campaign: the campaign that is being served, if any: its ledger accepts no other.
        history: a log or a DATA folder with the past of users before the ledger began.
        shared: a folder in which workers share the vocabulary; see `load_bundle`.

    Raises:
        BundleError: if it is missing, damaged, of another campaign, or cannot decide single requests.
        OutlayError: if the settings do not fit it, or the history cannot be read.
    """
    folder = Path(path).absolute()
    try:
        bundle = load_bundle(folder, shared=shared)
    except OSError as error:
        raise BundleError(f"cannot be read ({error.strerror}).", file=folder, way_out="Check the path.") from None
    name = bundle.manifest.name
    if campaign not in (None, name):
        raise BundleError(
            f"is a bundle of campaign {name!r}; this server spends the money of {campaign!r}.",
            file=folder,
            way_out="Serve it with a server of its own.",
        )
    if max(len(name), len(config.episode.name or bundle.manifest.episode)) > NAME_LENGTH:
        raise BundleError(
            f"the name of its campaign or episode has more than {NAME_LENGTH} characters.",
            file=folder,
            way_out="Give the episode a shorter name in serve.toml, or the campaign one in its file.",
        )
    none = float(bundle.manifest.none or 0.0)
    names = bundle.names
    fallback = none if config.fallback is None else names.value(config.fallback)
    if fallback is None:
        fallback = float("nan")
    _check_values(bundle, config)
    pool = Pool(bundle)
    decider = Decider(pool, pool.weights, none, fallback, config.random.share, config.random.salt)
    if fallback != none and decider.index_of(fallback) < 0:
        raise OutlayError(
            f"is {named(config.fallback or none)}, which is not one of the actions {every_action(bundle)}.",
            file=config.path,
            where="fallback",
            way_out="Give one of them, or leave it out: then it is none, free of charge.",
        )
    if (index := decider.index_of(fallback)) >= 0:  # the bundle's own value; the settings may have fewer digits
        decider = replace(decider, fallback=float(bundle.actions[index]))
    if config.plan is not None:
        pool.check()
    money = Money(bundle.manifest.unit, config.minor)
    capped = decider
    if config.hold == "auto" and not np.array_equal(pool.capped, pool.weights):
        capped = replace(decider, weights=pool.capped)
    amounts = _amounts(bundle, config, money, none)
    loaded = LoadedBundle(folder, decider, capped, amounts, decider.index_of(none), money)
    if history is not None and bundle.history is not None:
        loaded = replace(loaded, first_past=FirstPast.read(bundle, history))
    _warm_up(loaded)
    return loaded


def _check_values(bundle: Bundle, config: ServeConfig) -> None:
    """Raise OutlayError if `[values]` names an action that there is not, or compares names as if they were amounts."""
    names, limits = bundle.names, config.values
    for key in () if names.amounts else ("at_least", "at_most"):
        if (amount := getattr(limits, key)) is not None:
            raise OutlayError(
                f"is {amount:g}, and the actions have names without amounts: none is more than another.",
                file=config.path,
                where=f"values.{key}",
                way_out=f"List what may be given, as in allowed = {toml_value(list(names.labels[:2]))}.",
            )
    for each in limits.allowed or () if names.labels else ():
        if names.value(each) is None:
            raise OutlayError(
                f"lists {named(each)}, which is no action of the bundle.",
                file=config.path,
                where="values.allowed",
                way_out=nearest(str(each), names.labels, "Actions"),
            )


def check_money(ledger: Ledger, loaded: LoadedBundle, config: ServeConfig) -> None:
    """Raise OutlayError if an amount in the ledger, which is a number, would be of another currency or size."""
    written = ledger.notes(loaded.campaign, SETTINGS)
    if written and (minor := json.loads(written[-1].content)["minor"]) != config.minor:
        raise OutlayError(
            f"is {config.minor}, and the ledger counts {minor} minor units in one {loaded.money.unit}: its money would "
            "change.",
            file=config.path,
            where="minor",
            way_out=f"Write minor = {minor}, or use another ledger.",
        )
    for note in ledger.notes(loaded.campaign, BUNDLE)[-1:]:
        if (unit := noted_bundle(note.content).unit) != loaded.money.unit:
            raise BundleError(
                f"counts money in {loaded.money.unit}, and the ledger in {unit}: its money would change.",
                file=loaded.path,
                way_out=f"Train it on a campaign whose unit is {unit}, or use another ledger.",
            )


def is_capped(caps: Caps) -> bool:
    """Whether there is a cap of all that the bundle in service spends."""
    return caps.total is not None or caps.day is not None or POLICY in caps.arms


def check_held(loaded: LoadedBundle, caps: Caps) -> None:
    """Raise OutlayError if a bundle was trained to be held while serving, and no cap is one of all that it spends."""
    if any(loaded.bundle.campaign.held) and not is_capped(caps):
        raise OutlayError(
            f"there is no cap, and the bundle {loaded.bundle.id} was trained to be held by one: it keeps no margin "
            "below its limit (hold = serving).",
            where="caps",
            way_out="Give --cap, total or day in [caps], or POST /v1/admin/caps.",
        )


def _check_names(loaded: LoadedBundle, earlier: NotedBundle) -> None:
    """Raise OutlayError if an action of an earlier bundle has another name now: the ledger holds their numbers."""
    before, now = ActionNames.of_file(earlier.campaign), loaded.bundle.names
    if before.holds == now.holds == "amounts":  # numbers that say what was given, in whatever bins
        return
    changed: list[Given] = [
        each for each in before.labels if each in now.labels and before.value(each) != now.value(each)
    ]
    changed += [
        before.given(value)
        for value in before.values
        if value in now.values and now.given(value) != before.given(value)
    ]
    if changed or "amounts" in (before.holds, now.holds):
        way_out = "Keep the amount of every name, and train again"
        if not (before.amounts or now.amounts):
            new = [each for each in now.labels if each not in before.labels]
            none = f", none = {toml_value(before.nothing)} under [campaign]" if 0.0 in before.values else ""
            way_out = f"Write actions = {toml_value([*before.labels, *new])} under [log]{none}, and train again"
        told = f"{all_named(list(dict.fromkeys(changed)))} would be read as other actions"
        raise OutlayError(
            f"names other actions than the bundle {earlier.id}, which the ledger of this campaign knows: "
            f"{told if changed else 'one has names, and the other amounts'}.",
            file=loaded.path,
            where="log.actions",
            way_out=f"{way_out}; or give the campaign another name (campaign.name).",
        )


def mixture_words(loaded: LoadedBundle, *, capped: bool) -> str:
    """Say which of a bundle's two mixtures is served; empty if it has one."""
    if loaded.capped is loaded.decider:
        return ""
    (less, full), unit = loaded.spent, f"{loaded.money.unit} per {loaded.budget.per}"
    if capped:
        return (
            "behind a cap users get the mixture that keeps no margin below the limit (measured at "
            f'{four(full)} {unit}); the one that keeps a margin ({four(less)}) is served with hold = "certified" in '
            "serve.toml. With a [plan] the money lasts as long as the days."
        )
    return f"without a cap users get the mixture that keeps a margin (measured at {four(less)} {unit})."


def register_bundle(ledger: Ledger, loaded: LoadedBundle, config: ServeConfig, now: int) -> list[str]:
    """Note in the ledger which bundle and settings decide from now on. Return what the operator should know.

    Args:
        ledger: knows the campaign.
        loaded: about to go into service.
        config: settings of the server.
        now: epoch ms.

    Raises:
        OutlayError: if the settings contradict what the ledger holds.
        LedgerError: if it cannot be reached or written.
    """
    check_money(ledger, loaded, config)
    written = ledger.notes(loaded.campaign, SETTINGS)
    caps = ledger.totals(loaded.campaign).caps
    if config.plan is not None and caps.total is None:
        raise OutlayError(
            "there is no total cap, so there is no money to plan.",
            file=config.path,
            where="plan",
            way_out="Give --cap, total in [caps], or POST /v1/admin/caps.",
        )
    check_held(loaded, caps)
    for note in ledger.notes(loaded.campaign, BUNDLE):
        _check_names(loaded, noted_bundle(note.content))
    ledger.note(loaded.campaign, bundle_note(loaded, BUNDLE, now))
    settings = config.model_dump_json()
    if not written or written[-1].content != settings:
        key = f"{now:012x}{secrets.token_hex(4)}"
        ledger.note(loaded.campaign, Note(kind=SETTINGS, key=key, ts=now, content=settings))
    if config.plan is None:  # a plan solves its own mixture
        return [words] if (words := mixture_words(loaded, capped=is_capped(caps))) else []
    if 0 <= (day := Moment.of(now, config.zone).day - config.plan.first) < config.plan.days:
        return []
    when = f"begins on {config.plan.start}: until then" if day < 0 else "is over: from now on"
    return [f"the plan {when} everyone gets the cheapest policy."]


def bundle_note(loaded: LoadedBundle, kind: str, now: int) -> Note:
    """Return the note by which the ledger knows a bundle."""
    manifest = loaded.bundle.manifest
    content = {key: value for key, value in manifest.content().items() if key not in LEFT_OUT} | {"id": manifest.id}
    return Note(kind=kind, key=loaded.bundle.id, ts=now, content=json.dumps(content, ensure_ascii=False))


def _amounts(bundle: Bundle, config: ServeConfig, money: Money, none: float) -> tuple[int, ...]:
    """Return the minor units that each action reserves: those of serve.toml, else those of the bundle.

    Raises:
        OutlayError: if they are not known, or the log of the bundle has shown larger costs.
    """
    actions, manifest, names = bundle.actions.tolist(), bundle.manifest, bundle.campaign.names
    if config.reserve is not None:
        file, amounts = config.path, _stated(actions, names, config.reserve, config.path)
    elif manifest.reserve is not None:
        file, amounts = bundle.folder, list(manifest.reserve)
        observed = not bundle.campaign.budgets[bundle.campaign.money].stated
        if observed and (free := unpriced(actions, amounts, none)):
            raise OutlayError(unpriced_words(map(names.given, free)), file=file, way_out=WAY_OUT)
    else:
        raise OutlayError(
            "does not say how much money to reserve for each action.",
            file=bundle.folder,
            way_out="Export it again from its run, or give a table [reserve] in serve.toml: "
            + ", ".join(f"{toml_value(as_text(names.given(action)))} = {action:g}" for action in actions[:3])
            + " …",
        )
    largest = manifest.largest_costs
    if largest is not None and (low := too_low(actions, amounts, largest, none, names)) is not None:
        raise OutlayError(low.words, file=file, where="reserve", way_out=TOO_LOW)
    return tuple(map(money.reserve, amounts))


def every_action(bundle: Bundle) -> str:
    """The actions of a bundle in an error."""
    return f"[{all_named([bundle.names.given(action) for action in bundle.actions.tolist()], len(bundle.actions))}]"


def _stated(
    actions: Sequence[float], names: ActionNames, stated: Mapping[str, float], file: Path | None
) -> list[float]:
    """Return `[K]` the amounts of `[reserve]`. Raises OutlayError if an action has none, or one is not an action."""
    amounts: dict[int, float] = {}
    if (twice := names.twice(stated)) is not None:
        raise OutlayError(twice, file=file, where="reserve", way_out="Keep one of them.")
    for text, amount in stated.items():
        value = names.value(text)
        near = np.isclose(actions, np.nan if value is None else value, rtol=SAME_ACTION, atol=0)
        if not near.any():
            raise OutlayError(
                f"is not one of the actions [{all_named([names.given(action) for action in actions], len(actions))}].",
                file=file,
                where=f"reserve.{text}",
                way_out="Fix the key.",
            )
        amounts[int(near.argmax())] = amount
    absent = [named(names.given(action)) for i, action in enumerate(actions) if i not in amounts]
    if absent:
        raise OutlayError(
            f"has no amount for the action {absent[0]}.",
            file=file,
            where="reserve",
            way_out="Give an amount for every action; 0 for what is free.",
        )
    return [amounts[i] for i in range(len(actions))]


def _warm_up(loaded: LoadedBundle) -> None:
    """Decide one row of missing values, and many: whatever fails then, fails before the bundle goes into service."""
    summaries = loaded.summaries
    schema = loaded.request_schema
    row = RowEncoder(schema).encode(dict.fromkeys(schema.names))
    if summaries is not None:
        row = summaries.extended(row, summaries.recorded(summaries.values([[]], 0))[0])
    for count in (1, 64):
        requests = [EncodedRequest(f"warm-up-{i}", str(i), row) for i in range(count)]
        served = (loaded.decider, loaded.capped)
        reasons = {choice.reason for decider in served for choice in decider.decide(requests, "warm-up")}
        if not reasons <= {"policy", "random"}:
            raise BundleError(
                "cannot decide a row of missing values.", file=loaded.path, way_out="Export it again from its run."
            )
