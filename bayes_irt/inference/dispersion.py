"""Dispersion in the search for the mode and around it: the correlation of attempts in one cell, on its logit scale.

It enters the likelihood, as no other hyperparameter does. EM takes its score expected over the items' posterior, as it
does for the scales: at the items' modes, which fit the data too well, dispersion would come out too small.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_irt.inference.item_coordinates import as_parameters, count_learned, item_points, link_of
from bayes_irt.inference.place import Place
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.model_spec import ModelSpec


def observed_at(spec: ModelSpec, cells: Cells, hyper: Float[Array, " hyper"]) -> Cells:
    """Return the data under the dispersion that hyperparameters hold.

    Parameters
    ----------
    spec
        The model.
    cells
        The data.
    hyper
        Locations, log scales and, last, the logit of each group's dispersion.

    Returns
    -------
    Cells
        The same where attempts are independent.
    """
    if not cells.num_groups[0]:
        return cells
    logits = hyper[count_learned(spec) :]
    return cells.with_shape(cells.shape[0], jax.nn.sigmoid(logits)[jnp.asarray(cells.groups[0])])


def dispersion_terms(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    cells: Cells,
) -> tuple[Float[Array, " group"], Float[Array, "group group"]]:
    """Return score and information of the logits of dispersion, expected over the items' posterior, without priors.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    unit
        The items' units.
    covariance
        Covariance of each item's (u, d).
    cells
        The data, which hang together.

    Returns
    -------
    tuple of jax.Array
        Score and information.
    """
    points, weights = item_points(place.items, covariance)
    learned = count_learned(spec)

    def score(logits: Float[Array, " group"]) -> Float[Array, " group"]:
        hyper = place.hyper.at[learned:].set(logits)
        shaped = observed_at(spec, cells, hyper)

        def of_point(items: Float[Array, "item 2"]) -> Float[Array, " item"]:
            return cell_sums(as_parameters(spec, place.ability, items, unit), shaped).shape_score[1]

        by_item = weights @ jax.lax.map(of_point, points)
        rise = jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)
        return rise * _by_group(by_item, cells)

    logits = place.hyper[learned:]
    return score(logits), -jax.jacfwd(score)(logits)


def dispersion_couplings(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells
) -> tuple[Float[Array, "group item 2"], Float[Array, "llm group"]]:
    """Return minus the mixed second derivatives of the log-likelihood by dispersion and items, and by LLMs.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    unit
        The items' units.
    cells
        The data, which hang together.

    Returns
    -------
    tuple of jax.Array
        By each logit of dispersion and each item's (u, d); and by each ability and each logit.
    """
    learned = count_learned(spec)
    parameters = as_parameters(spec, place.ability, place.items, unit)

    def scores(logits: Float[Array, " group"]) -> tuple[Array, Array]:
        sums: Sums = cell_sums(parameters, observed_at(spec, cells, place.hyper.at[learned:].set(logits)))
        rise = unit * link_of(spec).rise(place.items[:, 0])
        return sums.item_score * jnp.stack([rise, jnp.ones_like(rise)], axis=1), sums.llm_score[:, 0]

    by_item, by_llm = jax.jacfwd(scores)(place.hyper[learned:])
    return -jnp.moveaxis(by_item, -1, 0), -by_llm


def _by_group(values: Float[Array, " item"], cells: Cells) -> Float[Array, " group"]:
    return jnp.zeros(cells.num_groups[0]).at[jnp.asarray(cells.groups[0])].add(values)
