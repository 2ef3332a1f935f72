"""The behaviour model where states are many: multinomial logistic regression on all fields, shrunk to constant shares.

    p(a | x) ∝ exp(b_a + xᵀw_a)  over the allowed a;    min over W  −Σ log p(aᵢ | xᵢ) + ½ Σ_f τ_f ‖W_f‖²

x: a 1 for the code of every categorical field, the numbers as encoded, and a constant. W = 0 is the constant shares.
Policies look at few of the fields that a log has, and one ridge for all would shrink those and believe the others; so
every field f has its own, at first as strong as all rows together, then by evidence

    τ_f ← γ_f / ‖W_f‖²,   γ_f = Σ h / (h + τ_f) over its weights,   h: the diagonal of the Hessian

and the round that SELECT users find likeliest is kept. Then b_a ← b_a + β_a, W ← T·W with the (T, β) that is likeliest
for them calibrates, where it gains more than it may by chance. Main effects only: thresholds in a number, or
interactions of fields, are met as well as log odds linear in x can. L-BFGS, in coordinates scaled by h + τ.

Source: MacKay (1992) for τ; Guo et al. (2017) for calibration (theirs scales every logit alone); Akaike (1974) for the
gain by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from outlay.core.transitions import Transitions

Array = NDArray[np.float64]
Single = NDArray[np.float32]

ROUNDS = 6  # of τ
WEAKEST, STRONGEST = 1e-2, 1e9  # τ: no weight is free, none is divided by 0
MOST_ENTRIES = 20_000_000  # of the matrix of the fit, 8 bytes each
MOST_PRODUCTS = 320_000_000  # entries × actions: a second or so an iteration
MOST_WEIGHTS = 2_000_000  # columns × actions; L-BFGS keeps some 20 vectors of 8 bytes for each
CHUNK_ENTRIES = 2_000_000  # read at a time
SETTLED = 1e-5  # nats a row: a round that changes less is the last
STEPS, TOLERANCE = 60, 1e-6  # of L-BFGS; relative change of the loss
TINY = 1e-30  # a probability that single precision still distinguishes from 0


@dataclass(frozen=True)
class Logistic:
    """A fitted regression.

    Attributes:
        place: `[P₀]` the row of `weight` for each code of each field and each number; −1 where left out.
        weight: `[P, K]`; the last row is the constant's.
        offset: `[K]` b.
    """

    place: NDArray[np.int32]
    weight: Single
    offset: Array

    @classmethod
    def fit(cls, data: Transitions, learn: NDArray[np.int64], select: NDArray[np.int64], offset: Array) -> Logistic:
        """Fit on `learn` and tune on `select`, rows with a choice; `offset` `[K]`: log of the constant shares.

        A log with many fields is fitted on a random sample of the rows, the same every time, so that the matrix has at
        most MOST_ENTRIES entries (160 MB, twice that while it is made); the codes that are seen most often there
        get a weight, at most MOST_WEIGHTS weights in all (16 MB, some 25 such vectors): under 1 GB altogether.
        """
        K = data.num_actions
        width = len(data.schema.categorical) + 2 * len(data.schema.numeric) + 1
        most = max(1, min(MOST_ENTRIES, MOST_PRODUCTS // K) // width)
        learn, select = sample(learn, most), sample(select, most)
        place, field, spread = _columns(data, learn, max(1, MOST_WEIGHTS // K - 1))
        fitted, held = (_FieldRows.of(data, rows, place) for rows in (learn, select))
        share = np.exp(offset)
        hessian = spread[:, None] * (share * (1 - share))
        ridge = np.full(field[-1] + 1, len(learn) * float((share * (1 - share)).mean()))
        weight = np.zeros((len(spread), K), np.float32)
        model = cls(place, weight, offset)
        best, last = held.loss(model._logits(held.matrix))[0], np.inf
        for _ in range(ROUNDS):
            weight = _descend(fitted, weight, offset, ridge[field], hessian)
            tried = cls(place, weight, offset)
            loss, _ = held.loss(tried._logits(held.matrix))
            if loss < best:
                best, model = loss, tried
            if abs(last - loss) < SETTLED * len(select):
                break
            last = loss
            shrunk = (hessian / (hessian + ridge[field, None])).sum(1)
            size = (weight.astype(np.float64) ** 2).sum(1)
            ridge = np.bincount(field, shrunk) / np.maximum(np.bincount(field, size), 1 / STRONGEST)
            ridge = np.clip(ridge, WEAKEST, STRONGEST)
        return model._calibrated(held)

    def probability(self, data: Transitions, rows: NDArray[np.int64]) -> Array:
        """`[n, K]`."""
        parts = [part @ self.weight for part in _matrices(data, rows, self.place)]
        logits = np.concatenate(parts).astype(np.float64) + self.offset
        if data.eligible is not None:
            logits[~data.allowed(rows)] = -np.inf
        np.exp(logits - logits.max(1, keepdims=True), out=logits)
        logits /= logits.sum(1, keepdims=True)
        return logits

    def _logits(self, matrix: Any) -> Single:
        logits: Single = matrix @ self.weight + self.offset.astype(np.float32)
        return logits

    def _calibrated(self, held: _FieldRows) -> Logistic:
        """Return the model with T and β; unchanged if the log-likelihood gains less than one per parameter (AIC)."""
        logits, K = held.matrix @ self.weight, len(self.offset)

        def loss(x: Array) -> tuple[float, Array]:
            value, rest = held.loss(np.float32(x[0]) * logits + (self.offset + x[1:]).astype(np.float32))
            slope = np.append(np.einsum("nk,nk->", rest, logits, dtype=np.float64), rest.sum(0, dtype=np.float64))
            return value / len(logits), slope / len(logits)

        begin = np.append(1.0, np.zeros(K))
        x = _minimum(loss, begin)
        if (loss(begin)[0] - loss(x)[0]) * len(logits) <= K:
            return self
        return Logistic(self.place, np.float32(x[0]) * self.weight, self.offset + x[1:])


@dataclass(frozen=True)
class _FieldRows:
    """Rows of a log as a regression sees them: `[n, P]` fields, `[n]` logged actions, `[n, K]` what was forbidden."""

    matrix: Any
    action: NDArray[np.intp]
    forbidden: NDArray[np.bool_] | None

    @classmethod
    def of(cls, data: Transitions, rows: NDArray[np.int64], place: NDArray[np.int32]) -> _FieldRows:
        parts = list(_matrices(data, rows, place))
        values, columns = np.concatenate([p.data for p in parts]), np.concatenate([p.indices for p in parts])
        shape = (len(rows), parts[0].shape[1])
        width = len(columns) // max(1, len(rows))
        matrix = csr_array((values, columns, np.arange(len(rows) + 1, dtype=np.int32) * width), shape)
        forbidden = None if data.eligible is None else ~data.allowed(rows)
        return cls(matrix, np.asarray(data.action[rows], np.intp), forbidden)

    def loss(self, logits: Single) -> tuple[float, Single]:
        """−Σ log p(aᵢ) and its gradient `[n, K]` by the logits, which are overwritten."""
        if self.forbidden is not None:
            logits[self.forbidden] = -np.inf
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        at = (np.arange(len(logits)), self.action)
        value = -float(np.log(np.maximum(logits[at], TINY)).sum(dtype=np.float64))
        logits[at] -= 1
        return value, logits


def sample(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most `most` of the rows, the same every time."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def _descend(rows: _FieldRows, weight: Single, offset: Array, ridge: Array, hessian: Array) -> Single:
    """The weights of least loss under the penalty, from `weight` on; `ridge` `[P]`, `hessian` `[P, K]`."""
    n, penalty = len(rows.action), ridge[:, None]
    scale = np.sqrt(n / (hessian + penalty))
    transposed, base = rows.matrix.T, offset.astype(np.float32)

    def loss(x: Array) -> tuple[float, Array]:
        w = scale * x.reshape(weight.shape)
        value, rest = rows.loss(rows.matrix @ w.astype(np.float32) + base)
        slope = transposed @ rest + penalty * w
        return (value + 0.5 * float((penalty * w * w).sum())) / n, (scale * slope).ravel() / n

    best: Single = (scale * _minimum(loss, (weight / scale).ravel()).reshape(weight.shape)).astype(np.float32)
    return best


def _minimum(loss: Callable[[Array], tuple[float, Array]], begin: Array) -> Array:
    options = {"maxiter": STEPS, "maxcor": 6, "ftol": TOLERANCE, "gtol": 1e-7}
    argument: Array = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options).x
    return argument


def _columns(
    data: Transitions, rows: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int32], NDArray[np.intp], Array]:
    """As `Logistic.place`; and of the `[P]` columns that are kept, the constant's last, the field and Σ x²."""
    fields, numbers = len(data.schema.categorical), len(data.schema.numeric)
    field = np.repeat(np.arange(fields + numbers), [*data.schema.sizes, *[2] * numbers])
    every = np.arange(len(field), dtype=np.int32)
    spread = np.zeros(len(field) + 1)
    for part in _matrices(data, rows, every):
        spread += np.bincount(part.indices, part.data**2, len(spread))
    seen = np.flatnonzero(spread[:-1] > 0)
    kept = np.sort(seen[np.argsort(-spread[seen], kind="stable")[:most]])
    place = np.full(len(every), -1, np.int32)
    place[kept] = np.arange(len(kept))
    return place, np.append(field[kept], fields + numbers), np.append(spread[kept], spread[-1])


def _matrices(data: Transitions, rows: NDArray[np.int64], place: NDArray[np.int32]) -> Iterator[Any]:
    """CSR parts `[≤ chunk, P]` of the rows, as many entries in each row; what is left out is an entry of 0."""
    fields, numbers = len(data.schema.categorical), 2 * len(data.schema.numeric)
    width, constant = fields + numbers + 1, int(place.max(initial=-1)) + 1
    sizes = np.asarray(data.schema.sizes, np.int64)
    first = np.cumsum(sizes) - sizes
    step = max(1, CHUNK_ENTRIES // width)
    for begin in range(0, max(1, len(rows)), step):
        part = rows[begin : begin + step]
        codes, values = data.features(part)
        columns = np.full((len(part), width), constant, np.int32)
        columns[:, :fields] = place[codes + first]
        columns[:, fields:-1] = place[len(place) - numbers :]
        entries = np.ones((len(part), width), np.float32)
        entries[:, fields:-1] = values
        entries[columns < 0] = 0
        columns[columns < 0] = constant
        starts = np.arange(len(part) + 1, dtype=np.int32) * width
        yield csr_array((entries.ravel(), columns.ravel(), starts), (len(part), constant + 1))
