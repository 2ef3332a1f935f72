"""`outlay train`: learn a mixed policy that keeps the budgets, and write its bundle.

    run = train("campaign.toml", "runs/first")              # one network for every budget
    run = train("campaign.toml", "runs/second", method="aim-greedy", oracle="bcq")
    run = train("campaign.toml", "runs/paper", preset="paper")                        # the paper's method

learn users teach the critic; select users measure candidates and, once training is over, the few that were kept: by a
fitted evaluation, after which the weights are solved again on limits that leave room for the certificate. certify
users are not touched here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from outlay.choosing.measure import Measure
from outlay.choosing.reserve import check_stated, unpriced_of
from outlay.choosing.run import ESTIMATES, Run
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, LogError, OutlayError
from outlay.core.files import check_replaceable, kind_of, put_in_place
from outlay.core.journal import partial_folder
from outlay.core.progress import Progress, silent, within
from outlay.core.reserves import WAY_OUT, unpriced_words
from outlay.core.transitions import LEARN, SPLITS, Transitions
from outlay.jobs.prepare import prepare
from outlay.learning.screening import Screening, screen, screened_words, wide
from outlay.training import GAMES, METHODS, frontier, game, two_stage
from outlay.training.record import record

ORACLES = ("auto", "orthogonal", "trees", "bcq", "edrr", "ddqn", "tabular")
RESPONSES = ("deepfm", "din")

STATE_ROWS = 250_000  # rows of learn users, about, on which the state is tested before training
NO_SPLIT = 255  # of users that are left out

Oracle = Literal["auto", "orthogonal", "trees", "bcq", "edrr", "ddqn", "tabular"]
Response = Literal["deepfm", "din"]


def train(
    source: str | Path | Campaign,
    out: str | Path,
    *,
    method: str | None = None,
    oracle: Oracle = "auto",
    response: Response | None = None,
    label_days: int | None = None,
    preset: Literal["outlay", "paper"] | None = None,
    folds: int | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    workers: int | None = None,
    screening: Screening | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train on a campaign file or on a DATA folder, into a RUN folder.

    Args:
        source: campaign.toml (the log is prepared into RUN/data) or a DATA folder.
        out: the RUN folder; an older one of ours is replaced when this one is finished.
        method: `frontier`, one training for every budget; a mixing rule (`mixing.RULES`), for the limits alone;
            `bisection`, one policy, for the one limit; or `two-stage`, which predicts and then prices, without looking
            ahead. Default: `frontier`; with the paper's preset its `aim-greedy`.
        oracle: the best-response learner; `two-stage` has none. `auto`: the counted model where distinct
            states are few, else the orthogonal critic and boosted trees, pooled (all of `frontier` only); `bcq` for the
            mixing rules and `bisection`.
        response: the response model of `two-stage`; default `deepfm`. `din` reads every single value of each user's
            past days: those of `[log.history]` if the campaign file lists `lags` there, else of the last 7 days.
        label_days: of `two-stage`: days that its labels look ahead; default 1.
        preset: `paper` for the paper's method and schedule: weights as the rule found them, no screening, no folds;
            default: as in the campaign file.
        folds: K of `frontier`: it learns K times, each time without the users of one fold, so that all users certify;
            1 certifies on one part of the users alone. Default: as in the campaign file, else 4 where that is quick, 2
            on larger logs, and 1 above a million rows whose states are too many to count.
        seed: of everything random.
        resume: go on from the last checkpoint of an unfinished run into the same folder.
        overwrite: replace a run that was evaluated, estimates included; one that was not is replaced anyway.
        threads: for reading the log.
        workers: of `frontier`: processes of a Ray cluster that train the networks together, each on its share of every
            batch; default: this process alone.
        screening: what `learning.screening.screen` found on these data; default: it is done here, if the log is wide.
        progress: called with the fraction done and what is being done.

    Raises:
        LostWorkerError: if workers were lost again and again.
        OutlayError: for wrong input, and for an option that the method does not use.
        InfeasibleError: if no policy that was found keeps the limits.
    """
    method = method or ("aim-greedy" if _preset(source, preset) == "paper" else "frontier")
    _check_options(method, oracle, response, label_days, folds, workers)
    report = progress or silent
    out = Path(out)
    check_replaceable(out, "run")
    if not overwrite and (out / ESTIMATES).exists():
        raise FolderError(
            f"holds an evaluated run: its {ESTIMATES} would be deleted.",
            file=out,
            way_out="Give another --out, or --overwrite to replace it.",
        )
    if not isinstance(source, Campaign) and Path(source).resolve().is_relative_to(out.resolve()):
        raise FolderError("lies in the folder that the run is to replace.", file=source, way_out="Give another --out.")
    with partial_folder(out, "run", resume=resume) as partial:
        return _train(
            source,
            out,
            partial,
            method,
            oracle,
            response or "deepfm",
            label_days or 1,
            preset,
            folds,
            seed,
            resume,
            threads,
            workers,
            screening,
            report,
        )


