"""What was given and what came of it: the columns of the action, the reward, its cost, and of other outcomes."""

from __future__ import annotations

import re

from outlay.logs.clues import LIKELY, SURE, Clues, chance, rank, strongest
from outlay.logs.columns import (
    FEW,
    IDENTIFIER,
    NAMES,
    ScannedColumn,
    earlier,
    named,
    of_next_row,
    outcome,
    paid_out,
    snake,
)
from outlay.logs.looked import Guess, Looked
from outlay.logs.naming import MOST
from outlay.logs.reading import literal, plain, setting
from outlay.logs.source import WHOLE
from outlay.logs.values import NUMBER, means_nothing

COUNTED = "1 for each that gives something, so that it limits how many rows get one"
ARMS = ("treatment", "test", "treated", "target", "exposed", "variant", "ad", "a", "b")
OUTCOMES = (
    r"(^|_)(exposure|exposed|opens?|opened|used|churn(ed)?|refund(s|ed)?|returns?|returned|"
    r"redeemed|eingelost|geoffnet|utilise|ouvert|canjeado|abierto|aperto|usato|geopend|ingewisseld)(_|$)"
)
GOOD = re.compile(r"^(yes|y|true|1|ja|oui|s[iì]|success|won|good|improved|bought|converted|clicked|visited|active)$")
COUNTS = r"(^|_)(total|sum|count|minutes|duration|playtime|session|score|watch|steps)(_|$)"


class NoActionError(LookupError):
    """No column could be the action.

    Attributes:
        near: columns that it might be all the same, likeliest first.
    """

    def __init__(self, text: str, near: tuple[str, ...]) -> None:
        super().__init__(text)
        self.near = near


# What was given.


def find_action(log: Looked) -> ScannedColumn:
    """The column of actions.

    Raises:
        NoActionError: if none could be.
    """
    if role := log.fixed.get("action"):
        return log.give("action", log.by_name[role], "as answered")
    ranked = rank("action", clues_of_actions(log))
    stated = _named_so(log, "treated", "offered")
    same = [c for c in stated if c.distinct == 1]
    if len(same) == len(stated) > 0:
        text = f"every row has the same value of {same[0].name}: there is nothing to compare. If another column says "
        raise NoActionError(f"{text}what each user was given, name it under [log] as action.", tuple(ranked.of)[:5])
    if ranked.best is None:
        near = tuple(ranked.of)[:5]
        likeliest = (
            f" Likeliest {'are' if near[1:] else 'is'} {', '.join(near)}: in a terminal, init asks." if near else ""
        )
        raise NoActionError(_no_action(log) + likeliest, near)
    column, sure = log.by_name[ranked.best], ranked.of[ranked.best] >= SURE
    why = f"{ranked.words[column.name]}; {_spread(column)}"
    return log.give("action", column, why, sure=sure, others=ranked.near(column.name))


def _named_so(log: Looked, *kinds: str) -> list[ScannedColumn]:
    """Free columns with such a name, of none of which it speaks of the past."""
    return [c for c in log.free.values() if any(named(c, NAMES[kind]) for kind in kinds) and not earlier(c)]


def clues_of_actions(log: Looked) -> dict[str, Clues]:
    """The clues of every column that may be the action."""
    able = [c for c in log.free.values() if _may_act(log, c)]
    found = {c.name: clues_of_action(log, c) for c in able}
    for c in able:  # a part of another one: every row with a value of it has that one too
        wider = sum(_within(log, c, o) for o in able if o is not c)
        found[c.name]["part"] = min(wider, 2) / 2, ""
    return found


def _may_act(log: Looked, c: ScannedColumn) -> bool:
    if c.name in log.since or c.name in log.lags or c.index or 2 * c.distinct > log.rows + 2 or c.distinct < 2:
        return False
    if c.type == "DOUBLE" and c.distinct > FEW:
        return False
    stated = "propensity" in log.found or named(c, NAMES["offered"]) or named(c, NAMES["treated"])
    most = MOST if stated and not named(c, NAMES["money"]) else FEW
    return (c.is_number and c.distinct <= most) or 2 <= len(c.texts) <= (FEW if stated else 20)


