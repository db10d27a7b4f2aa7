"""How answers arise from one draw, with all that a model may have: floors, dispersion, testlets. Plain NumPy.

The kernel of `likelihood` computes the same for engines, which need derivatives; here is what is asked afterwards:
chances, log probabilities of listed cells, replicated data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import betaln, expit

from bayes_irt.cell_lists import CellList, cell_logits, log_probability
from bayes_irt.parameters import Parameters

_LEAST_DISPERSION = 1e-9
_ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class CellLaw:
    """Hold one draw.

    Parameters
    ----------
    parameters
        Abilities, discriminations and easinesses.
    floor
        Probability of a right guess of each item; None for 0.
    dispersion
        Correlation of two attempts, of each item; None for independent attempts.
    effects
        Effect of each testlet on each LLM's logits; None without testlets.
    testlet
        Position of each item's testlet, -1 for none.

    Examples
    --------
    >>> law = CellLaw(Parameters(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1)), floor=np.array([0.2]))
    >>> round(float(law.chances(slice(None))[0, 0]), 3)
    0.6
    """

    parameters: Parameters
    floor: Float[np.ndarray, " item"] | None = None
    dispersion: Float[np.ndarray, " item"] | None = None
    effects: Float[np.ndarray, "llm group"] | None = None
    testlet: Integer[np.ndarray, " item"] | None = None

    @property
    def is_plain(self) -> bool:
        """Say whether cells are those of a 2PL with independent attempts."""
        return self.floor is None and self.dispersion is None and self.effects is None

    def logits(self, rows: slice, items: slice = _ALL) -> Float[np.ndarray, "row item"]:
        """Return the logits of some LLMs, in single precision.

        Parameters
        ----------
        rows, items
            The LLMs and the items.

        Returns
        -------
        numpy.ndarray
            LLM by item.
        """
        ability, slopes, easiness = (
            np.asarray(leaf, dtype=np.float32)
            for leaf in (
                np.asarray(self.parameters.ability)[rows],
                np.asarray(self.parameters.discrimination)[items],
                np.asarray(self.parameters.easiness)[items],
            )
        )
        found = ability @ slopes.T + easiness
        if self.effects is not None and self.testlet is not None:
            padded = np.pad(np.asarray(self.effects[rows], dtype=np.float32), ((0, 0), (0, 1)))
            found += padded[:, self.testlet[items]]  # -1, the last, is the zero
        return np.asarray(found)

    def chances(self, rows: slice, items: slice = _ALL) -> Float[np.ndarray, "row item"]:
        """Return the chances of a right attempt of some LLMs, in single precision.

        Parameters
        ----------
        rows, items
            The LLMs and the items.

        Returns
        -------
        numpy.ndarray
            LLM by item.
        """
        with np.errstate(over="ignore"):  # the chance is 0 then
            found = 1.0 / (1.0 + np.exp(-self.logits(rows, items)))
        if self.floor is None:
            return np.asarray(found)
        floor = np.asarray(self.floor, dtype=np.float32)[items]
        return np.asarray(floor + (1.0 - floor) * found)

    def inflation(
        self, attempts: Float[np.ndarray, "row item"], items: slice = _ALL
    ) -> Float[np.ndarray, "row item"] | float:
        """Return by how much dispersion multiplies the variance of a cell's right answers.

        Parameters
        ----------
        attempts
            Attempts per cell.
        items
            The items whose cells they are.

        Returns
        -------
        numpy.ndarray or float
            ``1 + (n - 1) rho``; 1 where attempts are independent.
        """
        if self.dispersion is None:
            return 1.0
        return np.asarray(1.0 + np.maximum(attempts - 1.0, 0.0) * self.dispersion[items])

    def draw(
        self,
        attempts: Float[np.ndarray, "row item"],
        chance: Float[np.ndarray, "row item"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, "row item"]:
        """Draw right answers.

        Parameters
        ----------
        attempts
            Attempts per cell.
        chance
            What `chances` returned for the same LLMs.
        rng
            Where randomness comes from.

        Returns
        -------
        numpy.ndarray
            Right answers per cell.
        """
        if attempts.max(initial=0) <= 1:
            return np.asarray(
                attempts * (rng.random(attempts.shape, dtype=np.float32) < chance), dtype=np.float64
            )
        if self.dispersion is not None:
            chance = _dispersed(np.asarray(chance, dtype=np.float64), self.dispersion, rng)
        return np.asarray(rng.binomial(attempts.astype(np.int64), chance), dtype=np.float64)

    def _listed(self, cells: CellList) -> tuple[Float[np.ndarray, " cell"], Float[np.ndarray, " cell"]]:
        """Return logits and floors of listed cells."""
        logits = cell_logits(self.parameters, cells)
        if self.effects is not None and self.testlet is not None:
            logits = logits + np.pad(self.effects, ((0, 0), (0, 1)))[cells.llm, self.testlet[cells.item]]
        floor = np.zeros(len(cells)) if self.floor is None else np.asarray(self.floor)[cells.item]
        return logits, floor

    def log_probability(self, cells: CellList) -> Float[np.ndarray, " cell"]:
        """Return each cell's log probability, without the binomial coefficient.

        Parameters
        ----------
        cells
            The cells.

        Returns
        -------
        numpy.ndarray
            In the order of the cells.

        References
        ----------
        Prentice, R. L. (1986). Binary regression using an extended beta-binomial distribution. Journal of the American
        Statistical Association 81, 321-327.

        Examples
        --------
        >>> law = CellLaw(Parameters(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1)), dispersion=np.array([0.5]))
        >>> law.log_probability(CellList(*np.array([[0], [0], [2], [2]]))).round(3).tolist()
        [-0.981]
        """
        logits, floor = self._listed(cells)
        if self.floor is None and self.dispersion is None:
            return log_probability(logits, cells)
        wrong = cells.attempts - cells.successes
        right, left = floor + (1.0 - floor) * expit(logits), (1.0 - floor) * expit(-logits)
        if self.dispersion is None:
            log_right, log_left = log_chances(logits, floor)
            return np.asarray(
                np.where(cells.successes > 0, cells.successes * log_right, 0.0) + wrong * log_left
            )
        rho = np.maximum(np.asarray(self.dispersion)[cells.item], _LEAST_DISPERSION)
        total = (1.0 - rho) / rho
        tiny = np.finfo(float).tiny
        alpha, beta = np.maximum(right * total, tiny), np.maximum(left * total, tiny)
        return np.asarray(betaln(alpha + cells.successes, beta + wrong) - betaln(alpha, beta))

    def replicate(self, cells: CellList, rng: np.random.Generator) -> Integer[np.ndarray, " cell"]:
        """Draw right answers in listed cells.

        Parameters
        ----------
        cells
            The cells.
        rng
            Where randomness comes from.

        Returns
        -------
        numpy.ndarray
            In the order of the cells.
        """
        logits, floor = self._listed(cells)
        chance = floor + (1.0 - floor) * expit(logits)
        if self.dispersion is not None:
            chance = _dispersed(chance, np.asarray(self.dispersion)[cells.item], rng)
        return np.asarray(rng.binomial(cells.attempts, chance))


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Hold all draws of a posterior.

    Parameters
    ----------
    parameters
        Abilities, discriminations and easinesses, with one batch dim.
    floor, dispersion
        By draw and item; None where there is none.
    effects
        Of testlets, by draw, LLM and testlet; None without.
    testlet
        Position of each item's testlet, -1 for none.
    dispersion_group
        Position of the group with whose dispersion each item's attempts hang together.
    """

    parameters: Parameters
    floor: Float[np.ndarray, "sample item"] | None
    dispersion: Float[np.ndarray, "sample item"] | None
    effects: Float[np.ndarray, "sample llm group"] | None
    testlet: Integer[np.ndarray, " item"]
    dispersion_group: Integer[np.ndarray, " item"]

    def at(self, draw: int) -> CellLaw:
        """Return one draw.

        Parameters
        ----------
        draw
            Its position, the draws of all chains one after the other.

        Returns
        -------
        CellLaw
            The draw.
        """
        floor, dispersion, effects = (
            None if part is None else part[draw] for part in (self.floor, self.dispersion, self.effects)
        )
        return CellLaw(self.parameters.at(draw), floor, dispersion, effects, self.testlet)

    def with_values(self, values: Mapping[str, Float[np.ndarray, " parameter"]]) -> CellLaw:
        """Return a law with other values, such as the truth of a simulation.

        Parameters
        ----------
        values
            Values of all sites by name, each in one dim, LLM by LLM and item by item; what is fixed stays.

        Returns
        -------
        CellLaw
            The law.
        """
        num_traits = self.parameters.num_traits
        by_trait = (values[name].reshape(-1, num_traits) for name in ("ability", "discrimination"))
        given = (*by_trait, values["easiness"])
        floor = values.get("floor", None if self.floor is None else self.floor[0])
        dispersion, effects = values.get("dispersion"), values.get("testlet")
        return CellLaw(
            Parameters(*given),
            floor,
            None if dispersion is None else dispersion[self.dispersion_group],
            None if effects is None else effects.reshape(len(given[0]), -1),
            self.testlet,
        )

    def mean(self) -> CellLaw:
        """Return the posterior means as one draw.

        Returns
        -------
        CellLaw
            For what needs no more than that.
        """
        given = self.parameters
        leaves = (np.mean(leaf, axis=0) for leaf in (given.ability, given.discrimination, given.easiness))
        floor, dispersion, effects = (
            None if part is None else part.mean(axis=0)
            for part in (self.floor, self.dispersion, self.effects)
        )
        return CellLaw(Parameters(*leaves), floor, dispersion, effects, self.testlet)


