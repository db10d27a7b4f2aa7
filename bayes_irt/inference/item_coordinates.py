"""Coordinates of items and of their priors in which posteriors are close to normal.

A discrimination is ``s softplus(u)`` with s near its standard deviation: u is close to normal both for items far from
the boundary, where the map is linear, and for those at it, where the logarithm would bend too much. Under a log-normal
prior, whose right tail is heavy and which keeps away from the boundary, it is ``s exp(u)``. Easinesses and learned
locations are as they are, learned scales are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit

from bayes_irt.likelihood import Sums
from bayes_irt.model_spec import DISPERSION, ModelSpec, hyperpriors
from bayes_irt.parameters import Parameters
from bayes_irt.prior_densities import log_discrimination_prior, log_easiness_prior, log_hyperprior
from bayes_irt.priors import Common, LearnedLocation, LearnedScale, LogNormal

#: Least precision of a coordinate of a discrimination, beside what its likelihood and prior say.
LEAST_PRECISION = 0.05
# Logit of the dispersion that the search starts from, about .12.
_FIRST_DISPERSION = -2.0


class Link(NamedTuple):
    """The map from u to a discrimination in its unit.

    Attributes
    ----------
    value
        The map itself: positive and increasing.
    rise, bend
        Its first and second derivative.
    inverse
        Its inverse.
    """

    value: Callable[[Array], Array]
    rise: Callable[[Array], Array]
    bend: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


def _inverse_softplus(value: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
    return value + jnp.log(-jnp.expm1(-value))


SOFTPLUS = Link(
    jax.nn.softplus,
    jax.nn.sigmoid,
    lambda u: jax.nn.sigmoid(u) * jax.nn.sigmoid(-u),
    _inverse_softplus,
)
EXPONENTIAL = Link(jnp.exp, jnp.exp, jnp.exp, jnp.log)
#: Under a common discrimination u says nothing: its law is standard normal, and its unit is the discrimination.
CONSTANT = Link(jnp.ones_like, jnp.zeros_like, jnp.zeros_like, jnp.zeros_like)


def link_of(spec: ModelSpec) -> Link:
    """Return the map from u to a discrimination in its unit.

    Parameters
    ----------
    spec
        The model.

    Returns
    -------
    Link
        The exponential for a log-normal prior, a constant for a common discrimination, else the softplus.

    Examples
    --------
    >>> round(float(link_of(ModelSpec()).inverse(jnp.log(2.0))), 5)
    0.0
    """
    if isinstance(spec.priors.discrimination, Common):
        return CONSTANT
    return EXPONENTIAL if isinstance(spec.priors.discrimination, LogNormal) else SOFTPLUS


def units_at(
    spec: ModelSpec, unit: Float[Array, " item"], hyper: Float[Array, "*batch hyper"]
) -> Float[Array, "*batch item"]:
    """Return the items' units: under a common discrimination that, which the hyperparameters hold.

    Parameters
    ----------
    spec
        The model.
    unit
        The units chosen for the items.
    hyper
        Locations and log scales.

    Returns
    -------
    jax.Array
        As chosen, or the common discrimination.
    """
    if not isinstance(spec.priors.discrimination, Common):
        return unit
    common = jnp.exp(hyper[..., location_place(spec)])
    return common if jnp.ndim(unit) == 0 else common[..., None] * jnp.ones_like(unit)


def location_place(spec: ModelSpec) -> int:
    """Return the position of the discriminations' location among the hyperparameters.

    Parameters
    ----------
    spec
        A model that has one.

    Returns
    -------
    int
        Its position.

    Examples
    --------
    >>> from bayes_irt.priors import Priors
    >>> location_place(ModelSpec(Priors(Common())))
    0
    """
    return list(hyperpriors(spec)).index("discrimination_location")


def as_parameters(
    spec: ModelSpec,
    ability: Float[Array, "*batch llm"],
    items: Float[Array, "*batch item 2"],
    unit: Float[Array, " item"],
) -> Parameters:
    """Return abilities, discriminations and easinesses from coordinates.

    Parameters
    ----------
    spec
        The model.
    ability
        Abilities.
    items
        u and easiness of each item.
    unit
        The items' units, those of `units_at`.

    Returns
    -------
    parameters.Parameters
        With one trait.
    """
    slope = unit * link_of(spec).value(items[..., 0])
    return Parameters(ability[..., None], slope[..., None], items[..., 1])


def first_items(
    spec: ModelSpec, estimate: Parameters, sums: Sums
) -> tuple[Float[Array, "item 2"], Float[Array, " item"]]:
    """Choose each item's unit and place the item near a point estimate, inside the boundary.

    Parameters
    ----------
    spec
        The model.
    estimate
        The point estimate.
    sums
        Score and Fisher's curvature there.

    Returns
    -------
    tuple of jax.Array
        Coordinates of the items and their units.
    """
    assert sums.item_curvature is not None
    slopes = jnp.asarray(estimate.discrimination)[:, 0]
    place, unit = first_slopes(spec, slopes, sums.item_curvature[:, 0, 0], sums.item_score[:, 0])
    return jnp.stack([place, jnp.asarray(estimate.easiness)], axis=1), unit


def first_slopes(
    spec: ModelSpec,
    slopes: Float[Array, "*dims"],
    information: Float[Array, "*dims"],
    score: Float[Array, "*dims"],
) -> tuple[Float[Array, "*dims"], Float[Array, "*dims"]]:
    """Choose units of discriminations and place these near their estimates, inside the boundary.

    Parameters
    ----------
    spec
        The model.
    slopes
        Estimates.
    information, score
        Fisher's information and score of each there.

    Returns
    -------
    tuple of jax.Array
        Their coordinates u and units.
    """
    unit = 1.0 / jnp.maximum(jnp.sqrt(information + 0.1), -score)
    return link_of(spec).inverse(jnp.maximum(slopes / unit, 0.5)), unit


def constrained(spec: ModelSpec, hyper: Float[Array, " hyper"]) -> dict[str, Float[Array, ""]]:
    """Return every hyperparameter by name, scales as they are.

    Parameters
    ----------
    spec
        The model.
    hyper
        Locations and log scales, in the order of ``spec.hyperparameters``; what comes after is left out.

    Returns
    -------
    dict
        Name to value.
    """
    pairs = zip(hyper[: count_learned(spec)], hyperpriors(spec).items(), strict=True)
    return {
        name: value if isinstance(prior, LearnedLocation) else jnp.exp(value)
        for value, (name, prior) in pairs
    }


def constrained_draws(spec: ModelSpec, hyper: Float[np.ndarray, "draw hyper"]) -> dict[str, np.ndarray]:
    """Return draws of every hyperparameter by name, scales as they are.

    Parameters
    ----------
    spec
        The model.
    hyper
        Draws of locations and log scales.

    Returns
    -------
    dict
        Name to draws.
    """
    learned = count_learned(spec)
    draws = {
        name: values if isinstance(prior, LearnedLocation) else np.exp(values)
        for values, (name, prior) in zip(hyper.T[:learned], hyperpriors(spec).items(), strict=True)
    }
    return draws | ({DISPERSION: expit(hyper[:, learned:])} if spec.dispersed else {})


def count_learned(spec: ModelSpec) -> int:
    """Return the number of learned locations and scales, which come first among the hyperparameters.

    Parameters
    ----------
    spec
        The model.

    Returns
    -------
    int
        Their number.

    Examples
    --------
    >>> count_learned(ModelSpec())
    3
    """
    return len(hyperpriors(spec))


def hyper_medians(spec: ModelSpec, num_dispersions: int = 0) -> Float[Array, " hyper"]:
    """Return where hyperparameters start: the prior medians of locations and log scales, and a small dispersion.

    Parameters
    ----------
    spec
        The model.
    num_dispersions
        Number of groups of items with a dispersion each.

    Returns
    -------
    jax.Array
        In the order of ``spec.hyperparameters``.
    """
    medians = [
        prior.mean if isinstance(prior, LearnedLocation) else math.log(prior.median)
        for prior in hyperpriors(spec).values()
    ]
    return jnp.asarray([*medians, *[_FIRST_DISPERSION] * num_dispersions])


def log_item_prior(
    spec: ModelSpec, item: Float[Array, " 2"], unit: Float[Array, ""], hyper: Float[Array, " hyper"]
) -> Float[Array, ""]:
    """Return the log prior of one item's (u, d), the Jacobian of the map included, up to a constant.

    Parameters
    ----------
    spec
        The model.
    item
        u and easiness.
    unit
        The item's unit.
    hyper
        Locations and log scales.

    Returns
    -------
    jax.Array
        The log density.
    """
    return log_regauged_prior(spec, item, unit, jnp.concatenate([jnp.zeros(2), hyper]))


def log_regauged_prior(
    spec: ModelSpec, item: Float[Array, " 2"], unit: Float[Array, ""], outer: Float[Array, " outer"]
) -> Float[Array, ""]:
    """Return the log prior of an item that goes with abilities of any scale s and location m.

    In the canonical gauge it has discrimination a s and easiness d + a m.

    Parameters
    ----------
    spec
        The model.
    item
        u and easiness.
    unit
        The item's unit.
    outer
        log s, m, then locations and log scales of the priors.

    Returns
    -------
    jax.Array
        The log density by (u, d), up to a constant.
    """
    values, link = constrained(spec, outer[2:]), link_of(spec)
    slope = units_at(spec, unit, outer[2:]) * link.value(item[0])
    if isinstance(spec.priors.discrimination, Common):
        return log_easiness_prior(item[1] + slope * outer[1], values) - 0.5 * item[0] ** 2
    density = log_discrimination_prior(spec, slope * jnp.exp(outer[0]), values) + outer[0]
    return density + jnp.log(link.rise(item[0])) + log_easiness_prior(item[1] + slope * outer[1], values)


def regauged_hyper(spec: ModelSpec, outer: Float[Array, " outer"]) -> Float[Array, " hyper"]:
    """Return the hyperparameters that go with abilities of any scale s in the canonical gauge.

    Parameters
    ----------
    spec
        The model.
    outer
        log s, m, then hyperparameters.

    Returns
    -------
    jax.Array
        As they are, but for the location of a common discrimination, which grows by log s.
    """
    if not isinstance(spec.priors.discrimination, Common):
        return outer[2:]
    return outer[2:].at[location_place(spec)].add(outer[0])


def log_hyper(spec: ModelSpec, hyper: Float[Array, " hyper"]) -> Float[Array, ""]:
    """Return the log density of locations and log scales, Jacobians included.

    Parameters
    ----------
    spec
        The model.
    hyper
        Locations and log scales.

    Returns
    -------
    jax.Array
        The log density.
    """
    values = constrained(spec, hyper)
    scales = [values[name] for name, prior in hyperpriors(spec).items() if isinstance(prior, LearnedScale)]
    density = log_hyperprior(spec, values) + jnp.log(jnp.stack(scales)).sum()
    logits = hyper[count_learned(spec) :]
    # a beta density of the logistic of each, with its Jacobian
    above, below = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    return density + (spec.dispersion.alpha * above + spec.dispersion.beta * below).sum()


def item_terms(
    spec: ModelSpec,
    items: Float[Array, "item 2"],
    unit: Float[Array, " item"],
    hyper: Float[Array, " hyper"],
    sums: Sums,
    *,
    exact: bool = False,
) -> tuple[Float[Array, "item 2"], Float[Array, "item 2 2"]]:
    """Return score and precision of each (u, d) at fixed abilities, prior included.

    Parameters
    ----------
    spec
        The model.
    items, unit, hyper
        Where.
    sums
        Score and Fisher's curvature of the likelihood there.
    exact
        Whether the precision is minus the second derivative; else the bends of map and prior count only where they add,
        which is safely positive.

    Returns
    -------
    tuple of jax.Array
        Score and precision.
    """
    assert sums.item_curvature is not None
    rise = unit * link_of(spec).rise(items[:, 0])
    jacobian = jnp.stack([rise, jnp.ones_like(rise)], axis=1)
    bend = -sums.item_score[:, 0] * unit * link_of(spec).bend(items[:, 0])
    prior, over_items = partial(log_item_prior, spec), (0, 0, None)
    score = sums.item_score * jacobian + jax.vmap(jax.grad(prior), over_items)(items, unit, hyper)
    own = -jax.vmap(jax.hessian(prior), over_items)(items, unit, hyper)
    if not exact:
        bend = jnp.maximum(bend, 0.0) + LEAST_PRECISION
        own = own.at[:, 0, 0].set(jnp.maximum(own[:, 0, 0], 0.0))
    precision = sums.item_curvature * jacobian[:, :, None] * jacobian[:, None, :]
    return score, precision.at[:, 0, 0].add(bend) + own


def inverse_of_pairs(matrix: Float[Array, "item 2 2"]) -> Float[Array, "item 2 2"]:
    """Invert symmetric 2 x 2 matrices.

    Parameters
    ----------
    matrix
        Positive definite.

    Returns
    -------
    jax.Array
        Their inverses.

    Examples
    --------
    >>> inverse_of_pairs(jnp.array([[[2.0, 1.0], [1.0, 1.0]]])).tolist()
    [[[1.0, -1.0], [-1.0, 2.0]]]
    """
    first, mixed, last = matrix[:, 0, 0], matrix[:, 0, 1], matrix[:, 1, 1]
    adjugate = jnp.stack([jnp.stack([last, -mixed], axis=1), jnp.stack([-mixed, first], axis=1)], axis=1)
    return adjugate / (first * last - mixed**2)[:, None, None]
