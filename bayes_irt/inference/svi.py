"""Stochastic variational inference: a Gaussian fitted to the whole posterior, started from Laplace.

NumPyro's SVI maximises the evidence lower bound (ELBO) of a Gaussian guide. The guide is normal in coordinates of its
own: in those of the Laplace arrow, where the posterior is nearly standard normal (structured), or LLM by LLM and item
by item (mean-field, and low-rank, which adds a few common directions). Models of more than one ability per LLM and two
parameters per item (related LLMs, testlets, learned floors, several traits) are fitted in the coordinates of NUTS, see
`white_guide`. Steps shrink, and what is reported is the mean of the last half of them. The fit ends when the ELBO, of
all data and over the same draws, hardly rises any more.

References
----------
Hoffman, M. D. et al. (2013). Stochastic variational inference. Journal of Machine Learning Research 14, 1303-1347.
Kucukelbir, A. et al. (2017). Automatic differentiation variational inference. Journal of Machine Learning Research 18.
Yao, Y. et al. (2018). Yes, but did it work? Evaluating variational inference. ICML 2018 (Pareto k-hat).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Integer
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLowRankMultivariateNormal
from numpyro.optim import Adam

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.cell_functions import FACTORS
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.arrow import Arrow
from bayes_irt.inference.centre import Gaussian
from bayes_irt.inference.density import Target, target_of
from bayes_irt.inference.engine import first_estimate, require_all_llms, settled_spec
from bayes_irt.inference.guide_coordinates import (
    GuideCoordinates,
    first_guide,
    guide_coordinates,
    log_density_at,
    place_at,
)
from bayes_irt.inference.laplace import fit_gaussian, require_llms
from bayes_irt.inference.place import sites_of
from bayes_irt.inference.svi_record import FittedGuide, beside_laplace, record_of, warn_of
from bayes_irt.inference.white_guide import (
    GuideName,
    WhiteCoordinates,
    first_map,
    first_white_guide,
    white_coordinates,
    white_log_density,
    white_sites,
)
from bayes_irt.item_law import ItemLaw, item_law
from bayes_irt.likelihood import tile_cells
from bayes_irt.llm_groups import group_labels
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses

_BLOCK = 100
_BLOCKS_COMPARED = 5
_STEADY_STEPS = 200
_DECAY = 0.6
_FIRST_STEPS: dict[str, float] = {"structured": 0.03, "mean-field": 0.03, "low-rank": 0.003}
_MOST_CELLS_FOR_K = 4_000_000
_DRAWS_FOR_K = 1000
_DRAWS_AT_ONCE = 16
# Of the ELBO in 500 steps, in nats: less ends the fit.
_LEAST_GAIN = 0.2
_LEAST_GAIN_PER_PARAMETER = 2e-4


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State the guide and how long and how fast it is fitted.

    Parameters
    ----------
    guide
        "structured": normal in the coordinates of the Laplace arrow, the best. "mean-field": all parameters
        independent, whose intervals are too narrow. "low-rank": mean-field with `rank` common directions. For models
        with related LLMs, testlets, learned floors or several traits all three are normal in the coordinates of NUTS,
        where items follow the learned scales of their priors and an LLM's abilities each other. "mean-field":
        independent there. "low-rank": with `rank` common directions. "structured": as wide as it learns along the
        directions that NUTS stretches; testlets' effects follow abilities and their own scale, items their floors.
    rank
        Number of common directions of the low-rank guide.
    batch_size
        Number of LLMs drawn anew for every step, whose likelihood stands for all; None for all of them. Rounded up to a
        multiple of 4. Not for models with related LLMs, testlets, learned floors or several traits.
    learning_rate
        Size of the first steps, in posterior standard deviations; after 200 steps it falls. None for .03, or .003 with
        the low-rank guide, whose many parameters would otherwise spread by the noise of the steps alone; in the
        coordinates of NUTS .03 for all.
    max_steps
        Limit; a fit that has not settled by then says so.

    Raises
    ------
    InvalidConfigurationError
        If a value makes no sense.

    Examples
    --------
    >>> Optimizer(guide="low-rank", rank=5).max_steps
    20000
    """

    guide: GuideName = "structured"
    rank: int = 10
    batch_size: int | None = None
    learning_rate: float | None = None
    max_steps: int = 20_000

    def __post_init__(self) -> None:
        if self.guide not in ("structured", "low-rank", "mean-field"):
            raise InvalidConfigurationError(
                f"guide is {self.guide!r}; it must be 'structured', 'low-rank' or 'mean-field'."
            )
        require_whole("rank", self.rank, 1)
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, FACTORS)
        if self.learning_rate is not None:
            require_number("learning_rate", self.learning_rate, 1e-6, 1.0)
        require_whole("max_steps", self.max_steps, _BLOCK)


