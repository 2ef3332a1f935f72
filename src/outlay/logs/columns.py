"""What the columns of a log are, by their names and from row to row: what `guess.py` goes by.

A name says which role a column may have, and whether it speaks of the past or of what happens after. With x' for the
value in the user's next row, and in all rows that have one,

    counts since      x' = 0 or x' = x + 1: of the past, whatever it is called
    what it counts    x' = 0 exactly where y ≠ 0: y happens after the decision
    of the next row   y = x' for the reward or the action x: y is only known then
    paid out          y is 0 or the action's amount: what the action cost
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from outlay.logs.formats import MOSTLY
from outlay.logs.reading import plain, quoted, without_commas
from outlay.logs.source import NUMBERS, WHOLE, Source

EARLIER = (
    r"(^|_)(pre|prev|previous|last|lag|yesterday|past|before|preperiod|baseline|base|since|ago|history|historical|prior|"
    r"avg|vorjahr|vormonat|vorher|vorige[rsn]?|letzte[rsn]?|bisher|seit|avant|precedente?|derniere?|depuis|antes|anterior|ultim[oa]|desde|"
    r"prima|vorig|laatste|eerder|\d+[dwmy](ays?)?)(_|$)"
)
AFTER = (
    r"(^|_)(out|outcomes?|click(s|ed)?|open(s|ed)?|redeem(s|ed)?|redemptions?|response|responded|used|bought|sold|gross|"
    r"net|gmv|profit|refund(s|ed)?|return(s|ed)?|churn(ed)?|retention|retained|label|target|next|after|later|future|"
    r"post|accepted|subscribed|voted|turnout|donated|watched|engaged|deposited|signup|signed_up|exposure|exposed|"
    r"callback|decision|takeup|geklickt|geoffnet|eingelost|clique|ouvert|utilise|clic|abierto|canjeado|cliccato|"
    r"aperto|geopend|ingewisseld)(_|$)"
)
IDENTIFIER = r"(^|_)(id|key|uuid|guid|code|number|no)$|^userid$"
NAMES = {
    "user": r"(^|_)(user|customer|kunden?|client|member|household|player|person|account|subscriber|rider|visitor|"
    r"card_?holder|guest|patient|driver|device|msisdn|email|respondent|participant|subject|nutzer|mitglied|haushalt|"
    r"abonne|utilisateur|usuario|cliente|socio|utente|gebruiker|klant|klient|kund)s?(_?(id|no|nr|key|number))?$",
    "place": r"(^|_)(store|shop|location|branch|filiale|geo|dma|region|market)(_?(id|no|nr|key))?$",
    "time": r"^(day|date|datum|tag|dt|period|week|woche|monat|month|time|ts|timestamp|t|event_date|\w+_(day|date)|jour|"
    r"semaine|mois|fecha|dia|semana|mes|data|giorno|settimana|dag|maand)$",
    "treated": r"(^|_)(action|treatment|treatmentgroup|treattype|treated|treat|trt|intervention|assignment|assigned|"
    r"arm|behandlung|massnahme|traitement|tratamiento|tratamento|trattamento|behandeling)(_|$)",
    "offered": r"(^|_)(coupons?|incentive|offer|discount|bonus|promo|promotion|voucher|gift|nudge|rabatt|gutschein|"
    r"rebate|reward_offered|variant|variation|mailing|mailed|ad_shown|creative|banner|ratio|message|notification|push|"
    r"send|sent|angebot|aktion|offre|remise|envoi|cupon|oferta|descuento|envio|offerta|sconto|buono|invio|aanbieding|"
    r"korting|desconto|rabat|kupon)(_|$)|^(item|banner|creative|ad|action)_?(id|no|key)?$",
    "arm": r"(^|_)(version|group|gruppe|campaign|kampagne|segment|cell|condition|cond|experiment|test|contact|email|"
    r"sms|w|variante|groupe|campagne|grupo|campana|gruppo|campagna|groep)(_|$)",
    "propensity": r"^(p|prob|probability|propensity|pscore|ps|action_prob|logging_prob|\w*propensity(_score)?)$",
    "reward": r"^out_|(^|_)(reward|click(s|ed)?|renewed|success|retention|retained|engaged|watched|donated|callback|"
    r"geklickt|clic|clique|active|outcome|converted|conversion|orders?|purchases?|purchased|visits?|visited|y|target|"
    r"label|response|responded|voted|subscribed|accepted|kauf|gekauft|bestellung|bestellt|besuch|besucht|bought|deposit|"
    r"aktiv|konvertiert|achat|achete|commande|visite|reponse|compra|compro|pedido|visita|respuesta|acquisto|ordine|"
    r"risposta|aankoop|gekocht|bezoek)(_|$)",
    "money": r"(^|_)(revenue|sales|margin|spend|spending|dailyspending|gave|amount|amountgive|umsatz|turnover|gmv|"
    r"profit|order_value|basket|sales_in_thousands|erlos|betrag|depense|montant|ventas|gasto|importe|vendite|panier|bestellwert|"
    r"spesa|omzet|bedrag|receita)(_|$)",
    "after": AFTER,
    "cost": r"(^|_)(costs?|kosten|payout|paid|expense|cout|costo|coste|custo)(_|$)",
    "forced": r"^(forced|no_choice|is_forced)$",
    "terminal": r"^(terminal|left|churned|is_last|done|ended)$",
    "eligible": r"^(eligible|allowed|allowed_actions|eligible_actions)$",
    "media": r"(^|_)(impressions?|clicks?|reach|sessions|cpc|cpm|ctr|grps?|tv|radio|print|ooh|facebook|google|search|"
    r"display|youtube|tiktok|instagram|newsletter|spend|spent|budget|mdsp|mdip|channel\d*|media|adspend|s|i)(_|$)",
}
CHUNK = 100  # columns a scan
PARSED = 0.99  # of a text column's values that are dates or numbers, from which on it is one
FEW = 50  # distinct values of a category at most
PAIRS = 20  # of a user's rows, that a rule has to hold in


def snake(name: str) -> str:
    """A name in words, without accents: `CardHolder` and `card.holder` are card_holder, `Gelöst am` is gelost_am."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", name.replace("ß", "ss")) if not unicodedata.combining(c))
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z]+$)", "_", bare)
    return re.sub(r"[\W_]+", "_", apart.lower()).strip("_")


