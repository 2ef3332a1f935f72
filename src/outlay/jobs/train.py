"""`outlay train`: learn a mixed policy that keeps the budgets, and write its bundle.

    run = train("campaign.toml", "runs/first", method="aim-greedy", oracle="bcq")

learn users teach the critic; select users measure candidates and, once training is over, the few that were kept: by a
fitted evaluation, after which the weights are solved again on limits that leave room for the certificate. certify
users are not touched here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import FolderError, InfeasibleError, LogError, OutlayError
from outlay.core.files import check_replaceable, put_in_place
from outlay.core.mixture import Mixture
from outlay.core.transitions import LEARN, SELECT, SPLITS, Transitions
from outlay.jobs.choose import choose
from outlay.jobs.looks import carry_over
from outlay.jobs.prepare import prepare
from outlay.jobs.record import record
from outlay.jobs.run import Run
from outlay.learning import checkpoint
from outlay.learning.game import Game, Progress, play, settings_of
from outlay.learning.heads import coordinates, largest_multiplier
from outlay.learning.mixing import RULES
from outlay.learning.policy import Policy
from outlay.learning.tabular import counted_model
from outlay.ops.tabular import constrained_optimum, measure

CHECKPOINT_SECONDS = 15.0

Method = Literal["aim-greedy", "aim-mean", "single-best", "uniform", "lp"]
Vector = NDArray[np.float64]


def train(
    source: str | Path | Campaign,
    out: str | Path,
    *,
    method: Method = "aim-greedy",
    oracle: Literal["bcq", "edrr", "ddqn"] = "bcq",
    preset: Literal["outlay", "paper"] | None = None,
    seed: int = 0,
    resume: bool = False,
    threads: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Run:
    """Train on a campaign file or on a DATA folder, into a RUN folder.

    Args:
        source: campaign.toml (the log is prepared into RUN/data) or a DATA folder.
        out: the RUN folder; an older one of ours is replaced when this one is finished.
        method: the mixing rule.
        oracle: the best-response learner.
        preset: `paper` for the paper's schedule; default: as in the campaign file.
        seed: of everything random.
        resume: go on from the last checkpoint of an unfinished run into the same folder.
        threads: for reading the log.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: for wrong input.
        InfeasibleError: if no policy that was found keeps the limits.
    """
    if method not in RULES:
        raise OutlayError(f"is {method!r}.", where="method", way_out=f"Known methods: {', '.join(RULES)}.")
    if oracle not in ("bcq", "edrr", "ddqn"):
        raise OutlayError(f"is {oracle!r}.", where="oracle", way_out="Known oracles: bcq, edrr, ddqn.")
    report = progress or (lambda _fraction, _text: None)
    out = Path(out)
    check_replaceable(out, "run")
    if not isinstance(source, Campaign) and Path(source).resolve().is_relative_to(out.resolve()):
        raise FolderError("lies in the folder that the run is to replace.", file=source, way_out="Give another --out.")
    partial = out.with_name(f".{out.name}.partial")
    if not resume:
        shutil.rmtree(partial, ignore_errors=True)
    elif not partial.is_dir():
        raise FolderError("there is no unfinished run to resume.", file=out, way_out="Train without --resume.")
    for left_over in partial.glob(".*.tmp"):  # of a run that was killed while writing
        shutil.rmtree(left_over, ignore_errors=True)
    partial.mkdir(parents=True, exist_ok=True)

    try:
        return _train(source, out, partial, method, oracle, preset, seed, resume, threads, report)
    except OutlayError:
        if not resume:  # the same input would fail again; a run to be resumed may only have met a wrong option
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _train(
    source: str | Path | Campaign,
    out: Path,
    partial: Path,
    method: Method,
    oracle: Any,
    preset: str | None,
    seed: int,
    resume: bool,
    threads: int | None,
    report: Callable[[float, str], None],
) -> Run:
    data, campaign, notes = _data(source, partial, preset, threads, report)
    carry_over(out / "data", data.folder)
    game = _game(data, campaign, method, oracle, seed)
    key = {"data": data.manifest["data_hash"], "campaign": campaign.model_dump(mode="json", exclude={"train"}),
           "settings": campaign.train.model_dump(mode="json"), "seed": seed, "method": method,
           "oracle": oracle}  # fmt: skip
    finished, mixture = _play(game, partial / "checkpoints", key, resume, report)
    report(0.95, "measuring the kept members")
    chosen = choose(game, finished, mixture, campaign, method, partial)
    if np.any(finished.candidates[-1].multiplier >= game.bound * game.multiplier_unit * (1 - 1e-6)):
        notes.append("λ reached its bound λ_max: the limit is close to the least that the log's actions can cost.")
    record(game, finished, chosen, campaign, method, oracle, seed, notes, partial)
    put_in_place(partial, out)
    report(1.0, "done")
    return Run.open(out)


def _data(
    source: str | Path | Campaign,
    partial: Path,
    preset: str | None,
    threads: int | None,
    report: Callable[[float, str], None],
) -> tuple[Transitions, Campaign, list[str]]:
    """Open DATA, or prepare the campaign's log into RUN/data; the campaign with its settings; what to tell the user."""
    notes: list[str] = []
    if isinstance(source, Campaign) or Path(source).is_file() or Path(source).suffix == ".toml":
        campaign = source if isinstance(source, Campaign) else Campaign.load(source)
        if preset is not None:
            campaign = campaign.with_train(preset=preset)
        folder = partial / "data"
        if not (folder / "manifest.json").exists():
            prepare(campaign, folder, threads=threads, progress=lambda f, text: report(0.15 * f, text))
        data = Transitions.open(folder)
        if data.campaign.model_dump() != campaign.model_dump():
            raise FolderError("the unfinished run was begun with another campaign file or preset.", file=campaign.path,
                              way_out="Put the file back as it was, or train without --resume.")  # fmt: skip
        campaign = data.campaign
    else:
        data = Transitions.open(source)
        campaign = data.campaign
        if preset is not None:  # the split and the discount are in the data
            campaign = campaign.with_train(preset=preset, shares=campaign.train.shares)
            campaign = campaign.model_copy(update={"meta": data.campaign.meta})
            notes.append(
                f"preset on prepared data: the split stays as prepared, {list(campaign.train.shares)}, and so does the "
                "discount; train from the campaign file for the preset's."
            )
        if campaign.path.exists() and Campaign.load(campaign.path) != data.campaign:
            notes.append(f"{campaign.path} has changed since the data were prepared; this run uses it as it was then. "
                         "Train from the campaign file, or prepare again, to use it as it is now.")  # fmt: skip
    if campaign.train.preset == "paper":
        t = campaign.train
        notes.append(
            f"preset paper: batch {t.batch}, {t.epochs:g} epochs, λ every {t.multiplier_every} steps in raw units of "
            f"cost, a candidate every {t.candidate_every}, discount {campaign.meta.discount:g}, users split "
            f"{list(t.shares)}."
        )
    for split, name in enumerate(SPLITS):
        if len(data.users_of(split)) == 0:
            raise LogError(f"no user fell into the split {name!r}.", file=data.manifest["source"], where="train.shares",
                           way_out="Take a log with more users, or give that split a larger share.")  # fmt: skip
    return data, campaign, notes


