"""What all cells share, in the search for the mode and around it: dispersion, and a common discrimination.

They enter the likelihood, as no other hyperparameter does. EM takes their scores expected over the items' posterior, as
it does for the scales: at the items' modes, which fit the data too well, dispersion would come out too small.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from bayes_irt.inference.item_coordinates import count_learned, link_of, location_place
from bayes_irt.inference.outer_terms import item_points
from bayes_irt.inference.place import Place, parameters_of
from bayes_irt.likelihood import Cells, Sums, cell_sums
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import Common


def shared_places(spec: ModelSpec, cells: Cells) -> Integer[np.ndarray, " shared"]:
    """Return which hyperparameters enter the likelihood.

    Parameters
    ----------
    spec
        The model.
    cells
        The data.

    Returns
    -------
    numpy.ndarray
        Their positions: of a common discrimination's logarithm, then of the logits of dispersion.
    """
    common = [location_place(spec)] if isinstance(spec.priors.discrimination, Common) else []
    first = count_learned(spec)
    return np.array([*common, *range(first, first + cells.num_groups[0])], dtype=int)


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


def shared_terms(
    spec: ModelSpec,
    place: Place,
    unit: Float[Array, " item"],
    covariance: Float[Array, "item 2 2"],
    cells: Cells,
) -> tuple[Float[Array, " shared"], Float[Array, "shared shared"]]:
    """Return score and information of what cells share, expected over the items' posterior, without priors.

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
        The data.

    Returns
    -------
    tuple of jax.Array
        Score and information, in the order of `shared_places`.
    """
    points, weights = item_points(place.items, covariance)
    places = shared_places(spec, cells)

    def score(values: Float[Array, " shared"]) -> Float[Array, " shared"]:
        hyper = place.hyper.at[places].set(values)

        def of_point(items: Float[Array, "item 2"]) -> Float[Array, " shared"]:
            return _score(spec, Place(place.ability, items, hyper), unit, cells)

        return jnp.asarray(weights @ jax.lax.map(of_point, points))

    at = place.hyper[places]
    return score(at), -jax.jacfwd(score)(at)


def shared_couplings(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells
) -> tuple[Float[Array, "shared item 2"], Float[Array, "llm shared"]]:
    """Return minus the mixed second derivatives of the log-likelihood by what cells share and items, and by LLMs.

    Parameters
    ----------
    spec
        The model.
    place
        Where.
    unit
        The items' units.
    cells
        The data.

    Returns
    -------
    tuple of jax.Array
        By each shared parameter and each item's (u, d); and by each ability and each shared parameter.
    """
    places = shared_places(spec, cells)

    def scores(values: Float[Array, " shared"]) -> tuple[Array, Array]:
        hyper = place.hyper.at[places].set(values)
        sums, slope = _sums(spec, Place(place.ability, place.items, hyper), unit, cells)
        rise = slope * link_of(spec).rise(place.items[:, 0]) / link_of(spec).value(place.items[:, 0])
        return sums.item_score * jnp.stack([rise, jnp.ones_like(rise)], axis=1), sums.llm_score[:, 0]

    by_item, by_llm = jax.jacfwd(scores)(place.hyper[places])
    return -jnp.moveaxis(by_item, -1, 0), -by_llm


def _sums(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells
) -> tuple[Sums, Float[Array, " item"]]:
    parameters = parameters_of(spec, place, unit)
    return cell_sums(parameters, observed_at(spec, cells, place.hyper)), jnp.asarray(
        parameters.discrimination
    )[:, 0]


def _score(
    spec: ModelSpec, place: Place, unit: Float[Array, " item"], cells: Cells
) -> Float[Array, " shared"]:
    sums, slope = _sums(spec, place, unit, cells)
    parts = []
    if isinstance(spec.priors.discrimination, Common):
        parts.append((sums.item_score[:, 0] @ slope)[None])
    if cells.num_groups[0]:
        parts.append(dispersion_score(spec, sums, place.hyper, cells))
    return jnp.concatenate(parts)


def dispersion_score(
    spec: ModelSpec, sums: Sums, hyper: Float[Array, " hyper"], cells: Cells
) -> Float[Array, " dispersion"]:
    """Return the derivative of the log-likelihood by the logits of dispersion.

    Parameters
    ----------
    spec
        The model.
    sums
        Those of the data under these dispersions.
    hyper
        Locations and log scales and, last, the logits.
    cells
        The data.

    Returns
    -------
    jax.Array
        One per group of items that have one in common.
    """
    logits = hyper[count_learned(spec) :]
    by_group = jnp.zeros(cells.num_groups[0]).at[jnp.asarray(cells.groups[0])].add(sums.shape_score[1])
    return jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits) * by_group
