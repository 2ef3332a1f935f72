"""By what all servers of a campaign go: facts of its ledger, which one transaction changes together."""

from __future__ import annotations

from msgspec import Struct

from outlay.serve.ledger.caps import Caps


class Terms(Struct, frozen=True, kw_only=True):
    """What a campaign's servers have in common.

    Attributes:
        caps: hard limits of money.
        settings: of the servers, JSON; empty before the first server.
        bundle: id of the one in service; empty before the first server.
        path: its folder, as the server that put it into service found it.
    """

    caps: Caps
    settings: str = ""
    bundle: str = ""
    path: str = ""
