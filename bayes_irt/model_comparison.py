"""Which model do the data want? Held-out cells, and leaving out single cells or whole LLMs, with ties called ties.

Three questions are asked, since they have different answers. *Held-out cells*: how well are answers predicted that the
fit did not see, of LLMs and items that it knows? *Cells*: the same of every single cell, by importance sampling from
one fit (PSIS-LOO). *LLMs*: how well is the whole row of an LLM predicted that the fit did not see? There the ability is
integrated out by quadrature, and fits to the other LLMs take the place of importance sampling, which leaving out a
whole row is too much for.

References
----------
Vehtari, A., Gelman, A. & Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out cross-validation and
WAIC. Statistics and Computing 27, 1413-1432.
Merkle, E. C., Furr, D. & Rabe-Hesketh, S. (2019). Bayesian comparison of latent variable models: Conditional versus
marginal likelihoods. Psychometrika 84, 802-829.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import logsumexp

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.cell_lists import CellList, log_coefficient, observed_cells
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import markdown_table, markdown_text
from bayes_irt.held_out import HeldOutScore, ScoreComparison, compare_scores, held_out_score, split_cells
from bayes_irt.inference.laplace import fit_laplace
from bayes_irt.model_spec import TESTLET_SCALE, ModelSpec
from bayes_irt.posterior import Posterior
from bayes_irt.priors import Common, Priors
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses
from bayes_irt.row_likelihood import ability_grid, row_log_likelihoods

Criterion = Literal["held-out cells", "cells", "LLMs"]
CRITERIA: tuple[Criterion, ...] = ("held-out cells", "cells", "LLMs")
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


def usual_models(responses: Responses, floor: str | float | None = None) -> dict[str, ModelSpec]:
    """Return the models that are worth comparing for some data.

    Parameters
    ----------
    responses
        The data.
    floor
        Also models with this floor, as `ModelSpec` takes it; a text that is a number is one.

    Returns
    -------
    dict
        Name to model: 1PL and 2PL, with and without the floor; where cells have several attempts, the 2PL also with
        independent ones.

    Examples
    --------
    >>> from bayes_irt import simulate_suite
    >>> list(usual_models(simulate_suite(6, 20).responses, 0.25))
    ['1PL', '2PL', '2PL, floor 0.25']
    """
    found = {"1PL": ModelSpec(Priors(Common())), "2PL": ModelSpec()}
    if floor is not None:
        least: str | float = floor
        with suppress(ValueError):
            least = float(floor)
        found[f"2PL, floor {least}"] = ModelSpec(floor=least)
    if not responses.is_binary:
        found["2PL, binomial"] = ModelSpec(observation="binomial")
    return found


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """State how much of the data a comparison looks at.

    Parameters
    ----------
    share
        Share of the cells that is held out.
    most_cells
        Of more cells, so many are chosen at random for PSIS-LOO, the same for all models.
    folds
        Number of folds of the LLMs.

    Raises
    ------
    InvalidConfigurationError
        If a number is out of range.

    Examples
    --------
    >>> ComparisonPlan(share=0.1).most_cells
    20000
    """

    share: float = 0.2
    most_cells: int = 20_000
    folds: int = 5

    def __post_init__(self) -> None:
        require_number("share", self.share, 0.001, 0.9)
        require_whole("most_cells", self.most_cells, 2)
        require_whole("folds", self.folds, 2)


@dataclass(frozen=True, slots=True, eq=False)
class ModelComparison:
    """Hold models compared by one or more criteria.

    Parameters
    ----------
    by
        Criterion to comparison, as `compare_scores` makes it; an LLM counts as one "cell" of the criterion "LLMs".
    table
        One row per criterion and model, best first: ``criterion``, ``model``, ``mean`` (log predictive probability per
        cell, or per LLM), ``difference`` (from the best), ``se``, ``tied`` and, where weights were smoothed,
        ``high_k``, the share of them that cannot be relied on (k-hat above .7).

    Examples
    --------
    >>> from bayes_irt import Common, Priors, simulate_suite
    >>> responses = simulate_suite(30, 60).responses
    >>> models = {"1PL": ModelSpec(Priors(Common())), "2PL": ModelSpec()}
    >>> compare_models(responses, models, criteria=("held-out cells",)).table["model"].tolist()[0]
    '2PL'
    """

    by: Mapping[str, ScoreComparison]
    table: pd.DataFrame

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each criterion says, in words; ties are called ties."""
        found = []
        for criterion, comparison in self.by.items():
            best, *others = comparison.table.itertuples()
            tied = [str(row.Index) for row in others if row.tied]
            worse = [f"{row.Index} ({row.difference:.4f} ± {row.se:.4f})" for row in others if not row.tied]
            text = f"{criterion[0].upper()}{criterion[1:]}: "
            if tied:
                text += f"{best.Index} and {' and '.join(tied)} tie"
            else:
                text += f"{best.Index} predicts best"
            text += f"; worse: {', '.join(worse)}" if worse else ""
            rows = self.table[self.table["criterion"] == criterion]
            if (rows["high_k"] > 0).any():
                worst = rows.iloc[int(rows["high_k"].to_numpy().argmax())]
                text += f". Importance weights of {worst['high_k']:.0%} are not to be relied on under {worst['model']}"
            found.append(text + ".")
        return tuple(found)

    def formatted(self) -> pd.DataFrame:
        """Return the table as text.

        Returns
        -------
        pandas.DataFrame
            Ready to be printed.
        """
        shown = self.table.copy()
        for name in ("mean", "difference", "se"):
            shown[name] = shown[name].map("{:.4f}".format)
        shown["tied"] = np.where(shown["tied"], "yes", "no")
        shown["high_k"] = ["n/a" if np.isnan(share) else f"{share:.1%}" for share in shown["high_k"]]
        return shown.rename(columns={"high_k": "k-hat > .7"})

    def to_markdown(self) -> str:
        """Return the table as Markdown, what it says below.

        Returns
        -------
        str
            Cells with a pipe are escaped.
        """
        return (
            markdown_table(self.formatted())
            + "\n"
            + "".join(f"{markdown_text(s)}  \n" for s in self.sentences)
        )

    def to_json(self) -> str:
        """Return everything as one JSON object.

        Returns
        -------
        str
            With ``sentences`` and ``rows``; what is not applicable is null.
        """
        rows = json.loads(self.table.to_json(orient="records", double_precision=15))
        return json.dumps({"sentences": self.sentences, "rows": rows}, indent=2, ensure_ascii=False)