def fit_svi(
    responses: Responses,
    *,
    spec: ModelSpec | None = None,
    estimate: PointEstimate | None = None,
    optimizer: Optimizer | None = None,
    num_draws: int = 1000,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Posterior:
    """Approximate the posterior of abilities and items by the Gaussian with the largest ELBO and draw from it.

    Parameters
    ----------
    responses
        The data, of at least 4 LLMs.
    spec
        The statistical model; None for the 2PL under the default priors. Columns that it names must be there.
    estimate
        A penalised estimate of the same responses to start from; None to compute it.
    optimizer
        Guide and steps; None for the defaults.
    num_draws
        Number of draws, independent of each other.
    seed
        Seed of steps and draws.
    progress
        Called now and then with the number of steps done and the ELBO.

    Returns
    -------
    Posterior
        Draws in the canonical gauge, in one chain, with a group ``approximation``: steps, ELBO, Pareto k-hat (not a
        number where the suite is too large for it) and, unless the guide is one in the coordinates of NUTS, the
        abilities' sds relative to Laplace's.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than 4 LLMs, a column that the model names is absent, the estimate belongs to other data or
        has other traits, an option is out of range, or minibatches are asked for where there are none.

    Warns
    -----
    ConvergenceWarning
        If the ELBO still rises at the last step allowed.
    ApproximationWarning
        If data are so few or the guide so simple that it is known to be too narrow, or it disagrees with Laplace.

    Examples
    --------
    >>> from bayes_irt.simulate import simulate_suite
    >>> fit_svi(simulate_suite(20, 40, seed=2).responses)
    Posterior: 20 LLMs x 40 items by svi, 1 chain x 1000 draws
    """
    spec = settled_spec(responses, spec)
    optimizer = Optimizer() if optimizer is None else optimizer
    require_whole("num_draws", num_draws, 4)
    require_llms(responses, "SVI")
    require_all_llms(spec, optimizer.batch_size)
    law = item_law(spec, responses)
    labels = None if spec.llm_groups is None else group_labels(responses.llm_metadata, spec.llm_groups)
    estimate = first_estimate(responses, spec, estimate, seed, law.traits)
    with jax.enable_x64(True):
        if spec.beyond_mode:
            begun = _begin_white(target_of(spec, responses, law, estimate, labels), optimizer)
        else:
            begun = _begin_at_laplace(spec, responses, law, estimate, optimizer, seed)
        fitted = _fit(spec, optimizer, begun.at, begun.first, seed, progress)
        draws, log_ratio = _draw(spec, optimizer, begun.at, fitted, num_draws, seed)
    found = record_of(fitted, log_ratio, responses, law.traits)
    if begun.gaussian is not None:
        found |= beside_laplace(draws["ability"][0, ..., 0], begun.gaussian, responses)
    posterior = posterior_from_draws(
        {name: values[:, :num_draws] for name, values in draws.items()},
        {},
        (responses.llms, responses.items),
        Provenance("svi", _configuration(spec, optimizer, num_draws), responses.digest, int(seed)),
        approximation=found,
        llm_groups=None if labels is None else [str(label) for label in labels],
        law=law,
    )
    warn_of(posterior, optimizer.guide)
    return posterior


class _Begun(NamedTuple):
    """Where a fit begins: the coordinates, the guide's first parameters and, where there is one, Laplace."""

    at: GuideCoordinates | WhiteCoordinates
    first: dict[str, Array]
    gaussian: Gaussian | None


def _begin_at_laplace(
    spec: ModelSpec,
    responses: Responses,
    law: ItemLaw,
    estimate: PointEstimate,
    optimizer: Optimizer,
    seed: int,
) -> _Begun:
    cells = jax.device_put(tile_cells(responses.successes, responses.attempts, law=law))
    parameters = jax.tree.map(jnp.asarray, estimate.parameters)
    gaussian = fit_gaussian(spec, parameters, cells, seed, lambda _: None)
    at = guide_coordinates(gaussian, cells, optimizer.guide == "structured")
    rank = optimizer.rank if optimizer.guide == "low-rank" else None
    assert isinstance(gaussian.arrow, Arrow)  # that of one trait
    return _Begun(at, first_guide(gaussian.arrow, at, rank), gaussian)


def _begin_white(target: Target, optimizer: Optimizer) -> _Begun:
    at = white_coordinates(target)
    return _Begun(at, first_white_guide(at, optimizer.guide, optimizer.rank), None)


def _configuration(spec: ModelSpec, optimizer: Optimizer, num_draws: int) -> dict[str, Any]:
    return {"spec": plain(spec), "optimizer": plain(optimizer), "num_draws": int(num_draws)}


@cache
def _svi(spec: ModelSpec, optimizer: Optimizer, num_llms: int, size: int) -> SVI:
    """Return NumPyro's SVI; the data are arguments, so that fits of one shape share the compiled step."""
    batch = optimizer.batch_size
    if batch is not None:
        batch = min(-(-batch // FACTORS) * FACTORS, num_llms)

    def model(at: GuideCoordinates | WhiteCoordinates) -> None:
        space = dist.ImproperUniform(dist.constraints.real_vector, (), (size,))
        white = numpyro.sample("white", space)
        rows = None
        if batch is not None and batch < num_llms:
            with numpyro.plate("llm", num_llms, subsample_size=batch) as rows:
                pass
        first = first_map(at, optimizer.guide) if isinstance(at, WhiteCoordinates) else {}
        learned = {name: numpyro.param(name, value) for name, value in first.items()}
        with (
            numpyro.handlers.block()
        ):  # the density may be that of a NumPyro model, whose sites are none of this one
            density = _log_density(spec, white, learned, at, rows)
        numpyro.factor("log_density", density)

    options = {"init_loc_fn": init_to_value(values={"white": jnp.zeros(size)}), "init_scale": 1.0}
    if optimizer.guide == "low-rank":
        guide = AutoLowRankMultivariateNormal(model, rank=min(optimizer.rank, size), **options)
    else:
        guide = AutoDiagonalNormal(model, **options)

    first_size = (
        optimizer.learning_rate or _FIRST_STEPS["structured" if spec.beyond_mode else optimizer.guide]
    )

    def step_size(step: Array) -> Array:
        late = jnp.maximum(step - _STEADY_STEPS, 0) / _STEADY_STEPS
        return first_size / (1.0 + late) ** _DECAY

    return SVI(model, guide, Adam(step_size), Trace_ELBO())


def _log_density(
    spec: ModelSpec,
    point: Float[Array, " size"],
    parameters: dict[str, Array],
    at: GuideCoordinates | WhiteCoordinates,
    rows: Integer[Array, " row"] | None = None,
) -> Float[Array, ""]:
    """Return the log density of a point of the guide's space; of some rows, scaled up, where there are some."""
    if isinstance(at, WhiteCoordinates):
        return white_log_density(spec, point, _map_of(parameters), at)
    return log_density_at(spec, point, at, rows)


def _map_of(parameters: dict[str, Array]) -> dict[str, Array]:
    """Return what of a fit's parameters belongs to the map; NumPyro's names of the law begin with ``auto_``."""
    return {name: value for name, value in parameters.items() if not name.startswith("auto_")}


def _fit(
    spec: ModelSpec,
    optimizer: Optimizer,
    at: GuideCoordinates | WhiteCoordinates,
    first: dict[str, Array],
    seed: int,
    progress: Callable[[int, float], None] | None,
) -> FittedGuide:
    """Take blocks of steps until the last five have hardly a higher ELBO than the five before."""
    svi = _svi(spec, optimizer, at.num_llms, at.size)
    state = jax.jit(lambda key, at, first: svi.init(key, at, init_params=first))(
        jax.random.key(seed), at, first
    )
    elbos: list[float] = []
    averages: list[dict[str, np.ndarray]] = []
    while True:
        state, average = _advance(svi, state, at)
        # always over the same draws and all data, so that the trend is not lost in the noise of steps
        elbos.append(float(np.mean(_log_ratios(spec, svi, average, at, jax.random.key(0)))))
        averages.append(jax.device_get(average))
        if progress is not None:
            progress(len(elbos) * _BLOCK, elbos[-1])
        fitted = _so_far(elbos, averages, at.size)
        if fitted.converged or not np.isfinite(fitted.elbo) or fitted.steps + _BLOCK > optimizer.max_steps:
            return fitted


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(svi: SVI, state: Any, at: GuideCoordinates | WhiteCoordinates) -> tuple[Any, dict[str, Array]]:
    """Take one block of steps; return also its mean parameters."""

    def add(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        state, total = carry
        state, _ = svi.update(state, at)
        return (state, jax.tree.map(jnp.add, total, svi.get_params(state))), None

    zero = jax.tree.map(jnp.zeros_like, svi.get_params(state))
    (state, total), _ = jax.lax.scan(add, (state, zero), length=_BLOCK)
    return state, jax.tree.map(lambda leaf: leaf / _BLOCK, total)


@partial(jax.jit, static_argnums=(0, 1))
def _log_ratios(
    spec: ModelSpec,
    svi: SVI,
    parameters: dict[str, Array],
    at: GuideCoordinates | WhiteCoordinates,
    key: Array,
) -> Float[Array, " draw"]:
    """Return the logarithm of model over guide at a few draws from the guide; its mean estimates the ELBO."""
    law = svi.guide.get_posterior(parameters)
    white = law.sample(key, (_DRAWS_AT_ONCE,))
    density = jax.lax.map(lambda point: _log_density(spec, point, parameters, at), white)
    return jnp.asarray(density - law.log_prob(white).reshape(_DRAWS_AT_ONCE, -1).sum(axis=1))


def _so_far(elbos: list[float], averages: list[dict[str, np.ndarray]], size: int) -> FittedGuide:
    kept = averages[len(averages) // 2 :]
    parameters = {name: jnp.mean(jnp.stack([one[name] for one in kept]), axis=0) for name in kept[0]}
    trend, error = np.inf, 0.0
    if len(elbos) >= 2 * _BLOCKS_COMPARED:
        before = np.array(elbos[-2 * _BLOCKS_COMPARED : -_BLOCKS_COMPARED])
        after = np.array(elbos[-_BLOCKS_COMPARED:])
        trend = float(after.mean() - before.mean())
        error = float(np.hypot(before.std(ddof=1), after.std(ddof=1)) / np.sqrt(_BLOCKS_COMPARED))
    limit = max(_LEAST_GAIN, _LEAST_GAIN_PER_PARAMETER * size)
    elbo = float(np.mean(elbos[-_BLOCKS_COMPARED:]))
    return FittedGuide(parameters, elbo, trend, error, limit, len(elbos) * _BLOCK)


def _draw(
    spec: ModelSpec,
    optimizer: Optimizer,
    at: GuideCoordinates | WhiteCoordinates,
    fitted: FittedGuide,
    num_draws: int,
    seed: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draw all sites from the guide; return also log ratios of model to guide, empty for large suites."""
    svi = _svi(spec, optimizer, at.num_llms, at.size)
    law = svi.guide.get_posterior(fitted.parameters)
    key_sites, key_ratios = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    log_ratio = np.zeros(0)
    if at.num_llms * at.num_items <= _MOST_CELLS_FOR_K:
        keys = jax.random.split(key_ratios, -(-_DRAWS_FOR_K // _DRAWS_AT_ONCE))
        log_ratio = np.concatenate([_log_ratios(spec, svi, fitted.parameters, at, key) for key in keys])
    if isinstance(at, WhiteCoordinates):
        sites = partial(white_sites, spec)
        drawn = jax.jit(sites)(law.sample(key_sites, (num_draws,)), _map_of(fitted.parameters), at)
        return {name: np.asarray(values) for name, values in drawn.items()}, log_ratio
    white = law.sample(key_sites, (max(num_draws, _DRAWS_FOR_K),))  # enough to compare sds with Laplace's
    place, _ = jax.jit(jax.vmap(place_at, (0, None)))(white, at)
    return sites_of(spec, place, at.unit), log_ratio
