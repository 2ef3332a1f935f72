"""Logs of many kinds with the roles that are right: one row per user, or a path; names of five languages, or none.

columns   who, when, what is known before, what was given, what came of it, in the usual order or any other
actions   2 to 12 amounts, codes, names or percentages; given at random, evenly or not, or by what is known before
outcomes  a reward, and often a step before or after it, what was redeemed, or what it cost
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np

Columns = dict[str, list[Any]]

LANGUAGES: dict[str, dict[str, list[str]]] = {
    "English": {
        "user": [
            "customer_id",
            "user_id",
            "client",
            "id",
            "member_no",
            "uid",
            "account_id",
            "cust",
            "UserID",
            "person",
        ],
        "time": ["date", "day", "week", "sent_on", "event_date", "period", "month", "t"],
        "action": [
            *("treatment", "offer", "coupon", "campaign", "group", "variant", "arm", "promo", "version", "segment"),
            *(
                "test_group",
                "message",
                "discount",
                "mail",
                "incentive",
                "Treatment Group",
                "cell",
                "exp_arm",
                "ad",
                "tactic",
            ),
        ],
        "yes": [
            "click",
            "label",
            "voted",
            "retention_7",
            "out_gave",
            "subscribed",
            "opened",
            "converted",
            "purchase",
            "visit",
            "response",
            "y",
            "target",
            "active",
            "clicked",
            "renewed",
            "success",
            "bought",
        ],
        "money": [
            "out_amount",
            "gave",
            "donated",
            "profit",
            "net",
            "outcome",
            "spend",
            "revenue",
            "sales",
            "amount",
            "order_value",
            "basket",
            "total",
            "minutes",
            "sessions",
            "orders",
        ],
        "redeemed": ["redeemed", "used", "opened", "exposure", "coupon_used"],
        "cost": ["cost", "costs", "media_cost", "cost_eur"],
        "text": [
            "gender",
            "city",
            "tier",
            "channel",
            "device",
            "segment",
            "region",
            "plan",
            "source",
            "category",
            "state",
        ],
        "flag": ["newbie", "has_app", "married", "email_opt_in", "mens", "churn_risk", "premium", "f_active"],
        "number": [
            "age",
            "income",
            "tenure",
            "recency",
            "history",
            "visits_last_30d",
            "balance",
            "score",
            "price",
            "rating",
        ],
        "since": ["days_since_visit", "days_since_order", "inactive_days"],
        "last": ["last_reward", "active_yesterday", "spend_prev", "lag1"],
        "chance": ["propensity", "p", "pscore"],
    },
    "German": {
        "user": ["kunden_nr", "Kunde", "Kundennummer", "nutzer"],
        "time": ["Datum", "Tag", "Woche"],
        "action": ["Gutschein", "Rabatt", "Aktion", "Gruppe", "Maßnahme", "Werbung", "Anschreiben", "Variante"],
        "yes": ["gekauft", "Besuch", "bestellt", "Antwort", "aktiv", "Reaktion"],
        "money": ["Umsatz", "Betrag", "Bestellwert", "Ausgaben"],
        "redeemed": ["eingelöst", "geöffnet"],
        "cost": ["Kosten"],
        "text": ["Geschlecht", "Stadt", "Tarif", "Kanal", "Bundesland", "Herkunft"],
        "flag": ["Neukunde", "App", "verheiratet"],
        "number": ["Alter", "Einkommen", "Dauer", "Punkte", "Umsatz_Vorjahr", "Käufe_bisher"],
        "since": ["Tage_seit_Besuch", "Tage_seit_Kauf"],
        "last": ["Umsatz_vorher", "gestern_aktiv"],
        "chance": ["propensity", "p", "pscore"],
    },
    "French": {
        "user": ["id_client", "abonné", "client"],
        "time": ["date", "jour", "semaine"],
        "action": ["offre", "remise", "groupe", "campagne", "bon", "traitement", "envoi"],
        "yes": ["achat", "visite", "réponse", "conversion", "actif"],
        "money": ["dépense", "montant", "ventes", "panier"],
        "redeemed": ["utilisé", "ouvert"],
        "cost": ["coût"],
        "text": ["sexe", "ville", "canal", "catégorie", "région"],
        "flag": ["nouveau", "marié", "appli"],
        "number": ["âge", "revenu", "ancienneté", "achats_avant", "solde"],
        "since": ["jours_depuis_visite"],
        "last": ["achat_précédent"],
        "chance": ["propensity", "p", "pscore"],
    },
    "Spanish": {
        "user": ["id_cliente", "usuario", "socio"],
        "time": ["fecha", "día", "semana"],
        "action": ["oferta", "cupón", "descuento", "grupo", "campaña", "envío", "tratamiento"],
        "yes": ["compra", "visita", "respuesta", "activo"],
        "money": ["gasto", "importe", "ventas", "total"],
        "redeemed": ["canjeado", "abierto"],
        "cost": ["costo", "coste"],
        "text": ["género", "ciudad", "canal", "provincia"],
        "flag": ["nuevo", "casado"],
        "number": ["edad", "ingresos_mes", "antigüedad", "compras_antes", "saldo"],
        "since": ["días_desde_visita"],
        "last": ["gasto_anterior"],
        "chance": ["propensity", "p", "pscore"],
    },
    "Italian": {
        "user": ["id_cliente", "utente", "tessera"],
        "time": ["data", "giorno", "settimana"],
        "action": ["offerta", "sconto", "gruppo", "campagna", "buono", "invio"],
        "yes": ["acquisto", "visita", "risposta", "attivo"],
        "money": ["spesa", "importo", "vendite"],
        "redeemed": ["aperto", "usato"],
        "cost": ["costo"],
        "text": ["sesso", "città", "canale", "regione"],
        "flag": ["nuovo", "sposato"],
        "number": ["età", "reddito", "anzianità", "punti"],
        "since": ["giorni_da_visita"],
        "last": ["spesa_precedente"],
        "chance": ["propensity", "p", "pscore"],
    },
}
LABELS = [
    *(["none", "mail A", "mail B", "mail C"], ["No E-Mail", "Mens E-Mail", "Womens E-Mail"], ["control", "treatment"]),
    *(["A", "B", "C", "D"], ["gate_30", "gate_40"], ["Control", "Self", "Neighbors", "Civic Duty"], ["psa", "ad"]),
    *(
        ["0 %", "5 %", "10 %", "20 %"],
        ["kein", "Brief", "Anruf", "E-Mail"],
        ["aucun", "courrier", "appel"],
        ["Yes", "No"],
    ),
    *(["nada", "correo", "llamada"], ["banner 1", "banner 2", "banner 3", "banner 4", "banner 5", "banner 6"]),
    *(["drama", "comedy", "horror", "news"], ["free shipping", "10 EUR off", "no offer"], ["test", "control"]),
    *(["placebo", "drug"], ["email", "sms", "push", "phone", "none"], ["blue", "green"], ["early", "late", "never"]),
]
TEXTS = [
    *(
        ["f", "m"],
        ["Berlin", "Ulm", "Köln", "Kiel"],
        ["gold", "silver", "bronze"],
        ["web", "phone", "shop"],
        ["no", "yes"],
    ),
    *(["ios", "android", "web"], ["new", "old"], ["north", "south", "east", "west", "centre"], ["basic", "plus"]),
    *(["18-24", "25-34", "35-44", "45+"], ["urban", "rural", "suburban"], ["true", "false"], ["a", "b", "c"]),
]


@dataclass(frozen=True)
class Drawn:
    """A log and what is right.

    Attributes:
        columns: the log.
        user: its column of users; None where each row is one, with or without an id.
        action: the column that was given; None where there is none.
        rewards: columns that may be taken for what one wants more of.
        outcomes: all that follow from the action.
        kind: of names, order and rows, for tables.
    """

    columns: Columns
    user: str | None
    action: str | None
    rewards: tuple[str, ...]
    outcomes: tuple[str, ...]
    kind: str


def draw(rng: np.random.Generator, rows: int | None = None) -> Drawn:
    """One log."""
    rows = rows or int(rng.choice([200, 1000, 4000, 12_000], p=[0.2, 0.35, 0.3, 0.15]))
    path = rng.random() < 0.4
    T = int(rng.integers(3, 16)) if path else 1
    users = max(rows // T, 20)
    user, day = np.repeat(np.arange(users), T), np.tile(np.arange(T), users)
    if path and rng.random() < 0.5:  # some days without a row
        kept = rng.random(len(user)) < 0.8
        user, day = user[kept], day[kept]
    n = len(user)
    z = rng.normal(0, 1, users)[user]
    parts: list[tuple[str, str, Any]] = []  # role, concept, values
    score = 0.7 * z
    firsts = []
    for _ in range(int(rng.integers(2, 11))):
        concept, values, number = _feature(rng, user if path and rng.random() < 0.6 else np.arange(n), z, n)
        parts.append(("feature", concept, values))
        firsts.append(number)
        score = score + rng.normal(0, 0.5) * number * (rng.random() < 0.5)
    a, given, base, chances = _given(rng, firsts, user, n, per_user=path and rng.random() < 0.15)
    faint = rng.choice([0.25, 0.6, 1])  # people differ more than what comes of them tells
    score, effect = score * faint, rng.normal(0, 0.7, 12) * (rng.random() > 0.15)
    came = rng.random(n) < 1 / (1 + np.exp(-(rng.normal(-1.2, 0.8) + score + effect[a])))
    money = np.where(came, rng.gamma(2, 20, n) * np.exp(0.2 * z), 0).round(2)
    kind = rng.choice(["yes", "money", "both", "amount"])
    after: list[tuple[str, str, Any]] = []
    if kind in ("yes", "both"):
        yes: Any = came.astype(int)
        yes = np.where(came, "Yes", "No") if rng.random() < 0.12 else came if rng.random() < 0.1 else yes
        after.append(("reward", "yes", yes))
    if kind in ("money", "both"):
        after.append(("reward", "money", money))
    if kind == "amount":
        amount = rng.normal(0, 1, n) + score + effect[a]
        after.append(
            (
                "reward",
                "money",
                (
                    rng.poisson(np.exp(np.clip(amount * 0.4, -3, 3)))
                    if rng.random() < 0.5
                    else (50 + 10 * amount).round(1)
                ),
            )
        )
    given_any = a != base
    if rng.random() < 0.25:
        after.append(("outcome", "redeemed", (given_any & (rng.random(n) < 0.2 + 0.3 * came)).astype(int)))
    if rng.random() < 0.2:
        price = np.concatenate([[0.0], rng.choice([0.1, 0.5, 1, 2, 3], 12)])
        price[base] = 0
        after.append(("outcome", "cost", price[a] * (1 if rng.random() < 0.5 else came)))
    if rng.random() < 0.3:
        rng.shuffle(after)
    if path:
        before = np.concatenate([[0], np.where(user[1:] == user[:-1], came[:-1], 0)]).astype(int)
        if rng.random() < 0.4:
            parts.append(("feature", "last", before))
        if rng.random() < 0.4:
            since = np.zeros(n, int)
            for i in range(1, n):
                since[i] = 0 if user[i] != user[i - 1] or came[i - 1] else since[i - 1] + 1
            parts.append(("feature", "since", since))
    head: list[tuple[str, str, Any]] = []
    if path or rng.random() < 0.65:
        ids = rng.choice(10 * users + 1000, users, replace=False)
        ids = np.sort(ids) if rng.random() < 0.5 else ids
        head.append(("user", "user", np.array([f"C{i:06d}" for i in ids])[user] if rng.random() < 0.4 else ids[user]))
    if rng.random() < 0.12:  # many others, as of a wide table
        wide = [_feature(rng, np.arange(n), z, n)[:2] for _ in range(int(rng.integers(8, 25)))]
        (after if rng.random() < 0.4 else parts).extend(("feature", "number", values) for _, values in wide)
    if path or rng.random() < 0.15:
        start = datetime.date(2026, 1, 5)
        dated = np.array([str(start + datetime.timedelta(days=d)) for d in range(T if path else 90)])
        when = day if path else rng.integers(0, 90, n)
        head.append(("time", "time", dated[when] if rng.random() < 0.6 or not path else when + 1))
    acted = [] if rng.random() < 0.07 else [("action", "action", given)]
    if acted and chances is not None and rng.random() < 0.2:
        acted.insert(int(rng.integers(2)), ("feature", "chance", chances.round(6)))
    order = rng.choice(["usual", "action first", "outcomes first", "shuffled"], p=[0.62, 0.13, 0.1, 0.15])
    listed = {
        "usual": [*head, *parts, *acted, *after],
        "action first": [*head, *acted, *parts, *after],
        "outcomes first": [*head, *acted, *after, *parts],
        "shuffled": [*head, *parts, *acted, *after],
    }[order]
    if order == "shuffled":
        listed = [listed[i] for i in rng.permutation(len(listed))]
    return _named(rng, listed, path=path, kind=f"{order}")


def _feature(rng: np.random.Generator, of: Any, z: Any, n: int) -> tuple[str, Any, Any]:
    """A column that is known before: its concept, its values, and them as a standardised number."""
    groups = int(of.max()) + 1
    own = rng.normal(0, 1, groups)[of]
    x = own if rng.random() < 0.3 else rng.uniform(0.3, 2) * z + own * 0.8
    if len(np.unique(of)) < n and rng.random() < 2:  # one value per user: of its latent too
        x = x if groups == n else (rng.normal(0, 1, groups) + np.zeros(groups))[of] * 0.7 + 0.5 * z
    kind = rng.choice(["text", "flag", "number", "whole", "count"])
    if kind == "text":
        texts = TEXTS[rng.integers(len(TEXTS))]
        code = np.searchsorted(np.quantile(x, np.sort(rng.random(len(texts) - 1))), x)
        return "text", np.array(texts)[code], (code - code.mean())
    if kind == "flag":
        code = (x > rng.normal(0, 0.7)).astype(int)
        return "flag", code, code - code.mean()
    if kind == "number":
        return "number", (x * rng.choice([1, 10, 300]) + rng.choice([0, 40])).round(int(rng.integers(1, 5))), x
    if kind == "whole":
        return "number", np.clip((40 + 12 * x).round(), 18, 90).astype(int), x
    values = rng.poisson(np.exp(np.clip(0.5 * x, -3, 2)))
    return "number", values[np.unique(of, return_index=True)[1]][np.searchsorted(np.unique(of), of)], x


def _given(
    rng: np.random.Generator, features: list[Any], user: Any, n: int, *, per_user: bool
) -> tuple[Any, Any, int, Any]:
    """The action's index, its values, the index of the one that gives nothing, and the chance of each draw."""
    kind = rng.choice(["amounts", "codes", "yes", "labels", "words"], p=[0.2, 0.12, 0.2, 0.3, 0.18])
    base = 0
    if kind == "amounts":
        levels: Any = np.unique([0, *rng.choice([1, 2, 3, 5, 8, 10, 15, 20, 25, 50, 0.5, 1.5], rng.integers(1, 11))])
    elif kind == "codes":
        levels = np.arange(1, rng.integers(3, 13)) - int(rng.random() < 0.4)
    elif kind == "yes":
        levels = [np.array([0, 1]), np.array(["No", "Yes"]), np.array([False, True])][rng.integers(3)]
    else:
        levels = np.array(LABELS[rng.integers(len(LABELS))])
        base = int(rng.integers(len(levels)))
        none = [
            i
            for i, label in enumerate(levels)
            if str(label).lower().startswith(("no", "control", "kein", "auc", "nada", "0 ", "placebo"))
        ]
        base = none[0] if none else base
    K = len(levels)
    weight = np.ones(K) if rng.random() < 0.6 else rng.dirichlet(np.full(K, 3)) + 0.05
    logits = np.log(weight / weight.sum()) + np.zeros((n, K))
    how = rng.choice(["random", "soft", "hard"], p=[0.7, 0.2, 0.1])
    if how != "random":
        x = features[rng.integers(len(features))]
        logits = logits + np.outer(x / (x.std() + 1e-9), rng.normal(0, 0.6 if how == "soft" else 2, K))
    a = (logits + rng.gumbel(0, 1, (n, K))).argmax(1)
    chances = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))[np.arange(n), a]
    if per_user:
        a = a[np.searchsorted(user, user)]
    return a, levels[a], base, None if per_user or how == "hard" else chances


