"""What the actions of a log are called, and SQL of their numbers: of the log itself, and of rows like its rows.

A column of texts or of truth values has names, and so has any column of which the campaign file lists labels. The
others have amounts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from outlay.core.actions import TRUE, TRUTH, ActionNames, Given, Holds, all_named, as_text, named
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, nearest
from outlay.core.wording import counted
from outlay.logs.reading import literal, toml_value, used, without_commas
from outlay.logs.source import NUMBERS, ROW, WHOLE, Source, Term
from outlay.logs.values import NOISE, text_sql, without_rounding

MOST = 255  # named actions: more cannot be chosen from
_HOLDS: dict[str, Holds] = {
    **dict.fromkeys(NUMBERS, "numbers"),
    **dict.fromkeys(WHOLE, "whole numbers"),
    "BOOLEAN": "truth values",
}
_DIGITS = re.compile(r"\d+")


def named_as(source: Source, campaign: Campaign) -> Campaign:
    """The campaign with the labels of the log's actions; as it is where actions are amounts.

    Raises:
        CampaignError: if rows have an action that is not listed, or the campaign file names one that there is not.
    """
    log, term = campaign.log, source.term("log.action", campaign.log.action)
    if log.bins is not None:  # with labels, as an earlier reading left it
        return campaign if log.labels else _binned(source, campaign, term)
    if not log.labels and not _has_names(source, term):
        _refuse_unknown(campaign)
        return campaign
    text = _text(term, log.labels)
    if not log.labels and term.type == "BOOLEAN":
        return _settled(campaign, term, _truth_words(campaign))
    if log.labels:
        listed = ", ".join(map(literal, log.labels))
        if rows := source.run(
            f"SELECT {text} AS v, count(*), min({ROW}) FROM log_numbered WHERE v NOT IN ({listed}) "
            "GROUP BY v ORDER BY 2 DESC, 1"
        ):
            raise _unlisted(campaign, rows)
        return _settled(campaign, term, log.labels)
    if log.actions is not None:
        rows = source.run(f"SELECT DISTINCT {text} AS v FROM log_kept WHERE v IS NOT NULL ORDER BY v LIMIT {MOST}")
        raise CampaignError(
            f"lists numbers, and {log.action!r} has names: {all_named([str(v) for (v,) in rows])}.",
            file=campaign.path,
            where="log.actions",
            way_out="List the names, in the order that tables are to have, and their amounts under amounts if they "
            "have any; or leave actions out.",
        )
    rows = source.run(f"SELECT DISTINCT {text} AS v FROM log_kept WHERE v IS NOT NULL ORDER BY v LIMIT {MOST + 1}")
    if len(rows) > MOST:
        raise source.wrong_type(
            term,
            f"has more than {MOST} different names.",
            "Group them by a CASE expression.",
        )
    none = None if campaign.meta.none is None else as_text(campaign.meta.none)
    names = sorted((str(v) for (v,) in rows), key=lambda each: (each != none, *_natural(each)))
    return _settled(campaign, term, names)


def _binned(source: Source, campaign: Campaign, term: Term) -> Campaign:
    """The campaign with bins of amounts as its actions: `none` alone, the others called `1 to 5`, worth their means.

    Raises:
        CampaignError: if an amount lies outside of the edges, or there are too few different ones for bins.
    """
    amount = source.number(term, "Bins are of amounts.")
    none, wanted = campaign.none, campaign.log.bins
    apart = "" if none is None else f"WHERE a <> {none!r}"
    amounts = f"(SELECT {amount} AS a, {ROW} AS r FROM log_numbered) {apart}"
    edges = list(wanted) if isinstance(wanted, tuple) else []
    if isinstance(wanted, int):
        shares = ", ".join(f"{place / wanted:.6f}" for place in range(wanted + 1))
        [(found,)] = source.run(f"SELECT quantile_disc(a, [{shares}]) FROM {amounts}")
        edges = sorted({float(f"{edge:.6g}") for edge in found or ()})
        edges = [*edges[:-1], edges[-1] * (1 + NOISE)] if edges and edges[-1] > 0 else edges
    if len(edges) < 3:
        raise CampaignError(
            f"is {wanted}, and the log has too few different amounts for bins.",
            file=campaign.path,
            where="log.bins",
            way_out="Leave it out: each amount is then an action.",
        )
    outside = f"a < {edges[0]!r} - {NOISE} * abs({edges[0]!r}) OR a > {edges[-1]!r}"
    both = f"{amounts} {'AND' if apart else 'WHERE'}"
    [(count, first, least, most)] = source.run(f"SELECT count(*), min(r), min(a), max(a) FROM {both} ({outside})")
    if count and isinstance(wanted, tuple):
        raise CampaignError(
            f"{counted(count, 'row', 'have')} an amount outside of the edges ({least:g} to {most:g}), first in row "
            f"{first + 1}.",
            file=campaign.path,
            where="log.bins",
            way_out="Widen the edges, or leave these rows out with log.where.",
        )
    place = " + ".join(f"CAST(a >= {edge!r} AS INTEGER)" for edge in edges[1:-1])
    means = dict(source.run(f"SELECT {place} AS b, avg(a) FROM {amounts} GROUP BY b"))
    bins = [(place, low, high) for place, (low, high) in enumerate(pairwise(edges)) if place in means]
    labels = [f"{low:g} to {high:g}" for _, low, high in bins]
    values = [float(f"{means[place]:.6g}") for place, _, _ in bins]
    kept = tuple([low for _, low, _ in bins] + [bins[-1][2]])
    if none is not None:
        labels, values = [f"{none:g}", *labels], [none, *values]
    log = campaign.log.model_copy(update={"actions": tuple(labels), "amounts": tuple(values), "bins": kept})
    found_so = campaign.model_copy(update={"log": log})
    _refuse_unknown(found_so)
    return found_so


def bin_sql(campaign: Campaign, amount: str) -> str:
    """SQL of the number of the bin that an amount is in."""
    edges, none = campaign.log.bins, campaign.none
    assert isinstance(edges, tuple)
    values = list(campaign.names.values)[len(campaign.names.values) - (len(edges) - 1) :]
    cases = " ".join(
        f"WHEN {amount} < {edge!r} THEN CAST({value!r} AS DOUBLE)"
        for edge, value in zip(edges[1:-1], values, strict=False)
    )
    apart = "" if none is None else f"WHEN {amount} = {none!r} THEN CAST({none!r} AS DOUBLE) "
    return f"CASE WHEN {amount} IS NULL THEN NULL {apart}{cases} ELSE CAST({values[-1]!r} AS DOUBLE) END"


def _has_names(source: Source, term: Term) -> bool:
    """Whether a column holds names: truth values, or texts of which one is no number."""
    if term.type != "VARCHAR":
        return term.type == "BOOLEAN"
    names = f"SELECT 1 FROM log_kept WHERE {term.sql} IS NOT NULL AND TRY_CAST({term.sql} AS DOUBLE) IS NULL LIMIT 1"
    return bool(source.run(names)) and without_commas(source.run, "log_kept", term.sql, term.written) is None


def _text(term: Term, labels: Sequence[str]) -> str:
    """SQL of an action as text; a truth value as the labels write it."""
    if term.type != "BOOLEAN":
        return text_sql(term)
    words = {TRUE[each.lower()]: literal(each) for each in (*TRUTH[0], *labels) if each.lower() in TRUE}
    return f"CASE WHEN {term.sql} THEN {words[True]} WHEN NOT {term.sql} THEN {words[False]} END"


def _truth_words(campaign: Campaign) -> tuple[str, str]:
    """The two labels of a column of truth values, as the campaign file writes them: `No` and `Yes`."""
    for _, each in _named_in(campaign):
        for pair in TRUTH:
            if isinstance(each, str) and each.lower() in pair:
                no, yes = (word.capitalize() if each[0].isupper() else word for word in pair)
                return (no.upper(), yes.upper()) if len(each) > 1 and each.isupper() else (no, yes)
    return TRUTH[0]


def _named_in(campaign: Campaign) -> list[tuple[str, Given]]:
    """Where a campaign file names actions, with the actions."""
    found = [("campaign.none", campaign.meta.none), *(("log.contrast", each) for each in campaign.log.contrast or ())]
    found += [(key, each) for key, table in _tables(campaign) for each in table]
    return [(key, each) for key, each in found if each is not None]


def _tables(campaign: Campaign) -> list[tuple[str, dict[str, float]]]:
    """The tables of a campaign file whose keys are actions."""
    each = [(f"budget {b.name}.{key}", getattr(b, key)) for b in campaign.budgets for key in ("cost", "reserve")]
    return [(key, table) for key, table in each if isinstance(table, dict)]


def _natural(text: str) -> tuple[str, list[int], str]:
    """`5% off` before `10% off`."""
    return _DIGITS.sub("#", text), [int(found) for found in _DIGITS.findall(text)], text


def _settled(campaign: Campaign, term: Term, labels: Sequence[str]) -> Campaign:
    """The campaign with what its file leaves to the log: labels, what the column holds, and amounts of truth values.

    Raises:
        CampaignError: if the file names an action that is none of them.
    """
    holds, amounts = _HOLDS.get(term.type, "texts"), campaign.log.amounts
    if amounts is None and ActionNames.of(labels, (), None, holds).holds == "truth values":
        truths = tuple(float(TRUE[each.lower()]) for each in labels)
        amounts = truths if len(set(truths)) == len(truths) else None
    update = {"actions": tuple(labels), "amounts": amounts, "holds": holds}
    found = campaign.model_copy(update={"log": campaign.log.model_copy(update=update)})
    _refuse_unknown(found)
    return found


def _refuse_unknown(campaign: Campaign) -> None:
    """Raise CampaignError if the file names an action that there is not: a text where actions are amounts, too."""
    labels, history = campaign.log.labels, campaign.log.history
    if labels and not campaign.names.amounts and history is not None and "action" in (history.columns or ()):
        raise CampaignError(
            "lists 'action', which has names without amounts: there is nothing to add up.",
            file=campaign.path,
            where="log.history.columns",
            way_out="Leave it out, or state the amounts under [log].",
        )
    for key, each in _named_in(campaign):
        if campaign.names.value(each) is not None:
            continue
        found, way_out = f"names {named(each)}, which is no action of the log.", nearest(str(each), labels, "Actions")
        if not labels:
            found = f"names {named(each)}, and the actions of the log are numbers."
            way_out = "Write the number, or list labels under log.actions."
        elif not isinstance(each, str):
            found = f"is {named(each)}, and the actions of the log have names."
            way_out = f"Write one of: {all_named(labels)}."
        raise CampaignError(found, file=campaign.path, where=key, way_out=way_out)
    for key, table in _tables(campaign):
        if (twice := campaign.names.twice(table)) is not None:
            raise CampaignError(twice, file=campaign.path, where=key, way_out="Keep one of them.")


def _unlisted(campaign: Campaign, rows: Sequence[tuple[str, int, int]]) -> CampaignError:
    """Rows have an action that is not listed: `[(text, rows, first row)]`."""
    text, _, first = rows[0]
    count, more = sum(row[1] for row in rows), f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return CampaignError(
        f"{counted(count, 'row', 'have')} an action that is not listed: {text!r}{more}, first in row {first + 1}.",
        file=campaign.path,
        where="log.actions",
        way_out=f"Add it to the list, write it as the log does ({all_named(campaign.log.labels)} are listed), or leave "
        "these rows out with log.where.",
    )


def action_sql(source: Source, campaign: Campaign, known: Sequence[float] | None = None) -> str:
    """SQL of an action as its number, in rows like those of the log; NULL for a name that is not one of its actions.

    Args:
        source: the rows.
        campaign: as `named_as` returned it.
        known: the amounts there are, if they are listed.

    Raises:
        OutlayError: if the column holds neither labels nor numbers.
    """
    term = source.term("log.action", campaign.log.action)
    if isinstance(campaign.log.bins, tuple):
        return bin_sql(campaign, source.number(term, "Bins are of amounts."))
    if campaign.log.labels:
        return value_sql(campaign, _text(term, campaign.log.labels))
    amount = source.number(term, "Actions are amounts or names. Give an expression that makes one.")
    return f"({without_rounding(source, amount, amount, known)})"


def value_sql(campaign: Campaign, label: str) -> str:
    """SQL of the number of an action, by the SQL of its label, or of what it stands for as text; NULL if it is none."""
    names, cases = campaign.names, dict[str, float]()
    for each, value in zip(names.labels, names.values, strict=True):
        held, spelt = names.logged(value), [each]
        if isinstance(held, bool):
            spelt.append(str(held).lower())
        elif not isinstance(held, str):
            spelt += [str(held), str(float(held))]
        cases |= dict.fromkeys(spelt, value)
    listed = " ".join(f"WHEN {literal(text)} THEN CAST({value!r} AS DOUBLE)" for text, value in cases.items())
    return f"CASE {label} {listed} END"


def _prices(campaign: Campaign) -> str:
    """The way out where the cost of named actions is not told."""
    priced = [label for label in campaign.log.labels if label != campaign.meta.none][:2]
    table = ", ".join(f"{toml_value(label)} = {place}.0" for place, label in enumerate(priced, 1))
    return f"Actions have names here. Say what each costs whenever it is given, as in cost = {{ {table} }}."


def cost_sql(source: Source, campaign: Campaign, place: int) -> tuple[str, Term]:
    """SQL of a budget's cost in a row, and the term that it comes from: a column, an expression, or the action."""
    budget = campaign.budgets[place]
    if isinstance(budget.cost, str):
        key = f"budget {budget.name}.cost"
        try:
            term = source.term(key, budget.cost)
            return source.number(term), term
        except CampaignError as error:
            if campaign.log.labels and campaign.log.action in used(budget.cost, list(source.columns)):
                raise CampaignError(
                    error.found, file=error.file, where=error.where, way_out=_prices(campaign)
                ) from None
            raise
    return table_sql(source, campaign, budget.cost)


def table_sql(source: Source, campaign: Campaign, table: Mapping[str, float]) -> tuple[str, Term]:
    """SQL of what a table says of the action of a row, 0 where it says nothing; and the term of the action."""
    cases = "".join(
        f" WHEN CAST({value!r} AS DOUBLE) THEN CAST({price!r} AS DOUBLE)"
        for value, price in campaign.names.numbered(table).items()
    )
    term = source.term("log.action", campaign.log.action)
    return f"CASE {action_sql(source, campaign)}{cases} ELSE 0 END" if cases else "CAST(0 AS DOUBLE)", term