def _game(data: Transitions, campaign: Campaign, method: str, oracle: Any, seed: int) -> Game:
    """Set the game up; an infeasible limit is found here where states can be counted."""
    rows = data.rows_of(LEARN)
    sample = rows if len(rows) <= 1_000_000 else np.sort(np.random.default_rng(0).choice(rows, 1_000_000, False))
    outcome = data.outcome[sample]
    coords = coordinates(campaign, outcome, steady=data.steady)
    train = campaign.train
    if train.multiplier_max is None:
        scaled = largest_multiplier(data.action[sample], outcome, coords, campaign.meta.discount)
        raw = scaled * coords.reward_scale / coords.scale
        bound = scaled if train.scaled_multipliers else raw
    else:
        bound = np.full(len(coords.limits), train.multiplier_max)
    model = counted_model(data, SELECT)

    def fitted(policy: Policy) -> Vector:
        assert model is not None  # it is given to the game only then
        assert data.states is not None
        return coords.of(measure(model, policy.choose(data.states)))

    per_decision = all(budget.per == "decision" for budget in campaign.budgets)
    if model is not None and data.states is not None and per_decision:
        ceilings = np.array([b.sign for b in campaign.budgets]) * model.cost
        signed = TabularCMDP(transition=model.transition, reward=model.reward, cost=ceilings, start=model.start,
                             discount=model.discount)  # fmt: skip
        try:
            constrained_optimum(signed, coords.limits, allowed=data.states.allowed)
        except InfeasibleError as error:
            raise InfeasibleError(
                f"no policy keeps the limits. {error}",
                file=campaign.path,
                where=", ".join(f"budget {b.name} ({b.words})" for b in campaign.budgets),
                way_out="Raise the limit, or add cheaper actions to the campaign.",
            ) from None
    return Game(
        data=data,
        train=train,
        settings=settings_of(train, oracle, campaign.meta.discount),
        coords=coords,
        bound=bound,
        rule=RULES[method],
        measure=None if model is None else fitted,
        learn_rows=rows,
        seed=seed,
    )


def _play(
    game: Game, folder: Path, key: dict[str, Any], resume: bool, report: Callable[[float, str], None]
) -> tuple[Progress, Mixture[int]]:
    """Play to the end, with checkpoints."""
    start = checkpoint.load(folder, game, key) if resume and folder.exists() else game.begin()
    progress, mixture, saved = start, None, time.monotonic()
    blocks = game.steps // game.train.candidate_every
    for progress, mixture in play(game, start):  # noqa: B007  the last one is wanted
        done = len(progress.candidates)
        report(0.15 + 0.8 * done / blocks, f"{done * game.train.candidate_every} of {game.steps} steps")
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            checkpoint.save(folder, progress, key)
            saved = time.monotonic()
    checkpoint.save(folder, progress, key)
    if mixture is None:  # resumed after the last block: the rule's state is replayed
        mixture = game.rule.mixture(game.rule_state(progress.candidates))
    return progress, mixture
