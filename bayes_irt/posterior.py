"""`Posterior`: what every engine returns, as an ArviZ `DataTree` with labels and provenance.

The only file that converts to ArviZ.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

from bayes_irt.errors import RunDirectoryError
from bayes_irt.identify import canonicalize
from bayes_irt.parameters import DIMS, Parameters
from bayes_irt.provenance import Provenance, new_directory, read_json, write_json

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Hold draws from a posterior, in the canonical gauge.

    Parameters
    ----------
    tree
        Group ``posterior`` with ``ability``, ``discrimination``, ``easiness`` and the learned locations and scales
        of the item priors, dims ``chain, draw, llm, item``; group ``sample_stats`` where the engine has any. ArviZ
        takes it as it is.
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
    def num_draws(self) -> int:
        """Number of draws, over all chains."""
        sizes = self.draws.sizes
        return int(sizes["chain"] * sizes["draw"])

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
        return (
            f"Posterior: {sizes['llm']} LLMs x {sizes['item']} items by {self.provenance.method}, "
            f"{sizes['chain']} chains x {sizes['draw']} draws"
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

    Returns
    -------
    Posterior
        In the canonical gauge.
    """
    canonical = canonicalize(Parameters(draws["ability"], draws["discrimination"], draws["easiness"]))
    named = {name: np.asarray(getattr(canonical, name)) for name in ("ability", "discrimination", "easiness")}
    arrays = {**draws, **named}
    coords: dict[str, np.ndarray] = {
        "chain": np.arange(canonical.ability.shape[0]),
        "draw": np.arange(canonical.ability.shape[1]),
        "llm": np.array(labels[0], dtype=object),
        "item": np.array(labels[1], dtype=object),
    }
    variables = {}
    for name, array in arrays.items():
        dims = DIMS[name]
        if "trait" in dims and canonical.num_traits == 1:
            dims, array = dims[:-1], array[..., 0]
        variables[name] = (("chain", "draw", *dims), array)
    groups = {"posterior": xr.Dataset(variables, coords=coords)}
    if sample_stats:
        chains = {name: coords[name] for name in ("chain", "draw")}
        stats = {name: (("chain", "draw"), value) for name, value in sample_stats.items()}
        groups["sample_stats"] = xr.Dataset(stats, coords=chains)
    return Posterior(xr.DataTree.from_dict(groups), provenance)
