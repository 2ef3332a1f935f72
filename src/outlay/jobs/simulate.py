"""`outlay simulate`: a campaign whose truth is known.

    path = simulate("habit", "habit/", users=200_000)      # campaign.toml of the folder

The campaigns are listed in `simulators/__init__.py`.
"""

from __future__ import annotations

from pathlib import Path

from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import MANIFEST, as_path, read_manifest
from outlay.core.version import __version__
from outlay.simulators import find
from outlay.simulators.simulator import Held
from outlay.simulators.write import check_unchanged, write_campaign


def simulate(
    campaign: str,
    out: str | Path,
    *,
    users: int = 200_000,
    days: int | None = None,
    seed: int = 0,
    held: Held = None,
    overwrite: bool = False,
    **options: float | None,
) -> Path:
    """Write a simulated campaign: log, campaign file, truth and states.

    Args:
        campaign: `habit` (the paper's effects; looking ahead gains nothing), `thirty-day` (looking ahead pays), `city`
            (rich states: no state is met twice) or `wide` (the city's people behind many categorical fields).
        out: the folder to write; the same campaign is written again, unless somebody changed it or added files.
        users: number of users.
        days: days of log per user; default 7, and 30 for `thirty-day`.
        seed: of the random numbers; the same arguments give the same campaign.
        held: two of the campaign's actions. Each user keeps one of them, drawn with equal probability, for all days:
            the experiment that shows the effect of an incentive held for a whole window.
        overwrite: replace another simulated campaign, which nobody changed.
        options: the campaign's own. `fields`, `values`: of `wide`: number of categorical fields (default 50), and of
            distinct values over all fields (default 5,000). `slow`: of `city` and `wide`: habits that take weeks
            instead of days. Of `city`: `money`, the reward is what is spent on an active day, log-normal; `hidden`, a
            part of the state is not in the log; `rhythm`, weekdays differ, and activity falls over four weeks;
            `sparse`, no rows of days without a coupon and without activity; `late`, 30% of the users join after the
            first day; `discount`, γ per day (default 0.9, and 0.95 with `slow`).

    Returns:
        The path of campaign.toml in the folder.

    Raises:
        OutlayError: if the campaign is unknown, a number is impossible, an option is not one of the campaign's, or
            `held` is not two of its actions.
        FolderError: if `out` is a folder of another kind, holds a file that was added or changed since, or another
            campaign that is not to be replaced.
    """
    simulator = find(campaign, **options)
    days = simulator.log_days if days is None else days
    for name, value, least in (("users", users, 1), ("days", days, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or value < least:
            raise OutlayError(f"is {value}.", where=name, way_out=f"Give a whole number, {least} or more.")
    if held is not None:
        held = _pair(held, simulator.coupons.tolist())
    out = as_path(out, "out", "the path to write to")
    check_unchanged(out)
    manifest = {
        "campaign": campaign,
        "users": users,
        "days": days,
        "seed": seed,
        "held": None if held is None else list(held),
        "options": {name: value for name, value in sorted(options.items()) if value},
        "features": simulator.num_features,
        "outlay": __version__,
    }
    if not overwrite and (out / MANIFEST).exists() and not manifest.items() <= read_manifest(out, "campaign").items():
        way_out = "Give another --out, or --overwrite to replace it."
        raise FolderError("holds another campaign, which would be deleted.", file=out, way_out=way_out)
    return write_campaign(
        out,
        text=simulator.text(days, held),
        log=simulator.generate(users, days, seed, held=held),
        truth=simulator.write_truth,
        manifest=manifest,
    )


def _pair(held: tuple[float, ...], coupons: list[float]) -> tuple[float, float]:
    """The two held coupons, ascending."""
    choice = f"Give two different values of: {', '.join(f'{c:g}' for c in coupons)}."
    for value in held:
        if value not in coupons:
            raise OutlayError(f"{value:g} is not an action of this campaign.", where="held", way_out=choice)
    if len(held) != 2 or held[0] == held[1]:
        raise OutlayError(f"is {', '.join(f'{v:g}' for v in held)}.", where="held", way_out=choice)
    low, high = sorted(float(value) for value in held)
    return low, high
