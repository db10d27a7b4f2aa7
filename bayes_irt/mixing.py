"""Anderson's acceleration: mix the last steps of a fixed-point iteration so that they cancel as far as they can.

References
----------
Walker, H. F. & Ni, P. (2011). Anderson acceleration for fixed-point iterations. SIAM Journal on Numerical Analysis 49,
1715-1735.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

_WINDOW = 6


@dataclass(slots=True)
class Mixing:
    """Remember the last places and their steps.

    Parameters
    ----------
    history
        Pairs of place and step, oldest first.

    Examples
    --------
    >>> mixing, place = Mixing(), np.array([1.0, 1.0])
    >>> for _ in range(3):  # the iteration x -> x / [2, 3] ends at 0
    ...     end = place / [2.0, 3.0]
    ...     mixed = mixing.mix(place, end, np.ones(2))
    ...     place = end if mixed is None else mixed
    >>> np.abs(place).round(12).tolist()
    [0.0, 0.0]
    """

    history: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def mix(
        self,
        start: Float[np.ndarray, " size"],
        end: Float[np.ndarray, " size"],
        scale: Float[np.ndarray, " size"],
    ) -> Float[np.ndarray, " size"] | None:
        """Remember one step of the iteration and return where the last ones together lead.

        Parameters
        ----------
        start, end
            Before and after the step.
        scale
            Weights by which steps are measured, such as the square root of the curvature.

        Returns
        -------
        numpy.ndarray or None
            The mixture; None at the first step and where a number is not finite.
        """
        if not np.isfinite(end).all():
            return None
        self.history.append((start, end - start))
        if len(self.history) < 2:
            return None
        places, steps = (np.stack(column) for column in zip(*self.history, strict=True))
        bends = np.diff(steps, axis=0)
        system, wanted = (scale * bends).T, scale * steps[-1]
        if not (np.isfinite(system).all() and np.isfinite(wanted).all()):
            return None
        weights = np.linalg.lstsq(system, wanted, rcond=1e-10)[0]
        return np.asarray(end - weights @ (np.diff(places, axis=0) + bends))

    def forget(self, *, all_of_it: bool = False) -> None:
        """Drop the older half of what is remembered, or all of it.

        Parameters
        ----------
        all_of_it
            Whether nothing is kept.
        """
        for _ in range(len(self.history) if all_of_it else len(self.history) // 2):
            self.history.popleft()
