"""The bundles and settings of a campaign over time, from the ledger's records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.choice import value_refusal
from outlay.serve.deciding.outcome_kinds import campaign_outcome_kinds
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.money import Money


@dataclass(frozen=True)
class PossibleActions:
    """The actions that a bundle can give under some settings. K actions.

    Attributes:
        salts: salts of the pool's members, in order.
        actions: `[K]` values.
        amounts: `[K]` minor units that each reserves; None for none, which needs no room.
        may: `[K]` whether the limits on values allow it.
    """

    salts: tuple[str, ...]
    actions: tuple[float, ...]
    amounts: tuple[int | None, ...]
    may: tuple[bool, ...]

    def fits(self, room: int | None) -> tuple[bool, ...]:
        """Return `[K]` whether the guards allow each action, given `DecisionRow.room`."""
        if room is None:
            return self.may
        return tuple(
            may and (amount is None or amount <= room) for may, amount in zip(self.may, self.amounts, strict=True)
        )


class CampaignHistory:
    """A campaign's bundles and settings, read once from the ledger.

    Attributes:
        campaign: its name.
        bundle: the manifest of the bundle that was put into service last.
        settings: the settings in force now.
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
        self._bundles: dict[str, dict[str, Any]] = {note.key: msgspec.json.decode(note.content) for note in every}
        self.bundle = self._bundles[bundles[-1].key]
        self.settings = self._settings[-1]
        self.money = Money(str(self.bundle["unit"]), self.settings.minor)
        features = [bundle["features"] for bundle in self._bundles.values()]
        self.numeric = list(dict.fromkeys(name for each in features for name in each["numeric"]))
        texts = dict.fromkeys(name for each in features for name in each["categorical"])
        self.categorical = [name for name in texts if name not in self.numeric]
        self.kinds = campaign_outcome_kinds(self.bundle["campaign"])
        self._terms = cache(self._find)
        newest = self._summarised(self.bundle["id"])
        self.summaries = () if newest is None else newest[0].names
        self._alike = {key: self._summarised(key) == newest for key in self._bundles}

    @property
    def wait_days(self) -> int:
        """Days after a decision in which its outcomes count: `wait_days`, or the longest of `log.delays` if longer."""
        delays: Mapping[str, int] = self.bundle["campaign"]["log"].get("delays", {})
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
        content = self._bundles[bundle]["campaign"]
        if content["log"].get("history") is None:
            return None
        campaign = Campaign.parse({**content, "log": {**content["log"], "source": "unknown"}}, Path(bundle))
        history = History.of(campaign)
        assert history is not None
        return history, {"reward": campaign.log.reward} | {each.name: each.cost for each in campaign.budgets}

    def _find(self, bundle: str, number: int) -> PossibleActions:
        manifest, settings = self._bundles.get(bundle), self._settings[number]
        if manifest is None:
            raise LedgerError(f"has decisions of bundle {bundle}, but no record of the bundle.")
        none = float(manifest["none"] or 0.0)
        pool = (manifest.get("frontier") or manifest)["members"]
        actions = tuple(map(float, manifest["actions"]))
        reserve = manifest["reserve"]
        if settings.reserve is not None:
            known = {float(text): amount for text, amount in settings.reserve.items()}
            reserve = [known[min(known, key=lambda value: abs(value - action))] for action in actions]
        return PossibleActions(
            salts=tuple(str(member["salt"]) for member in pool),
            actions=actions,
            amounts=tuple(
                None if action == none else self.money.reserve(amount)
                for action, amount in zip(actions, reserve, strict=True)
            ),
            may=tuple(value_refusal(settings.values, action, none) is None for action in actions),
        )
