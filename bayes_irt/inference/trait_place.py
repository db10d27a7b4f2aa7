"""`TraitPlace`: where abilities on several traits, items and hyperparameters are, and the model's density there.

Coordinates are those of `item_coordinates`, with as many u per item as it loads on traits. An item's slots are
these traits in order; where items use fewer slots than the most, the rest say nothing: their law is standard normal.
Correlations are in the coordinates of `correlations`. Abilities are standardised, so that what correlations say of them
depends on the spread of the raw abilities: its logarithm is one more hyperparameter for each trait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from bayes_irt.correlations import cholesky_of, log_correlation_prior
from bayes_irt.inference.item_coordinates import (
    constrained,
    constrained_draws,
    link_of,
    log_hyper,
)
from bayes_irt.inference.shared import observed_at
from bayes_irt.likelihood import Cells, log_likelihood
from bayes_irt.model_spec import TRAIT_CORRELATION, ModelSpec
from bayes_irt.parameters import Parameters
from bayes_irt.prior_densities import log_discrimination_prior, log_easiness_prior
from bayes_irt.trait_loads import TraitLoads


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class TraitPlace:
    """Hold abilities, items and hyperparameters.

    Parameters
    ----------
    ability
        Abilities; standardised trait by trait at a mode, of any location and scale around it.
    items
        u of each slot, then the easiness.
    hyper
        Locations and log scales of the item priors, logits of dispersion where attempts hang together; where traits are
        correlated their correlations and the log spreads of raw abilities.
    """

    ability: Float[Array, "*batch llm trait"]
    items: Float[Array, "*batch item slot_and_1"]
    hyper: Float[Array, "*batch hyper"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class TraitFrame:
    """Hold which items load on which traits, and the units of discriminations.

    Parameters
    ----------
    loads
        Which items load on which trait.
    used
        Whether an item uses a slot, 1 or 0.
    trait_of
        The trait of each slot.
    unit
        The units of discriminations, see `item_coordinates`.
    """

    loads: TraitLoads
    used: Float[Array, "item slot"]
    trait_of: Integer[Array, "item slot"]
    unit: Float[Array, "item slot"]


class TraitHyper(NamedTuple):
    """Hyperparameters by kind.

    Attributes
    ----------
    items
        Locations and log scales of the item priors, and logits of dispersion.
    correlations
        Coordinates of the correlations; none where traits are uncorrelated.
    spreads
        Log spreads of raw abilities, as many as traits or none.
    """

    items: Float[Array, "*batch hyper"]
    correlations: Float[Array, "*batch pair"]
    spreads: Float[Array, "*batch spread"]


def hyper_of_traits(spec: ModelSpec, hyper: Float[Array, "*batch hyper"], num_traits: int) -> TraitHyper:
    """Split the hyperparameters of a place.

    Parameters
    ----------
    spec
        The model.
    hyper
        All of them.
    num_traits
        Number of traits.

    Returns
    -------
    TraitHyper
        By kind.
    """
    pairs = 0 if spec.general else num_traits * (num_traits - 1) // 2
    spreads = 0 if spec.general else num_traits
    first = hyper.shape[-1] - pairs - spreads
    return TraitHyper(hyper[..., :first], hyper[..., first : first + pairs], hyper[..., first + pairs :])


def slopes_of(spec: ModelSpec, items: Float[Array, "item slot_and_1"], frame: TraitFrame) -> Array:
    """Return the discriminations of items by slot, 0 where a slot is not used.

    Parameters
    ----------
    spec
        The model.
    items
        u of each slot, then the easiness.
    frame
        Loads and units.

    Returns
    -------
    jax.Array
        Item by slot.
    """
    return frame.used * frame.unit * link_of(spec).value(items[:, :-1])


def parameters_of_traits(spec: ModelSpec, place: TraitPlace, frame: TraitFrame) -> Parameters:
    """Return the parameters of one place.

    Parameters
    ----------
    spec
        The model.
    place
        The place.
    frame
        Loads and units.

    Returns
    -------
    parameters.Parameters
        Discriminations are 0 where an item does not load.
    """
    by_slot, loads = slopes_of(spec, place.items, frame), frame.loads
    dense = loads.dense(by_slot[loads.item, loads.slot], len(place.items))
    return Parameters(place.ability, dense, place.items[:, -1])


def log_regauged_item(
    spec: ModelSpec,
    item: Float[Array, " slot_and_1"],
    unit: Float[Array, " slot"],
    used: Float[Array, " slot"],
    trait_of: Integer[Array, " slot"],
    gauge: Float[Array, "2 trait"],
    hyper: Float[Array, " hyper"],
) -> Float[Array, ""]:
    """Return the log prior of an item that goes with abilities of any scale and location.

    Parameters
    ----------
    spec
        The model.
    item
        u of each slot, then the easiness.
    unit, used, trait_of
        Those of the item in the frame.
    gauge
        Log scale and location of the abilities on each trait.
    hyper
        Locations and log scales of the priors; what comes after is left out.

    Returns
    -------
    jax.Array
        The log density, up to a constant; see `item_coordinates.log_regauged_prior`.
    """
    log_scale, location = gauge[0][trait_of], gauge[1][trait_of]
    values, link = constrained(spec, hyper), link_of(spec)
    slope = unit * link.value(item[:-1])
    own = log_discrimination_prior(spec, slope * jnp.exp(log_scale), values) + log_scale
    own = own + jnp.log(link.rise(item[:-1]))
    by_slot = jnp.where(used > 0, own, -0.5 * item[:-1] ** 2)
    return by_slot.sum() + log_easiness_prior(item[-1] + (used * slope) @ location, values)


def log_prior_of_items(
    spec: ModelSpec,
    items: Float[Array, "item slot_and_1"],
    frame: TraitFrame,
    gauge: Float[Array, "2 trait"],
    hyper: Float[Array, " hyper"],
) -> Float[Array, " item"]:
    """Return the log prior of every item, see `log_regauged_item`.

    Parameters
    ----------
    spec
        The model.
    items
        u of each slot, then the easiness.
    frame
        Loads and units.
    gauge
        Log scale and location of the abilities on each trait.
    hyper
        Locations and log scales of the priors.

    Returns
    -------
    jax.Array
        Log densities.
    """
    over = jax.vmap(partial(log_regauged_item, spec), (0, 0, 0, 0, None, None))
    return jnp.asarray(over(items, frame.unit, frame.used, frame.trait_of, gauge, hyper))


def raw_precision(hyper: TraitHyper) -> Float[Array, "trait trait"]:
    """Return the precision of an LLM's standardised abilities, given the spread of the raw ones.

    Parameters
    ----------
    hyper
        The hyperparameters, of correlated traits.

    Returns
    -------
    jax.Array
        The inverse of the correlations, times the raw abilities' spreads.
    """
    factor, spread = cholesky_of(hyper.correlations), jnp.exp(hyper.spreads)
    inverse = jax.scipy.linalg.solve_triangular(factor, jnp.diag(spread), lower=True)
    return inverse.T @ inverse


def log_free_abilities(spec: ModelSpec, hyper: TraitHyper, num_llms: int) -> Float[Array, ""]:
    """Return what the law of correlated abilities says apart from the abilities: of spreads and correlations alone.

    Parameters
    ----------
    spec
        The model.
    hyper
        The hyperparameters.
    num_llms
        Number of LLMs.

    Returns
    -------
    jax.Array
        Raw abilities' log density without its quadratic form, their location integrated out, and the LKJ prior's; 0
        where traits are uncorrelated.
    """
    if spec.general:
        return jnp.zeros(())
    log_determinant = jnp.log(jnp.diag(cholesky_of(hyper.correlations))).sum()
    free = (num_llms - 1.0) * (hyper.spreads.sum() - log_determinant)
    return free + log_correlation_prior(hyper.correlations, spec.trait_concentration)


def log_trait_density(
    spec: ModelSpec, place: TraitPlace, frame: TraitFrame, cells: Cells
) -> Float[Array, ""]:
    """Return the log density of the model's posterior, up to a constant.

    Parameters
    ----------
    spec
        The model.
    place
        Abilities of any location and scale, items and hyperparameters.
    frame
        Loads and units.
    cells
        The data.

    Returns
    -------
    jax.Array
        That of the parameters in the canonical gauge, times the volume of the map to it; what location and scale of the
        abilities are has no law of its own.
    """
    num_llms, num_traits = place.ability.shape
    hyper = hyper_of_traits(spec, place.hyper, num_traits)
    location = place.ability.mean(axis=0)
    log_spread = jnp.log(jnp.mean((place.ability - location) ** 2, axis=0)) / 2
    items = log_prior_of_items(spec, place.items, frame, jnp.stack([log_spread, location]), hyper.items)
    density = items.sum() + log_hyper(spec, hyper.items) - (num_llms - 1.0) * log_spread.sum()
    density = density + log_free_abilities(spec, hyper, num_llms)
    if not spec.general:
        ability = (place.ability - location) / jnp.exp(log_spread)
        density = density - 0.5 * jnp.sum((ability @ raw_precision(hyper)) * ability)
    shaped = observed_at(spec, cells, hyper.items)
    return density + log_likelihood(parameters_of_traits(spec, place, frame), shaped)


def sites_of_traits(spec: ModelSpec, places: TraitPlace, frame: TraitFrame) -> dict[str, np.ndarray]:
    """Return the sites of a posterior at places drawn, in one chain.

    Parameters
    ----------
    spec
        The model.
    places
        A batch of places.
    frame
        Loads and units.

    Returns
    -------
    dict
        Site name to draws, with a chain axis of length 1; abilities are not in the gauge yet.
    """
    num_traits = places.ability.shape[-1]
    with jax.enable_x64(True):
        drawn = jax.device_get(jax.vmap(lambda one: parameters_of_traits(spec, one, frame))(places))
        hyper = hyper_of_traits(spec, jnp.asarray(places.hyper), num_traits)
        sites = {name: getattr(drawn, name) for name in ("ability", "discrimination", "easiness")}
        sites |= constrained_draws(spec, np.asarray(hyper.items))
        if not spec.general:
            factor = np.asarray(jax.vmap(cholesky_of)(hyper.correlations))
            first, second = np.triu_indices(num_traits, 1)
            sites[TRAIT_CORRELATION] = np.einsum("dpk,dpk->dp", factor[:, first], factor[:, second])
    return {name: np.asarray(value, dtype=np.float64)[None] for name, value in sites.items()}