def _preset(source: str | Path | Campaign, given: str | None) -> str | None:
    """The preset that will hold: the one given, else that of the source; None where there is no such source."""
    if given is not None:
        return given
    if isinstance(source, Campaign):
        return source.train.preset
    if kind_of(Path(source)) == "data":
        return Transitions.open(source).campaign.train.preset
    return Campaign.load(source).train.preset if Path(source).is_file() else None


def _check_options(
    method: str, oracle: str, response: str | None, label_days: int | None, folds: int | None, workers: int | None
) -> None:
    """Raise OutlayError for an option that is unknown or impossible, or that the method does not use."""
    for name, value, known in (
        ("method", method, METHODS),
        ("oracle", oracle, ORACLES),
        ("response", response, (*RESPONSES, None)),
    ):
        if value not in known:
            words = ", ".join(one for one in known if one is not None)
            raise OutlayError(f"is {value!r}.", where=name, way_out=f"Known: {words}.")
    if oracle in ("tabular", "orthogonal", "trees") and method in GAMES:
        raise OutlayError(
            f"is {oracle!r}, which {method} does not take.",
            where="oracle",
            way_out="Take --method frontier, or --oracle bcq, edrr or ddqn.",
        )
    for name, given, users in (
        ("oracle", None if oracle == "auto" else oracle, ("frontier", *GAMES)),
        ("response", response, ("two-stage",)),
        ("label_days", label_days, ("two-stage",)),
        ("folds", folds, ("frontier",)),
        ("workers", workers, ("frontier",)),
    ):
        if given is not None and method not in users:
            raise OutlayError(
                f"is {given!r}, which {method} does not use.",
                where=name,
                way_out=f"Leave it out, or take --method {' or '.join(users)}.",
            )
    if workers is not None and workers < 1:
        raise OutlayError(f"is {workers}; it must be 1 or more.", where="workers", way_out="Leave it out.")
    if folds is not None and folds < 1:
        raise OutlayError(f"is {folds}; it must be 1 or more.", where="folds", way_out="Give 1 to learn once.")
    if label_days is not None and label_days < 1:
        raise OutlayError(f"is {label_days}; it must be 1 or more.", where="label_days", way_out="Give 1 or more.")


def _train(
    source: str | Path | Campaign,
    out: Path,
    partial: Path,
    method: str,
    oracle: Oracle,
    response: Response,
    label_days: int,
    preset: str | None,
    folds: int | None,
    seed: int,
    resume: bool,
    threads: int | None,
    workers: int | None,
    screening: Screening | None,
    report: Progress,
) -> Run:
    data, campaign, notes = _data(source, method, partial, preset, threads, report)
    campaign = campaign.with_train(folds=folds)
    fields: list[str] | None = None
    if wide(data, campaign):
        found = screening or screen(data, within(report, 0.15, 0.2))
        fields = [data.schema.categorical[place].name for place in found.kept]
        data, campaign = data.with_fields(fields), campaign.with_train(folds=1)  # users who certify chose no fields
        notes.append(screened_words(found, fields))
    state = Measure(_fewer(data), LEARN, None).state.markov_check
    if state is not None and state.refused is not None:
        notes.append(f"{state.refused.words}. As it is, outlay evaluate will not certify this run.")
    further = within(report, 0.2, 1)
    if method == "two-stage":
        learned = two_stage.learn(data, campaign, response, label_days, seed, partial, further)
        teacher = f"{response}, {label_days}-day labels"
    elif method == "frontier":
        apart = None
        if workers is not None and workers > 1:
            from outlay.cluster.networks import elsewhere

            apart = elsewhere(data.folder, fields, campaign, oracle, seed, workers, resume)
        learned = frontier.learn(data, campaign, oracle, seed, partial, resume, further, apart)
        teacher = learned.found["oracle"]
    else:
        teacher = "bcq" if oracle == "auto" else oracle
        learned = game.learn(data, campaign, method, teacher, seed, partial, resume, further)
    record(
        learned.context,
        learned.chosen,
        learned.course,
        {
            **learned.found,
            "method": method,
            "oracle": teacher,
            "notes": [*notes, *learned.notes],
            **({} if fields is None else {"fields": fields}),
        },
    )
    put_in_place(partial, out)
    report(1.0, "done")
    return Run.open(out)


