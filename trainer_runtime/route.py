"""Which of several candidate authorities a replica tries next. Pure: no clock, no I/O."""

from __future__ import annotations

import random
from collections.abc import Sequence

# Seconds that a replica waits at an authority which lacks a majority. At the first candidate it
# stays longer, so that those who are spread over several gather there.
_STAY_S = (1.5, 3.0)
_STAY_AT_FIRST = 2.0


class Route:
    """`addresses` in order of preference. Whichever was left comes last in the next round."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], rng: random.Random | None = None
    ) -> None:
        if not addresses:
            raise ValueError("authority: names none; give host:port")
        self.addresses = list(addresses)
        self._rng = rng or random.Random()
        self._round = list(range(len(self.addresses)))
        self._now = 0

    @property
    def several(self) -> bool:
        return len(self.addresses) > 1

    @property
    def address(self) -> tuple[str, int]:
        """The one to try, or that is connected."""
        return self.addresses[self._now]

    def begin(self) -> None:
        """The first round, from the most preferred on."""
        self._now = self._round.pop(0)

    def next(self, *, connected: bool) -> bool:
        """Go on to the next candidate, after this one was lost or left (`connected`) or wasn't
        reached. Whether a round is over, so that it is time for a pause."""
        over = not self._round
        if connected or over:
            every = range(len(self.addresses))
            self._round = [each for each in every if each != self._now] + [self._now]
        self._now = self._round.pop(0)
        return over or not self.several

    def stay(self) -> float:
        """Seconds to wait at this authority for a majority; never the same, so that two replicas
        don't follow each other round."""
        return self._rng.uniform(*_STAY_S) * (_STAY_AT_FIRST if self._now == 0 else 1.0)
