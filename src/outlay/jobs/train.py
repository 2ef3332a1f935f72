"""`outlay train`: learn a mixed policy that keeps the budgets, and write its bundle.

    run = train("campaign.toml", "runs/first")              # one network for every budget
    run = train("campaign.toml", "runs/second", method="aim-greedy", oracle="bcq")
    run = train("campaign.toml", "runs/paper", preset="paper")                        # the paper's method

learn users teach the critic; select users measure candidates and, once training is over, the few that were kept: by a
fitted evaluation, after which the weights are solved again on limits that leave room for the certificate. certify
users are not touched here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from outlay.choosing.measure import Measure
from outlay.choosing.reserve import check_stated, unpriced_of
from outlay.choosing.run import ESTIMATES, Run
from outlay.core.campaign import Campaign, Hold
from outlay.core.errors import FolderError, LogError, OutlayError, nearest
from outlay.core.files import as_path, check_replaceable, kind_of, put_in_place
from outlay.core.journal import partial_folder
from outlay.core.progress import Progress, telling, within
from outlay.core.reserves import WAY_OUT, unpriced_words
from outlay.core.transitions import LEARN, SPLITS, Transitions
from outlay.jobs.memory import campaign_of
from outlay.jobs.prepare import prepare
from outlay.learning import CRITICS
from outlay.learning.screening import Screening, screen, screened_words, wide
from outlay.response.model import Kind
from outlay.training import AUTO, GAMES, METHODS, ORACLES, every_budget, log_game, two_stage
from outlay.training.record import Learned, record

RESPONSES: tuple[Kind, ...] = get_args(Kind)

STATE_ROWS = 250_000  # rows of learn users, about, on which the state is tested before training
HELD = (
    "Of room for a certificate none is left below {budget} {limit}, which is to be spent: a cap holds it while serving "
    "(hold = serving). Give outlay serve a total cap, or decide with outlay allocate."
)
NO_SPLIT = 255  # of users that are left out


@dataclass(frozen=True)
class Options:
    """What is asked of a training; as `train` takes it, the method decided."""

    method: str
    oracle: str
    response: Kind | None
    label_days: int | None
    preset: Literal["outlay", "paper"] | None
    folds: int | None
    hold: Hold | None
    seed: int
    resume: bool
    threads: int | None
    workers: int | None
    screening: Screening | None


def train(
    source: Any,
    out: str | Path,
    *,
    campaign: Campaign | str | Path | None = None,
    method: str | None = None,
    oracle: str = AUTO,
    response: Kind | None = None,
    label_days: int | None = None,
    preset: Literal["outlay", "paper"] | None = None,
    folds: int | None = None,
    hold: Hold | None = None,
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
        source: campaign.toml (the log is prepared into RUN/data) or a DATA folder; or a table in memory.
        campaign: what the columns of a table in memory mean; None: guessed as `init` does.
        out: the RUN folder; an older one of ours is replaced when this one is finished.
        method: `frontier`, one training for every budget; a mixing rule (`mixing.RULES`), for the limits alone;
            `bisection`, one policy, for the one limit; or `two-stage`, which predicts and then prices, without looking
            ahead. Default: `frontier`; with the paper's preset its `aim-greedy`.
        oracle: the learner of best responses (`learning.LEARNERS`); `two-stage` has none. `auto`: the counted model
            where distinct states are few, else the mean of the orthogonal critic and boosted trees (all of `frontier`
            only); `bcq` for the mixing rules and `bisection`.
        response: the response model of `two-stage`; default `deepfm`. `din` reads every single value of each user's
            past days: those of `[log.history]` if the campaign file lists `lags` there, else of the last 7 days.
        label_days: of `two-stage`: days that its labels look ahead; default 1.
        preset: `paper` for the paper's method and schedule: weights as the rule found them, no screening, no folds;
            default: as in the campaign file.
        folds: K of `frontier`: it learns K times, each time without the users of one fold, so that all users certify;
            1 certifies on one part of the users alone. Default: as in the campaign file, else 4 where that is quick, 2
            on larger logs, and 1 above a million rows whose states are too many to count.
        hold: what keeps the money budget: `certified`, a margin below it, which a certificate needs; `serving`, the
            server's cap, so the mixture spends the whole budget; `auto`, the margin, and the bundle of `frontier` has
            a second mixture without it, which `outlay serve` uses behind a cap. Other budgets keep their margins.
            Default: as in the campaign file, else `auto`.
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
    with campaign_of(source, campaign) as known:
        method = method or ("aim-greedy" if _preset(known, preset) == "paper" else "frontier")
        options = Options(
            method, oracle, response, label_days, preset, folds, hold, seed, resume, threads, workers, screening
        )
        _check_options(options)
        out = as_path(out, "out", "the path to write to")
        _check_out(out, known, overwrite=overwrite)
        with partial_folder(out, "run", resume=resume) as partial:
            return _train(known, out, partial, options, telling(progress))


def _check_out(out: Path, source: str | Path | Campaign, *, overwrite: bool) -> None:
    """Raise FolderError if a RUN cannot be written to `out` without the loss of anything."""
    check_replaceable(out, "run")
    if not overwrite and (out / ESTIMATES).exists():
        raise FolderError(
            f"holds an evaluated run: its {ESTIMATES} would be deleted.",
            file=out,
            way_out="Give another --out, or --overwrite to replace it.",
        )
    if not isinstance(source, Campaign) and Path(source).resolve().is_relative_to(out.resolve()):
        raise FolderError("lies in the folder that the run is to replace.", file=source, way_out="Give another --out.")


def _preset(source: str | Path | Campaign, given: str | None) -> str | None:
    """The preset that will hold: the one given, else that of the source; None where there is no such source."""
    if given is not None:
        return given
    if isinstance(source, Campaign):
        return source.train.preset
    if kind_of(Path(source)) == "data":
        return Transitions.open(source).campaign.train.preset
    return Campaign.load(source).train.preset if Path(source).is_file() else None


def _check_options(options: Options) -> None:
    """Raise OutlayError for an option that is unknown or impossible, or that the method does not use."""
    method, oracle, folds, workers = options.method, options.oracle, options.folds, options.workers
    for name, value, known in (
        ("method", method, METHODS),
        ("oracle", oracle, ORACLES),
        ("response", options.response, (*RESPONSES, None)),
    ):
        if value not in known:
            way_out = nearest(str(value), [one for one in known if one is not None])
            raise OutlayError(f"is {value!r}.", where=name, way_out=way_out)
    if oracle not in (AUTO, *CRITICS) and method in GAMES:
        raise OutlayError(
            f"is {oracle!r}, which {method} does not take.",
            where="oracle",
            way_out=f"Take --method frontier, or --oracle {', '.join(CRITICS[:-1])} or {CRITICS[-1]}.",
        )
    for name, given, users in (
        ("oracle", None if oracle == AUTO else oracle, ("frontier", *GAMES)),
        ("response", options.response, ("two-stage",)),
        ("label_days", options.label_days, ("two-stage",)),
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
    if options.label_days is not None and options.label_days < 1:
        raise OutlayError(
            f"is {options.label_days}; it must be 1 or more.", where="label_days", way_out="Give 1 or more."
        )


def _train(source: str | Path | Campaign, out: Path, partial: Path, options: Options, report: Progress) -> Run:
    """Train into the folder `partial`, which is put in place of `out` when it is finished."""
    data, campaign, notes = _data(source, partial, options, report)
    campaign = campaign.with_train(folds=options.folds, hold=options.hold)
    if any(campaign.held):
        money = campaign.budgets[campaign.money]
        notes.append(HELD.format(budget=money.name, limit=money.words))
    fields: list[str] | None = None
    if wide(data, campaign):
        found = options.screening or screen(data, within(report, 0.15, 0.2))
        fields = [data.schema.categorical[place].name for place in found.kept]
        data, campaign = data.with_fields(fields), campaign.with_train(folds=1)  # users who certify chose no fields
        notes.append(screened_words(found, fields))
    state = Measure(_fewer(data), LEARN, None).state.markov_check
    if state is not None and state.refused is not None:
        notes.append(f"{state.refused.words}. As it is, outlay evaluate will not certify this run.")
    record(_learned(data, campaign, fields, partial, options, within(report, 0.2, 1)), options.method, notes, fields)
    put_in_place(partial, out)
    report(1.0, "done")
    return Run.open(out)


def _learned(
    data: Transitions, campaign: Campaign, fields: list[str] | None, partial: Path, options: Options, report: Progress
) -> Learned:
    """What the method makes of the data; on a cluster, where there are to be workers."""
    oracle, seed, resume, workers = options.oracle, options.seed, options.resume, options.workers
    if options.method == "two-stage":
        response, days = options.response or "deepfm", options.label_days or 1
        return two_stage.learn(data, campaign, response, days, seed, partial, report)
    if options.method != "frontier":
        critic = CRITICS[0] if oracle == AUTO else oracle
        return log_game.learn(data, campaign, options.method, critic, seed, partial, resume, report)
    apart = None
    if workers is not None and workers > 1:
        from outlay.cluster.networks import elsewhere

        apart = elsewhere(data.folder, fields, campaign, oracle, seed, workers, resume)
    return every_budget.learn(data, campaign, oracle, seed, partial, resume, report, apart)


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
    source: str | Path | Campaign, partial: Path, options: Options, report: Progress
) -> tuple[Transitions, Campaign, list[str]]:
    """Open DATA, or prepare the campaign's log into RUN/data; the campaign with its settings; what to tell the user."""
    if isinstance(source, Campaign) or Path(source).is_file() or Path(source).suffix == ".toml":
        campaign = source if isinstance(source, Campaign) else Campaign.load(source)
        if options.preset is not None:
            campaign = campaign.with_train(preset=options.preset)
        data = _prepared(campaign, partial, options.threads, report)
        campaign, notes = data.campaign, list[str]()
    else:
        data, campaign, notes = _given(Path(source), options.preset)
    if campaign.train.preset == "paper":
        notes.append(_paper_words(campaign, options.method))
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


