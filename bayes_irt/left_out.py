"""Scores of a fit on what is left out: single cells by importance sampling, whole LLMs by fits to the others.

References
----------
Vehtari, A., Gelman, A. & Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out cross-validation and
WAIC. Statistics and Computing 27, 1413-1432.
Merkle, E. C., Furr, D. & Rabe-Hesketh, S. (2019). Bayesian comparison of latent variable models: Conditional versus
marginal likelihoods. Psychometrika 84, 802-829.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from bayes_irt.arguments import require_whole
from bayes_irt.cell_lists import CellList, log_coefficient, observed_cells
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.held_out import HeldOutScore, score_table
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.model_spec import TESTLET_SCALE, ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses
from bayes_irt.row_likelihood import ability_grid, row_log_likelihoods

#: Fits a model to data with a seed.
Fit = Callable[[Responses, ModelSpec, int], Posterior]

_CELLS_AT_ONCE = 2000
_DRAWS_OF_ROWS = 400
# Above it the smoothed weights cannot be relied on.
_HIGHEST_K = 0.7
_NO_TAIL = 1e-9


def by_laplace(responses: Responses, spec: ModelSpec, seed: int) -> Posterior:
    """Fit a model by Laplace, as `compare_models` does unless told otherwise.

    Parameters
    ----------
    responses
        The data.
    spec
        The model.
    seed
        Seed of the draws.

    Returns
    -------
    Posterior
        Its draws.
    """
    return fit_laplace(responses, spec=spec, seed=seed)


def cell_scores(
    posterior: Posterior, responses: Responses, *, most_cells: int = 20_000, seed: int = 0
) -> tuple[HeldOutScore, float]:
    """Score a fit by every cell's log predictive probability given all others, by smoothed importance sampling.

    Parameters
    ----------
    posterior
        Draws; every draw is used.
    responses
        The data that were fitted.
    most_cells
        Of more cells, so many are chosen at random.
    seed
        Seed of the choice.

    Returns
    -------
    tuple
        Score by LLM, and the share of cells whose weights cannot be relied on (k-hat above .7). No more than 2,000
        cells x draws are in memory.

    Raises
    ------
    InvalidConfigurationError
        If the responses are not those fitted.

    References
    ----------
    Vehtari, A. et al. (2024). Pareto smoothed importance sampling. Journal of Machine Learning Research 25 (72).
    """
    require_same_data(posterior.provenance, responses.digest, "posterior")
    cells = _some_cells(observed_cells(responses), most_cells, seed)
    laws, found, bad = posterior.laws, np.empty(len(cells)), 0
    for start in range(0, len(cells), _CELLS_AT_ONCE):
        block = _part(cells, slice(start, start + _CELLS_AT_ONCE))
        values = np.stack(
            [laws.at(draw).log_probability(block) for draw in range(posterior.num_draws)], axis=1
        )
        found[start : start + len(block)], high = _left_out(values)
        bad += high
    scored = found + log_coefficient(cells)
    return _by_llm(
        scored, cells.llm, responses, posterior.provenance.method, f"cells {most_cells} {seed}"
    ), bad / len(cells)


def require_folds(responses: Responses, spec: ModelSpec, folds: int) -> None:
    """Refuse what cannot be scored by unseen LLMs.

    Parameters
    ----------
    responses
        The data.
    spec
        The model.
    folds
        Parts into which LLMs are cut.

    Raises
    ------
    InvalidConfigurationError
        If there are too few LLMs, some are related, or abilities are several.
    """
    require_whole("folds", folds, 2)
    if 2 * folds > responses.num_llms:
        raise InvalidConfigurationError(
            f"{responses.num_llms} LLMs cannot be cut into {folds} folds of two or more. Ask for fewer, or leave "
            "out the criterion 'LLMs'."
        )
    for option, there in (("llm_groups", spec.related), ("traits", spec.traits is not None)):
        if there:
            raise InvalidConfigurationError(
                f"An unseen LLM is predicted by one ability of its own: leave out {option}, or the criterion 'LLMs'."
            )


def llm_scores(
    responses: Responses, spec: ModelSpec, fit: Fit = by_laplace, *, folds: int = 5, seed: int = 0
) -> HeldOutScore:
    """Score a model by the log predictive probability of whole LLMs that the fit did not see, ability integrated out.

    The LLMs are cut into folds, and each fold is predicted by a fit to all others. (Importance sampling from one fit
    would not do: an LLM's row says something of every item, more than weights can take back.) A new LLM's ability is
    standard normal, as those fitted are. Items that only one fold has answered are left out with it.

    Parameters
    ----------
    responses
        The data, of at least 4 LLMs outside each fold.
    spec
        The model; its LLMs are not related.
    fit
        Engine.
    folds
        Number of folds, and of fits.
    seed
        Seed of the folds and of the fits.

    Returns
    -------
    HeldOutScore
        By LLM, each counting as one.

    Raises
    ------
    InvalidConfigurationError
        If the folds are fewer than 2 or more than half of the LLMs, or LLMs are related in the model.

    References
    ----------
    Merkle, E. C., Furr, D. & Rabe-Hesketh, S. (2019). Bayesian comparison of latent variable models: Conditional versus
    marginal likelihoods. Psychometrika 84, 802-829.
    """
    require_folds(responses, spec, folds)
    order = np.random.default_rng([seed, 1]).permutation(responses.num_llms)
    found = np.zeros(responses.num_llms)
    method = ""
    for fold in range(folds):
        rows = np.sort(order[fold::folds])
        rest = np.setdiff1d(np.arange(responses.num_llms), rows)
        known = np.flatnonzero(responses.attempts[rest].any(axis=0))
        train = Responses(responses.dataset.isel(llm=rest, item=known))
        posterior = fit(train, spec, seed)
        method = posterior.provenance.method
        counts = tuple(values[np.ix_(rows, known)] for values in (responses.successes, responses.attempts))
        found[rows] = _predicted_rows(posterior, counts) + _row_coefficients(*counts)
    everyone = np.arange(responses.num_llms)
    return _by_llm(found, everyone, responses, method, f"LLMs {folds} {seed}")


def _predicted_rows(posterior: Posterior, counts: tuple[np.ndarray, ...]) -> Float[np.ndarray, " llm"]:
    laws, grid = posterior.laws, ability_grid(posterior)
    kept = np.linspace(0, posterior.num_draws - 1, min(_DRAWS_OF_ROWS, posterior.num_draws)).astype(int)
    scales = None
    if TESTLET_SCALE in posterior.draws:
        scales = posterior.draws[TESTLET_SCALE].to_numpy().ravel()
    right, tried = counts
    found = np.full(len(right), -np.inf)
    for draw in kept.tolist():
        scale = None if scales is None else float(scales[draw])
        np.logaddexp(found, row_log_likelihoods(laws.at(draw), right, tried, grid, scale), out=found)
    return np.asarray(found - np.log(len(kept)))


def _row_coefficients(successes: np.ndarray, attempts: np.ndarray) -> Float[np.ndarray, " llm"]:
    llm, item = np.nonzero(attempts)
    cells = CellList(llm, item, successes[llm, item], attempts[llm, item])
    return np.bincount(llm, weights=log_coefficient(cells), minlength=len(attempts))


def _left_out(values: Float[np.ndarray, "unit draw"]) -> tuple[Float[np.ndarray, " unit"], int]:
    """Return log predictive probabilities given all other data, and how many weights are unreliable."""
    import numpyro  # noqa: F401  ArviZ loads NumPyro lazily, which leaves it incomplete

    # isort: split
    from arviz_stats.base import array_stats  # type: ignore[attr-defined]

    # where the largest weights are all the same there is no tail to smooth
    number = values.shape[1]
    tail = math.ceil(min(0.2 * number, 3.0 * math.sqrt(number)))
    flat = np.ptp(np.partition(values, tail, axis=1)[:, :tail], axis=1) < _NO_TAIL
    log_weights = -values - logsumexp(-values, axis=1, keepdims=True)
    high = 0
    if not flat.all():
        # it takes log likelihoods, whose inverses the weights are
        log_weights[~flat], k_hat = array_stats.psislw(values[~flat])
        high = int((k_hat > _HIGHEST_K).sum())
    return np.asarray(logsumexp(values + log_weights, axis=1)), high


def _some_cells(cells: CellList, most: int, seed: int) -> CellList:
    if len(cells) <= most:
        return cells
    chosen = np.sort(np.random.default_rng([seed, 0]).choice(len(cells), most, replace=False))
    return _part(cells, chosen)


def _part(cells: CellList, chosen: slice | np.ndarray) -> CellList:
    return CellList(cells.llm[chosen], cells.item[chosen], cells.successes[chosen], cells.attempts[chosen])


def _by_llm(
    scored: Float[np.ndarray, " unit"], llm: np.ndarray, responses: Responses, method: str, what: str
) -> HeldOutScore:
    return HeldOutScore(method, score_table(scored, llm, responses.llms), f"{responses.digest} {what}")
