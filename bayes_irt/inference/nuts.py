"""NUTS: the reference posterior.

NumPyro's No-U-Turn sampler runs on the model of `models` in the coordinates of `density`, in which the posterior is
nearly round: chains start as draws from the Gaussian around the mode. The data are arguments of the compiled
program, so that fits of one shape share it.

References
----------
Hoffman, M. D. & Gelman, A. (2014). The No-U-Turn Sampler. Journal of Machine Learning Research 15, 1593-1623.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, Key
from numpyro.infer.hmc import hmc

from bayes_irt.arguments import require_probability, require_whole
from bayes_irt.errors import InvalidConfigurationError, NumericalError
from bayes_irt.estimate import PointEstimate
from bayes_irt.inference.density import Target, log_densities, potential, sites_at, target_of
from bayes_irt.inference.directions import Directions
from bayes_irt.inference.engine import first_estimate, further_estimates, settled_spec
from bayes_irt.inference.named_sites import named_sites
from bayes_irt.inference.start import White
from bayes_irt.inference.trait_start import TraitStart
from bayes_irt.item_law import ItemLaw, item_law
from bayes_irt.likelihood import Cells
from bayes_irt.llm_groups import group_labels
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import Posterior, posterior_from_draws
from bayes_irt.provenance import Provenance, plain
from bayes_irt.responses import Responses

ChainMethod = Literal["parallel", "vectorized", "sequential"]

# Number of dims of abilities where each chain has a start of its own.
_OWN_STARTS = 3
_LARGEST_BLOCK = 50
# Of the distance from the mode, for first points: the first with a finite density is taken.
_NEARER = (1.0, 0.5, 0.25, 0.0)
_RESONANCE = (0.85, 1.15)


@dataclass(frozen=True, slots=True)
class Sampler:
    """State how long and how carefully to sample.

    Parameters
    ----------
    num_chains
        Number of chains, at least 2 (R-hat compares them).
    num_warmup
        Draws per chain that adapt step size and scales and are thrown away.
    num_draws
        Draws per chain that are kept.
    target_accept
        Acceptance rate aimed at; raise it towards 1 against divergences. Steps on the verge of doubling all
        trajectories in vain are lengthened a little after the warm-up, which may lower the rate.
    max_tree_depth
        A trajectory has at most ``2 ** max_tree_depth - 1`` steps.
    thinning
        Draws taken for each that is kept: saves memory where draws hang together, not time.
    chain_method
        "parallel": on as many devices as divide the number of chains evenly, vectorised on each. "vectorized": all
        together on one device. "sequential": one after the other, with the least memory.

    Raises
    ------
    InvalidConfigurationError
        If a value makes no sense.

    Examples
    --------
    >>> Sampler(num_draws=2000).num_chains
    4
    """

    num_chains: int = 4
    num_warmup: int = 500
    num_draws: int = 1000
    target_accept: float = 0.8
    max_tree_depth: int = 10
    thinning: int = 1
    chain_method: ChainMethod = "parallel"

    def __post_init__(self) -> None:
        least = {"num_chains": 2, "num_warmup": 20, "num_draws": 4, "max_tree_depth": 1, "thinning": 1}
        for name, number in least.items():
            require_whole(name, getattr(self, name), number)
        require_probability("target_accept", self.target_accept)
        if self.chain_method not in ("parallel", "vectorized", "sequential"):
            raise InvalidConfigurationError(
                f"chain_method is {self.chain_method!r}; it must be 'parallel', 'vectorized' or 'sequential'."
            )


def fit_nuts(
    responses: Responses,
    *,
    spec: ModelSpec | None = None,
    estimate: PointEstimate | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Posterior:
    """Sample the posterior of abilities and items by NUTS.

    Parameters
    ----------
    responses
        The data.
    spec
        The statistical model; None for the 2PL under the default priors. Where it names a column of groups, the
        responses' metadata of LLMs must have it.
    estimate
        A penalised estimate of the same responses to start from; None to compute it.
    sampler
        Length and care; None for the defaults.
    seed
        Seed of all draws.
    progress
        Called now and then with the number of draws done per chain, warm-up included, and their total, thinned ones
        not counted.

    Returns
    -------
    Posterior
        Draws in the canonical gauge, with NUTS's sample statistics; where LLMs are related with ``ability_share`` and
        their groups.

    Raises
    ------
    InvalidConfigurationError
        If the estimate belongs to other data or has other traits, the seed is out of range, or the groups' column is
        absent or tells no LLMs apart.
    NumericalError
        If the log density at the start is not finite.

    Examples
    --------
    >>> from bayes_irt.simulate import simulate_suite
    >>> suite = simulate_suite(6, 20, seed=2)
    >>> fit_nuts(suite.responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    Posterior: 6 LLMs x 20 items by nuts, 2 chains x 100 draws
    """
    spec = settled_spec(responses, spec)
    law = item_law(spec, responses)
    sampler = Sampler() if sampler is None else sampler
    labels = None if spec.llm_groups is None else group_labels(responses.llm_metadata, spec.llm_groups)
    estimate = first_estimate(responses, spec, estimate, seed, law.traits)
    estimates = [estimate]
    if spec.exploratory:
        estimates += further_estimates(responses, spec, estimate, sampler.num_chains - 1, seed)
    with jax.enable_x64(True):
        target = target_of(spec, responses, law, estimates[0], labels)
        if spec.exploratory:  # each chain starts where its own estimate leads
            targets = [target, *(target_of(spec, responses, law, one, labels) for one in estimates[1:])]
            starts, directions = (
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
                for parts in zip(*((one.start, one.directions) for one in targets), strict=True)
            )
            target = Target(target.cells, starts, directions)
        kept = _sample(spec, sampler, target, seed, progress)
    provenance = Provenance("nuts", _configuration(spec, sampler), responses.digest, int(seed))
    return _as_posterior(kept, responses, provenance, labels, law)


def _configuration(spec: ModelSpec, sampler: Sampler) -> dict[str, Any]:
    return {"spec": plain(spec), "sampler": plain(sampler)}


def _compiled(sampler: Sampler) -> Sampler:
    """Return the sampler without what programs take as arguments, so that fits of other lengths share them."""
    return replace(sampler, num_draws=4, thinning=1)


@cache
def _kernel(spec: ModelSpec, sampler: Sampler) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return NumPyro's NUTS for the model in white coordinates, the data being arguments.

    NumPyro keeps the sampler's settings in the kernel, so each setting has a kernel of its own.
    """

    def potential_of(target: Target) -> Callable[[White], Float[Array, ""]]:
        return partial(potential, target=target, spec=spec)

    init, step = hmc(potential_fn_gen=potential_of, algo="NUTS")
    settings = {
        "num_warmup": sampler.num_warmup,
        "target_accept_prob": sampler.target_accept,
        "max_tree_depth": sampler.max_tree_depth,
        "step_size": 0.5,
    }
    return partial(init, **settings), step


def _sample(
    spec: ModelSpec,
    sampler: Sampler,
    target: Target,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, np.ndarray]:
    """Run all chains in blocks of draws; the first blocks are warm-up."""
    keys, compiled = jax.random.split(jax.random.key(seed), sampler.num_chains), _compiled(sampler)
    state = _begin(spec, compiled, keys, target)
    if not np.isfinite(jax.device_get(state.potential_energy)).all():
        raise NumericalError(
            "The log density at the start is not finite. Check the estimate that it starts from."
        )
    common = math.gcd(sampler.num_warmup, sampler.num_draws)
    size = max(d for d in range(1, _LARGEST_BLOCK + 1) if common % d == 0)
    total = sampler.num_warmup + sampler.num_draws
    kept = []
    for done in range(size, total + 1, size):
        thinning = 1 if done <= sampler.num_warmup else sampler.thinning
        state, block = _advance(spec, compiled, size, np.int64(thinning), state, target)
        if done == sampler.num_warmup:
            adapted = state.adapt_state
            adapted = adapted._replace(step_size=_off_resonance(adapted.step_size))
            state = state._replace(adapt_state=adapted)
        if done > sampler.num_warmup:
            kept.append(jax.device_get(block))
        jax.block_until_ready(state.i)
        if progress is not None:
            progress(done, total)
    return {name: np.concatenate([block[name] for block in kept], axis=1) for name in kept[0]}


@partial(jax.jit, static_argnames=("spec", "sampler"))
def _begin(spec: ModelSpec, sampler: Sampler, keys: Key[Array, " chain"], target: Target) -> Any:
    """Draw each chain's first point from the Gaussian around the mode, nearer to it where the density fails."""

    def one(key: Key[Array, ""], target: Target) -> Any:
        keys = jax.random.split(key, 4)
        wanted = (jnp.asarray(target.start.ability), target.start.items, target.start.hyper)
        ability, items, hyper = (
            jax.random.normal(k, like.shape, jnp.float64) for k, like in zip(keys, wanted, strict=False)
        )
        further = {
            name: jax.random.normal(jax.random.fold_in(keys[3], place), sd.shape, jnp.float64)
            for place, (name, (_, sd)) in enumerate(target.start.more.items())
        }
        whole = White(ability, items, hyper, further)
        nearer = [jax.tree.map(lambda values, share=share: share * values, whole) for share in _NEARER]
        stacked = jax.tree.map(lambda *values: jnp.stack(values), *nearer)
        init = partial(_kernel(spec, sampler)[0], rng_key=keys[3], model_args=(target,))
        states = lax.map(init, stacked)
        taken = jnp.argmax(jnp.isfinite(states.potential_energy))
        return jax.tree.map(lambda values: values[taken], states)

    return _over_chains(one, sampler)(keys, target)


@partial(jax.jit, static_argnames=("spec", "sampler", "size"), donate_argnames="state")
def _advance(
    spec: ModelSpec, sampler: Sampler, size: int, thinning: Int[Array, ""], state: Any, target: Target
) -> tuple[Any, dict[str, Array]]:
    """Take some draws with every chain; of as many as `thinning` says the last is kept."""

    def one(state: Any, target: Target) -> tuple[Any, dict[str, Array]]:
        def step(_: Array, taken: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
            state, diverging, most = taken
            state = _kernel(spec, sampler)[1](state, model_args=(target,))
            return state, diverging | state.diverging, jnp.maximum(most, state.num_steps)

        def draw(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
            nothing = (state, jnp.zeros_like(state.diverging), jnp.zeros_like(state.num_steps))
            state, diverging, most = lax.fori_loop(0, thinning, step, nothing)
            return state, _record(spec, state, target) | {"diverging": diverging, "n_steps": most}

        return lax.scan(draw, state, length=size)

    advanced: tuple[Any, dict[str, Array]] = _over_chains(one, sampler)(state, target)
    return advanced


def _off_resonance(step_size: Float[Array, " chain"]) -> Float[Array, " chain"]:
    """Return step sizes that are not on the verge of doubling every trajectory in vain.

    In a round density with unit scales a trajectory turns once its length exceeds pi. Where a tree of 2^k - 1 steps
    is about as long, most are doubled, some again and again; a step a little longer ends them in time.
    """
    level = jnp.round(jnp.log2(math.pi / step_size + 1.0))
    turning = math.pi / (2.0 ** jnp.maximum(level, 1.0) - 1.0)
    near = (step_size > _RESONANCE[0] * turning) & (step_size < _RESONANCE[1] * turning)
    return jnp.where(near, _RESONANCE[1] * turning, step_size)


def _record(spec: ModelSpec, state: Any, target: Target) -> dict[str, Array]:
    """Return the draw's sites and statistics under ArviZ's names."""
    sites, _ = sites_at(state.z, target, spec)
    if sites["ability_raw"].shape[0] == 2:
        here, mirrored = log_densities(sites, target, spec)
        swap = jax.random.bernoulli(jax.random.fold_in(state.rng_key, 0), jax.nn.sigmoid(mirrored - here))
        sites["ability_raw"] = jnp.where(swap, -1.0, 1.0) * sites["ability_raw"]
    return {
        **named_sites(spec, sites, target.start),
        "lp": -state.potential_energy,
        "energy": state.energy,
        "diverging": state.diverging,
        "n_steps": state.num_steps,
        "tree_depth": jnp.ceil(jnp.log2(state.num_steps + 1.0)).astype(jnp.int32),
        "acceptance_rate": state.accept_prob,
        "step_size": state.adapt_state.step_size,
    }


def _over_chains(one: Callable[..., Any], sampler: Sampler) -> Callable[..., Any]:
    """Map a function of one chain's state over chains, by the method asked for; each may have a start of its own."""

    def with_own(state: Any, around: tuple[Any, Directions], cells: Cells) -> Any:
        return one(state, Target(cells, *around))

    def mapped(states: Any, target: Target) -> Any:
        own = isinstance(target.start, TraitStart) and jnp.ndim(target.start.ability) == _OWN_STARTS
        around, cells = (target.start, target.directions), target.cells
        if sampler.chain_method == "sequential":
            if own:
                return lax.map(lambda chain: with_own(chain[0], chain[1], cells), (states, around))
            return lax.map(lambda state: one(state, target), states)
        over = jax.vmap(with_own, in_axes=(0, 0 if own else None, None))
        devices = jax.local_devices() if sampler.chain_method == "parallel" else []
        num_chains = sampler.num_chains
        used = max((d for d in range(1, min(len(devices), num_chains) + 1) if num_chains % d == 0), default=1)
        if used == 1:
            return over(states, around, cells)
        mesh = jax.sharding.Mesh(np.array(devices[:used]), ("chain",))
        chain, same = PartitionSpec("chain"), PartitionSpec()
        in_specs = (chain, chain if own else same, same)
        over_devices = jax.shard_map(over, mesh=mesh, in_specs=in_specs, out_specs=chain, check_vma=False)
        return over_devices(states, around, cells)

    return mapped


def _as_posterior(
    kept: dict[str, np.ndarray],
    responses: Responses,
    provenance: Provenance,
    groups: np.ndarray | None,
    law: ItemLaw,
) -> Posterior:
    stats = ("lp", "energy", "diverging", "n_steps", "tree_depth", "acceptance_rate", "step_size")
    sample_stats = {name: kept.pop(name) for name in stats}
    labels = (responses.llms, responses.items)
    named = None if groups is None else [str(group) for group in groups]
    return posterior_from_draws(kept, sample_stats, labels, provenance, llm_groups=named, law=law)
