"""Small files in the shape of public logs, drawn from models, with the roles that are right.

Features are drawn so that they go together a little, as those of real people do.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Shape:
    """A file and what is right.

    Attributes:
        columns: the file.
        action, reward, user: the columns that may be taken; None for the user: each row is one.
        outcomes: columns that must not be features.
        features: columns that must be.
    """

    columns: Columns
    action: tuple[str, ...]
    reward: tuple[str, ...]
    user: tuple[str | None, ...]
    outcomes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


def _lists(columns: dict[str, Any]) -> Columns:
    return {name: np.asarray(values).tolist() for name, values in columns.items()}


def hillstrom(rng: np.random.Generator, n: int = 3000) -> Shape:
    recency = rng.integers(1, 13, n)
    history = np.exp(rng.normal(5, 1, n) - 0.05 * recency).round(2)
    edges = [100, 200, 350, 500, 750, 1000]
    names = ["1) $0 - $100", "2) $100 - $200", "3) $200 - $350", "4) $350 - $500", "5) $500 - $750", "6) $750 - $1,000"]
    arms = np.array(["Mens E-Mail", "Womens E-Mail", "No E-Mail"])[rng.integers(0, 3, n)]
    visit = rng.random(n) < 0.1 + 0.07 * (arms != "No E-Mail") + 0.05 * (recency < 4)
    conversion = visit & (rng.random(n) < 0.2)
    mens = rng.random(n) < 0.55
    return Shape(
        _lists(
            {
                "recency": recency,
                "history_segment": [[*names, "7) $1,000 +"][int(np.searchsorted(edges, h))] for h in history],
                "history": history,
                "mens": mens.astype(int),
                "womens": (~mens | (rng.random(n) < 0.1)).astype(int),
                "zip_code": rng.choice(["Surburban", "Urban", "Rural"], n),
                "newbie": (rng.random(n) < 0.3 + 0.03 * recency).astype(int),
                "channel": rng.choice(["Web", "Phone", "Multichannel"], n),
                "segment": arms,
                "visit": visit.astype(int),
                "conversion": conversion.astype(int),
                "spend": np.where(conversion, rng.gamma(2, 50, n).round(2), 0),
            }
        ),
        ("segment",),
        ("visit", "conversion", "spend"),
        (None,),
        ("visit", "conversion", "spend"),
        ("recency", "history", "channel"),
    )


def starbucks(rng: np.random.Generator, n: int = 4000) -> Shape:
    given, v4 = rng.random(n) < 0.5, rng.integers(1, 3, n)
    return Shape(
        _lists(
            {
                "ID": np.sort(rng.choice(3 * n, n, replace=False)),
                "Promotion": np.where(given, "Yes", "No"),
                "purchase": (rng.random(n) < 0.02 + 0.03 * given * (v4 == 2)).astype(int),
                "V1": rng.integers(0, 4, n),
                "V2": rng.normal(30, 5, n).round(7),
                "V3": rng.normal(0, 1, n).round(7),
                "V4": v4,
                "V5": rng.integers(1, 5, n),
                "V6": rng.integers(1, 5, n),
                "V7": rng.integers(1, 3, n),
            }
        ),
        ("Promotion",),
        ("purchase",),
        ("ID",),
        (),
        ("V1", "V2", "V4", "V7"),
    )


def open_bandit(rng: np.random.Generator, n: int = 5000) -> Shape:
    K = 34
    start = datetime.datetime(2019, 11, 24, tzinfo=datetime.UTC)
    item = rng.integers(0, K, n)
    columns: dict[str, Any] = {
        "": range(n),
        "timestamp": [str(start + datetime.timedelta(seconds=120 * i)) for i in range(n)],
        "item_id": item,
        "position": rng.integers(1, 4, n),
        "click": (rng.random(n) < 0.01 + 0.02 * (item % 5 == 0)).astype(int),
        "propensity_score": np.full(n, 1 / K),
    }
    for j in range(4):
        columns[f"user_feature_{j}"] = [f"{v:032x}" for v in rng.integers(1, 5, n) * 7919 + j]
    for j in range(8):
        columns[f"user-item_affinity_{j}"] = rng.poisson(0.1, n).astype(float)
    return Shape(_lists(columns), ("item_id",), ("click",), (None, "column00"), (), ("position", "user_feature_0"))


def criteo(rng: np.random.Generator, n: int = 5000) -> Shape:
    base = rng.normal(0, 1, n)
    columns: dict[str, Any] = {f"f{j}": (base * 0.5 + rng.normal(0, 1, n)).round(6) for j in range(12)}
    given = rng.random(n) < 0.85
    visit = rng.random(n) < np.clip(0.08 + 0.04 * base + 0.02 * given, 0.01, 1)
    columns |= {
        "treatment": given.astype(int),
        "conversion": (visit & (rng.random(n) < 0.15)).astype(int),
        "visit": visit.astype(int),
        "exposure": (given & (rng.random(n) < 0.05)).astype(int),
    }
    return Shape(
        _lists(columns), ("treatment",), ("visit", "conversion"), (None,), ("visit", "conversion", "exposure"), ("f0",)
    )


def voters(rng: np.random.Generator, n: int = 6000) -> Shape:
    household = np.sort(rng.integers(0, n // 2, n))
    arms = np.array([" Civic Duty", " Hawthorne", " Control", " Self", " Neighbors"])
    of = rng.choice(5, n // 2 + 1, p=[0.11, 0.11, 0.56, 0.11, 0.11])
    given = arms[of[household]]
    habit = rng.normal(0, 1, n)
    voted = rng.random(n) < np.clip(0.3 + 0.1 * habit + 0.08 * (given == " Neighbors"), 0, 1)

    def past(p: float) -> Any:
        return np.where(rng.random(n) < np.clip(p + 0.2 * habit, 0, 1), "yes", "no")

    columns = {
        "sex": rng.choice(["male", "female"], n),
        "yob": rng.integers(1910, 1988, n),
        "g2000": past(0.8),
        "g2002": past(0.8),
        "g2004": np.full(n, "yes"),
        "p2000": past(0.25),
        "p2002": past(0.4),
        "p2004": past(0.4),
        "treatment": given,
        "cluster": household // 10 + 1,
        "voted": np.where(voted, "Yes", "No"),
        "hh_id": household + 1,
        "hh_size": np.bincount(household, minlength=n)[household],
        "numberofnames": rng.integers(18, 24, n),
        "p2004_mean": rng.uniform(0, 0.5, n).round(6),
        "g2004_mean": rng.uniform(0.7, 1, n).round(6),
    }
    return Shape(_lists(columns), ("treatment",), ("voted",), (None,), (), ("sex", "yob", "g2000", "p2004"))


def in_vehicle(rng: np.random.Generator, n: int = 4000) -> Shape:
    coupon = rng.choice(["Bar", "Carry out & Take away", "Coffee House", "Restaurant(20-50)", "Restaurant(<20)"], n)
    alone = rng.choice(["Alone", "Friend(s)", "Kid(s)", "Partner"], n)
    frequency = ["never", "less1", "1~3", "4~8", "gt8"]
    columns = {
        "destination": np.where(alone == "Alone", "Work", rng.choice(["Home", "No Urgent Place"], n)),
        "passanger": alone,
        "weather": rng.choice(["Sunny", "Rainy", "Snowy"], n),
        "temperature": rng.choice([30, 55, 80], n),
        "time": rng.choice(["2PM", "10AM", "6PM", "7AM", "10PM"], n),
        "coupon": coupon,
        "expiration": rng.choice(["1d", "2h"], n),
        "gender": rng.choice(["Female", "Male"], n),
        "age": rng.choice(["21", "26", "31", "36", "41", "46", "50plus", "below21"], n),
        "maritalStatus": rng.choice(["Single", "Married partner", "Unmarried partner"], n),
        "has_children": rng.integers(0, 2, n),
        "Bar": rng.choice(frequency, n),
        "CoffeeHouse": rng.choice(frequency, n),
        "toCoupon_GEQ5min": np.ones(n, int),
        "toCoupon_GEQ15min": rng.integers(0, 2, n),
        "direction_same": rng.integers(0, 2, n),
        "Y": (rng.random(n) < 0.5 + 0.2 * (coupon == "Coffee House")).astype(int),
    }
    return Shape(_lists(columns), ("coupon",), ("Y",), (None,), (), ("weather", "age", "CoffeeHouse"))


def complete_journey(rng: np.random.Generator, users: int = 300, weeks: int = 12) -> Shape:
    user = np.repeat(np.arange(1, users + 1), weeks)
    n = len(user)
    kind = rng.choice(["none", "Type A", "Type B", "Type C"], n, p=[0.7, 0.15, 0.1, 0.05])
    age = rng.choice(["19-24", "25-34", "35-44", "45-54", "65+"], users)[user - 1]
    spend = (rng.gamma(1, 30, n) * (1 + 0.3 * (kind == "Type A")) * (rng.random(n) < 0.5)).round(2)
    redeemed = ((kind != "none") & (rng.random(n) < 0.1)).astype(int)
    last = np.where(np.arange(n) % weeks, np.roll(spend, 1), 0)
    columns = {
        "household_id": user,
        "week": np.tile(np.arange(1, weeks + 1), users),
        "age": age,
        "income": rng.choice(["Under 15K", "35-49K", "50-74K"], users)[user - 1],
        "spend_last_week": last,
        "campaign_type": kind,
        "redemptions": redeemed,
        "sales_value": spend,
        "coupon_disc": np.where(redeemed, 1.2, 0),
    }
    return Shape(
        _lists(columns),
        ("campaign_type",),
        ("sales_value", "redemptions"),
        ("household_id",),
        ("redemptions", "sales_value"),
        ("age", "spend_last_week"),
    )


def marketer(rng: np.random.Generator, users: int = 400, days: int = 14) -> Shape:
    rows = []
    for u in range(users):
        tier, city = rng.choice(["gold", "silver", "bronze"]), rng.choice(["Berlin", "Ulm", "Köln"])
        since = int(rng.integers(0, 10))
        for d in range(days):
            given = float(rng.choice([0, 2, 5, 10]))
            came = int(rng.random() < 0.25 + 0.02 * given)
            date = str(datetime.date(2026, 3, 1) + datetime.timedelta(days=d))
            rows.append((f"C{u:05d}", date, str(city), str(tier), since, given, came, given * came))
            since = 0 if came else since + 1
    names = ["customer_id", "date", "city", "tier", "days_since_visit", "coupon_eur", "visited", "redeemed_eur"]
    return Shape(
        {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)},
        ("coupon_eur",),
        ("visited",),
        ("customer_id",),
        ("visited", "redeemed_eur"),
        ("city", "tier", "days_since_visit"),
    )


def megafon(rng: np.random.Generator, n: int = 4000) -> Shape:
    base = rng.normal(0, 1, n)
    given = rng.random(n) < 0.5
    columns: dict[str, Any] = {"id": range(n)}
    columns |= {f"X_{j}": (base * rng.normal() + rng.normal(0, 5, n)).round(6) for j in range(1, 51)}
    columns |= {
        "treatment_group": np.where(given, "treatment", "control"),
        "conversion": (rng.random(n) < np.clip(0.2 + 0.05 * base + 0.03 * given, 0, 1)).astype(int),
    }
    return Shape(_lists(columns), ("treatment_group",), ("conversion",), ("id",), (), ("X_1", "X_50"))


def lenta(rng: np.random.Generator, n: int = 4000) -> Shape:
    base = rng.normal(0, 1, n)
    given = rng.random(n) < 0.75
    count = rng.poisson(np.exp(1 + 0.4 * base))
    columns = {
        "CardHolder": rng.choice(10 * n, n, replace=False),
        "age": rng.integers(18, 80, n).astype(float),
        "cheque_count_12m_g20": count.astype(float),
        "cheque_count_3m_g25": rng.binomial(count, 0.3).astype(float),
        "children": rng.integers(0, 4, n).astype(float),
        "crazy_purchases_cheque_count_12m": rng.binomial(count, 0.5).astype(float),
        "disc_sum_6m_g34": (count * 10 * rng.random(n)).round(2),
        "food_share_15d": rng.random(n).round(4),
        "gender": rng.choice(["Ж", "М", "Не определен"], n),
        "group": np.where(given, "test", "control"),
        "k_var_disc_per_cheque_15d": rng.random(n).round(4),
        "main_format": rng.integers(0, 2, n),
        "mean_discount_depth_15d": rng.random(n).round(4),
        "months_from_register": rng.integers(0, 60, n).astype(float),
        "perdelta_days_between_visits_15_30d": rng.normal(0, 1, n).round(4),
        "promo_share_15d": rng.random(n).round(4),
        "response_att": (rng.random(n) < np.clip(0.1 + 0.04 * base + 0.01 * given, 0, 1)).astype(int),
        "response_sms": rng.random(n).round(4),
        "response_viber": rng.random(n).round(4),
        "sale_count_12m_g32": (count * 3.0),
        "stdev_days_between_visits_15d": rng.random(n).round(4),
    }
    return Shape(
        _lists(columns),
        ("group",),
        ("response_att",),
        ("CardHolder",),
        (),
        ("age", "main_format", "months_from_register", "promo_share_15d", "mean_discount_depth_15d"),
    )


def cookie_cats(rng: np.random.Generator, n: int = 4000) -> Shape:
    given = rng.random(n) < 0.5
    rounds = rng.geometric(0.03, n) - 1
    one = rng.random(n) < 1 - np.exp(-rounds / 40)
    return Shape(
        _lists(
            {
                "userid": np.sort(rng.choice(10**7, n, replace=False)),
                "version": np.where(given, "gate_40", "gate_30"),
                "sum_gamerounds": rounds,
                "retention_1": one,
                "retention_7": one & (rng.random(n) < 0.35 - 0.02 * given),
            }
        ),
        ("version",),
        ("retention_1", "retention_7"),
        ("userid",),
        ("retention_1", "retention_7"),
    )


def bank(rng: np.random.Generator, n: int = 4000) -> Shape:
    duration, calls = rng.gamma(1.5, 170, n).astype(int), rng.geometric(0.4, n)
    columns = {
        "age": rng.integers(18, 90, n),
        "job": rng.choice(["admin.", "blue-collar", "technician", "services", "retired", "unknown"], n),
        "marital": rng.choice(["married", "single", "divorced"], n),
        "education": rng.choice(["primary", "secondary", "tertiary", "unknown"], n),
        "default": rng.choice(["no", "yes"], n, p=[0.98, 0.02]),
        "balance": rng.normal(1300, 3000, n).astype(int),
        "housing": rng.choice(["no", "yes"], n),
        "loan": rng.choice(["no", "yes"], n, p=[0.84, 0.16]),
        "contact": rng.choice(["cellular", "telephone", "unknown"], n, p=[0.6, 0.1, 0.3]),
        "day": rng.integers(1, 32, n),
        "month": rng.choice(["may", "jun", "jul", "aug", "nov"], n),
        "duration": duration,
        "campaign": calls,
        "pdays": np.where(rng.random(n) < 0.8, -1, rng.integers(1, 400, n)),
        "previous": rng.poisson(0.5, n),
        "poutcome": rng.choice(["unknown", "failure", "other", "success"], n),
        "y": np.where(rng.random(n) < np.clip(duration / 2500, 0.01, 0.9), "yes", "no"),
    }
    return Shape(_lists(columns), ("campaign", "contact"), ("y",), (None,), (), ("age", "job", "balance", "housing"))


def notifications(rng: np.random.Generator, users: int = 300, days: int = 10) -> Shape:
    user = np.repeat(np.arange(users), days)
    n = len(user)
    genre = rng.choice(["drama", "comedy", "horror", "no_push"], n)
    favourite = rng.choice(["drama", "comedy", "horror"], users)[user]
    opened = (genre != "no_push") & (rng.random(n) < 0.1 + 0.1 * (genre == favourite))
    columns = {
        "profile_id": [f"prf{u:04d}" for u in user],
        "sent_at": [
            str(datetime.datetime(2026, 1, 1 + i % days, int(h), int(m)))
            for i, (h, m) in enumerate(zip(rng.integers(8, 22, n), rng.integers(0, 60, n), strict=True))
        ],
        "favourite_genre": favourite,
        "subscription": rng.choice(["free", "basic", "premium"], users)[user],
        "notification": genre,
        "opened": opened.astype(int),
        "minutes_watched": np.where(rng.random(n) < 0.2 + 0.3 * opened, rng.gamma(2, 40, n), 0).round(1),
    }
    return Shape(
        _lists(columns),
        ("notification",),
        ("opened", "minutes_watched"),
        ("profile_id",),
        ("opened",),
        ("favourite_genre", "subscription"),
    )


def retail_hero(rng: np.random.Generator, n: int = 4000) -> Shape:
    given = rng.random(n) < 0.5
    columns = {
        "client_id": [f"{v:010x}" for v in rng.choice(10**9, n, replace=False)],
        "first_issue_date": [
            str(datetime.datetime(2017, 4, 1) + datetime.timedelta(minutes=int(m))) for m in rng.integers(0, 10**6, n)
        ],
        "age": rng.integers(18, 90, n),
        "gender": rng.choice(["U", "F", "M"], n),
        "treatment_flg": given.astype(int),
        "target": (rng.random(n) < 0.6 + 0.03 * given).astype(int),
    }
    return Shape(_lists(columns), ("treatment_flg",), ("target",), ("client_id",), (), ("age", "gender"))


def marketing_ab(rng: np.random.Generator, n: int = 4000) -> Shape:
    given = rng.random(n) < 0.9
    total = rng.geometric(0.04, n)
    columns = {
        "Unnamed: 0": range(n),
        "user id": rng.choice(10**7, n, replace=False),
        "test group": np.where(given, "ad", "psa"),
        "converted": rng.random(n) < np.clip(0.01 + total / 800, 0, 1),
        "total ads": total,
        "most ads day": rng.choice(["Monday", "Tuesday", "Friday"], n),
        "most ads hour": rng.integers(0, 24, n),
    }
    return Shape(_lists(columns), ("test group",), ("converted",), ("user id",), (), ())


def fast_food(rng: np.random.Generator) -> Shape:
    stores = 137
    store = np.repeat(np.arange(stores), 4)
    promotion = rng.integers(1, 4, stores)[store]
    size = rng.choice(["Small", "Medium", "Large"], stores)[store]
    columns = {
        "MarketID": store // 14 + 1,
        "MarketSize": size,
        "LocationID": store + 1,
        "AgeOfStore": rng.integers(1, 28, stores)[store],
        "Promotion": promotion,
        "week": np.tile([1, 2, 3, 4], stores),
        "SalesInThousands": (40 + 10 * (size == "Large") - 8 * (promotion == 2) + rng.normal(0, 8, len(store))).round(
            2
        ),
    }
    return Shape(_lists(columns), ("Promotion",), ("SalesInThousands",), ("LocationID",), (), ("MarketSize",))


SHAPES: dict[str, Callable[[np.random.Generator], Shape]] = {
    each.__name__: each
    for each in (
        hillstrom,
        starbucks,
        open_bandit,
        criteo,
        voters,
        in_vehicle,
        complete_journey,
        marketer,
        megafon,
        lenta,
        cookie_cats,
        bank,
        notifications,
        retail_hero,
        marketing_ab,
        fast_food,
    )
}


def weekly_media(rng: np.random.Generator) -> Columns:
    """Spend by channel and week, as of a media mix model."""
    weeks = 208
    columns: dict[str, Any] = {
        "DATE": [str(datetime.date(2015, 11, 23) + datetime.timedelta(weeks=w)) for w in range(weeks)],
        "revenue": rng.gamma(20, 100_000, weeks).round(1),
    }
    for name in ("tv_S", "ooh_S", "print_S", "facebook_I", "search_clicks_P", "search_S"):
        columns[name] = (rng.gamma(1, 30_000, weeks) * (rng.random(weeks) < 0.7)).round(2)
    return _lists(
        columns | {"competitor_sales_B": rng.gamma(50, 1e5, weeks).round(0), "newsletter": rng.gamma(2, 9e3, weeks)}
    )


def geo_weeks(rng: np.random.Generator) -> Columns:
    """Impressions, spend and conversions by region and week."""
    geos, weeks = 40, 104
    n = geos * weeks
    columns: dict[str, Any] = {
        "geo": [f"Geo{g}" for g in range(geos) for _ in range(weeks)],
        "time": [
            str(datetime.date(2021, 1, 25) + datetime.timedelta(weeks=w)) for _ in range(geos) for w in range(weeks)
        ],
    }
    for j in range(3):
        columns |= {f"Channel{j}_impression": rng.poisson(9000, n), f"Channel{j}_spend": rng.gamma(2, 400, n).round(2)}
    columns |= {
        "conversions": rng.gamma(9, 200, n).round(1),
        "population": np.repeat(rng.integers(10**5, 10**6, geos), weeks),
    }
    return _lists(columns)


def ad_days(rng: np.random.Generator) -> Columns:
    """A row a day and arm, with totals."""
    n = 60
    return _lists(
        {
            "Campaign Name": ["Control Campaign", "Test Campaign"] * (n // 2),
            "Date": [f"{1 + i // 2}.08.2019" for i in range(n)],
            "Spend [USD]": rng.integers(1700, 3000, n),
            "# of Impressions": rng.integers(20_000, 140_000, n),
            "Reach": rng.integers(10_000, 100_000, n),
            "# of Website Clicks": rng.integers(2000, 8000, n),
            "# of Purchase": rng.integers(200, 800, n),
        }
    )


SUMS = {each.__name__: each for each in (weekly_media, geo_weeks, ad_days)}