def _within(log: Looked, c: ScannedColumn, o: ScannedColumn) -> bool:
    """Whether `c` is not 0 only where `o` is not 0, and more seldom; a row without a value is one of 0."""
    if not (c.is_number and o.is_number) or c.low != 0 or o.low != 0:
        return False
    mine, its = log.rare.values[c.name] > 0, log.rare.values[o.name] > 0
    return bool(mine.any() and its[mine].all() and its.sum() > mine.sum() and its.mean() < 0.9)


def clues_of_action(log: Looked, c: ScannedColumn) -> Clues:
    """What speaks for a column as what was given, and against it."""
    clues: Clues = {}
    for kind in ("treated", "offered", "arm"):
        if named(c, NAMES[kind]):
            clues[kind] = 1, "named like an action"
            if _exactly(c, NAMES[kind]):
                clues["exactly"] = 1, ""
            break
    if earlier(c):
        clues["earlier"] = 1, ""
    if outcome(c):
        clues["outcome"] = 1, ""
    if log.is_time(c) or named(c, NAMES["time"]):
        clues["time"] = 1, ""
    if named(c, IDENTIFIER) and not named(c, NAMES["offered"]):
        clues["identifier"] = 1, ""
    clues |= _values(c) | _place(log, c)
    if (p := log.found.get("propensity")) is not None and p.column is not None:
        if log.rare.calibrated(c.name, p.column):
            clues["calibrated"] = 1, f"{p.column} is the probability of its values"
        else:
            clues["not calibrated"] = 1, ""
    if log.user is not None:
        clues["one per user" if c.name in log.constant else "varies"] = (
            1,
            ("" if c.name in log.constant else "varies within users"),
        )
    return clues | _ties(log, c)


def _values(c: ScannedColumn) -> Clues:
    """By its values."""
    clues: Clues = {}
    if c.texts:
        words = [text.strip().lower() for text in c.texts]
        arm = next(
            (w for w in words if re.search(r"(^|\W|_)(control|treatment|treated|placebo|test|variant)(\W|_|$|\d)", w)),
            None,
        )
        nothing = [text for text in c.texts if means_nothing(text)]
        if arm is not None or any(w in ARMS[:6] for w in words):
            clues["word"] = 1, f"{arm or words[0]!r} is among its values"
        elif nothing and words not in (["no", "yes"], ["n", "y"]):
            clues["nothing"] = 1, f"{nothing[0]!r} gives nothing"
        elif set(words) <= set("abcd") and {"a", "b"} <= set(words):
            clues["letters"] = 1, "its values are A, B …"
        elif all(map(NUMBER.search, words)):
            clues["amounts"] = 1, "its names tell amounts"
        if len(words) > 5:
            clues["many names"] = 1, ""
        if words in (["no", "yes"], ["n", "y"], ["false", "true"]):
            clues["yes or no"] = 1, "yes or no"
    elif c.type == "BOOLEAN" or (c.distinct == 2 and (c.low, c.high) == (0, 1)):
        clues["yes or no"] = 1, "yes or no"
    elif c.distinct > 12:
        clues["many numbers"] = 1, ""
    elif c.type not in WHOLE or c.distinct < (c.high or 0) - (c.low or 0) + 1:
        if c.low == 0 and c.distinct >= 3:
            clues["few amounts"] = 1, "few amounts, 0 among them"
    elif c.low == 1:
        clues["codes"] = 1, ""
    return clues


def _place(log: Looked, c: ScannedColumn) -> Clues:
    """By where it stands among the columns."""
    if not log.in_order:
        return {}
    at, last = log.names.index(c.name), len(log.names) - 1
    clues: Clues = {}
    if at == last:
        clues["last"] = 1, ""
    elif at >= last - 3:
        clues["near the end"] = 1, "stands near the end"
    elif at <= 1:
        clues["at the start"] = 1, ""
    return clues


