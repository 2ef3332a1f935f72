"""Money in whole minor units: 12.34 yuan are 1,234 fen.

    reserve(x) = ⌈x · minor⌉        exact(x) = x · minor, which must be whole

Reservations are rounded up, so that they cover what is spent; amounts spent must be exact. A float stands for the
shortest decimal that parses to it (1.1 is 1.1 and not 1.1000000000000000888), so the arithmetic is decimal and exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from outlay.core.errors import OutlayError

LARGEST = 2**53  # the largest amount in minor units: beyond it, JSON numbers and floats lose units
LARGEST_SUM = 2**62  # of amounts: two of them fit into 64 bits


class MoneyError(OutlayError):
    """An amount that is not finite, negative, too large, or has a fraction of a minor unit."""


@dataclass(frozen=True, slots=True)
class Money:
    """A currency.

    Attributes:
        unit: its name, for messages.
        minor: minor units in one unit, e.g. 100.
    """

    unit: str
    minor: int = 100

    def __post_init__(self) -> None:
        if self.minor < 1:
            raise MoneyError(f"there are {self.minor} minor units in one {self.unit}; must be at least 1.")

    def reserve(self, amount: float) -> int:
        """Return the minor units to reserve for `amount` units, rounded up. Raises MoneyError if it is not valid."""
        return int(self._scaled(amount).to_integral_value(ROUND_CEILING))

    def exact(self, amount: float) -> int:
        """Return `amount` units in minor units. Raises MoneyError if they are not whole, or it is not valid."""
        minor = self._scaled(amount)
        if minor != minor.to_integral_value():
            raise MoneyError(
                f"{amount} {self.unit} is not a whole number of minor units ({self.minor} in one {self.unit}).",
                way_out="Round it before you send it.",
            )
        return int(minor)

    def units(self, minor: int) -> float:
        """Return `minor` minor units in units, as the nearest float."""
        return minor / self.minor

    def _scaled(self, amount: float) -> Decimal:
        decimal = Decimal(str(amount))
        if not decimal.is_finite() or decimal < 0:
            raise MoneyError(f"{amount} {self.unit} is not an amount of money; must be finite and at least 0.")
        if decimal * self.minor > LARGEST:
            raise MoneyError(f"{amount} {self.unit} is more than the ledger can hold ({LARGEST} minor units).")
        return decimal * self.minor
