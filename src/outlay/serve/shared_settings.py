"""Settings that decide over money belong to the ledger: a server that starts brings them in, or is compared with them.

A campaign that is new to the ledger gets its caps, settings and bundle from the server that starts. One that is not new
keeps the ledger's: a start with others is refused, unless it says that it changes them for all servers.

Every setting of serve.toml is shared but `ledger_seconds` and `[limits]`, which are a server's own. Caps may have been
changed since by an administrator, and what is not given stays: a cap differs if it is given, and is neither the
ledger's nor the one that the ledger's servers were started with.

All of it is one transaction: a start that is refused has changed nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from outlay.core.errors import OutlayError
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.deciding.loaded_bundle import LoadedBundle, check_money, register_bundle
from outlay.serve.experiment import ServedExperiment, check_experiment, other_live_experiments, record_experiment
from outlay.serve.ledger.caps import CampaignConfig, Caps, Totals
from outlay.serve.ledger.ledger import Ledger

OWN = {"ledger_seconds", "limits"}  # settings that each server has for itself
CAPS = ("caps.total", "caps.day", "caps.policy", "random.cap")
NOTICE = 60_000  # ms before midnight from which the next day's coverage may not grow: servers check once a second


def agree_settings(
    ledger: Ledger,
    loaded: LoadedBundle,
    config: ServeConfig,
    trial: ServedExperiment | None = None,
    clock: Clock | None = None,
    *,
    change: bool = False,
) -> list[str]:
    """Bring settings, caps and bundle into the ledger, or compare them with it. Return what to tell the operator.

    Args:
        ledger: may not know the campaign.
        loaded: the bundle about to be served.
        config: settings of the server.
        trial: the A/B test, or None.
        clock: the server's clock; None: the ledger's.
        change: whether the settings and the bundle become those of all servers.

    Raises:
        LedgerError: if the ledger cannot be reached or written.
        OutlayError: if the settings, the bundle or the test differ from the ledger's.
    """
    clock = clock or Clock(config.timezone, ledger.clock.seconds)
    with ledger.together(loaded.campaign):
        day = clock.day(now := clock.now())
        soon = clock.day(now + NOTICE)
        check_money(ledger, loaded, config)
        budgets = trial.budgets if trial is not None and check_experiment(ledger, trial, soon) else {}
        notices = _agree(ledger, loaded, config, budgets, change=change)
        notices += register_bundle(ledger, loaded, config, now)
        if trial is not None:
            record_experiment(ledger, trial, now)
            notices += _experiment_notices(trial, ledger.totals(loaded.campaign), loaded, config, day)
        for other in other_live_experiments(ledger, loaded.campaign, None if trial is None else trial.name, day):
            notices.append(
                f"the test {other.meta.name!r} of this ledger is not served: its users are treated like all others."
            )
    return notices


def differences(held: str, config: ServeConfig) -> list[str]:
    """Return how settings other than caps differ from the ledger's, in words. Empty if the ledger holds none.

    Args:
        held: the settings that the ledger holds, as JSON.
        config: settings of the server.
    """
    if not held:
        return []
    old, new = _flat(held), _flat(_shared(config))
    changed = [
        f"{name}: the ledger has {_in_words(old[name])}, and this server {_in_words(new[name])}"
        for name in sorted(new)
        if name not in CAPS and old[name] != new[name]
    ]
    unknown = sorted(name for name in old.keys() - new.keys() if old[name] is not None)
    return changed + [
        f"{name}: the ledger has {_in_words(old[name])}, and this version of outlay does not know it"
        for name in unknown
    ]


def _agree(
    ledger: Ledger, loaded: LoadedBundle, config: ServeConfig, budgets: Mapping[str, int], *, change: bool
) -> list[str]:
    """Bring in caps, settings and bundle, and the budgets of new arms, in one transaction. Return notices."""
    own_caps, notices = _caps(loaded, config), list[str]()

    def agreed(kept: CampaignConfig | None) -> CampaignConfig:
        notices.clear()
        own = CampaignConfig(caps=own_caps, settings=_shared(config), bundle=loaded.bundle.id, path=str(loaded.path))
        if kept is None:
            _check_budgets(budgets, own_caps.total, loaded)
            if own_caps.total is None:
                notices.append("there is no total cap: nothing limits the spend. Give --cap.")
            return replace(own, caps=replace(own_caps, arms={**own_caps.arms, **budgets}))
        caps, changed_caps = _with_new_caps(kept, own_caps, config)
        changes = [*differences(kept.settings, config), *changed_caps]
        if kept.bundle not in ("", loaded.bundle.id):
            changes.append(f"bundle: the ledger has {kept.bundle} ({kept.path}), and this server {loaded.bundle.id}")
        if changes and not change:
            raise OutlayError(
                f"differ from those of the ledger's servers. {'; '.join(changes)}.",
                file=config.path,
                where="settings",
                way_out="Start with the ledger's settings, or change them for all its servers with --change-settings; "
                "the others then have to be started again with the same.",
            )
        notices.extend(f"changed for all servers of the ledger: {line}." for line in changes)
        _check_budgets(budgets, caps.total, loaded)
        caps = replace(own_caps, total=caps.total, day=caps.day, arms={**caps.arms, **budgets})
        notices.extend(_cap_notices(caps, own_caps, loaded))
        settings = _shared(config, kept.settings)
        if kept.settings and _flat(kept.settings) == _flat(settings):
            settings = kept.settings  # without keys that servers of an older outlay would not know
        return replace(own, caps=caps, settings=settings)

    ledger.change_config(loaded.campaign, agreed)
    return notices


def _with_new_caps(kept: CampaignConfig, own_caps: Caps, config: ServeConfig) -> tuple[Caps, list[str]]:
    """Return the ledger's caps with those that are given and new, and what that changes, in words."""
    caps, changes = kept.caps, list[str]()
    old, new = _flat(kept.settings) if kept.settings else {}, _flat(_shared(config))
    for name in CAPS if kept.settings else ():
        if new[name] is None or new[name] == old.get(name):
            continue
        key = {"caps.policy": POLICY, "random.cap": RANDOM}.get(name)
        part = name.removeprefix("caps.")
        amount = own_caps.arms[key] if key else getattr(own_caps, part)
        if (caps.arms.get(key) if key else getattr(caps, part)) == amount:
            continue
        changes.append(
            f"{name}: this server was given {new[name]:g}, which is neither the ledger's cap nor the one before"
        )
        caps = replace(caps, arms={**caps.arms, key: amount}) if key else replace(caps, **{part: amount})
    return caps, changes