def _ties(log: Looked, c: ScannedColumn) -> Clues:
    """By the columns that go with it: what is known before tells nothing of a random action, and outcomes follow."""
    rare, tied, foretold, follows, looked = log.rare, 0, 0.0, "", 0
    decides, behind = "", []
    at = log.names.index(c.name)
    for other in log.columns:
        if other.name == c.name or other.name not in rare.codes or other.index or other.distinct < 2:
            continue
        if any(guess.column == other.name for guess in log.found.values()):
            continue
        known = earlier(other) or other.name in log.constant or other.name in log.lags or other.name in log.since
        after = outcome(other) and not earlier(other)
        strength = rare.association(c.name, other.name, first=c.name in log.constant)
        if log.in_order and log.names.index(other.name) > at:
            behind.append(strength > 0)
        if after:
            follows = follows or (other.name if strength > 0 else "")
        else:
            looked += 1
            tied += strength > 0
            foretold = max(foretold, strength) if known else foretold
        told = not known and not decides and rare.only_where(other.name, c.name) and not rare.tells(c.name, other.name)
        if told and not _within(log, c, other):
            decides = other.name
    clues: Clues = {}
    if looked:
        clues["tied"] = tied / looked, ""
        if not tied:
            clues["loose"] = 1, "no other column predicts it"
    if any(behind):
        clues["followed behind"] = sum(behind) / len(behind), "columns behind it go with it"
    if foretold:
        clues["foretold"] = min(foretold * 2, 1), ""
    if follows:
        clues["followed"] = 1, f"{follows} goes with it"
    if decides:
        clues["decides"] = 1, f"{decides} has one value only where it has one of its own"
    return clues


def _exactly(c: ScannedColumn, pattern: str) -> bool:
    """Whether the whole name is one of a pattern."""
    found = re.search(pattern, snake(c.name))
    return found is not None and found.group(0).strip("_") == snake(c.name)


def _spread(c: ScannedColumn) -> str:
    if c.texts:
        return f"{len(c.texts)} names"
    return f"{c.distinct} values, {c.low:g} to {c.high:g}"


def _no_action(log: Looked) -> str:
    """Why no column can be the action: for each that is named like one, else for all."""
    used = {guess.column for guess in log.found.values()}
    rest = [column for column in log.columns if column.name not in used]
    near = [c for c in rest if any(named(c, NAMES[kind]) for kind in ("treated", "offered", "arm"))] or rest

    def reason(column: ScannedColumn) -> str:
        if not column.is_number and not column.texts:
            return f"{column.name} holds too many different texts"
        if not 2 <= column.distinct <= FEW:
            return f"{column.name} has {column.distinct:,} different value{'s' if column.distinct != 1 else ''}"
        return f"nothing says that {column.name} was given"

    listed = "; ".join(map(reason, near[:6])) + (" …" if len(near) > 6 else "") or "all columns have another role"
    arm = next((c for c in near if len(c.texts) > 1), None)
    offered = "" if arm is None else f" If it is {arm.name}: {setting('action', arm.written)}."
    return f"no column can be the action, what each user was given out of 2 to {FEW} values: {listed}.{offered}"


# What came of it.


def find_reward(log: Looked, action: ScannedColumn) -> ScannedColumn:
    """The column of rewards.

    Raises:
        LookupError: if no number varies.
    """
    if role := log.fixed.get("reward"):
        return log.give("reward", log.by_name[role], "as answered")
    able = [c for c in log.free.values() if may_reward(log, c)]
    if not able:
        raise LookupError("no column can be the reward, a number that varies: name what you want more of.")
    ranked = rank("reward", {c.name: clues_of_reward(log, c, action) for c in able})
    column = log.by_name[next(iter(ranked.of))]
    stated = _named_so(log, "reward", "after", "money")
    same = [c for c in stated if c.distinct <= 1]
    if same and not any(c.name == column.name for c in stated):
        raise LookupError(
            f"every row has the same value of {same[0].name}: nothing came of any action, so there is nothing to "
            "learn. If another column says what you want more of, name it under [log] as reward."
        )
    says = any(named(column, NAMES[kind]) for kind in ("reward", "after", "money")) or len(able) == 1
    sure, why, text = says and ranked.of[column.name] >= SURE, ranked.words[column.name], None
    if column.texts:
        wanted, clear = _wanted(log, column)
        text, sure = f"cast({plain(column.name)} = {literal(wanted)} as integer)", sure and clear
        why = f"{why}; counts {wanted!r}, not {next(t for t in column.texts if t != wanted)!r}"
    else:
        why = f"{why}; {column.low:g} to {column.high:g}"
    return log.give("reward", column, why, text, sure=sure, others=ranked.near(column.name))


