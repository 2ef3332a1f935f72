"""The state of a server: the bundle in service, the settings, the A/B test and the pacers.

    state.loaded = loaded           a request sees the old bundle or the new one, never half of each

The bundle in service is recorded in the ledger: the server that is asked to load a bundle writes it there, the others
follow within a second or two, and it survives restarts. A server that cannot load it retries with exponential backoff,
since reading and verifying a bundle keeps a processor busy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from outlay.core.errors import BundleError, OutlayError
from outlay.serve.config import MONEY_KINDS, ServeConfig
from outlay.serve.deciding.decider import POLICY, ChosenAction, Decider, EncodedRequest
from outlay.serve.deciding.loaded_bundle import (
    LoadedBundle,
    is_capped,
    mixture_words,
    prepare_bundle,
    register_bundle,
)
from outlay.serve.experiment import ServedArm, ServedExperiment, follow_ramp
from outlay.serve.ledger.caps import CampaignConfig, Caps
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.pacing.budgets import arm_budget, outside_budget
from outlay.serve.pacing.pacing import Pacer
from outlay.serve.shared_settings import differences
from outlay.serve.user_days.campaign_history import declared_outcome_kinds

FIRST_WAIT, LONGEST_WAIT = 1_000, 60_000  # ms before a bundle that could not be loaded is tried again

log = logging.getLogger("outlay.serve")


class ServingState:
    """The state of a server.

    Attributes:
        loaded: the bundle that every request uses; read it once per request.
        config: settings of the server.
        trial: the A/B test that is served, or None.
        capped: whether the ledger has a cap of all that the bundle in service spends.
        pacer: follows the plan outside the test; None without a plan, or before `set_pacers`.
        arm_pacers: the same for arms whose money the plan divides.
        kinds: kinds of outcomes that are accepted; see `user_days/campaign_history.py`.
        prices: arm → the price that pacing has set, of those that are paced.
        outdated: why the settings are no longer the ledger's; empty if they are. Otherwise the server decides nothing.
        behind: why the bundle is not the ledger's; empty if it is.
    """

    def __init__(
        self,
        loaded: LoadedBundle,
        config: ServeConfig,
        trial: ServedExperiment | None = None,
        history: Path | None = None,
        shared: Path | None = None,
    ) -> None:
        self.loaded = loaded
        self.config = config
        self.trial = trial
        self.capped = False
        self.pacer: Pacer | None = None
        self.arm_pacers: dict[str, Pacer] = {}
        self.kinds: tuple[str, ...] = MONEY_KINDS
        self.prices: Mapping[str, float] = {}
        self._history = history  # the past of users before the ledger began, for bundles that come into service
        self._shared = shared  # the folder in which workers share vocabularies
        self._swap = threading.Lock()  # bundles go into service one after the other
        self._backoff = Backoff()
        self.outdated = ""
        self.behind = ""

    def episode(self, day: int, arm: ServedArm | None = None) -> str:
        """Return the name of the episode of a day number, outside the test or in an arm."""
        settings, plan = self.config.episode, self.config.plan
        loaded = self.loaded if arm is None else arm.loaded
        name = settings.name or loaded.bundle.manifest.episode
        if settings.days is None:
            return name
        first = 0 if plan is None else plan.first
        return f"{name}.{(day - first) // settings.days}"

    def choices(
        self, loaded: LoadedBundle, arm: ServedArm | None, requests: Sequence[EncodedRequest], episode: str, now: int
    ) -> list[ChosenAction]:
        """Return a choice for every request, outside the test (`arm` is None) or in an arm. Raises as `decider`."""
        if arm is not None:
            pacer = self.arm_pacers.get(arm.name)
            if pacer is None or arm.decider is None:
                return arm.decide(requests, episode)
            return arm.decide(requests, episode, pacer.decider(arm.decider, episode, now))
        return self.decider(loaded, episode, now).decide(requests, episode)

    def decider(self, loaded: LoadedBundle, episode: str, now: int) -> Decider:
        """Return the decider of this episode: the bundle's, or its mixture as pacing has set it.

        Raises:
            LedgerError: if pacing needs the ledger and cannot reach it.
        """
        base = loaded.capped if self.capped else loaded.decider
        return base if self.pacer is None else self.pacer.decider(base, episode, now)

    def adopt_caps(self, caps: Caps) -> None:
        """Serve behind these caps from now on: the mixture of the bundle that needs no margin, or the certified one."""
        before, self.capped = self.capped, is_capped(caps)
        words = mixture_words(self.loaded, capped=self.capped)
        if self.capped != before and self.config.plan is None and words:
            log.warning("%s", words)

    def begin(self, ledger: Ledger) -> None:
        """Take over what the ledger says before the first request: its caps, and outcomes. Raises LedgerError."""
        if (kept := ledger.config(self.loaded.campaign)) is not None:
            self.capped = is_capped(kept.caps)
        self.declare_kinds(ledger)

    def declare_kinds(self, ledger: Ledger) -> None:
        """Set the kinds of outcomes to accept, from the bundles in the ledger. Raises LedgerError."""
        meta = None if self.trial is None else self.trial.experiment.meta
        measured = () if meta is None else (meta.metric, *meta.guardrails)
        self.kinds = declared_outcome_kinds(ledger, self.loaded.campaign, (*self.config.outcomes, *measured))

    def set_pacers(self, ledger: Ledger) -> None:
        """Create pacers for the plan, if there is one, and for the test's current coverage."""
        plan, trial = self.config.plan, self.trial
        if plan is None:
            return
        budgets = {} if trial is None else {arm.name: arm_budget(plan, trial, arm) for arm in trial.arms}
        self.arm_pacers = {name: Pacer(ledger, self.config, budget) for name, budget in budgets.items() if budget}
        self.pacer = Pacer(ledger, self.config, outside_budget(plan, trial))

    def update(self, ledger: Ledger, day: int, now: int) -> None:
        """Adopt the test's coverage from the ledger, and correct prices if it is time.

        Raises:
            LedgerError: if the ledger cannot be reached.
        """
        if self.trial is not None and (trial := follow_ramp(ledger, self.trial)) is not self.trial:
            self.trial = trial
            self.set_pacers(ledger)
        states = {}
        if self.pacer is not None:
            base = self.loaded.capped if self.capped else self.loaded.decider
            states[POLICY] = self.pacer.tend(base, self.episode(day), now)
        if self.trial is not None and self.trial.coverage(day) > 0:
            for arm in self.trial.arms:
                if arm.name in self.arm_pacers and arm.decider is not None:
                    states[arm.name] = self.arm_pacers[arm.name].tend(arm.decider, self.episode(day, arm), now)
        self.prices = {name: state.price for name, state in states.items() if state is not None}

    def load(self, path: str | Path, ledger: Ledger, now: int) -> LoadedBundle:
        """Load a bundle of the same campaign and put it into service, here and in the ledger for all its servers.

        Slow, so call it from a thread.

        Raises:
            OutlayError: as `prepare_bundle`, `ServedExperiment.check_fits` and `register_bundle`; then the old bundle
                stays in service.
        """
        with self._swap:
            if self.outdated:
                raise OutlayError(self.outdated)
            loaded = self._prepared(path)
            with ledger.together(loaded.campaign):
                register_bundle(ledger, loaded, self.config, now)
                _record_in_service(ledger, loaded, self.config)
            self.declare_kinds(ledger)
            self.loaded, self.behind = loaded, ""
        return loaded

    def follow(self, ledger: Ledger, now: int) -> LoadedBundle | None:
        """Put the ledger's bundle into service here as well; stop deciding if the ledger's settings have changed.

        Args:
            ledger: the server's ledger.
            now: epoch ms; a bundle that failed to load is retried with exponential backoff.

        Returns:
            The bundle that went into service, or None.

        Raises:
            LedgerError: if the ledger cannot be reached. If the bundle cannot be loaded, the old one stays in service,
                and `behind` says why.
        """
        if not self._swap.acquire(blocking=False):
            return None
        try:
            kept = ledger.config(self.loaded.campaign)
            if kept is None:
                return None
            self.adopt_caps(kept.caps)
            changed = differences(kept.settings, self.config)
            self.outdated = f"the settings of the ledger have changed: {'; '.join(changed)}." if changed else ""
            if kept.bundle in ("", self.loaded.bundle.id):
                self._backoff.reset()
                self.behind = ""
                return None
            attempt = kept.bundle, kept.path
            if not self._backoff.due(attempt, now):
                return None
            try:
                loaded = self._prepared(kept.path)
                if loaded.bundle.id != kept.bundle:
                    raise BundleError(f"holds bundle {loaded.bundle.id}.", file=loaded.path)
                register_bundle(ledger, loaded, self.config, now)
                self.declare_kinds(ledger)
            except LedgerError:  # not the bundle's fault
                raise
            except OutlayError as error:
                self._backoff.failed(attempt, now)
                self.behind = f"bundle {kept.bundle} is in service on this ledger but cannot be loaded here: {error}"
                return None
            self._backoff.reset()
            self.loaded, self.behind = loaded, ""
            return loaded
        finally:
            self._swap.release()

    def _prepared(self, path: str | Path) -> LoadedBundle:
        """Return a bundle that fits the test."""
        loaded = prepare_bundle(
            path, self.config, campaign=self.loaded.campaign, history=self._history, shared=self._shared
        )
        if self.trial is not None:
            self.trial.check_fits(loaded)
        return loaded


