"""Where Laplace's Gaussian lies: at the mean, not at the mode.

Posteriors of item response models lean: their mean lies off their mode. So the Gaussian's centre is moved to where the
log density's gradient, averaged over the Gaussian, is zero, as the best Gaussian's in the sense of Kullback and Leibler
is; the average is taken over a few draws and their mirror images, always the same ones.

References
----------
Opper, M. & Archambeau, C. (2009). The variational Gaussian approximation revisited. Neural Computation 21, 786-792.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayes_irt.approximation_checks import CENTRE_TOLERANCE
from bayes_irt.inference.arrow import Arrow, log_density
from bayes_irt.inference.mode import Mode
from bayes_irt.inference.place import Place
from bayes_irt.inference.trait_arrow import TraitArrow
from bayes_irt.inference.trait_mode import TraitMode
from bayes_irt.inference.trait_place import TraitPlace, log_trait_density
from bayes_irt.likelihood import Cells
from bayes_irt.mixing import Mixing
from bayes_irt.model_spec import ModelSpec

_CELLS_OF_PAIRS = 2**24
_FEWEST_PAIRS, _MOST_PAIRS = 2, 64
_MOST_ROUNDS = 16
_DAMPING = 0.6
_WORST_GROWTH = 2.0
# Of an ability or hyperparameter in one round, in posterior standard deviations.
_LONGEST_MOVE = 4.0
_REACHES = (1.0, 0.5, 0.25)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Hold the approximation: a Gaussian in the coordinates of `arrow` or, with several traits, `trait_arrow`.

    Parameters
    ----------
    mode
        The mode that the arrow belongs to.
    arrow
        The factors of its covariance.
    centre
        Its mean; abilities lie in the plane that touches the sphere at the mode.
    shift
        Largest distance of the mean from the mode, of an ability, in posterior standard deviations.
    change
        Largest last move of the mean, of an ability or hyperparameter, in posterior standard deviations.
    rounds
        Number of moves.
    """

    mode: Mode | TraitMode
    arrow: Arrow | TraitArrow
    centre: Place | TraitPlace
    shift: float
    change: float
    rounds: int