def _named(rng: np.random.Generator, listed: list[tuple[str, str, Any]], *, path: bool, kind: str) -> Drawn:
    style = str(
        rng.choice(
            ["English", "German", "French", "Spanish", "Italian", "none", "letters"],
            p=[0.4, 0.1, 0.08, 0.08, 0.04, 0.2, 0.1],
        )
    )
    names: list[str] = []
    for i, (_, concept, _) in enumerate(listed):
        if style == "none":
            names.append(f"c{i + 1}")
            continue
        if style == "letters":
            name = "".join(rng.choice(list("bcdfghjklmnpqrsvwxz"), 3))
        else:
            name = str(rng.choice(LANGUAGES[style][concept]))
        while name in names:
            name += f"_{i}"
        names.append(name)
    columns = {name: np.asarray(values).tolist() for name, (_, _, values) in zip(names, listed, strict=True)}
    role: dict[str, list[str]] = {}
    for name, (what, _, _) in zip(names, listed, strict=True):
        role.setdefault(what, []).append(name)
    rows = len(next(iter(columns.values())))
    named = (
        "other languages"
        if style in ("German", "French", "Spanish", "Italian")
        else {"none": "c1, c2 …"}.get(style, style)
    )
    return Drawn(
        columns,
        role["user"][0] if path else None,
        role.get("action", [None])[0],
        tuple(role["reward"]),
        (*role["reward"], *role.get("outcome", [])),
        f"{named}|{kind}|{'path' if path else 'one step'}|{'under 500 rows' if rows < 500 else '500 rows and more'}",
    )