def _wanted(log: Looked, c: ScannedColumn) -> tuple[str, bool]:
    """Which of two texts counts, and whether a word says so; else the rarer."""
    one, other = c.texts
    for text, beside in ((one, other), (other, one)):
        denied = means_nothing(beside) or re.match(r"(no|not|non|un|in|dis)[ _-]?", beside.lower()) is not None
        if (
            GOOD.search(text.lower()) is not None
            or (denied and text.lower() in beside.lower())
            or means_nothing(beside)
        ):
            return text, True
    [(ones, others)] = log.source.run(
        "SELECT "
        + ", ".join(f"count(*) FILTER ({plain(c.name)} = {literal(text)})" for text in (one, other))
        + " FROM log"
    )
    return (one if ones <= others else other), False


def may_reward(log: Looked, c: ScannedColumn) -> bool:
    """Whether it is a number that may follow from the action."""
    known = c.name in log.since or c.name in log.lags or c.name in log.constant or c.index
    return (
        (c.is_number or len(c.texts) == 2)
        and c.distinct > 1
        and not known
        and not (named(c, IDENTIFIER) and c.distinct > 2)
    )


def clues_of_reward(log: Looked, c: ScannedColumn, action: ScannedColumn) -> Clues:
    """What speaks for a column as what one wants more of, and against it."""
    clues, rare = _place(log, c), log.rare
    if _exactly(c, r"^(reward|y|target|label|outcome)$") or named(c, r"(^|_)reward(_|$)"):
        clues["reward name"] = 1, "named like what one wants more of"
    elif named(c, OUTCOMES):
        clues["lesser name"] = 1, "named like an outcome"
    elif named(c, NAMES["cost"]) or named(c, r"(^|_)redeem"):
        clues["cost name"] = 1, ""
    elif named(c, NAMES["reward"]):
        clues["outcome name"] = 1, "named like what one wants more of"
    elif named(c, NAMES["money"]):
        clues["money name"] = 1, "named like money that comes in"
    elif named(c, NAMES["after"]):
        clues["later name"] = 1, "named like an outcome"
    elif named(c, COUNTS):
        clues["count name"] = 1, "named like a count"
    if earlier(c) or _of_an_earlier_year(log, c):
        clues["earlier"] = 1, ""
    if named(c, NAMES["treated"]) or named(c, NAMES["offered"]):
        clues["action name"] = 1, ""
    if named(c, NAMES["time"]):
        clues["time"] = 1, ""
    if named(c, IDENTIFIER):
        clues["identifier"] = 1, ""
    if any(c.name in happened for happened in log.since.values()):
        clues["counted"] = 1, "another column counts the days since it happened"
    if c.name in log.lags.values():
        clues["held"] = 1, "the next row holds it as of before"
    if c.texts:
        clues["two texts"] = 1, "one of two texts"
    elif (c.low, c.high) == (0, 1) and c.distinct == 2:
        clues["yes or no"] = 1, "yes or no"
    elif c.type in WHOLE and c.distinct == log.rows:
        clues["one a row"] = 1, ""
    elif c.type == "DOUBLE" and c.low == 0 and (rare.values[c.name] == 0).mean() > 0.2:
        clues["often 0"] = 1, "a number that is often 0"
    if rare.tells(c.name, action.name) or rare.tells(action.name, c.name):
        clues["told"] = 1, ""
    elif rare.association(c.name, action.name) > 0:
        clues["goes with"] = 1, f"goes with {action.name}"
    if log.in_order and log.names.index(c.name) > log.names.index(action.name):
        clues["behind"] = 1, "stands after the action"
    others = [o for o in log.free.values() if o is not c and o.name in rare.codes and o.distinct > 1 and not o.index]
    if others:
        clues["tied"] = (
            sum(rare.association(c.name, o.name) > 0 for o in others) / len(others),
            "other columns predict it",
        )
    if any(_within(log, c, o) and not _but_for_empty_cells(log, c, o) for o in others):
        clues["part"] = 1, ""
    if any(_within(log, o, c) for o in others):
        clues["whole"] = 1, "another column is a part of it"
    return clues