def log_chances(
    logits: Float[np.ndarray, "*cells"], floor: Float[np.ndarray, "*cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Return the logarithms of the chances of a right and of a wrong attempt.

    Parameters
    ----------
    logits
        Logits of knowing the answer.
    floor
        Probabilities of a right guess, 0 for none; broadcasts.

    Returns
    -------
    tuple of numpy.ndarray
        Finite for every finite logit.

    Examples
    --------
    >>> [float(value.round(3)) for value in log_chances(np.array(0.0), np.array(0.2))]
    [-0.511, -0.916]
    """
    with np.errstate(divide="ignore"):
        above = np.log(floor + (1.0 - floor) * expit(logits))
    log_right = np.where(floor > 0, above, -np.logaddexp(0.0, -logits))
    return log_right, np.asarray(np.log1p(-floor) - np.logaddexp(0.0, logits))


def _dispersed(
    chance: Float[np.ndarray, "*cells"], rho: Float[np.ndarray, "*cells"], rng: np.random.Generator
) -> Float[np.ndarray, "*cells"]:
    """Draw each cell's own chance around its mean."""
    rho = np.maximum(rho, _LEAST_DISPERSION)
    total, least = (1.0 - rho) / rho, np.finfo(float).tiny
    return np.asarray(rng.beta(np.maximum(chance * total, least), np.maximum((1.0 - chance) * total, least)))
