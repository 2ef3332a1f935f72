"""What a sentence must tell, in whatever words: figures, names, ways out.

    assert not missing(message, "coupon_cost", "at most 0.3", "outlay train")
    assert not missing(message, "coupon_cost … at most 0.3 … outlay train")

A copy-edit of the sentence keeps these, and a wrong figure does not.
"""

from __future__ import annotations

import re


def missing(text: str, *told: str) -> list[str]:
    """What a text does not tell; `…` stands for any words.

    Figures and names are whole: `2` is not told by `1.2`, `2.5`, `-2` or `x2`.
    """
    text = " ".join(text.split())
    parts = [part for each in told for part in each.split(" … ")]
    return [part for part in parts if not re.search(rf"(?<![\w−+-])(?<!\d[.,]){re.escape(part)}(?!\w|[.,]\d)", text)]
