"""One look at the certify users for the whole frontier of a run: every mixture and every budget is certified by it.

    found = certify_frontier(run, run.data(), run.campaign)
    weights = found.weights_of(bundle)                      # None: a member is not of this frontier
    certificate = found.band.certificate(weights, campaign)

All policies of RUN/frontier are measured there, once; what was measured stays in RUN/frontier/band.npz, without a line
about any user. Whoever asks again, at this confidence or another, reads it, and it stays the same look.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import digest
from outlay.bundles.read import load_bundle
from outlay.bundles.write import write_bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import new_file
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.band import Band
from outlay.estimators.certificate import Certificate
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.reach import largest
from outlay.estimators.units import missing
from outlay.jobs.checks import Checks
from outlay.jobs.choose import needed_days
from outlay.jobs.frontier_folder import Stored
from outlay.jobs.looks import look
from outlay.jobs.measure import Measure
from outlay.jobs.run import Run
from outlay.jobs.side_by_side import Told, single_steps
from outlay.jobs.subject import served
from outlay.jobs.window import claimed, window_of

BAND = "band.npz"


@dataclass(frozen=True)
class Certified:
    """The band of a run's frontier, and the look that it cost.

    Attributes:
        band: bounds of the L policies at 1 − `alpha`.
        look: which look at the certify users it was.
        alpha: what that look may spend.
        salts: `[L]` of the policies, by which bundles name their members.
    """

    band: Band
    look: int
    alpha: float
    salts: tuple[str, ...]

    def weights_of(self, bundle: Bundle) -> NDArray[np.float64] | None:
        """`[L]` weights of a bundle's members; None where one is not of this frontier (a constant action, say)."""
        place = {salt: i for i, salt in enumerate(self.salts)}
        if any(member.salt not in place for member in bundle.members):
            return None
        weights = np.zeros(len(self.salts))
        weights[[place[member.salt] for member in bundle.members]] = bundle.weights
        return weights

    def record(self, certificate: Certificate) -> dict[str, Any]:
        """A certificate from this band as files have it: with its look and α."""
        return {**asdict(certificate), "look": self.look, "alpha": self.alpha}


def certify_frontier(
    run: Run,
    data: Transitions,
    campaign: Campaign,
    report: Callable[[float, str], None] | None = None,
    *,
    refused: str | None = None,
) -> Certified:
    """The band of a run's frontier: a look at the certify users, the first time.

    Args:
        run: with a frontier.
        data: its transitions.
        campaign: budgets, and the confidence of all looks together.
        report: called with the fraction done and what is being done.
        refused: why nothing that is measured is to be believed, where somebody knows it already.

    Raises:
        FolderError: if the run has no frontier, or it or its band is damaged.
    """
    if (found := certified(run, data, campaign)) is not None:
        return found
    said = report or (lambda _fraction, _text: None)
    stored = Stored.read(run.folder / "frontier")
    count = len(stored.points)
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(Path(folder) / "all", stored.spec(np.full(count, 1 / count), campaign, data))
        bundle = load_bundle(Path(folder) / "all")
        salts = [member.salt for member in bundle.members]
        # Counted before anything is seen: a killed run may have looked. The run's own mixture keeps the look before,
        # for which it was chosen.
        look(data, str(load_bundle(run.bundle).manifest["id"]), campaign.train.confidence)
        look(data, _identity(stored, salts), campaign.train.confidence)
        at, withheld, known = Measure(data, CERTIFY, bundle), [], []
        days = needed_days(campaign) if at.counted else at.days
        old = at.old()
        check = reproduces(observe(at.panel, days=at.days), old)
        propensity, behaviour = at.propensity(), at.behaviour_check()

        def fits() -> Iterator[Fitted]:
            whole = served(at, "the frontier")
            for i, policy in enumerate(whole.members() or [whole]):
                said(0.95 * i / count, f"policy {i + 1} of {count} on certify users")
                fitted = at.evaluator(i).fit(policy.parts[0], days=days)
                known.append(largest(fitted, campaign, at.known_costs(policy.parts)))
                reason = missing(fitted, campaign)
                if reason is None and not at.counted:  # each policy is to be confirmed by something that assumes less
                    told = Told(policy, {"fqe": fitted}, {}, single_steps(at, policy, propensity))
                    reason = Checks.of(told, check, behaviour).agreement.reason
                withheld.append(reason)
                yield fitted
            known.append(largest(old, campaign, at.known_costs([None])))
            yield old

        points = Points.of(fits(), campaign, known=known)
    with new_file(run.folder / "frontier" / BAND) as temporary, temporary.open("wb") as handle:
        np.savez(
            handle, value=points.value, covariance=points.covariance, tails=points.tails, gains=points.gains,
            users=points.users, salts=np.array(salts),
            said=json.dumps({"withheld": withheld, "refused": refused if check.ok else check.words,
                             "window": at.window}),
        )  # fmt: skip
    found = certified(run, data, campaign)
    assert found is not None
    return found


def certified(run: Run, data: Transitions, campaign: Campaign) -> Certified | None:
    """The band as it was measured before, or None.

    Raises:
        FolderError: if it is damaged.
    """
    path = run.folder / "frontier" / BAND
    if not path.exists():
        return None
    stored = Stored.read(run.folder / "frontier")
    try:
        with path.open("rb") as handle, np.load(handle) as file:
            part = {name: file[name] for name in file.files}
        salts = tuple(str(salt) for salt in part["salts"])
        said = json.loads(str(part["said"]))
        withheld, refused, window = said["withheld"], said["refused"], said.get("window")
        covariance, users = part["covariance"], int(part["users"])
        points = Points(part["value"], covariance, covariance, users, part["tails"], part["gains"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise FolderError("is damaged.", file=path, way_out="Remove it: it is made again, as the same look.") from None
    if window != window_of(data):  # of an older version, which certified discounted figures between features
        return None
    number, alpha = look(data, _identity(stored, salts), campaign.train.confidence)
    band = Band.of(points, withheld, refused, campaign, confidence=1 - alpha, window=claimed(campaign, window))
    return Certified(band, number, alpha, salts)


def _identity(stored: Stored, salts: Sequence[str]) -> str:
    """What is looked at: these policies, on these data."""
    what = [list(salts), stored.manifest["imitation_threshold"], stored.manifest["data_hash"]]
    return f"frontier-{digest(what)[:16]}"