def centred(
    spec: ModelSpec, mode: Mode | TraitMode, arrow: Arrow | TraitArrow, cells: Cells, seed: int
) -> Gaussian:
    """Move the centre until the gradient averaged over the Gaussian is zero.

    Where tails of the Gaussian reach to where the density bends too much for that, averages over a narrower one, scaled
    up, stand in: to second order they are the same.

    Parameters
    ----------
    spec
        The model.
    mode
        The mode.
    arrow
        The factors of the covariance there.
    cells
        The data.
    seed
        Seed of the draws over which gradients are averaged.

    Returns
    -------
    Gaussian
        The approximation, around its centre.
    """
    number = len(mode.place.ability) * len(mode.place.items)
    pairs = int(np.clip(_CELLS_OF_PAIRS // number, _FEWEST_PAIRS, _MOST_PAIRS))
    core, items = arrow.draw(np.random.default_rng([seed, 1]), pairs, matched=True)
    mirrored = FlatPlace(np.concatenate([core, -core]), np.concatenate([items, -items]))
    core_sd = arrow.core_sd()
    scale = 1.0 / np.concatenate([core_sd, arrow.item_sd.T.ravel()])
    place, change, rounds = FlatPlace.of(mode.place), np.inf, 0

    for reach in _REACHES:

        def score_at(at: FlatPlace, reach: float = reach) -> FlatPlace:
            around = FlatPlace(at.core + reach * mirrored.core, at.items + reach * mirrored.items)
            mean = FlatPlace.of(jax.device_get(_mean_score(spec, around.place(mode), mode.unit, cells)))
            if reach == 1.0:
                return mean
            alone = FlatPlace(at.core[None], at.items[None])
            here = FlatPlace.of(jax.device_get(_mean_score(spec, alone.place(mode), mode.unit, cells)))
            return FlatPlace(
                *(h + (m - h) / reach**2 for h, m in ((here.core, mean.core), (here.items, mean.items)))
            )

        place, change, taken = _search_centre(arrow, FlatPlace.of(mode.place), score_at, core_sd, scale)
        rounds += taken
        if change <= CENTRE_TOLERANCE:
            break
    centre, at_mode = place.place(mode), np.asarray(mode.place.ability)
    ability = np.asarray(centre.ability)
    moved = (ability - ability.mean(axis=0)) / ability.std(axis=0) - at_mode
    shift = float(np.max(np.abs(moved.T).ravel() / core_sd[: moved.size]))
    return Gaussian(mode, arrow, centre, shift, change, rounds)


def _search_centre(
    arrow: Arrow | TraitArrow,
    place: FlatPlace,
    score_at: Callable[[FlatPlace], FlatPlace],
    core_sd: Float[np.ndarray, " core"],
    scale: Float[np.ndarray, " size"],
) -> tuple[FlatPlace, float, int]:
    """Take damped, mixed Newton steps; return the place of the smallest step, its size and the number taken.

    Where steps grow, what is remembered has led astray: the search goes on from the best place, with shorter steps.
    """
    mixing, change, rounds, damping = Mixing(), np.inf, 0, _DAMPING
    best, settled, onwards = np.inf, place, place.joined()
    while rounds < _MOST_ROUNDS and change > CENTRE_TOLERANCE:
        rounds += 1
        score = score_at(place)
        if not (np.isfinite(score.core).all() and np.isfinite(score.items).all()):
            break
        step = arrow.newton_step(score.core, score.items)
        change = float(np.max(np.abs(step[0]) / core_sd))
        if change > _WORST_GROWTH * best:
            mixing.forget(all_of_it=True)
            damping /= 2
            place = place.split((settled.joined() + onwards) / 2)
            onwards = place.joined()
            continue
        before, move = place.joined(), FlatPlace(*step).joined()
        plain_step = before + damping * move / max(1.0, damping * change / _LONGEST_MOVE)
        if change < best:
            best, settled, onwards = change, place, plain_step
        mixed = mixing.mix(before, plain_step, scale)
        place = place.split(plain_step if mixed is None else mixed)
    if change <= CENTRE_TOLERANCE:
        return place, change, rounds
    return settled, best, rounds


@dataclass(frozen=True, slots=True)
class FlatPlace:
    """Hold core and items of one place or of several.

    Parameters
    ----------
    core
        Abilities, trait by trait where there are several, then hyperparameters.
    items
        Coordinates of the items.
    """

    core: Float[np.ndarray, "*batch core"]
    items: Float[np.ndarray, "*batch item place"]

    @classmethod
    def of(cls, place: Place | TraitPlace) -> FlatPlace:
        """Return a place, or several, flat.

        Parameters
        ----------
        place
            One or a batch.

        Returns
        -------
        FlatPlace
            The same.
        """
        ability = np.asarray(place.ability)
        if isinstance(place, TraitPlace):  # trait by trait
            ability = np.moveaxis(ability, -1, -2).reshape(*ability.shape[:-2], -1)
        return cls(np.concatenate([ability, place.hyper], axis=-1), np.asarray(place.items))

    def place(self, like: Mode | TraitMode) -> Place | TraitPlace:
        """Return the place, or the places.

        Parameters
        ----------
        like
            A mode of the same size.

        Returns
        -------
        Place or TraitPlace
            As the mode's is.
        """
        number = like.place.ability.size
        core, items = jnp.asarray(self.core), jnp.asarray(self.items)
        ability, hyper = core[..., :number], core[..., number:]
        if isinstance(like, Mode):
            return Place(ability, items, hyper)
        num_llms, num_traits = like.place.ability.shape
        ability = jnp.moveaxis(ability.reshape(*ability.shape[:-1], num_traits, num_llms), -1, -2)
        return TraitPlace(ability, items, hyper)

    def joined(self) -> np.ndarray:
        """Return core and items of one place as one vector.

        Returns
        -------
        numpy.ndarray
            The core first.
        """
        return np.concatenate([self.core, self.items.T.ravel()])

    def split(self, joined: np.ndarray) -> FlatPlace:
        """Undo `joined`.

        Parameters
        ----------
        joined
            A vector of the size of this place's.

        Returns
        -------
        FlatPlace
            Of the same shapes.
        """
        core, items = np.split(joined, [len(self.core)])
        return FlatPlace(core, items.reshape(self.items.shape[::-1]).T)


@partial(jax.jit, static_argnames="spec")
def _mean_score[AnyPlace: (Place, TraitPlace)](
    spec: ModelSpec, places: AnyPlace, unit: Any, cells: Cells
) -> AnyPlace:
    """Return the gradient of the log density, averaged over places one by one."""
    density = log_trait_density if isinstance(places, TraitPlace) else log_density

    def add(total: AnyPlace, place: AnyPlace) -> tuple[AnyPlace, None]:
        gradient = jax.grad(lambda at: density(spec, at, unit, cells))(place)
        return jax.tree.map(jnp.add, total, gradient), None

    number = places.ability.shape[0]
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), places)
    total, _ = jax.lax.scan(add, zero, places)
    mean: AnyPlace = jax.tree.map(lambda leaf: leaf / number, total)
    return mean
