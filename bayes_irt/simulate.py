"""Simulated suites with known truth: 2PL responses, missingness mechanisms, repeated attempts.

Each suite draws abilities, standardises them (so the truth is in the canonical gauge), draws items, and then cells.
NumPy's generator is used throughout: the draws do not depend on JAX or its precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Integer

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.identify import canonicalize
from bayes_irt.parameters import Parameters
from bayes_irt.responses import Responses

#: Easiness of items that are meant to be constant, up to sign.
CONSTANT_EASINESS = 12.0

Missing = Literal["none", "MCAR", "MAR", "MNAR"]


@dataclass(frozen=True, slots=True)
class SuiteDesign:
    """State how a suite is drawn.

    Parameters
    ----------
    discrimination
        "half-normal" or "log-normal".
    discrimination_scale
        Scale of the half-normal, or sd of the log discrimination (whose mean is then 0).
    zero_share
        Share of items whose discrimination is set to 0.
    constant_share
        Share of items whose easiness is set to 12 or -12 in turn, so that all LLMs answer alike.
    easiness_location, easiness_scale
        Mean and sd of the normal easinesses, in logits.
    heavy_tails
        Whether abilities are Student-t with 1 degree of freedom (before they are standardised) instead of normal.
    attempts
        Attempts per observed cell.
    cell_sd
        Standard deviation of a normal effect on the logit of each cell, shared by its attempts: what makes repeated
        attempts correlated. 0 for none.
    missing
        "MCAR": cells are missing at random. "MAR": more often for LLMs late in the list. "MNAR": more often where the
        answers would be wrong.
    missing_share
        Expected share of missing cells.

    Raises
    ------
    InvalidConfigurationError
        If a value makes no sense.

    Examples
    --------
    >>> SuiteDesign(missing="MCAR", missing_share=0.5).attempts
    1
    """

    discrimination: Literal["half-normal", "log-normal"] = "half-normal"
    discrimination_scale: float = 1.25
    zero_share: float = 0.0
    constant_share: float = 0.0
    easiness_location: float = 0.0
    easiness_scale: float = 1.5
    heavy_tails: bool = False
    attempts: int = 1
    cell_sd: float = 0.0
    missing: Missing = "none"
    missing_share: float = 0.0

    def __post_init__(self) -> None:
        if self.discrimination not in ("half-normal", "log-normal"):
            raise InvalidConfigurationError(
                f"discrimination is {self.discrimination!r}; it must be 'half-normal' or 'log-normal'."
            )
        if self.missing not in ("none", "MCAR", "MAR", "MNAR"):
            raise InvalidConfigurationError(
                f"missing is {self.missing!r}; it must be none, MCAR, MAR or MNAR."
            )
        if not all(0 <= share < 1 for share in (self.zero_share, self.constant_share, self.missing_share)):
            raise InvalidConfigurationError(
                "zero_share, constant_share and missing_share must lie in [0, 1)."
            )
        if (self.missing == "none") != (self.missing_share == 0):
            raise InvalidConfigurationError("missing and missing_share go together; give both or neither.")
        reals = (self.discrimination_scale, self.easiness_scale, self.easiness_location, self.cell_sd)
        if not all(math.isfinite(value) for value in reals):
            raise InvalidConfigurationError("Scales, easiness_location and cell_sd must be finite numbers.")
        if self.attempts < 1 or min(self.discrimination_scale, self.easiness_scale) <= 0 or self.cell_sd < 0:
            raise InvalidConfigurationError("attempts and scales must be positive, cell_sd 0 or more.")


@dataclass(frozen=True, slots=True)
class SimulatedSuite:
    """Hold simulated responses beside the truth.

    Parameters
    ----------
    responses
        The data.
    truth
        The parameters they were drawn from, in the canonical gauge.
    hyperparameters
        Locations and scales that the items were drawn with, by name; empty where the design has no such names.
    further
        What else was drawn, by the names of the posterior's sites: floors, the testlets' effects, dispersions by group.

    Examples
    --------
    >>> suite = simulate_suite(6, 20)
    >>> suite.truth.num_llms == suite.responses.num_llms
    True
    """

    responses: Responses
    truth: Parameters
    hyperparameters: dict[str, float] = field(default_factory=dict)
    further: dict[str, np.ndarray] = field(default_factory=dict)


def simulate_suite(
    num_llms: int, num_items: int, *, design: SuiteDesign | None = None, seed: int = 0
) -> SimulatedSuite:
    """Draw a suite of responses with known truth.

    Parameters
    ----------
    num_llms
        Number of LLMs, at least 2.
    num_items
        Number of items, at least 2.
    design
        How to draw; None for the default design.
    seed
        Seed of NumPy's generator.

    Returns
    -------
    SimulatedSuite
        Every LLM and every item keeps at least one answer, whatever the missingness.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than 2 LLMs or items, or the seed is negative.

    Examples
    --------
    >>> suite = simulate_suite(30, 200, seed=3)
    >>> suite.responses.num_llms, suite.truth.ability.shape
    (30, (30, 1))
    """
    design = SuiteDesign() if design is None else design
    if num_llms < 2 or num_items < 2:
        raise InvalidConfigurationError(f"A suite needs 2 LLMs and 2 items; got {num_llms} and {num_items}.")
    if seed < 0:
        raise InvalidConfigurationError(f"seed is {seed}; it must be 0 or more.")
    rng = np.random.default_rng(seed)
    truth = _draw_parameters(num_llms, num_items, design, rng)
    logits = truth.ability @ truth.discrimination.T + truth.easiness
    if design.cell_sd > 0:
        logits = logits + design.cell_sd * rng.normal(size=logits.shape)
    with np.errstate(over="ignore"):
        probability = 1.0 / (1.0 + np.exp(-logits))
    successes = rng.binomial(design.attempts, probability)
    attempts = np.where(_observed(successes, design, rng), design.attempts, 0)
    responses = Responses.from_arrays(np.where(attempts > 0, successes, 0), attempts)
    return SimulatedSuite(responses, truth)


def _draw_parameters(
    num_llms: int, num_items: int, design: SuiteDesign, rng: np.random.Generator
) -> Parameters:
    ability = rng.standard_t(1, size=(num_llms, 1)) if design.heavy_tails else rng.normal(size=(num_llms, 1))
    if design.discrimination == "half-normal":
        discrimination = np.abs(design.discrimination_scale * rng.normal(size=num_items))
    else:
        discrimination = np.exp(design.discrimination_scale * rng.normal(size=num_items))
    zero = rng.permutation(num_items) < round(design.zero_share * num_items)
    discrimination = np.where(zero, 0.0, discrimination)
    easiness = design.easiness_location + design.easiness_scale * rng.normal(size=num_items)
    alike = np.arange(round(design.constant_share * num_items))
    easiness[alike] = CONSTANT_EASINESS * (-1.0) ** alike
    standard = canonicalize(Parameters(ability, discrimination[:, None], easiness))
    return Parameters(standard.ability, discrimination[:, None], easiness)


def _observed(
    successes: Integer[np.ndarray, "llm item"], design: SuiteDesign, rng: np.random.Generator
) -> Bool[np.ndarray, "llm item"]:
    """Draw which cells are observed; every row and column keeps at least one."""
    num_llms, num_items = successes.shape
    chance = np.full(successes.shape, design.missing_share)
    room = min(design.missing_share, 1 - design.missing_share)
    if design.missing == "MAR":
        chance = chance + room * np.linspace(-1, 1, num_llms)[:, None]
    elif design.missing == "MNAR":
        wrong = 1.0 - successes / design.attempts
        chance = chance + room * (wrong - wrong.mean())
    observed = rng.random(successes.shape) >= chance
    observed[np.arange(num_llms), rng.integers(num_items, size=num_llms)] |= ~observed.any(axis=1)
    observed[rng.integers(num_llms, size=num_items), np.arange(num_items)] |= ~observed.any(axis=0)
    return observed