def _but_for_empty_cells(log: Looked, c: ScannedColumn, o: ScannedColumn) -> bool:
    """Whether two columns are above 0 in the same of the rows with both: money, and whether there is any."""
    mine, its = log.rare.above_zero(c.name, o.name)
    return bool((mine == its).all())


def _of_an_earlier_year(log: Looked, c: ScannedColumn) -> bool:
    """Whether the name ends in a year, and another column is the same of a later one: `earn96` beside `earn98`."""
    year = re.fullmatch(r"(.*\D)((?:19|20)?\d\d)", snake(c.name))
    names = map(snake, log.by_name)
    return year is not None and any(
        other.removeprefix(year[1]) > year[2] and len(other) == len(year[0]) and other.startswith(year[1])
        for other in names
    )


def is_twin(log: Looked, c: ScannedColumn, action: ScannedColumn) -> bool:
    """Whether it is the action under another name: `campaign_id` beside `campaign`."""
    short, long = sorted((snake(c.name), snake(action.name)), key=len)
    return long.startswith(short) and _one_to_one(log, c, action)


def _one_to_one(log: Looked, c: ScannedColumn, action: ScannedColumn) -> bool:
    if c.distinct != action.distinct or c.name not in log.rare.codes:
        return False
    return log.rare.tells(c.name, action.name) and log.rare.tells(action.name, c.name)


def _may_decide(log: Looked, c: ScannedColumn, action: ScannedColumn) -> bool:
    """Whether all may have got what they got by it, as a mail by tier: a feature, for `check` to see that."""
    behind = log.in_order and log.names.index(c.name) > log.names.index(action.name)
    return not behind and not outcome(c) and _one_to_one(log, c, action)


def find_outcomes(log: Looked, action: ScannedColumn, reward: ScannedColumn) -> tuple[dict[str, str], set[str]]:
    """Columns that follow from the action → how that shows, and those of which that is not sure."""
    time = log.sql_of_time()
    later = {y: f"{x} counts the days since it" for x, happened in log.since.items() for y in happened}
    later |= {y: f"{x} holds it in the next row" for x, y in log.lags.items()}
    if log.user is not None and time is not None:
        numbers = [c for c in log.free.values() if c.is_number]
        for role, column in (("action", action), ("reward", reward)):
            found = of_next_row(log.source, log.user, time, numbers, column)
            later |= dict.fromkeys(found, f"the {role} of the user's next row")
    doubted = set()
    for c in log.free.values():
        if c.name in later or not may_follow(log, c) or _may_decide(log, c, action):
            continue
        clues = clues_of_outcome(log, c, action, reward)
        p = chance("outcome", clues)
        if earlier(c):
            p = 0.0
        elif outcome(c):  # whatever it does: a feature that is an outcome would leak
            p = max(p, SURE)
        elif named(c, r"^(sum|total)_") and log.in_order and log.names.index(c.name) > log.names.index(action.name):
            p = max(p, LIKELY)
        if p > 1 - SURE:
            if p < SURE or outcome(c):
                doubted.add(c.name)
            if p >= LIKELY:
                later[c.name] = strongest("outcome", clues)
    return {name: why for name, why in later.items() if name in log.free}, doubted


def may_follow(log: Looked, c: ScannedColumn) -> bool:
    """Whether nothing shows that it is known before."""
    before = c.name in log.since or c.name in log.lags or c.name in log.constant
    return not before and c.name in log.rare.codes and c.distinct >= 2 and not c.index


