"""A campaign in the ledger's records: its bundles and settings over time, and the kinds of outcomes that it accepts.

    declared = redeemed, refund  ∪  outcomes of serve.toml  ∪  columns of reward, terminal and the costs but the money's

Kinds are those that move money, those that serve.toml names, and those a campaign needs. A kind becomes a column of the
exported log, and column names ignore case. So a kind that was not declared, perhaps misspelt, is refused when it
arrives, and two kinds that differ only by case are one.
"""

from __future__ import annotations

import copy
import difflib
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from outlay.core.actions import ActionNames, Given
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.serve.config import MONEY_KINDS, ServeConfig
from outlay.serve.deciding.decider import value_refusal
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, BUNDLE, NotedBundle, noted_bundle
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.money import Money

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROLES = ("user", "time", "action", "propensity", "forced", "eligible")


def declared_outcome_kinds(ledger: Ledger, campaign: str, named: Iterable[str]) -> tuple[str, ...]:
    """Return all kinds that are accepted, those that move money first.

    Args:
        ledger: knows every bundle that was ever in service: outcomes of an earlier one may still arrive.
        campaign: its name.
        named: kinds named by the settings and by the test that is served.

    Raises:
        LedgerError: if the ledger cannot be read.
    """
    notes = [note for kind in (BUNDLE, ARM_BUNDLE) for note in ledger.notes(campaign, kind)]
    bundles = [noted_bundle(note.content).campaign for note in notes]
    kinds = [*MONEY_KINDS, *named, *(kind for each in bundles for kind in campaign_outcome_kinds(each))]
    return tuple(_unique(kinds))


def money_budget(campaign: Mapping[str, Any]) -> dict[str, Any]:
    """Return the budget that the ledger pays, of the content of a campaign file."""
    budgets: list[dict[str, Any]] = campaign["budget"]
    return next((budget for budget in budgets if budget.get("money")), budgets[0])


def campaign_outcome_kinds(campaign: Mapping[str, Any]) -> list[str]:
    """Return the kinds that a campaign's reward, end and costs are made of, in the order in which they are found.

    Args:
        campaign: the content of a campaign file.
    """
    import duckdb  # not before it is needed: the server's garbage collector leaves alone what was loaded at its start

    log, budgets = campaign["log"], campaign["budget"]
    money = money_budget(campaign)
    features = log["features"]
    known = [*features.get("categorical", ()), *features.get("numeric", ()), *(log.get(role) for role in ROLES)]
    wanted = [log["reward"], log.get("terminal"), *(each["cost"] for each in budgets if each is not money)]
    with closing(duckdb.connect()) as connection:
        taken = {name.casefold() for text in known if text for name in (text, *expression_columns(connection, text))}
        found = [name for text in wanted if isinstance(text, str) for name in expression_columns(connection, text)]
    return [name for name in _unique(found) if name.casefold() not in taken]