def _prepared(campaign: Campaign, partial: Path, threads: int | None, report: Progress) -> Transitions:
    """The campaign's log, prepared into RUN/data unless an unfinished run has it there."""
    folder = partial / "data"
    if not (folder / "manifest.json").exists():
        prepare(campaign, folder, threads=threads, progress=within(report, 0, 0.15))
    data = Transitions.open(folder)
    if data.campaign.model_dump(exclude={"labels"}) != campaign.read_as(data.campaign).model_dump(exclude={"labels"}):
        raise FolderError(
            "the unfinished run was begun with another campaign file or preset.",
            file=campaign.path,
            way_out="Put the file back as it was, or train without --resume.",
        )
    return data


def _given(source: Path, preset: str | None) -> tuple[Transitions, Campaign, list[str]]:
    """DATA as they were prepared, the campaign with its settings, and what differs from the campaign file."""
    if (inside := source / "campaign.toml").is_file() and kind_of(source) in (None, "campaign"):
        raise FolderError(
            "is the folder of a campaign; its campaign.toml or a DATA folder is expected.",
            file=source,
            way_out=f"Give {inside}.",
        )
    data, notes = Transitions.open(source), list[str]()
    campaign = data.campaign
    if preset is not None:  # the split and the discount are in the data
        campaign = campaign.with_train(preset=preset, shares=campaign.train.shares)
        campaign = campaign.model_copy(update={"meta": data.campaign.meta})
        notes.append(
            f"preset on prepared data: the split stays as prepared, {list(campaign.train.shares)}, and so does the "
            "discount; train from the campaign file for the preset's."
        )
    if campaign.path.exists() and Campaign.load(campaign.path).read_as(data.campaign) != data.campaign:
        notes.append(
            f"{campaign.path} has changed since the data were prepared; this run uses it as it was then. "
            "Train from the campaign file, or prepare again, to use it as it is now."
        )
    return data, campaign, notes