def compare_models(
    responses: Responses,
    models: Mapping[str, ModelSpec],
    *,
    criteria: tuple[Criterion, ...] = CRITERIA,
    fit: Fit = by_laplace,
    plan: ComparisonPlan | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> ModelComparison:
    """Fit models to the same data and compare how well they predict.

    Parameters
    ----------
    responses
        The data.
    models
        Name to model, at least two.
    criteria
        What is predicted: "held-out cells", "cells", "LLMs".
    fit
        Engine: a function of responses, model and seed that returns a posterior. Laplace by default; learned floors,
        testlets and groups of LLMs need NUTS.
    plan
        How much is held out and looked at; None for the defaults.
    seed
        Seed of fits and choices.
    progress
        Called with what is done next.

    Returns
    -------
    ModelComparison
        Differences are paired by LLM; a model within 2 standard errors of the best is tied with it. Draws of an
        approximate engine are taken for draws from the posterior.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than two models or no criterion, one is unknown, a number is out of range, or the engine
        cannot fit a model.

    Examples
    --------
    >>> from bayes_irt import simulate_suite
    >>> models = {"plain": ModelSpec(), "floor": ModelSpec(floor=0.25)}
    >>> compare_models(simulate_suite(30, 60).responses, models, criteria=("held-out cells",)).sentences
    ('Held-out cells: ...',)
    """
    if len(models) < 2:
        raise InvalidConfigurationError("Give two models or more to compare.")
    if not criteria or set(criteria) - set(CRITERIA):
        raise InvalidConfigurationError(
            f"criteria is {criteria!r}; choose from {', '.join(map(repr, CRITERIA))}."
        )
    require_whole("seed", seed, 0)
    plan = ComparisonPlan() if plan is None else plan
    say = (lambda _: None) if progress is None else progress
    scores: dict[str, dict[str, HeldOutScore]] = {criterion: {} for criterion in criteria}
    high_k: dict[tuple[str, str], float] = {}
    for name, spec in models.items():
        for criterion in criteria:
            say(f"{name}: {criterion}")
            if criterion == "held-out cells":
                train, held_out = split_cells(responses, share=plan.share, seed=seed)
                scores[criterion][name] = held_out_score(fit(train, spec, seed), held_out)
            elif criterion == "cells":
                posterior = fit(responses, spec, seed)
                found = cell_scores(posterior, responses, most_cells=plan.most_cells, seed=seed)
                scores[criterion][name], high_k[criterion, name] = found
            else:
                scores[criterion][name] = llm_scores(responses, spec, fit, folds=plan.folds, seed=seed)
    by = {criterion: compare_scores(found) for criterion, found in scores.items()}
    tables = [
        comparison.table.rename_axis("model").reset_index().assign(criterion=criterion)
        for criterion, comparison in by.items()
    ]
    table = pd.concat(tables, ignore_index=True)
    pairs = zip(table["criterion"], table["model"], strict=True)
    table["high_k"] = [high_k.get(pair, np.nan) for pair in pairs]
    return ModelComparison(by, table[["criterion", "model", "mean", "difference", "se", "tied", "high_k"]])


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
    require_whole("folds", folds, 2)
    if 2 * folds > responses.num_llms:
        raise InvalidConfigurationError(
            f"{responses.num_llms} LLMs cannot be cut into {folds} folds of two or more. Ask for fewer."
        )
    if spec.related:
        raise InvalidConfigurationError(
            "An unseen LLM of a known group is not predicted: leave out llm_groups, or the criterion 'LLMs'."
        )
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
    size = responses.num_llms
    table = pd.DataFrame(
        {
            "log_score": np.bincount(llm, weights=scored, minlength=size),
            "num_cells": np.bincount(llm, minlength=size),
        },
        index=pd.Index(responses.llms, name="llm", dtype=object),
    )
    return HeldOutScore(method, table, f"{responses.digest} {what}")
