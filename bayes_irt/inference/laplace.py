"""Laplace: error bars in seconds, from the Gaussian around the mode.

The mode has the items integrated out (`mode`), the Gaussian's precision is an arrow (`arrow`); with several traits
these are `trait_mode` and `trait_arrow`. The centre is moved from the mode to the mean (`centre`). Needs neither
NumPyro nor ArviZ.

References
----------
Tierney, L. & Kadane, J. B. (1986). Accurate approximations for posterior moments and marginal densities. Journal of the
American Statistical Association 81, 82-86.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_irt.approximation_checks import WARNED_OF, answer_counts, check_approximation
from bayes_irt.arguments import require_whole
from bayes_irt.checks import Outcome
from bayes_irt.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    InvalidConfigurationError,
    NumericalError,
)
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.arrow import Arrow, build_arrow
from bayes_irt.inference.centre import FlatPlace, Gaussian, centred
from bayes_irt.inference.engine import first_estimate, further_estimates, require_gaussian, settled_spec
from bayes_irt.inference.mode import Mode, find_mode
from bayes_irt.inference.place import sites_of
from bayes_irt.inference.trait_arrow import TraitArrow, build_trait_arrow
from bayes_irt.inference.trait_mode import TraitMode, find_trait_mode
from bayes_irt.inference.trait_place import (
    TraitFrame,
    TraitPlace,
    log_trait_density,
    parameters_of_traits,
    sites_of_traits,
)
from bayes_irt.item_law import ItemTraits, item_law
from bayes_irt.likelihood import Cells, tile_cells
from bayes_irt.model_spec import ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses
from bayes_irt.trait_loads import loads_of
from bayes_irt.trait_matching import same_traits

FEWEST_LLMS = 4
# Beside the usual one, where traits are explored.
_FURTHER_STARTS = 3


def fit_laplace(
    responses: Responses,
    *,
    spec: ModelSpec | None = None,
    estimate: PointEstimate | None = None,
    num_draws: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Posterior:
    """Approximate the posterior of abilities and items by a Gaussian and draw from it.

    Parameters
    ----------
    responses
        The data, of at least 4 LLMs.
    spec
        The statistical model, of one ability or several; None for the 2PL under the default priors.
    estimate
        A penalised estimate of the same responses to start from; None to compute it.
    num_draws
        Number of draws, independent of each other.
    seed
        Seed of all draws.
    progress
        Called with a word on what is done next.

    Returns
    -------
    Posterior
        Draws in the canonical gauge, in one chain, with a group ``approximation`` that says how the mode was reached.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than 4 LLMs, only NUTS fits the model, a column that it names is absent, the estimate belongs
        to other data or has other traits, or the seed or the number of draws is out of range.
    NumericalError
        If the density at the mode is not finite.

    Warns
    -----
    ApproximationWarning
        If data are so few that some intervals are too narrow: below 100 LLMs per item those of discriminations, below
        80 answers per LLM those of abilities, below 25 LLMs all.
    ConvergenceWarning
        If the mode or the centre was not found.

    Examples
    --------
    >>> from bayes_irt.simulate import simulate_suite
    >>> fit_laplace(simulate_suite(20, 40, seed=2).responses)
    Posterior: 20 LLMs x 40 items by laplace, 1 chain x 1000 draws
    """
    spec = settled_spec(responses, spec)
    require_whole("num_draws", num_draws, 4)
    require_llms(responses, "Laplace")
    require_gaussian(spec, "Laplace")
    law = item_law(spec, responses)
    estimate = first_estimate(responses, spec, estimate, seed, law.traits)
    say = (lambda _: None) if progress is None else progress
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts, law=law))
        parameters = jax.tree.map(jnp.asarray, estimate.parameters)
        if law.traits is None:
            gaussian = fit_gaussian(spec, parameters, cells, seed, say)
        else:
            say("mode")
            estimates = [estimate]
            if spec.exploratory:
                estimates += further_estimates(responses, spec, estimate, _FURTHER_STARTS, seed)
            starts = [jax.tree.map(jnp.asarray, one.parameters) for one in estimates]
            loads = jax.tree.map(jnp.asarray, loads_of(law.traits))
            found = [find_trait_mode(spec, start, loads, cells) for start in starts]
            gaussian = gaussian_around(spec, _likeliest(spec, found, cells), cells, seed, say)
    say("draws")
    draws = draw_sites(spec, gaussian, num_draws, seed)
    posterior = posterior_from_draws(
        draws,
        {},
        (responses.llms, responses.items),
        Provenance(
            "laplace", {"spec": plain(spec), "num_draws": int(num_draws)}, responses.digest, int(seed)
        ),
        approximation=recorded(gaussian, responses, law.traits),
        law=law,
    )
    _warn(posterior)
    return posterior


def require_llms(responses: Responses, engine: str) -> None:
    """Refuse suites with fewer than 4 LLMs.

    Parameters
    ----------
    responses
        The data.
    engine
        Name of the engine.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than 4 LLMs.
    """
    if responses.num_llms < FEWEST_LLMS:
        raise InvalidConfigurationError(
            f"{engine} needs at least {FEWEST_LLMS} LLMs; there are {responses.num_llms}. Their abilities are far from "
            "normal: use fit_nuts."
        )


def fit_gaussian(
    spec: ModelSpec,
    estimate: Parameters,
    cells: Cells,
    seed: int,
    say: Callable[[str], None],
) -> Gaussian:
    """Find the mode, the covariance there and the centre.

    Parameters
    ----------
    spec
        The model.
    estimate
        A penalised point estimate with one trait.
    cells
        The data.
    seed
        Seed of the draws over which gradients are averaged.
    say
        Called with a word on what is done next.

    Returns
    -------
    Gaussian
        The approximation.

    Raises
    ------
    NumericalError
        If the mode or the covariance there is not finite.
    """
    say("mode")
    return gaussian_around(spec, find_mode(spec, estimate, cells), cells, seed, say)


def gaussian_around(
    spec: ModelSpec, mode: Mode | TraitMode, cells: Cells, seed: int, say: Callable[[str], None]
) -> Gaussian:
    """Find the covariance at a mode, and the centre.

    Parameters
    ----------
    spec
        The model.
    mode
        The mode.
    cells
        The data.
    seed
        Seed of the draws over which gradients are averaged.
    say
        Called with a word on what is done next.

    Returns
    -------
    Gaussian
        The approximation.

    Raises
    ------
    NumericalError
        If the mode or the covariance there is not finite.
    """
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mode.place)):
        raise NumericalError("The mode is not finite. Check the estimate that it starts from.")
    say("covariance")
    if isinstance(mode, TraitMode):
        arrow: Arrow | TraitArrow = build_trait_arrow(spec, mode, cells)
    else:
        arrow = build_arrow(spec, mode, cells)
    if not (np.isfinite(arrow.core_factor).all() and np.isfinite(arrow.item_factor).all()):
        raise NumericalError("The covariance at the mode is not finite. Use fit_nuts.")
    say("centre")
    return centred(spec, mode, arrow, cells, seed)


def _likeliest(spec: ModelSpec, modes: list[TraitMode], cells: Cells) -> TraitMode:
    """Return the densest of several modes, and how many of them have the same traits as it has."""
    if len(modes) == 1:
        return modes[0]
    densities = [float(_density_at(spec, mode.place, mode.unit, cells)) for mode in modes]
    best = modes[int(np.nanargmax(densities))]
    loads = [np.asarray(_loads_at(spec, mode.place, mode.unit)) for mode in modes]
    wanted = np.asarray(_loads_at(spec, best.place, best.unit))
    return replace(best, starts=len(modes), agreeing=sum(same_traits(one, wanted) for one in loads))


_density_at = partial(jax.jit, static_argnames="spec")(log_trait_density)


@partial(jax.jit, static_argnames="spec")
def _loads_at(spec: ModelSpec, place: TraitPlace, frame: TraitFrame) -> Float[Array, "item trait"]:
    return jnp.asarray(parameters_of_traits(spec, place, frame).discrimination)


def draw_sites(spec: ModelSpec, gaussian: Gaussian, num_draws: int, seed: int) -> dict[str, np.ndarray]:
    """Draw all sites from the Gaussian, in one chain.

    Parameters
    ----------
    spec
        The model.
    gaussian
        The approximation.
    num_draws
        Number of draws.
    seed
        Seed of NumPy's generator.

    Returns
    -------
    dict
        Site name to draws, with a chain axis of length 1; abilities are not in the gauge yet.
    """
    core, items = gaussian.arrow.draw(np.random.default_rng([seed, 0]), num_draws)
    centre, mode = FlatPlace.of(gaussian.centre), gaussian.mode
    place = FlatPlace(core + centre.core, items + centre.items).place(mode)
    if isinstance(place, TraitPlace):
        assert isinstance(mode, TraitMode)
        return sites_of_traits(spec, place, mode.unit)
    assert isinstance(mode, Mode)
    return sites_of(spec, place, mode.unit)


def recorded(
    gaussian: Gaussian, responses: Responses, traits: ItemTraits | None = None
) -> dict[str, np.ndarray]:
    """Return what a posterior keeps of the approximation.

    Parameters
    ----------
    gaussian
        The approximation.
    responses
        The data.
    traits
        Which items load on which trait; None for one trait.

    Returns
    -------
    dict
        Name to scalar.
    """
    mode = gaussian.mode
    values = {
        "mode_cycles": mode.cycles,
        "mode_change": mode.change,
        "centre_rounds": gaussian.rounds,
        "centre_change": gaussian.change,
        "centre_shift": gaussian.shift,
        "precision_repaired": gaussian.arrow.repaired,
    }
    if isinstance(mode, TraitMode) and mode.starts > 1:
        values |= {"starts": mode.starts, "starts_agreeing": mode.agreeing}
    return {name: np.asarray(value) for name, value in values.items()} | answer_counts(responses, traits)


def _warn(posterior: Posterior) -> None:
    checks = {check.name: check for check in check_approximation(posterior)}
    if Outcome.FAIL in (checks["mode"].outcome, checks["mean"].outcome):
        message = f"Laplace did not settle. {checks['mode'].message} {checks['mean'].message}"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    if "one solution" in checks and checks["one solution"].outcome is Outcome.FAIL:
        warnings.warn(f"Laplace, {checks['one solution'].message}", ConvergenceWarning, stacklevel=3)
    for name in WARNED_OF:
        if checks[name].outcome is not Outcome.PASS:
            warnings.warn(f"Laplace, {checks[name].message}", ApproximationWarning, stacklevel=3)
