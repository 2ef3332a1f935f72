"""What the names of columns say: which role they may have, whether they speak of the past or of what happens after."""

from __future__ import annotations

import re

from outlay.logs.columns import Column

EARLIER = r"(^|_)(pre|prev|previous|last|lag|yesterday|past|before|preperiod|since|ago|history|\d+d)(_|$)"
AFTER = (
    r"(^|_)(out|outcomes?|click(s|ed)?|open(s|ed)?|redeem(s|ed)?|redemptions?|response|responded|used|bought|sold|gross|"
    r"net|gmv|profit|refund(s|ed)?|return(s|ed)?|churn(ed)?|retention|retained|label|target|next|after|later|future|"
    r"post)(_|$)"
)
IDENTIFIER = r"(^|_)(id|key|uuid|code|number)$"
NAMES = {
    "user": r"(^|_)(user|customer|kunde|client|member|household|player|person|account|subscriber|rider|visitor)s?"
    r"(_?(id|no|key))?$",
    "time": r"^(day|date|datum|tag|dt|period|week|month|time|ts|timestamp|t|event_date|\w+_(day|date))$",
    "action": r"(^|_)(action|treatment|treated|coupons?|incentive|offer|discount|bonus|promo|promotion|voucher|arm|"
    r"ratio|gift|message|nudge|rabatt|gutschein)(_|$)",
    "arm": r"(^|_)(variant|version|group|campaign|segment|cell|condition|experiment|test)(_|$)",
    "propensity": r"^(p|prob|probability|propensity|pscore|action_prob|\w+_propensity)$",
    "reward": r"(^|_)(reward|active|outcome|converted|conversion|orders?|purchases?|purchased|visits?|visited|y)(_|$)",
    "money": r"(^|_)(revenue|sales|margin|spend|spending|dailyspending|gave|amount|amountgive|umsatz)(_|$)",
    "after": AFTER,
    "cost": r"(^|_)(costs?|kosten|payout|paid|expense)(_|$)",
    "forced": r"^(forced|no_choice|is_forced)$",
    "terminal": r"^(terminal|left|churned|is_last|done|ended)$",
    "eligible": r"^(eligible|allowed|allowed_actions|eligible_actions)$",
}


def named(column: Column, pattern: str) -> bool:
    """Whether the name is one of a pattern."""
    return re.search(pattern, column.name.lower()) is not None


def outcome(column: Column) -> bool:
    """Whether the name is one of what happens after a decision."""
    return any(named(column, pattern) for pattern in (NAMES["reward"], NAMES["money"], NAMES["cost"], AFTER))


def earlier(column: Column) -> bool:
    """Whether the name speaks of the past: such a column is part of the state."""
    return re.search(EARLIER, column.name.lower()) is not None


def alike(name: str, other: str) -> bool:
    """Whether two names begin with the same word: coupons_Food and coupons_Any, treat_size and treatment."""
    one, two = (text.lower().split("_")[0] for text in (name, other))
    return min(len(one), len(two)) >= 3 and (one.startswith(two) or two.startswith(one))