class Backoff:
    """Exponential backoff: retry after 1 second, then after 2, 4, 8 and so on, up to a minute.

    It remembers one attempt; a different one may be tried at once. Times are epoch ms of one clock.
    """

    def __init__(self) -> None:
        self._attempt: object = None
        self._since = 0
        self._wait = 0

    def due(self, attempt: object, now: int) -> bool:
        """Return whether it may be tried now: at once if it has not failed, or if the clock was put back."""
        return attempt != self._attempt or not 0 <= now - self._since < self._wait

    def failed(self, attempt: object, now: int) -> None:
        """Note that the attempt failed."""
        self._wait = min(2 * self._wait, LONGEST_WAIT) if attempt == self._attempt and self._wait else FIRST_WAIT
        self._attempt, self._since = attempt, now

    def reset(self) -> None:
        """Note that it succeeded, or is no longer needed."""
        self._attempt, self._wait = None, 0


def _record_in_service(ledger: Ledger, loaded: LoadedBundle, config: ServeConfig) -> None:
    def changed(kept: CampaignConfig | None) -> CampaignConfig:
        if kept is None:
            raise LedgerError(f"the ledger has no campaign {loaded.campaign!r}.")
        if others := differences(kept.settings, config):
            raise OutlayError(f"the settings of the ledger have changed: {'; '.join(others)}.")
        return replace(kept, bundle=loaded.bundle.id, path=str(loaded.path))

    ledger.change_config(loaded.campaign, changed)