def clues_of_outcome(log: Looked, c: ScannedColumn, action: ScannedColumn, reward: ScannedColumn) -> Clues:
    """What says that a column follows from the action, and that it does not."""
    rare, clues = log.rare, {}
    if (outcome(c) or named(c, r"(^|_)redeem")) and not earlier(c):
        clues["outcome"] = 1.0, "named like an outcome"
    if earlier(c):
        clues["earlier"] = 1.0, ""
    if rare.only_where(c.name, action.name):
        clues["only where"] = 1.0, f"is told by {action.name} where that is nothing"
    if c.is_number and _part_of(log, c, reward):
        clues["part"] = 1.0, f"is 0 wherever {reward.name} is"
    with_action = rare.association(c.name, action.name, first=c.name in log.constant)
    if with_action > 0:
        clues["goes with action"] = 1.0, f"goes with {action.name}"
    with_reward = rare.association(c.name, reward.name)
    clues["goes with reward"] = min(2 * with_reward, 1.0), f"goes with {reward.name}"
    if log.in_order:
        at, first, last = (log.names.index(each.name) for each in (c, action, reward))
        if first < at < last:
            clues["between"] = 1.0, f"stands between {action.name} and {reward.name}"
            clues["between with"] = min(2 * with_reward, 1.0), f"goes with {reward.name}"
        elif at > max(first, last):
            clues["behind"] = 1.0, f"stands after {reward.name}"
            clues["behind with"] = min(2 * with_reward, 1.0), f"goes with {reward.name}"
    return clues


def _part_of(log: Looked, c: ScannedColumn, reward: ScannedColumn) -> bool:
    """Whether it is never above 0 without the reward, and not nearly always 0."""
    if c.low != 0 or reward.low != 0 or c.name in log.constant or earlier(c):
        return False
    mine, its = log.rare.above_zero(c.name, reward.name)
    return bool(mine.sum() >= 20 and its[mine].all() and not (log.rare.values[reward.name] > 0).all())


# What it cost, and who belongs together.


def find_cost(log: Looked, action: ScannedColumn, reward: ScannedColumn) -> None:
    """A column of costs, or what each action costs."""
    by_name = [c for c in log.free.values() if named(c, NAMES["cost"]) and c.is_number and not earlier(c)]
    if by_name:
        log.give("cost", by_name[0], f"by its name; {by_name[0].low:g} to {by_name[0].high:g}")
        return
    off = [c for c in log.free.values() if named(c, r"(^|_)(disc|discount|rebate|redeemed|saved)(_|$)")]
    off = [c for c in off if c.is_number and c.distinct > 2 and not earlier(c)]
    if given_back := next((c for c in off if log.rare.only_where(c.name, action.name)), None):
        log.give("cost", given_back, f"named like what was taken off, and 0 where {action.name} gives nothing")
        return
    if action.is_number and not named(action, IDENTIFIER):
        numbers = [c for c in log.free.values() if c.is_number]
        paid = paid_out(log.source, action, numbers)
        if paid is not None:
            log.give("cost", paid, "since it is 0 or the action in every row. CHECK: what it cost")
            return
    given, why = action.sql, "the amount, whenever the action is given"
    if action.texts:
        nothing = [text for text in action.texts if means_nothing(text)]
        cases = " ".join(f"when {literal(text)} then 0" for text in nothing)
        given = f"case {plain(action.name)} {cases} else 1 end" if nothing else "1"
        why = COUNTED if nothing else "1 for every action, so that it limits nothing yet"
    elif action.percent:
        given, why = f"cast({action.sql} > 0 as integer)", f"{COUNTED}; its amounts are per cent, not money"
    elif named(action, IDENTIFIER):
        given, why = "1", "1 for every action, since its numbers are no amounts of money"
    elif action.type == "BOOLEAN" or (action.low, action.high) == (0, 1):
        why = COUNTED
    elif (reward.low, reward.high) == (0, 1) and action.distinct > 2:
        given, why = f"{action.sql} * {reward.sql}", "paid only when the reward comes"
    log.found["cost"] = Guess(given, f"CHECK: {why}; no column is named cost", None, sure=True)


def find_cluster(log: Looked, action: ScannedColumn) -> None:
    """A column of groups whose members all got the same."""
    if log.user is not None or "cluster" in log.found:
        return
    for c in log.free.values():
        if not named(c, r"(^|_)(household|hh|family|haushalt|cluster)(_id|_no)?$") or c.distinct < 30:
            continue
        name = plain(c.name)
        [(groups, mixed)] = log.source.run(
            f"SELECT count(*), count(*) FILTER (a > 1) FROM (SELECT count(DISTINCT {plain(action.name)}) AS a "
            f"FROM log GROUP BY {name} HAVING count(*) > 1)"
        )
        if groups >= 20 and mixed <= 0.02 * groups:
            log.give("cluster", c, "all rows of a value got the same action")
            return
