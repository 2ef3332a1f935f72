"""What is in service: a swap of the whole bundle at once, and none where the new one is broken.

    serving.ready = ready                      a request sees the old bundle or the new one, never half of each

Which one is in service is a fact of the ledger: the server that was told writes it there, all others follow within a
second or two, and it lasts over restarts. A server that cannot load it tries again after a growing wait, since to read
and verify a bundle keeps a processor busy.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from outlay.core.errors import BundleError, OutlayError
from outlay.serve.config import MONEY_KINDS, ServeConfig
from outlay.serve.deciding.choice import ChosenAction
from outlay.serve.deciding.decider import POLICY, Decider, EncodedRequest
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle, register_bundle
from outlay.serve.deciding.outcome_kinds import declared_outcome_kinds
from outlay.serve.experiment.arms import ServedArm, ServedExperiment
from outlay.serve.experiment.notes import follow_ramp
from outlay.serve.handlers.retries import Backoff
from outlay.serve.ledger.caps import CampaignConfig, Caps
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.pacing.budgets import arm_budget, outside_budget
from outlay.serve.pacing.pacer import Pacer
from outlay.serve.shared_settings import differences


class ServingState:
    """The bundle in service.

    Attributes:
        loaded: what every request uses; read it once per request.
        config: settings of the server.
        trial: the A/B test that is served, or None.
        pacer: follows the plan outside the test, where there is one and a ledger to follow it in.
        arm_pacers: the same of arms whose money the plan divides.
        kinds: of outcomes that may come; see `deciding/kinds.py`.
        prices: arm → what pacing has come to, of those that are paced.
        outdated: why the settings are no longer the ledger's; empty where they are. It then decides nothing.
        behind: why the bundle is not the ledger's; empty where it is.
    """

    def __init__(self, loaded: LoadedBundle, config: ServeConfig, trial: ServedExperiment | None = None) -> None:
        self.loaded = loaded
        self.config = config
        self.trial = trial
        self.pacer: Pacer | None = None
        self.arm_pacers: dict[str, Pacer] = {}
        self.kinds: tuple[str, ...] = MONEY_KINDS
        self.prices: Mapping[str, float] = {}
        self._swap = threading.Lock()  # one bundle after the other goes into service
        self._retries = Backoff()
        self.outdated = ""
        self.behind = ""

    def episode(self, day: int, arm: ServedArm | None = None) -> str:
        """What users' members are drawn for on this day of the server's clock, outside the test or in an arm."""
        settings, plan = self.config.episode, self.config.plan
        loaded = self.loaded if arm is None else arm.loaded
        name = settings.name or str(loaded.bundle.manifest["episode"])
        if settings.days is None:
            return name
        first = 0 if plan is None else plan.first
        return f"{name}.{(day - first) // settings.days}"

    def choices(
        self, loaded: LoadedBundle, arm: ServedArm | None, cases: Sequence[EncodedRequest], episode: str, now: int
    ) -> list[ChosenAction]:
        """What is proposed for every case, outside the test (`arm` is None) or in an arm. Raises as `decider`."""
        if arm is not None:
            pacer = self.arm_pacers.get(arm.name)
            if pacer is None or arm.decider is None:
                return arm.decide(cases, episode)
            return arm.decide(cases, episode, pacer.decider(arm.decider, episode, now))
        return self.decider(loaded, episode, now).decide(cases, episode)

    def decider(self, loaded: LoadedBundle, episode: str, now: int) -> Decider:
        """What decides in this episode: the bundle as it is, or as pacing has mixed it.

        Raises:
            LedgerError: if pacing has to ask the ledger, and cannot.
        """
        return loaded.decider if self.pacer is None else self.pacer.decider(loaded.decider, episode, now)

    def declare(self, ledger: Ledger) -> None:
        """Find out which kinds of outcomes may come, from the bundles that the ledger knows. Raises LedgerError."""
        meta = None if self.trial is None else self.trial.experiment.meta
        measured = () if meta is None else (meta.metric, *meta.guardrails)
        self.kinds = declared_outcome_kinds(ledger, self.loaded.campaign, (*self.config.outcomes, *measured))

    def pace(self, ledger: Ledger) -> None:
        """Follow the plan, where there is one, by the test as it is now."""
        plan, trial = self.config.plan, self.trial
        if plan is None:
            return
        purses = {} if trial is None else {arm.name: arm_budget(plan, trial, arm) for arm in trial.arms}
        self.arm_pacers = {name: Pacer(ledger, self.config, purse) for name, purse in purses.items() if purse}
        self.pacer = Pacer(ledger, self.config, outside_budget(plan, trial))

    def tend(self, ledger: Ledger, day: int, now: int) -> None:
        """Take over the coverage that the ledger knows, and correct prices where it is time.

        Raises:
            LedgerError: if the ledger cannot be reached.
        """
        if self.trial is not None and (trial := follow_ramp(ledger, self.trial)) is not self.trial:
            self.trial = trial
            self.pace(ledger)
        states = {}
        if self.pacer is not None:
            states[POLICY] = self.pacer.tend(self.loaded.decider, self.episode(day), now)
        if self.trial is not None and self.trial.coverage(day) > 0:
            for arm in self.trial.arms:
                if arm.name in self.arm_pacers and arm.decider is not None:
                    states[arm.name] = self.arm_pacers[arm.name].tend(arm.decider, self.episode(day, arm), now)
        self.prices = {name: state.price for name, state in states.items() if state is not None}

    def load(self, path: str | Path, ledger: Ledger, now: int) -> LoadedBundle:
        """Prepare a bundle of the same campaign, put it into service in the ledger, for all its servers, and swap.

        Slow, so call it from a thread.

        Raises:
            OutlayError: as `prepare_bundle`, `Trial.check_fits` and `register_bundle`; then the old one stays.
        """
        with self._swap:
            if self.outdated:
                raise OutlayError(self.outdated)
            loaded = self._checked(path, ledger, now)
            _put_into_service(ledger, loaded)
            self.loaded, self.behind = loaded, ""
        return loaded

    def follow(self, ledger: Ledger, now: int) -> LoadedBundle | None:
        """Go by what the ledger says: its bundle goes into service here as well; other settings end the service.

        Args:
            ledger: of the server.
            now: epoch ms; a bundle that failed is tried again after a growing wait, and left alone until then.

        Raises:
            LedgerError: if the ledger cannot be reached. Where the bundle cannot be loaded, the old one stays in
                service, and `behind` says why.
        """
        if not self._swap.acquire(blocking=False):
            return None
        try:
            terms = ledger.config(self.loaded.campaign)
            if terms is None:
                return None
            told = differences(terms.settings, self.config)
            self.outdated = f"the settings of the ledger are others by now: {'; '.join(told)}." if told else ""
            if terms.bundle in ("", self.loaded.bundle.id):
                self._retries.forget()
                self.behind = ""
                return None
            wanted = terms.bundle, terms.path
            if not self._retries.due(wanted, now):
                return None
            try:
                loaded = self._checked(terms.path, ledger, now)
                if loaded.bundle.id != terms.bundle:
                    raise BundleError(f"holds bundle {loaded.bundle.id}.", file=loaded.path)
            except LedgerError:  # no fault of the bundle
                raise
            except OutlayError as error:
                self._retries.failed(wanted, now)
                self.behind = f"bundle {terms.bundle} is in service on this ledger, and cannot be loaded here: {error}"
                return None
            self._retries.forget()
            self.loaded, self.behind = loaded, ""
            return loaded
        finally:
            self._swap.release()

    def _checked(self, path: str | Path, ledger: Ledger, now: int) -> LoadedBundle:
        loaded = prepare_bundle(path, self.config, campaign=self.loaded.campaign)
        if self.trial is not None:
            self.trial.check_fits(loaded)
        register_bundle(ledger, loaded, self.config, now)
        self.declare(ledger)
        return loaded


def _put_into_service(ledger: Ledger, loaded: LoadedBundle) -> None:
    def served(kept: CampaignConfig | None) -> CampaignConfig:
        return replace(kept or CampaignConfig(caps=Caps()), bundle=loaded.bundle.id, path=str(loaded.path))

    ledger.change_config(loaded.campaign, served)