def _fewer(data: Transitions) -> Transitions:
    """Return a large log with an even sample of its *learn* users: the test of the state needs no more of them."""
    learn = data.users_of(LEARN)
    kept = learn[:: max(1, -(-len(data.rows_of(LEARN)) // STATE_ROWS))]
    users = data.users.copy()
    users["split"][np.setdiff1d(learn, kept)] = NO_SPLIT
    return replace(data, users=users)


def _paper_words(campaign: Campaign, method: str) -> str:
    """What the paper's preset means for a method."""
    t, discount = campaign.train, campaign.meta.discount
    words = f"preset paper: batch {t.batch}, {t.epochs:g} epochs, discount {discount:g}, users split {list(t.shares)}"
    if method in GAMES:
        words += f", a candidate every {t.candidate_every} steps, λ every {t.multiplier_every}"
        if not t.scaled_multipliers:
            words += (
                f" in raw units of (1−γ)·J, a cost per decision (the paper's J is {1 / (1 - discount):g} times that, "
                "and with it the step of λ)"
            )
    return f"{words}."


def _data(
    source: str | Path | Campaign,
    method: str,
    partial: Path,
    preset: str | None,
    threads: int | None,
    report: Progress,
) -> tuple[Transitions, Campaign, list[str]]:
    """Open DATA, or prepare the campaign's log into RUN/data; the campaign with its settings; what to tell the user."""
    notes: list[str] = []
    if isinstance(source, Campaign) or Path(source).is_file() or Path(source).suffix == ".toml":
        campaign = source if isinstance(source, Campaign) else Campaign.load(source)
        if preset is not None:
            campaign = campaign.with_train(preset=preset)
        folder = partial / "data"
        if not (folder / "manifest.json").exists():
            prepare(campaign, folder, threads=threads, progress=within(report, 0, 0.15))
        data = Transitions.open(folder)
        if data.campaign.model_dump() != campaign.model_dump():
            raise FolderError(
                "the unfinished run was begun with another campaign file or preset.",
                file=campaign.path,
                way_out="Put the file back as it was, or train without --resume.",
            )
        campaign = data.campaign
    else:
        if (inside := Path(source) / "campaign.toml").is_file() and kind_of(Path(source)) in (None, "campaign"):
            raise FolderError(
                "is the folder of a campaign; its campaign.toml or a DATA folder is expected.",
                file=source,
                way_out=f"Give {inside}.",
            )
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
            notes.append(
                f"{campaign.path} has changed since the data were prepared; this run uses it as it was then. "
                "Train from the campaign file, or prepare again, to use it as it is now."
            )
    if campaign.train.preset == "paper":
        notes.append(_paper_words(campaign, method))
    notes += [f"{words}." for words in data.manifest.told]
    check_stated(data, campaign)
    if free := unpriced_of(data, campaign):
        notes.append(f"{unpriced_words(free)} {WAY_OUT}")
    for split, name in enumerate(SPLITS):
        if len(data.users_of(split)) == 0:
            raise LogError(
                f"no user fell into the split {name!r}.",
                file=data.manifest.source,
                where="train.shares",
                way_out="Take a log with more users, or give that split a larger share.",
            )
    return data, campaign, notes
