"""Why a figure is not believed or a certificate not issued: a kind, and the figures that its words need.

    reason = Reason(ReasonKind.FEW_USERS, {"count": 12, "units": "users", "needed": 30})
    reason.kind is ReasonKind.FEW_USERS        # what decisions go by
    reason.words                               # what people read: made here, last, and compared with nothing

Estimators, checks and certificates hand reasons on; files store them, words included. The kinds say what stands against
a figure, WORDS how that is told. A reason may have another behind it, which is one of its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from outlay.core.actions import named


class ReasonKind(StrEnum):
    """What stands against a figure or a certificate, or for one (`AGREES`, `REPRODUCED`, `ENOUGH`, `BALANCED`)."""

    UNSUPPORTED = "unsupported"  # the log shows too little of what the policy does: there is no number
    REPRODUCTION = "reproduction"  # the old policy's totals are not given back
    MISFIT = "misfit"  # the model of the old policy does not fit the log
    STATE = "state"  # earlier days say more than the state
    BALANCE = "balance"  # the old policy looked at something else
    CONTRADICTED = "contradicted"  # another estimator says otherwise
    NOT_CHECKED = "not checked"  # nothing could confirm the figure, and something has to
    NOT_COMPARED = "not compared"  # nothing could, and nothing has to
    AGREES = "agrees"
    DOUBTED = "doubted"  # another check was not passed
    SHARED = "shared"  # a budget depends on how many others get something
    UNASSIGNED = "unassigned"  # it is not known how the log's actions were drawn
    APPROXIMATE = "approximate"  # the policy reads more of the past than the state holds
    NOT_MEASURED = "not measured"
    FEW_USERS = "few users"
    LIMIT = "limit"  # a bound breaks its limit, or there is none; the lines of the certificate say which
    DAYS = "days"  # the same, for what days add to it
    HELD = "held"  # a cap holds the budget while serving, so it was not to be proved

    # What checks found.
    REPRODUCED = "reproduced"
    NO_TOTAL = "no total"  # was both observed and fitted
    NOT_TESTED = "not tested"
    ONE_ROW = "one row"  # of each user
    NOT_ALL_GIVEN = "not all given"
    ENOUGH = "enough"  # is the state
    SHORT = "short"
    BALANCED = "balanced"
    MISSTATED = "misstated"  # are the logged propensities
    LOOKED_BACK = "looked back"
    DRIVEN = "driven"
    DRIVEN_AND = "driven and"

    # Why there is no number.
    NO_PROPENSITIES = "no propensities"
    NOBODY = "nobody"
    NOT_SHOWN = "not shown"  # so many days, for anyone
    NO_PATH = "no path"  # of the log is the policy's
    NO_PATH_SO_LONG = "no path so long"
    NO_DECISION = "no decision"
    ALL_FORCED = "all forced"
    NOTHING_FOLLOWS = "nothing follows"
    UNSTABLE = "unstable"
    NEVER_GIVEN = "never given"
    NEVER_GIVEN_IN_USE = "never given in use"  # in a row that the estimate can use
    NEVER_GIVEN_ON = "never given on"  # where the policy's paths lead
    NEVER_GIVEN_AFTER = "never given after"
    HARDLY_GIVEN = "hardly given"
    HARDLY_GIVEN_MOST = "hardly given most"  # the same, and what it was
    HARDLY_ANY = "hardly any"
    UNLIKE = "unlike"  # who joined late
    FEW_IN_SEGMENT = "few in segment"

    # Why a number is not relied on.
    FEW_EFFECTIVE = "few effective"
    FEW_ROWS = "few rows"
    HEAVY_USER = "heavy user"
    CLIPPED = "clipped"
    SOME_USERS = "some users"
    MEAN_RATIO = "mean ratio"
    ONE_USER = "one user"
    SKEWED = "skewed"
    UNVARYING = "unvarying"
    BEYOND_DAYS = "beyond days"
    BEYOND_DAYS_WITHIN = "beyond days within"  # and where the number must lie
    NO_SECOND = "no second"

    # Why nothing could confirm a number.
    EXTRAPOLATED = "extrapolated"
    NO_STEPS = "no steps"
    FEW_STEPS = "few steps"
    IMPRECISE = "imprecise"
    NO_OTHER = "no other"


# No certificate has bounds where one of these stands against its figures.
WITHHOLDING = frozenset(
    {
        ReasonKind.UNSUPPORTED,
        ReasonKind.REPRODUCTION,
        ReasonKind.STATE,
        ReasonKind.BALANCE,
        ReasonKind.CONTRADICTED,
        ReasonKind.NOT_CHECKED,
        ReasonKind.DOUBTED,
        ReasonKind.SHARED,
    }
)

WORDS = {
    ReasonKind.UNSUPPORTED: "{found}",
    ReasonKind.REPRODUCTION: "the estimator does not reproduce the old policy's observed totals: {target} is fitted as "
    "{fitted:.4g} and observed as {observed:.4g}",
    ReasonKind.MISFIT: "the behaviour model does not fit the log",
    ReasonKind.STATE: "{found}. {way_out}",
    ReasonKind.BALANCE: "{found}. {way_out}",
    ReasonKind.CONTRADICTED: "estimates disagree: {target} is {fitted:.4g} by the fitted evaluation and {other:.4g} by "
    "{estimator}, {errors:.1f} standard errors apart ({beyond} of {count} such comparisons disagree)",
    ReasonKind.NOT_CHECKED: "not checked: {found}",
    ReasonKind.NOT_COMPARED: "not checked: {found}",
    ReasonKind.AGREES: "all {count} other estimates that can be relied on agree with it, {less} of them assume less",
    ReasonKind.DOUBTED: "{found}",
    ReasonKind.SHARED: "{budgets} shared: what it costs or brings depends on how many others get it, and the log shows "
    "that only for as many as got it then",
    ReasonKind.UNASSIGNED: "the campaign file does not say how the log's actions were drawn (log.propensity)",
    ReasonKind.APPROXIMATE: "the policy reads single past days that the log's state lacks, so its estimates rest on "
    'the pasts that the log\'s own policy left behind. Add "lags" to the summaries of [log.history], and prepare and '
    "train again",
    ReasonKind.NOT_MEASURED: "too few rows of the log say what it would be",
    ReasonKind.FEW_USERS: "it rests on {count} {units}, and {needed} are needed",
    ReasonKind.LIMIT: "a limit is not kept",
    ReasonKind.DAYS: "as days differ ({found})",
    ReasonKind.HELD: "{label} is estimated at {value:.4g} ({low:.4g} to {high:.4g}) where {limit:.12g} is allowed, "
    "with no margin kept: the cap of the ledger holds it",
    ReasonKind.REPRODUCED: "the estimator reproduces the old policy's observed totals",
    ReasonKind.NO_TOTAL: "not compared: no user has as many days in the log as an estimated total counts",
    ReasonKind.NOT_TESTED: "not tested: too few users, or clusters of them, have two days with a choice",
    ReasonKind.ONE_ROW: "nothing to test: each user has one row, so nothing comes before it",
    ReasonKind.NOT_ALL_GIVEN: "not tested: for some users the log's policy never gave some of the allowed actions, "
    "so nothing says what they would do",
    ReasonKind.ENOUGH: "the features say enough about a user: given them and the action, the days before predict "
    "nothing of what follows (at most a correlation of {correlation:+.3f} ± {error:.3f})",
    ReasonKind.SHORT: "the state does not say enough: given state and action, {source} still predicts {outcome} "
    "(correlation {correlation:+.3f} ± {error:.3f})",
    ReasonKind.BALANCED: "given the state, the action does not depend on what users did on the days before",
    ReasonKind.MISSTATED: "log.propensity is not the probability with which actions were drawn: weighted by it and "
    "given the state, {outcome} depends on {source} (correlation {correlation:+.3f} ± {error:.3f})",
    ReasonKind.LOOKED_BACK: "the old policy looked at something of the past that is not in the features: given the "
    "state, {outcome} depends on {source} (correlation {correlation:+.3f} ± {error:.3f})",
    ReasonKind.DRIVEN: "{drivers}",
    ReasonKind.DRIVEN_AND: "{drivers}; {found}",
    ReasonKind.NO_PROPENSITIES: "the log has no propensities",
    ReasonKind.NOBODY: "none of the users asked for is in the log",
    ReasonKind.NOT_SHOWN: "no user's window covers {days} days",
    ReasonKind.NO_PATH: "no user's logged path is the policy's",
    ReasonKind.NO_PATH_SO_LONG: "no user's logged path is the policy's for {days} days",
    ReasonKind.NO_DECISION: "the policy meets no decision",
    ReasonKind.ALL_FORCED: "every row is forced: there is no decision",
    ReasonKind.NOTHING_FOLLOWS: "no row has a next row or a terminal end, so the log does not show what follows a "
    "decision",
    ReasonKind.UNSTABLE: "the fitted value lies outside what the outcomes can add up to: the system is unstable",
    ReasonKind.NEVER_GIVEN: "the policy gives {action}, which these users were never given",
    ReasonKind.NEVER_GIVEN_IN_USE: "the policy gives {action}, which these users were never given in a row that can "
    "be used",
    ReasonKind.NEVER_GIVEN_ON: "the policy's paths go on where these users were never given what it gives in a row "
    "that can be used",
    ReasonKind.NEVER_GIVEN_AFTER: "after {days} days none of these users was given what the policy gives",
    ReasonKind.HARDLY_GIVEN: "on {share:.1%} of its paths the policy gives what users in that state hardly ever got in "
    "the log, so the log says too little about them; at most {most:.1%} may be so",
    ReasonKind.HARDLY_GIVEN_MOST: "on {share:.1%} of its paths the policy gives what users in that state hardly ever "
    "got in the log (most often {action}), so the log says too little about them; at most {most:.1%} may be so",
    ReasonKind.HARDLY_ANY: "fewer than {needed:.0f} users were given, by chance, what the policy gives",
    ReasonKind.UNLIKE: "{share:.0%} of the users joined so late that the log ends before these days, and their "
    "features are unlike those of all users whose days it shows (at most {most:.0%} may be): take fewer days, or a "
    "longer log",
    ReasonKind.FEW_IN_SEGMENT: "{count} of these users are in it; {needed} are needed",
    ReasonKind.FEW_EFFECTIVE: "it rests on the weights of {count:.0f} effective users; {needed:.0f} are needed",
    ReasonKind.FEW_ROWS: "some {count:.0f} rows stand behind each of its states; {needed} are needed",
    ReasonKind.HEAVY_USER: "one user has {share:.1%} of the weight; at most {most:.0%} may",
    ReasonKind.CLIPPED: "the clip binds for {share:.2%} of the weights, which biases it",
    ReasonKind.SOME_USERS: "it is of the {share:.0%} of users whom the log shows for so many days; other estimates are "
    "of all",
    ReasonKind.MEAN_RATIO: "π/p has mean {mean:.3f} ± {error:.3f}, where right propensities give 1",
    ReasonKind.ONE_USER: "there is no interval: it rests on a single user",
    ReasonKind.SKEWED: "rare outcomes skew its error (skewness {skewness:.1f}), so its interval would miss too often",
    ReasonKind.UNVARYING: "it is the same for all of these users but not in the whole log, so ±0 does not measure its "
    "error",
    ReasonKind.BEYOND_DAYS: "{share:.0%} of its weight lies after the first {days} days, which are taken to go on as "
    "their later half: take the means over those days, a longer log or a shorter discount",
    ReasonKind.BEYOND_DAYS_WITHIN: "{share:.0%} of its weight lies after the first {days} days, which are taken to go "
    "on as their later half. By what a day can bring it lies between {low:.4g} and {high:.4g} for the reward: take the "
    "means over those days, a longer log or a shorter discount",
    ReasonKind.NO_SECOND: "the estimate that assumes less gives no interval: {found}",
    ReasonKind.EXTRAPOLATED: "it leads users to states that hardly any user of the log is in, so the values of its "
    "later days are extrapolated beyond the log (for {share:.0%} of the users' weight; at most {most:.0%} may be)",
    ReasonKind.NO_STEPS: "no total could be compared with single steps",
    ReasonKind.FEW_STEPS: "few steps of the log follow the policy: {found}",
    ReasonKind.IMPRECISE: "the log rarely did what the policy does in the same states. By the propensities {target} "
    "has a standard error of {error:.2g}, but the fitted evaluation claims {claimed:.2g}: it extrapolates",
    ReasonKind.NO_OTHER: "no other estimate can be relied on",
}


def _action(figures: Mapping[str, Any]) -> dict[str, str]:
    """The action among the figures, in words."""
    return {"action": named(figures["action"])} if "action" in figures else {}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    Attributes:
        kind: what decisions go by.
        figures: what its words need, by name.
        words: the reason for people, without a full stop.

    Raises:
        ValueError: if a figure is missing that its words need.
    """

    kind: ReasonKind
    figures: Mapping[str, str | int | float | Reason] = field(default_factory=dict)
    words: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            words = WORDS[self.kind].format(**{**self.figures, **_action(self.figures)})
        except KeyError as missing:
            raise ValueError(f"a reason of the kind {self.kind.value!r} needs the figure {missing}.") from None
        object.__setattr__(self, "words", words)

    def __hash__(self) -> int:
        return hash((self.kind, frozenset(self.figures.items())))

    def __str__(self) -> str:
        return self.words

    @property
    def withholds(self) -> bool:
        """Whether no bound can be believed for it."""
        return self.kind in WITHHOLDING