def nearest_outcome_kind(kind: str, declared: Iterable[str]) -> str | None:
    """Return the declared kind that is spelt most like it, or None."""
    folded = {each.casefold(): each for each in declared}
    near = difflib.get_close_matches(kind.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def _unique(names: Iterable[str]) -> Iterable[str]:
    """Return the first of those that differ only by case, as SQL reads them."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return found.values()


def expression_columns(connection: DuckDBPyConnection, text: str) -> list[str]:
    """Return the columns that an SQL expression names; none if it is not an expression."""
    [(tree,)] = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]).fetchall()
    return list(_named(json.loads(tree)))


def _named(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield str(tree["column_names"][-1])
        for part in tree.values():
            yield from _named(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _named(part)


@dataclass(frozen=True)
class PossibleActions:
    """The actions that a bundle can give under some settings. K actions.

    Attributes:
        salts: salts of the pool's members, in order.
        actions: `[K]` values.
        amounts: `[K]` minor units that each reserves; None for none, which needs no room.
        may: `[K]` whether the limits on values allow it.
        names: what they are called.
    """

    salts: tuple[str, ...]
    actions: tuple[float, ...]
    amounts: tuple[int | None, ...]
    may: tuple[bool, ...]
    names: ActionNames = field(default_factory=ActionNames)

    def fits(self, room: int | None) -> tuple[bool, ...]:
        """Return `[K]` whether the guards allow each action, given `DecisionRow.room`."""
        if room is None:
            return self.may
        return tuple(
            may and (amount is None or amount <= room) for may, amount in zip(self.may, self.amounts, strict=True)
        )


def _with_earlier_actions(newest: NotedBundle, earlier: Iterable[NotedBundle]) -> dict[str, Any]:
    """The newest bundle's campaign file with all actions that bundles of the campaign gave, and what they cost."""
    content = copy.deepcopy(newest.campaign)
    log, budgets = content["log"], {budget["name"]: budget for budget in content["budget"]}
    if not (own_names := ActionNames.of_file(content)).labels:
        return content
    money, reserve = money_budget(content), dict[Given, float]()
    for noted in [newest] if own_names.holds == "amounts" else [*earlier, newest]:
        names = ActionNames.of_file(noted.campaign)
        reserve |= zip(map(names.given, noted.actions), noted.reserve or (), strict=False)
        new = [place for place, label in enumerate(names.labels) if label not in log["actions"]]
        log["actions"] = [*log["actions"], *(names.labels[place] for place in new)]
        if log.get("amounts"):
            log["amounts"] = [*log["amounts"], *(names.values[place] for place in new)]
        for budget in noted.campaign["budget"]:
            own = budgets.get(budget["name"], {})
            if isinstance(own.get("cost"), dict) and isinstance(budget["cost"], dict):
                own["cost"] = budget["cost"] | own["cost"]
    if newest.reserve is not None and (money.get("reserve") is not None or isinstance(money["cost"], dict)):
        money["reserve"] = reserve
    return content


class CampaignHistory:
    """A campaign's bundles and settings, read once from the ledger.

    Attributes:
        campaign: its name.
        bundle: the one that was put into service last.
        settings: the settings in force now.
        content: of the newest bundle's campaign file, at the end of its actions those that only earlier bundles had.
        kinds: kinds of outcomes in the expressions for the bundle's reward, end and costs.
        money: the currency.
        categorical: features that are categorical in every bundle that has them.
        numeric: features that are numeric in at least one bundle.
        summaries: those of them that summarise the user's past for `bundle` (`[log.history]`).
    """

    def __init__(self, ledger: Ledger, campaign: str) -> None:
        self.campaign = campaign
        settings = ledger.notes(campaign, "settings")
        bundles = ledger.notes(campaign, "bundle")
        if not settings or not bundles:
            raise LedgerError(
                f"has no record of the bundles and settings of campaign {campaign!r}: no server has served it.",
                way_out="Give a ledger that outlay serve wrote.",
            )
        self._since = [note.ts for note in settings]
        self._settings = [ServeConfig.parse(msgspec.json.decode(note.content)) for note in settings]
        every = [*bundles, *ledger.notes(campaign, "arm bundle")]
        self._bundles = {note.key: noted_bundle(note.content) for note in every}
        self.bundle = self._bundles[bundles[-1].key]
        self.settings = self._settings[-1]
        self.money = Money(self.bundle.unit, self.settings.minor)
        features = [bundle.features for bundle in self._bundles.values()]
        self.numeric = list(dict.fromkeys(name for each in features for name in each.numeric))
        texts = dict.fromkeys(name for each in features for name in each.categorical)
        self.categorical = [name for name in texts if name not in self.numeric]
        self.content = _with_earlier_actions(self.bundle, self._bundles.values())
        self.kinds = campaign_outcome_kinds(self.bundle.campaign)
        self._terms = cache(self._find)
        newest = self._summarised(self.bundle.id)
        self.summaries = () if newest is None else newest[0].names
        self._alike = {key: self._summarised(key) == newest for key in self._bundles}

    @property
    def wait_days(self) -> int:
        """Days after a decision in which its outcomes count: `wait_days`, or the longest of `log.delays` if longer."""
        delays: Mapping[str, int] = self.bundle.campaign["log"].get("delays", {})
        return max(self.settings.wait_days, *delays.values(), 0)

    def salts(self, bundle: str) -> tuple[str, ...]:
        """Return the salts of all policies that a bundle may serve. Raises as `terms`."""
        return self._terms(bundle, 0).salts

    def unlike(self, bundle: str) -> Collection[str]:
        """Return the summaries that a decision of this bundle does not have: its own say something else."""
        return () if self._alike.get(bundle, False) else self.summaries

    def terms(self, bundle: str, ts: int) -> PossibleActions:
        """Return the possible actions of a bundle at a time (epoch ms).

        Raises:
            LedgerError: if the ledger has no record of the bundle.
        """
        return self._terms(bundle, max(bisect_right(self._since, ts) - 1, 0))

    def _summarised(self, bundle: str) -> tuple[History, dict[str, str]] | None:
        """Return what a bundle summarises of the past: the history, and the SQL of reward and costs."""
        content = self._bundles[bundle].campaign
        if content["log"].get("history") is None:
            return None
        campaign = Campaign.parse({**content, "log": {**content["log"], "source": "unknown"}}, Path(bundle))
        history = History.of(campaign)
        assert history is not None
        return history, {"reward": campaign.log.reward} | {each.name: str(each.cost) for each in campaign.budgets}

    def _find(self, bundle: str, number: int) -> PossibleActions:
        noted, settings = self._bundles.get(bundle), self._settings[number]
        if noted is None:
            raise LedgerError(f"has decisions of bundle {bundle}, but no record of the bundle.")
        none, reserve, names = noted.none or 0.0, noted.reserve, ActionNames.of_file(noted.campaign)
        if settings.reserve is not None:
            known = names.numbered(settings.reserve)
            reserve = tuple(known[min(known, key=lambda value: abs(value - action))] for action in noted.actions)
        assert reserve is not None  # no server begins without
        return PossibleActions(
            salts=noted.salts,
            actions=noted.actions,
            amounts=tuple(
                None if action == none else self.money.reserve(amount)
                for action, amount in zip(noted.actions, reserve, strict=True)
            ),
            may=tuple(value_refusal(settings.values, action, none, names) is None for action in noted.actions),
            names=names,
        )