def _cap_notices(caps: Caps, own_caps: Caps, loaded: LoadedBundle) -> list[str]:
    own = {name: caps.arms[name] for name in (POLICY, RANDOM) if name in caps.arms}
    if (caps.total, caps.day, own) == (own_caps.total, own_caps.day, dict(own_caps.arms)):
        return []
    total = "none" if caps.total is None else _money(loaded, caps.total)
    return [f"the ledger keeps the caps that it has (total {total}). Change them with POST /v1/admin/caps."]


def _check_budgets(budgets: Mapping[str, int], total: int | None, loaded: LoadedBundle) -> None:
    """Refuse arms that together may spend more than there is: an arm that runs out of money biases the lift."""
    together = sum(budgets.values())
    if total is not None and together > total:
        raise OutlayError(
            f"is {_money(loaded, total)}, and the arms of the new test may spend {_money(loaded, together)} together: "
            "one arm could use up the money of another.",
            where="the total cap",
            way_out="Give the server a larger --cap (POST /v1/admin/caps if the ledger knows the campaign), or plan "
            "the test with smaller budgets.",
        )


def _money(loaded: LoadedBundle, amount: int) -> str:
    return f"{loaded.money.units(amount):,.10g} {loaded.money.unit}"


def _experiment_notices(
    trial: ServedExperiment, totals: Totals, loaded: LoadedBundle, config: ServeConfig, day: int
) -> list[str]:
    """Return what the operator should know of the test."""
    caps = totals.caps
    meta, today = trial.experiment.meta, day - trial.first
    if today < 0:
        when = f"begins on {meta.start}: until then nobody is in it"
    elif day >= trial.end:
        when = "is over: nobody is in it any more"
    else:
        when = f"is on day {today} of {meta.days}, with a coverage of {trial.experiment.coverage(today):g}"
    notices = [f"the test {trial.name!r} ({', '.join(arm.name for arm in trial.arms)}) {when}."]
    together = sum(caps.arms.get(name, 0) for name in trial.budgets)
    if caps.total is not None and together > caps.total:
        notices.append(
            f"the arms may spend {_money(loaded, together)} together, and the total cap is "
            f"{_money(loaded, caps.total)}: one arm may use up the money of another."
        )
    elif caps.total is not None and day < trial.end and _most(trial, totals, config) > caps.total:
        notices.append(
            f"users outside the test may use up money of its arms. The arms may spend {_money(loaded, together)} "
            f"together, and the total cap of {_money(loaded, caps.total)} has no room beside them for what was spent "
            "before and what the others may spend (caps.policy, random.cap)."
        )
    return notices


def _most(trial: ServedExperiment, totals: Totals, config: ServeConfig) -> float:
    """Return the minor units that would be spent if all in and outside the test spent what they may; maybe inf."""
    spenders = {*trial.budgets, POLICY, *([RANDOM] if config.random.share > 0 else [])}
    most = {name: totals.caps.arms.get(name, math.inf) for name in spenders}
    used = {name: tally.reserved + tally.settled for name, tally in totals.arms.items()}
    return sum(max(most.get(name, 0), used.get(name, 0)) for name in most.keys() | used.keys())


def _caps(loaded: LoadedBundle, config: ServeConfig) -> Caps:
    def exact(amount: float | None) -> int | None:
        return None if amount is None else loaded.money.exact(amount)

    arms = {POLICY: exact(config.caps.policy), RANDOM: exact(config.random.cap)}
    return Caps(
        total=exact(config.caps.total),
        day=exact(config.caps.day),
        arms={name: cap for name, cap in arms.items() if cap is not None},
        user_amount=exact(config.user.amount),
        user_offers=config.user.decisions,
        user_day_amount=exact(config.user.amount_per_day),
        user_day_offers=config.user.decisions_per_day,
    )


def _shared(config: ServeConfig, held: str = "") -> str:
    """Return the settings that the ledger is to hold, as JSON; caps that are not given stay as they were held."""
    settings = config.model_dump(mode="json", exclude=OWN)
    for section, _, key in (name.partition(".") for name in CAPS if held):
        if settings[section][key] is None:
            settings[section][key] = json.loads(held)[section][key]
    return json.dumps(settings, sort_keys=True)


def _flat(settings: str) -> dict[str, Any]:
    """Return the settings by full name; keys that an earlier outlay did not know have their defaults."""
    held, default = json.loads(settings), ServeConfig().model_dump(mode="json", exclude=OWN)
    with suppress(OutlayError):  # a newer outlay may have written what is not valid here: it stays as it is
        held = ServeConfig.parse(held).model_dump(mode="json", exclude=OWN)
    return dict(_leaves(default, "")) | dict(_leaves(held, ""))


def _leaves(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and name not in ("reserve", "plan"):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _in_words(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
