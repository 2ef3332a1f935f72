"""All policies that a bundle may serve: those of its frontier where it carries one, else the members of its mixture.

    pool = Pool(bundle)
    mixed = pool.mixture(weights, price)      a Bundle of the live ones, for weights [P] and a price ρ

    member k acts by (w_reward, ρ · w_rest)       ρ > 1 makes all its costs dearer

A policy keeps its salt in every mixture, so new weights move few users. The graph of the frontier is read when a policy
outside the bundle's own mixture is first needed; it computes policies of several networks. Constant actions of the
mixture are in the pool as well: each has a graph of its own, which its entry names as its `file`. All other entries say
which `policy` of which `network` of the frontier's graph they are; several may act by one policy's Q, each with its own
head weights.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.bundles.decide import Bundle, Member
from outlay.bundles.manifest import FRONTIER, GOLDEN, GOLDEN_FRONTIER, PolicyEntry, read_file, verified
from outlay.bundles.read import check_values, open_session

LIVE = "live"  # what the names of inputs begin with that take positions of policies


@dataclass(frozen=True)
class Pool:
    """The P policies of a bundle.

    Attributes:
        bundle: verified.
    """

    bundle: Bundle

    @property
    def entries(self) -> tuple[PolicyEntry, ...]:
        """What the manifest says of each."""
        return self.bundle.manifest.policies

    @cached_property
    def measurements(self) -> NDArray[np.float64]:
        """`[P, 1+m]` reward and costs, in their budgets' units."""
        return np.array([entry.measurement for entry in self.entries])

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """`[P]` of the bundle's own mixture."""
        return self._weights(self.bundle.members)

    @cached_property
    def capped(self) -> NDArray[np.float64]:
        """`[P]` of the mixture that is served behind a cap; the same as `weights` where the bundle has no other."""
        return self._weights(self.bundle.capped) if self.bundle.capped else self.weights

    def _weights(self, members: Sequence[Member]) -> NDArray[np.float64]:
        place = {entry.salt: i for i, entry in enumerate(self.entries)}
        weights = np.zeros(len(self.entries))
        weights[[place[member.salt] for member in members]] = [member.weight for member in members]
        return weights

    def mixture(self, weights: ArrayLike, price: float = 1.0) -> Bundle:
        """The bundle with other weights, and costs at another price.

        Args:
            weights: `[P]`, not negative, sum 1. Those of weight 0 are left out.
            price: factor ρ on all weights of heads but the reward's.

        Returns:
            A bundle whose members are the live policies, in the order of the pool.

        Raises:
            BundleError: if the graph of the frontier is damaged, or this machine computes other values.
        """
        alpha = np.asarray(weights, np.float64)
        own = {member.salt: member for member in (*self.bundle.members, *self.bundle.capped)}
        live = np.flatnonzero(alpha).tolist()
        salts = [self.entries[i].salt for i in live]
        members = [own[salt] for salt in salts] if set(salts) <= own.keys() else self._members(live, own)
        return replace(
            self.bundle,
            members=tuple(
                replace(member, weight=float(alpha[i]), head_weights=_priced(member.head_weights, price))
                for i, member in zip(live, members, strict=True)
            ),
        )

    def check(self) -> None:
        """Read the frontier, if there is one, and check its golden rows.

        Raises:
            BundleError: as in `mixture`.
        """
        if self.bundle.manifest.frontier is not None:
            _ = self._session

    def _members(self, places: Sequence[int], own: Mapping[str, Member]) -> list[Member]:
        learned = [i for i in places if self.entries[i].file is None]
        asked, order = self._asked(self._session, [self._heads(i) for i in learned])
        found = {}
        for i in learned:
            entry, heads = self.entries[i], self._heads(i)
            weights = np.array(entry.head_weights)
            found[i] = Member(asked, 0.0, entry.salt, weights, order[heads], network=heads[0])
        return [found[i] if i in found else own[self.entries[i].salt] for i in places]

    def _heads(self, place: int) -> tuple[int, int]:
        """The network of an entry, and which of its policies it is."""
        entry = self.entries[place]
        return entry.network, entry.policy

    def _asked(self, session: Any, wanted: Sequence[tuple[int, int]]) -> tuple[_Asked, dict[tuple[int, int], int]]:
        """The session for some policies (network, policy), and the position of each in what it gives.

        A network without such a policy computes its first: runtimes refuse empty products.
        """
        inputs = [given.name for given in session.get_inputs() if given.name.startswith(LIVE)]
        idle = set(range(len(inputs))) - {network for network, _ in wanted}
        order = sorted({*wanted, *((network, 0) for network in idle)})
        live = {
            name: np.array([policy for network, policy in order if network == i], np.int32)
            for i, name in enumerate(inputs)
        }
        values = len(order) * len(self.entries[0].head_weights)
        return _Asked(session, live, values), {heads: k for k, heads in enumerate(order)}

    @cached_property
    def _session(self) -> Any:
        bundle = self.bundle
        session = open_session(verified(bundle.folder, FRONTIER, bundle.manifest))
        learned = [self._heads(i) for i, entry in enumerate(self.entries) if entry.file is None]
        every = Member(self._asked(session, learned)[0], 0.0, "", np.empty(0))
        with np.load(io.BytesIO(read_file(bundle.folder, GOLDEN, bundle.manifest))) as golden:
            rows = len(golden[GOLDEN_FRONTIER])
            (found,) = every.run(["q"], golden["codes"][:rows], golden["numbers"][:rows])
            check_values(found, golden, GOLDEN_FRONTIER, bundle.folder / FRONTIER)
        return session


class _Output(NamedTuple):
    name: str
    shape: list[Any]


@dataclass(frozen=True, eq=False)
class _Asked:
    """A session of the frontier that computes some of its policies, as `Member` uses sessions."""

    session: Any
    live: dict[str, NDArray[np.int32]]  # positions of the policies that each network computes
    values: int  # of each action: heads of all these policies

    def get_inputs(self) -> list[Any]:
        return [given for given in self.session.get_inputs() if given.name not in self.live]

    def get_outputs(self) -> list[_Output]:
        return [
            _Output(given.name, [*given.shape[:2], self.values] if given.name == "q" else given.shape)
            for given in self.session.get_outputs()
        ]

    def run(self, outputs: Sequence[str], feed: dict[str, Any]) -> list[Any]:
        return self.session.run(outputs, {**feed, **self.live})  # type: ignore[no-any-return]


def _priced(head_weights: NDArray[np.float64], price: float) -> NDArray[np.float64]:
    priced: NDArray[np.float64] = head_weights * np.append(1.0, np.full(len(head_weights) - 1, price))
    return priced
