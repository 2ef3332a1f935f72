"""Which kinds of outcomes may come: what moves money, what serve.toml names, and what the campaigns are made of.

    declared = redeemed, refund  ∪  outcomes of serve.toml  ∪  columns of reward, terminal and the costs but the money's

A kind becomes a column of the exported log, and names of columns know no case. So a kind that nobody declared, misspelt
perhaps, is refused when it comes, and two kinds that differ only by case are one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from outlay.serve.config import MONEY_KINDS
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, BUNDLE
from outlay.serve.ledger.ledger import Ledger

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROLES = ("user", "time", "action", "propensity", "forced", "eligible")


def declared_outcome_kinds(ledger: Ledger, campaign: str, named: Iterable[str]) -> tuple[str, ...]:
    """All kinds that may come, those that move money first.

    Args:
        ledger: knows every bundle that was ever in service: what one of them wants may come after another's swap.
        campaign: its name.
        named: by the settings, and by the test that is served.

    Raises:
        LedgerError: if the ledger cannot be read.
    """
    notes = [note for kind in (BUNDLE, ARM_BUNDLE) for note in ledger.notes(campaign, kind)]
    bundles = [json.loads(note.content)["campaign"] for note in notes]
    kinds = [*MONEY_KINDS, *named, *(kind for each in bundles for kind in campaign_outcome_kinds(each))]
    return tuple(_once(kinds))


def campaign_outcome_kinds(campaign: Mapping[str, Any]) -> list[str]:
    """The kinds of which a campaign's reward, end and costs are made, in the order in which they are met.

    Args:
        campaign: the content of a campaign file.
    """
    import duckdb  # not before it is needed: the server's garbage collector leaves alone what was loaded at its start

    log, budgets = campaign["log"], campaign["budget"]
    money = next((budget for budget in budgets if budget.get("money")), budgets[0])  # is what the ledger pays
    features = log["features"]
    known = [*features.get("categorical", ()), *features.get("numeric", ()), *(log.get(role) for role in ROLES)]
    wanted = [log["reward"], log.get("terminal"), *(each["cost"] for each in budgets if each is not money)]
    with closing(duckdb.connect()) as connection:
        taken = {name.casefold() for text in known if text for name in (text, *_columns(connection, text))}
        met = [name for text in wanted if text for name in _columns(connection, text)]
    return [name for name in _once(met) if name.casefold() not in taken]


def nearest_outcome_kind(kind: str, declared: Iterable[str]) -> str | None:
    """The declared kind that is written most alike, or None where none is."""
    folded = {each.casefold(): each for each in declared}
    near = difflib.get_close_matches(kind.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def _once(names: Iterable[str]) -> Iterable[str]:
    """As SQL reads them: the first of those that differ only by case."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return found.values()


def _columns(connection: DuckDBPyConnection, text: str) -> list[str]:
    """The columns that an SQL expression names; none where it is no expression."""
    [(tree,)] = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]).fetchall()
    return list(_named(json.loads(tree)))


def _named(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield str(tree["column_names"][-1])
        for part in tree.values():
            yield from _named(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _named(part)