def named(column: ScannedColumn, pattern: str) -> bool:
    """Whether the name is one of a pattern."""
    return re.search(pattern, snake(column.name)) is not None


def outcome(column: ScannedColumn) -> bool:
    """Whether the name is one of what happens after a decision."""
    return any(named(column, pattern) for pattern in (NAMES["reward"], NAMES["money"], NAMES["cost"], AFTER))


def earlier(column: ScannedColumn) -> bool:
    """Whether the name speaks of the past: such a column is part of the state."""
    return re.search(EARLIER, snake(column.name)) is not None


@dataclass(frozen=True)
class ScannedColumn:
    """A column and what one scan tells about it.

    Attributes:
        name: in the log.
        type: of DuckDB, without parameters; DOUBLE for texts that are numbers with decimal commas.
        distinct: approximate.
        missing: rows without a value.
        low, high: of numbers only.
        written: as a campaign file has it: the name, or an expression where the texts have decimal commas or a few of
            them are no numbers.
        texts: all values of a text with few of them, else none.
        percent: whether its texts were written with a sign of per cent.
        stray: which of its texts are no numbers, where nearly all are: they count as missing; else empty.
        index: whether it numbers the rows from 0 or 1, in their order.
    """

    name: str
    type: str
    distinct: int
    missing: int
    low: float | None
    high: float | None
    written: str = ""
    texts: tuple[str, ...] = ()
    index: bool = False
    percent: bool = False
    stray: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers or truth values."""
        return self.type in NUMBERS

    @property
    def sql(self) -> str:
        """SQL of its numbers, as a part of a longer expression that a person may read."""
        if self.type == "BOOLEAN":
            return f"cast({plain(self.name)} as integer)"
        return plain(self.name) if self.written == self.name else self.written


def describe(source: Source) -> tuple[int, list[ScannedColumn]]:
    """Number of rows, and facts of every column."""
    [(rows,)] = source.run("SELECT count(*) FROM log")
    columns = []
    names = list(source.columns.items())
    for i in range(0, len(names), CHUNK):
        part = [(name, "LIST" if type_.endswith("]") else type_.split("(")[0]) for name, type_ in names[i : i + CHUNK]]
        parts = []
        for name, type_ in part:
            number = f"CAST({quoted(name)} AS DOUBLE)" if type_ in NUMBERS else "NULL"
            commas = f"bool_or(regexp_matches({quoted(name)}, '\\d,\\d'))" if type_ == "VARCHAR" else "false"
            parts += [
                f"approx_count_distinct({quoted(name)})",
                f"count({quoted(name)})",
                f"min({number})",
                f"max({number})",
                commas,
            ]
        row: tuple[Any, ...] = source.run(f"SELECT {', '.join(parts)} FROM log")[0]
        for j, (name, type_) in enumerate(part):
            distinct, present, low, high, commas = row[5 * j : 5 * j + 5]
            column = ScannedColumn(name, type_, int(distinct), rows - int(present), low, high, name)
            columns.append(_of_text(source, column, commas=bool(commas)) if type_ == "VARCHAR" else column)
    return int(rows), [_counted(source, column, int(rows)) for column in columns]


def _counted(source: Source, column: ScannedColumn, rows: int) -> ScannedColumn:
    """With its exact number of values, where that tells whether it numbers rows or users, or has few."""
    if column.type == "LIST" or column.texts or FEW * 6 < column.distinct < 0.8 * rows:
        return column
    name = quoted(column.name)
    [(distinct,)] = source.run(f"SELECT count(DISTINCT {name}) FROM log")
    index = False
    if distinct == rows > 2 and column.type in WHOLE and column.low in (0, 1) and column.high == column.low + rows - 1:
        [(wrong,)] = source.run(
            f"SELECT count(*) FROM (SELECT {name} - row_number() OVER () + 1 AS d FROM log) WHERE d != {column.low:g}"
        )
        index = not wrong
    return replace(column, distinct=int(distinct), index=index)


def _of_text(source: Source, column: ScannedColumn, *, commas: bool) -> ScannedColumn:
    """A column of text: its numbers if it has decimal commas or (nearly) all are, its values if it has few."""
    name = quoted(column.name)
    if commas and (sql := without_commas(source.run, "log", name, plain(column.name))):
        [(low, high)] = source.run(f"SELECT min({sql}), max({sql}) FROM log")
        return replace(column, type="DOUBLE", low=low, high=high, written=sql)
    if column.distinct > FEW or _an_outcome(column):
        numbers = _nearly_numbers(source, column)
        if numbers.is_number or column.distinct > 2 * FEW:
            return numbers
    rows = source.run(f"SELECT DISTINCT {name} FROM log WHERE {name} IS NOT NULL ORDER BY 1 LIMIT {FEW + 1}")
    texts = tuple(str(text) for (text,) in rows)
    return replace(column, distinct=len(texts), texts=texts) if len(texts) <= FEW else column


def _an_outcome(column: ScannedColumn) -> bool:
    """Whether its name is that of a reward, of money or of a cost, and of nothing that was given."""
    given = any(named(column, NAMES[kind]) for kind in ("treated", "offered", "arm"))
    return not given and any(named(column, NAMES[kind]) for kind in ("reward", "after", "money", "cost"))


def _nearly_numbers(source: Source, column: ScannedColumn) -> ScannedColumn:
    """A column of numbers with a few texts among them, such as `n/a`; else the column as it is."""
    sql = f"try_cast({plain(column.name)} as double)"
    stray = f"{sql} IS NULL AND {quoted(column.name)} IS NOT NULL"
    [(count, present, first, low, high)] = source.run(
        f"SELECT count(*) FILTER ({stray}), count({quoted(column.name)}), any_value({quoted(column.name)}) "
        f"FILTER ({stray}), min({sql}), max({sql}) FROM log"
    )
    names = any(named(column, pattern) for pattern in (NAMES["user"], NAMES["time"], IDENTIFIER))
    if not count or present - count < (MOSTLY if _an_outcome(column) else PARSED) * present or names:
        return column
    said = f"{count:,} of {present:,} texts are no numbers, {first!r} for one, and count as missing"
    missing = column.missing + int(count)
    return replace(column, type="DOUBLE", low=low, high=high, missing=missing, written=sql, stray=said)


def repeats(source: Source, user: str) -> bool:
    """Whether a user has more than one row; `user` is SQL."""
    return bool(source.run(f"SELECT 1 FROM log GROUP BY {user} HAVING count(*) > 1 LIMIT 1"))


def since(
    source: Source, user: str, time: str, columns: Sequence[ScannedColumn], happen: Sequence[ScannedColumn]
) -> dict[str, list[str]]:
    """Columns that count how long something is ago → columns that are not 0 exactly in the rows where it happens.

    Args:
        source: the log.
        user: SQL.
        time: SQL.
        columns: that may count.
        happen: numbers that they may count.
    """
    whole = [c for c in columns if c.type in WHOLE and c.low == 0 and (c.high or 0) >= 2]
    if not whole:
        return {}
    after = [f"lead({quoted(c.name)}) OVER w AS __next{i}" for i, c in enumerate(whole)]
    pairs = f"(SELECT *, {', '.join(after)} FROM log WINDOW w AS (PARTITION BY {user} ORDER BY {time}))"
    counts = ", ".join(
        f"count(__next{i}), count(*) FILTER (__next{i} = 0), "
        f"count(*) FILTER (__next{i} = {quoted(c.name)} + 1 AND __next{i} > 0)"
        for i, c in enumerate(whole)
    )
    row = source.run(f"SELECT {counts} FROM {pairs}")[0]
    found: dict[str, list[str]] = {}
    for i, column in enumerate(whole):
        followed, back, on = row[3 * i : 3 * i + 3]
        if followed >= PAIRS and back and on and back + on == followed:
            others = [other for other in happen if other.name != column.name]
            wrong = ", ".join(f"count(*) FILTER (({other.sql} != 0) != (__next{i} = 0))" for other in others)
            counted = source.run(f"SELECT {wrong} FROM {pairs} WHERE __next{i} IS NOT NULL")[0] if others else ()
            found[column.name] = [other.name for other, count in zip(others, counted, strict=True) if not count]
    return found


def of_next_row(source: Source, user: str, time: str, columns: Sequence[ScannedColumn], of: ScannedColumn) -> list[str]:
    """Columns that hold, in every row, what another column holds in the user's next row.

    Args:
        source: the log.
        user: SQL.
        time: SQL.
        columns: numbers that may.
        of: the other column.
    """
    others = [column for column in columns if column.name != of.name]
    if not others or not of.is_number:
        return []
    pairs = f"(SELECT *, lead({of.sql}) OVER w AS __next FROM log WINDOW w AS (PARTITION BY {user} ORDER BY {time}))"
    wrong = ", ".join(f"count(*) FILTER ({column.sql} IS DISTINCT FROM __next)" for column in others)
    followed, *counts = source.run(f"SELECT count(*), {wrong} FROM {pairs} WHERE __next IS NOT NULL")[0]
    return [column.name for column, count in zip(others, counts, strict=True) if not count and followed >= PAIRS]


def paid_out(source: Source, action: ScannedColumn, columns: Sequence[ScannedColumn]) -> ScannedColumn | None:
    """The column that is 0 or the action's amount in every row, and not always the amount.

    Amounts are two or more besides 0: of an action that is given or not, any other mark would do.
    """
    if not columns or action.distinct < 3:
        return None
    given = f"({action.sql})"
    parts = ", ".join(
        f"count(*) FILTER ({c.sql} NOT IN (0, {given})), count(*) FILTER ({c.sql} != 0), "
        f"count(*) FILTER ({c.sql} = 0 AND {given} != 0)"
        for c in columns
    )
    row = source.run(f"SELECT {parts} FROM log")[0]
    for i, column in enumerate(columns):
        wrong, paid, unpaid = row[3 * i : 3 * i + 3]
        if not wrong and paid and unpaid:
            return column
    return None
