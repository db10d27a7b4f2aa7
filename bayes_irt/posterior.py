"""`Posterior`: what every engine returns, as an ArviZ `DataTree` with labels and provenance.

The only file that converts to ArviZ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_irt.arguments import require_whole
from bayes_irt.cell_laws import Laws
from bayes_irt.cell_lists import log_coefficient, observed_cells
from bayes_irt.errors import InvalidConfigurationError, RunDirectoryError, some
from bayes_irt.identify import canonicalize
from bayes_irt.item_law import ItemGroups, ItemLaw
from bayes_irt.model_spec import DISPERSION, TRAIT_CORRELATION, ModelSpec, restored_spec
from bayes_irt.parameters import DIMS, Parameters
from bayes_irt.prior_densities import labelled_log_prior
from bayes_irt.provenance import Provenance, new_directory, read_json, require_same_data, write_json
from bayes_irt.responses import Responses
from bayes_irt.trait_matching import match_traits

if TYPE_CHECKING:
    import pandas as pd

#: Largest size of a stored log-likelihood, in bytes.
LARGEST_LOG_LIKELIHOOD = 2**30
#: Dim of dispersions, where groups of items have one each.
DISPERSION_GROUP = "dispersion_group"


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Hold draws from a posterior, in the canonical gauge.

    Parameters
    ----------
    tree
        Group ``posterior`` with ``ability``, ``discrimination``, ``easiness`` and the learned locations and scales
        of the item priors, dims ``chain, draw, llm, item``; where LLMs are related ``ability_share``, and group
        ``constant_data`` with their ``llm_group``; group ``sample_stats`` or ``approximation`` where the
        engine has any. ArviZ takes it as it is.
    provenance
        What made it.

    Examples
    --------
    >>> from bayes_irt.inference.nuts import Sampler, fit_nuts
    >>> from bayes_irt.simulate import simulate_suite
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(simulate_suite(6, 20).responses, sampler=sampler)
    >>> posterior
    Posterior: 6 LLMs x 20 items by nuts, 2 chains x 100 draws
    >>> posterior.ability.dims
    ('chain', 'draw', 'llm')
    """

    tree: xr.DataTree
    provenance: Provenance

    @property
    def draws(self) -> xr.Dataset:
        """The ``posterior`` group."""
        return self.tree["posterior"].to_dataset()

    @property
    def ability(self) -> xr.DataArray:
        """Draws of the abilities, mean 0 and sd 1 over the LLMs in each draw."""
        return self.draws["ability"]

    @property
    def llms(self) -> tuple[str, ...]:
        """Labels of the LLMs."""
        return tuple(self.draws["llm"].to_numpy().tolist())

    @property
    def items(self) -> tuple[str, ...]:
        """Labels of the items."""
        return tuple(self.draws["item"].to_numpy().tolist())

    @property
    def traits(self) -> tuple[str, ...]:
        """Names of the traits; empty where there is one."""
        return tuple(self.draws["trait"].to_numpy().tolist()) if "trait" in self.draws.coords else ()

    def require_one_trait(self, what: str) -> None:
        """Refuse several traits where only one makes sense.

        Parameters
        ----------
        what
            Subject of the message, a plural.

        Raises
        ------
        InvalidConfigurationError
            If there are several.
        """
        if self.traits:
            raise InvalidConfigurationError(
                f"{what} are about one ability, and this posterior has {len(self.traits)} traits: "
                f"{some(self.traits, 8)}. Fit one ability, or rank LLMs on one trait (rank_llms, trait=)."
            )

    @property
    def llm_groups(self) -> tuple[str, ...] | None:
        """Label of each LLM's group, empty where it has none; None where the model says nobody is related."""
        known = self._constant("llm_group")
        return None if known is None else tuple(known.tolist())

    def _constant(self, name: str) -> np.ndarray | None:
        if "constant_data" not in self.tree.children or name not in self.tree["constant_data"]:
            return None
        return np.asarray(self.tree["constant_data"][name].to_numpy())

    @property
    def laws(self) -> Laws:
        """How the draws say that answers arise: floors, dispersion and testlets besides abilities and items."""
        draws = self.draws.stack(sample=("chain", "draw"), create_index=False)
        size, number = draws.sizes["sample"], draws.sizes["item"]
        floor = self._constant("floor")
        if "floor" in draws:
            floor = draws["floor"].transpose("sample", "item").to_numpy()
        elif floor is not None:
            floor = np.broadcast_to(floor, (size, number))
        dispersion, effects = None, None
        if DISPERSION in draws:
            by_group = draws[DISPERSION].transpose("sample", ...).to_numpy().reshape(size, -1)
            dispersion = by_group[:, self._places(DISPERSION_GROUP)]
        if "testlet" in draws:
            effects = draws["testlet"].transpose("sample", "llm", "item_group").to_numpy()
        places = self._places("item_group"), self._places(DISPERSION_GROUP)
        return Laws(self.parameters, floor, dispersion, effects, *places)

    def _places(self, group: str) -> np.ndarray:
        """Return the position of each item's group; -1 for none, 0 where there is one group."""
        labels = self._constant(f"{group}_of_item")
        if labels is None:
            return np.zeros(self.draws.sizes["item"], dtype=int)
        places = {label: place for place, label in enumerate(self.draws[group].to_numpy().tolist())}
        return np.array([places.get(label, -1) for label in labels])

    @property
    def num_draws(self) -> int:
        """Number of draws, over all chains."""
        sizes = self.draws.sizes
        return int(sizes["chain"] * sizes["draw"])

    @property
    def parameters(self) -> Parameters:
        """Draws of all chains, one after the other, as parameters with one batch dim."""
        draws = self.draws.stack(sample=("chain", "draw"), create_index=False)
        arrays = {}
        for name in ("ability", "discrimination", "easiness"):
            dims = [dim for dim in DIMS[name] if dim in draws[name].dims]
            array = draws[name].transpose("sample", *dims).to_numpy()
            arrays[name] = array if len(dims) == len(DIMS[name]) else array[..., None]
        return Parameters(**arrays)

    @property
    def spec(self) -> ModelSpec:
        """The statistical model that was fitted, priors included.

        Raises
        ------
        InvalidConfigurationError
            If the provenance does not say.
        """
        try:
            described = self.provenance.configuration["spec"]
        except KeyError:
            raise InvalidConfigurationError(
                f"The provenance of this posterior by {self.provenance.method} names no model (spec). Fit it again."
            ) from None
        return restored_spec(described)

    def thin(self, every: int) -> Posterior:
        """Keep one draw in so many.

        Parameters
        ----------
        every
            Keep draws 0, `every`, 2 `every` ... of each chain.

        Returns
        -------
        Posterior
            Fewer draws; the provenance is that of the fit.

        Raises
        ------
        InvalidConfigurationError
            If `every` is not a whole number of at least 1.

        Examples
        --------
        >>> from bayes_irt.inference.nuts import Sampler, fit_nuts
        >>> from bayes_irt.simulate import simulate_suite
        >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
        >>> fit_nuts(simulate_suite(6, 20).responses, sampler=sampler).thin(10)
        Posterior: 6 LLMs x 20 items by nuts, 2 chains x 10 draws
        """
        require_whole("every", every, 1)
        return Posterior(self.tree.isel(draw=slice(None, None, every)), self.provenance)

    def with_log_likelihood(self, responses: Responses, *, seed: int = 0) -> Posterior:
        """Add what ArviZ needs for LOO, model comparison, prior sensitivity and predictive plots.

        Only observed cells are listed, along the dim ``cell`` with coordinates ``llm`` and ``item``, so that missing
        cells weigh nothing.

        Parameters
        ----------
        responses
            The data that were fitted.
        seed
            Seed of the replicated data.

        Returns
        -------
        Posterior
            The same draws, and the groups ``log_likelihood`` (with binomial coefficients), ``observed_data``,
            ``posterior_predictive`` (each with the variable ``successes``) and ``log_prior``: discriminations,
            easinesses and, in one sum, the ``hyperparameters``; learned floors and testlets where there are any.
            Standardised abilities have a constant prior density, unless LLMs are related: then there is theirs,
            ``ability``, given the share. With several traits, whose abilities' density given the correlations has
            no closed form, there is no ``log_prior``.

        Raises
        ------
        InvalidConfigurationError
            If the responses are not those fitted, the seed is out of range, or cells x draws are so many that the
            log-likelihood would take more than 1 GiB.

        References
        ----------
        Vehtari, A., Gelman, A. & Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out
        cross-validation and WAIC. Statistics and Computing 27, 1413-1432.
        Kallioinen, N. et al. (2024). Detecting and diagnosing prior and likelihood sensitivity with power-scaling.
        Statistics and Computing 34, 57 (for hierarchical models, scale the hyperparameters' prior alone).

        Examples
        --------
        >>> from bayes_irt.inference.nuts import Sampler, fit_nuts
        >>> from bayes_irt.simulate import simulate_suite
        >>> responses = simulate_suite(6, 20).responses
        >>> posterior = fit_nuts(responses, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
        >>> posterior.with_log_likelihood(responses).tree["log_likelihood"]["successes"].shape
        (2, 100, 120)
        """
        require_same_data(self.provenance, responses.digest, "posterior")
        require_whole("seed", seed, 0)
        _require_room(responses.num_observed, self.num_draws)
        added = _cell_groups(self, responses, seed)
        if not self.traits:
            added["log_prior"] = labelled_log_prior(self.spec, self.draws, self.llm_groups)
        kept = {name: node.to_dataset() for name, node in self.tree.children.items()}
        return Posterior(xr.DataTree.from_dict(kept | added), self.provenance)

    def summary(
        self, var_names: list[str] | None = None, *, prob: float = 0.9, kind: str = "all"
    ) -> pd.DataFrame:
        """Summarise parameters by ArviZ.

        Parameters
        ----------
        var_names
            Names of the parameters; None for all, which takes a while with thousands of items.
        prob
            Probability of the equal-tailed intervals.
        kind
            "stats", "diagnostics" or "all".

        Returns
        -------
        pandas.DataFrame
            One row per parameter: mean, sd, interval, effective sample sizes, R-hat, Monte Carlo errors.
        """
        import numpyro  # noqa: F401  ArviZ loads NumPyro lazily, which leaves it incomplete

        # isort: split
        import arviz

        return arviz.summary(  # type: ignore[no-any-return]
            self.tree, var_names=var_names, kind=kind, ci_prob=prob, ci_kind="eti", round_to="none"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Posterior):
            return NotImplemented
        return self.provenance == other.provenance and self.tree.identical(other.tree)

    def __repr__(self) -> str:
        sizes = self.draws.sizes
        chains = "1 chain" if sizes["chain"] == 1 else f"{sizes['chain']} chains"
        return (
            f"Posterior: {sizes['llm']} LLMs x {sizes['item']} items by {self.provenance.method}, "
            f"{chains} x {sizes['draw']} draws"
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the posterior to a directory of its own.

        Parameters
        ----------
        path
            Directory to make; it appears whole or not at all.
        force
            Whether an existing one may be replaced.

        Raises
        ------
        RunDirectoryError
            If the directory exists and `force` is not given.
        """
        with new_directory(path, force=force) as folder:
            self.tree.to_netcdf(folder / "posterior.nc", engine="h5netcdf")
            write_json(folder / "posterior.json", {"provenance": asdict(self.provenance)})

    @classmethod
    def load(cls, path: str | Path) -> Posterior:
        """Read a posterior that `save` wrote; it equals the one saved.

        Parameters
        ----------
        path
            The directory.

        Returns
        -------
        Posterior
            The posterior.

        Raises
        ------
        RunDirectoryError
            If the directory does not hold a posterior.
        """
        folder = Path(path)
        described = read_json(folder / "posterior.json")
        try:
            with xr.open_datatree(folder / "posterior.nc", engine="h5netcdf") as stored:
                tree = stored.load()
            provenance = Provenance(**described["provenance"])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(f"{str(folder)!r} holds no posterior ({error}).") from error
        return cls(tree, provenance)


def posterior_from_draws(
    draws: dict[str, Float[np.ndarray, "chain draw *dims"]],
    sample_stats: dict[str, np.ndarray],
    labels: tuple[tuple[str, ...], tuple[str, ...]],
    provenance: Provenance,
    *,
    approximation: dict[str, np.ndarray] | None = None,
    llm_groups: Sequence[str] | None = None,
    law: ItemLaw | None = None,
) -> Posterior:
    """Label an engine's draws and apply the gauge to each.

    Parameters
    ----------
    draws
        Site name to draws; abilities and discriminations carry a trait axis at the end.
    sample_stats
        ArviZ's names to values by chain and draw; empty where the engine has none.
    labels
        Labels of the LLMs and of the items.
    provenance
        What made the draws.
    approximation
        How an approximate engine fared: name to scalar.
    llm_groups
        Label of each LLM's group; None where nobody is related.
    law
        What the model says of single items.

    Returns
    -------
    Posterior
        In the canonical gauge.
    """
    traits = None if law is None else law.traits
    drawn = Parameters(draws["ability"], draws["discrimination"], draws["easiness"])
    if traits is not None and traits.exploratory:
        canonical, among = match_traits(drawn, draws.get(TRAIT_CORRELATION))
        draws = draws if among is None else {**draws, TRAIT_CORRELATION: among}
    else:
        canonical = canonicalize(drawn, sort_traits=traits is None)
    named = {name: np.asarray(getattr(canonical, name)) for name in ("ability", "discrimination", "easiness")}
    arrays = {**draws, **named}
    coords: dict[str, np.ndarray] = {
        "chain": np.arange(canonical.ability.shape[0]),
        "draw": np.arange(canonical.ability.shape[1]),
        "llm": np.array(labels[0], dtype=object),
        "item": np.array(labels[1], dtype=object),
    }
    constant = {} if llm_groups is None else {"llm_group": ("llm", np.array(llm_groups, dtype=object))}
    if law is not None:
        coords |= {name: np.array(kind.labels, dtype=object) for name, kind in _kinds(law).items()}
        constant |= _of_items(law, arrays)
    if traits is not None:
        coords["trait"] = np.array(traits.labels, dtype=object)
        coords["trait_pair"] = np.array(
            [f"{a}, {b}" for a, b in combinations(traits.labels, 2)], dtype=object
        )
    variables = {}
    for name, array in arrays.items():
        dims = DIMS[name]
        if name == DISPERSION and DISPERSION_GROUP not in coords:
            dims, array = (), array[..., 0]
        if "trait" in dims and canonical.num_traits == 1:
            dims, array = dims[:-1], array[..., 0]
        variables[name] = (("chain", "draw", *dims), array)
    groups = {"posterior": xr.Dataset(variables, coords=coords)}
    if sample_stats:
        chains = {name: coords[name] for name in ("chain", "draw")}
        stats = {name: (("chain", "draw"), value) for name, value in sample_stats.items()}
        groups["sample_stats"] = xr.Dataset(stats, coords=chains)
    if constant:
        named_dims = {dim for dims, _ in constant.values() for dim in (dims,)}
        groups["constant_data"] = xr.Dataset(constant, coords={dim: coords[dim] for dim in named_dims})
    if approximation:
        groups["approximation"] = xr.Dataset({name: ((), value) for name, value in approximation.items()})
    return Posterior(xr.DataTree.from_dict(groups), provenance)


def _kinds(law: ItemLaw) -> dict[str, ItemGroups]:
    """Return the groups of items that draws have a dim for."""
    kinds = {DISPERSION_GROUP: law.dispersion, "item_group": law.testlets}
    return {name: kind for name, kind in kinds.items() if kind is not None and kind.labels != ("",)}


def _of_items(law: ItemLaw, drawn: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Return what is known of single items: floors that are not learned, and the groups they belong to."""
    known = {f"{name}_of_item": kind.of_items() for name, kind in _kinds(law).items()}
    found = {name: ("item", np.array(labels, dtype=object)) for name, labels in known.items()}
    if law.floor is not None and "floor" not in drawn:
        found["floor"] = ("item", np.asarray(law.floor))
    return found


def _require_room(num_cells: int, num_draws: int) -> None:
    size = 8 * num_cells * num_draws
    if size > LARGEST_LOG_LIKELIHOOD:
        raise InvalidConfigurationError(
            f"The log-likelihood of {num_cells:,} cells x {num_draws:,} draws takes {size / 2**30:,.1f} GiB; at most "
            f"{LARGEST_LOG_LIKELIHOOD / 2**30:g} is stored. Keep one draw in {-(-size // LARGEST_LOG_LIKELIHOOD):,} "
            "(thin), or compare models by held_out_score, which stores none."
        )


def _cell_groups(posterior: Posterior, responses: Responses, seed: int) -> dict[str, xr.Dataset]:
    """Return log-likelihood, data and replicated data of the observed cells."""
    cells = observed_cells(responses)
    laws, coefficient = posterior.laws, log_coefficient(cells)
    rng = np.random.default_rng(seed)
    log_likelihood = np.empty((posterior.num_draws, len(cells)))
    replicated = np.empty(log_likelihood.shape, dtype=np.int32)  # signed: plots subtract
    for draw in range(posterior.num_draws):
        law = laws.at(draw)
        log_likelihood[draw] = law.log_probability(cells) + coefficient
        replicated[draw] = law.replicate(cells, rng)
    draws = posterior.draws
    shape = (draws.sizes["chain"], draws.sizes["draw"], len(cells))
    llms, items = (np.array(labels, dtype=object) for labels in (responses.llms, responses.items))
    where = {"llm": ("cell", llms[cells.llm]), "item": ("cell", items[cells.item])}
    sampled = {"chain": draws["chain"].to_numpy(), "draw": draws["draw"].to_numpy(), **where}
    by_draw = ("chain", "draw", "cell")
    return {
        "log_likelihood": xr.Dataset({"successes": (by_draw, log_likelihood.reshape(shape))}, coords=sampled),
        "posterior_predictive": xr.Dataset(
            {"successes": (by_draw, replicated.reshape(shape))}, coords=sampled, attrs={"seed": int(seed)}
        ),
        "observed_data": xr.Dataset(
            {"successes": ("cell", cells.successes.astype(np.int32))},
            coords={**where, "attempts": ("cell", cells.attempts.astype(np.int32))},
        ),
    }
