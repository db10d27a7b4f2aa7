"""Sensitivity of the top of a leaderboard to the priors, by power-scaling: no refit, no cell x draw in memory.

References
----------
Kallioinen, N., Paananen, T., Bürkner, P.-C. & Vehtari, A. (2024). Detecting and diagnosing prior and likelihood
sensitivity with power-scaling. Statistics and Computing 34, 57.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from bayes_irt.analysis.ranks import ranks_by_draw
from bayes_irt.arguments import require_whole
from bayes_irt.cell_lists import observed_cells
from bayes_irt.data_checks import FEWEST_FOR_ABILITY
from bayes_irt.likelihood import log_likelihood, tile_cells
from bayes_irt.posterior import Posterior
from bayes_irt.prior_densities import labelled_log_prior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

#: Change of a posterior, per change of the logarithm of the power, above which it is called sensitive.
SENSITIVE = 0.05
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class PriorSensitivity:
    """Hold how much the abilities and ranks of the best LLMs depend on the hyperpriors.

    Parameters
    ----------
    table
        One row per LLM, best first, indexed by LLM: ``ability_prior``, ``ability_likelihood``, ``rank_prior``,
        ``rank_likelihood``: how much the law of its ability and of its rank changes (cumulative Jensen-Shannon
        distance) per change of the logarithm of the power to which hyperpriors, or likelihood, are raised; 0 for a rank
        that is the same in all draws. Below 4 LLMs, ranks alone.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(20, 60).responses
    >>> prior_sensitivity(fit_laplace(responses), responses, top=3).table.shape
    (3, 4)
    """

    table: pd.DataFrame

    @property
    def sensitive(self) -> tuple[str, ...]:
        """LLMs whose ability or rank depends on the hyperpriors more than it should."""
        above = (self.table.filter(like="_prior") > SENSITIVE).any(axis=1)
        return tuple(self.table.index[above].astype(str))

    @property
    def sentence(self) -> str:
        """What the table says."""
        number, found = len(self.table), self.sensitive
        what = "abilities and ranks" if "ability_prior" in self.table else "ranks"
        if not found:
            return (
                f"{what.capitalize()} of the first {number} LLMs do not depend on the hyperpriors: no index is above "
                f"{SENSITIVE:g}."
            )
        return (
            f"{what.capitalize()} of {len(found)} of the first {number} LLMs depend on the hyperpriors (index above "
            f"{SENSITIVE:g}): the data alone do not settle them."
        )


def prior_sensitivity(posterior: Posterior, responses: Responses, *, top: int = 10) -> PriorSensitivity:
    """Tell how much the top of the board depends on the priors of locations and scales.

    The hyperpriors are the only priors that are assumed rather than learned, so they alone are scaled.

    Parameters
    ----------
    posterior
        Draws; at most 1,000, evenly spaced, are used.
    responses
        The data that were fitted.
    top
        Number of LLMs, from the best posterior mean on.

    Returns
    -------
    PriorSensitivity
        ArviZ's power-scaling indices.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted, or `top` is no whole number of at least 1.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> responses = simulate_suite(20, 60).responses
    >>> prior_sensitivity(fit_laplace(responses), responses, top=3).sensitive
    ()
    """
    import numpyro  # noqa: F401  ArviZ loads NumPyro lazily, which leaves it incomplete

    # isort: split
    import arviz

    posterior.require_one_trait("Sensitivities of the ranks at the top")
    require_same_data(posterior.provenance, responses.digest, "posterior")
    require_whole("top", top, 1)
    kept = posterior.thin(-(-posterior.num_draws // _MOST_DRAWS))
    groups = {
        "posterior": _best(kept, top),
        "log_likelihood": xr.Dataset({"responses": _shaped(kept, log_likelihoods(kept, responses))}),
        "log_prior": labelled_log_prior(kept.spec, kept.draws, kept.llm_groups)[["hyperparameters"]],
    }
    with np.errstate(invalid="ignore"):  # a rank that is the same in all draws
        found = arviz.psense_summary(
            xr.DataTree.from_dict(groups),
            prior_var_names=["hyperparameters"],
            threshold=SENSITIVE,
            round_to=6,
        )
    llms = [str(llm) for llm in groups["posterior"]["llm"].to_numpy()]
    columns = {
        f"{site}_{part}": found[part].to_numpy(dtype=np.float64)[
            number * len(llms) : (number + 1) * len(llms)
        ]
        for number, site in enumerate(("ability", "rank"))
        for part in ("prior", "likelihood")
    }
    table = pd.DataFrame(columns, index=pd.Index(llms, name="llm", dtype=object))
    if len(kept.llms) < FEWEST_FOR_ABILITY:
        table = table.drop(columns=["ability_prior", "ability_likelihood"])
    return PriorSensitivity(table.fillna(0.0))  # what is the same in all draws depends on nothing


def log_likelihoods(posterior: Posterior, responses: Responses) -> Float[np.ndarray, " sample"]:
    """Return the log-likelihood of all data for every draw, without binomial coefficients.

    Parameters
    ----------
    posterior
        Draws.
    responses
        The data.

    Returns
    -------
    numpy.ndarray
        One value per draw, chains one after the other.
    """
    laws, draws = posterior.laws, posterior.parameters
    if not laws.at(0).is_plain:
        listed = observed_cells(responses)
        return np.array([laws.at(draw).log_probability(listed).sum() for draw in range(posterior.num_draws)])
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts))
        total = jax.jit(log_likelihood)
        values = [
            float(total(jax.tree.map(jnp.asarray, draws.at(draw)), cells))
            for draw in range(posterior.num_draws)
        ]
    return np.array(values)


def _best(posterior: Posterior, top: int) -> xr.Dataset:
    """Return draws of ability and rank of the best LLMs."""
    ability = posterior.ability.transpose("chain", "draw", "llm")
    values = ability.to_numpy()
    ranks = ranks_by_draw(values.reshape(-1, values.shape[-1])).reshape(values.shape)
    best = np.argsort(-values.mean(axis=(0, 1)), kind="stable")[:top]
    both = xr.Dataset({"ability": ability, "rank": ability.copy(data=ranks.astype(np.float64))})
    return both.isel(llm=best)


def _shaped(posterior: Posterior, values: Float[np.ndarray, " sample"]) -> xr.DataArray:
    """Give draws their chains, and the one value per draw a dim of its own."""
    sizes = posterior.draws.sizes
    coords = {name: posterior.draws[name] for name in ("chain", "draw")}
    shaped = values.reshape(sizes["chain"], sizes["draw"], 1)
    return xr.DataArray(shaped, dims=("chain", "draw", "data"), coords=coords)
