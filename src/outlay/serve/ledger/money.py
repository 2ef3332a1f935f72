"""Money in whole minor units: 12.34 yuan are 1,234 fen.

    reserve(x) = ⌈x · minor⌉        exact(x) = x · minor, which must be whole

What is set aside is rounded up, so that it covers what is spent; what is spent is taken as it is said, or refused. A
float stands for the shortest decimal that reads back as it (1.1 is 1.1 and not 1.1000000000000000888), so the
arithmetic is decimal and exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from outlay.core.errors import OutlayError

LARGEST = 2**53  # the largest amount in minor units: beyond it, JSON numbers and floats lose units


class MoneyError(OutlayError):
    """An amount that is no money: not finite, negative, too large, or with a fraction of a minor unit."""


@dataclass(frozen=True, slots=True)
class Money:
    """A currency.

    Attributes:
        unit: its name, for words.
        minor: minor units in one unit, e.g. 100.
    """

    unit: str
    minor: int = 100

    def __post_init__(self) -> None:
        if self.minor < 1:
            raise MoneyError(f"{self.minor} minor units in one {self.unit}; it must be a whole number of at least 1.")

    def reserve(self, amount: float) -> int:
        """Minor units to set aside for `amount` units, rounded up. Raises MoneyError if it is no money."""
        return int(self._scaled(amount).to_integral_value(ROUND_CEILING))

    def exact(self, amount: float) -> int:
        """Minor units of `amount` units. Raises MoneyError if they are not whole or it is no money."""
        minor = self._scaled(amount)
        if minor != minor.to_integral_value():
            raise MoneyError(
                f"{amount} {self.unit} is not a whole number of minor units ({self.minor} in one {self.unit}).",
                way_out="Round it where it is made.",
            )
        return int(minor)

    def units(self, minor: int) -> float:
        """`minor` minor units in units, the nearest float."""
        return minor / self.minor

    def _scaled(self, amount: float) -> Decimal:
        decimal = Decimal(str(amount))
        if not decimal.is_finite() or decimal < 0:
            raise MoneyError(f"{amount} {self.unit} is no amount of money; it must be a finite number, 0 or more.")
        if decimal * self.minor > LARGEST:
            raise MoneyError(f"{amount} {self.unit} is more than the ledger can hold ({LARGEST} minor units).")
        return decimal * self.minor
