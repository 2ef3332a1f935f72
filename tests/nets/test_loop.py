"""The compiled loop against a loop written longhand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from outlay.nets.loop import compiled_block


def test_a_block_is_steps_in_order_with_something_after_every_few() -> None:
    def step(carry: Array, batch: Array) -> tuple[Array, Array]:
        return 2 * carry + batch.sum(), carry

    def after(carry: Array) -> tuple[Array, Array]:
        return carry - 1, carry

    batches = np.arange(12, dtype=np.float32).reshape(6, 2)
    carry, (losses, infos) = compiled_block(step, after, 3)(jnp.array(1.0), batches)

    x, wanted_losses, wanted_infos = 1.0, [], []
    for part in (batches[:3], batches[3:]):
        seen = []
        for batch in part:
            seen.append(x)
            x = 2 * x + float(batch.sum())
        wanted_losses.append(np.mean(seen))
        wanted_infos.append(x)
        x -= 1
    assert float(carry) == x
    np.testing.assert_allclose(losses, wanted_losses)
    assert infos.tolist() == wanted_infos
