"""Which model predicts unseen answers best? Held-out cells, their log score, and comparisons that report ties.

References
----------
Gneiting, T. & Raftery, A. E. (2007). Strictly proper scoring rules, prediction, and estimation. Journal of the American
Statistical Association 102, 359-378 (the log score).
Vehtari, A., Gelman, A. & Gabry, J. (2017). Practical Bayesian model evaluation using leave-one-out cross-validation and
WAIC. Statistics and Computing 27, 1413-1432 (paired differences and their standard errors).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.cell_lists import CellList, cell_logits, log_coefficient, log_probability
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.estimate import PointEstimate
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

_TIE = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Hold the cells that a fit did not see.

    Parameters
    ----------
    llms, items
        Labels, those of the training part.
    cells
        Which cells, with their counts.
    train_digest
        Digest of the training part: only what was fitted to it can be scored.

    Examples
    --------
    >>> from bayes_irt import simulate_suite
    >>> _, held_out = split_cells(simulate_suite(6, 20).responses)
    >>> held_out
    HeldOut: 24 cells of 6 LLMs x 20 items
    """

    llms: tuple[str, ...]
    items: tuple[str, ...]
    cells: CellList
    train_digest: str

    def __repr__(self) -> str:
        return f"HeldOut: {len(self.cells):,} cells of {len(self.llms):,} LLMs x {len(self.items):,} items"

    @property
    def digest(self) -> str:
        """SHA-256 of the cells and of the training part."""
        digest = hashlib.sha256(self.train_digest.encode())
        for values in (self.cells.llm, self.cells.item, self.cells.successes, self.cells.attempts):
            digest.update(values.astype("<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScore:
    """Hold how well held-out cells were predicted.

    Parameters
    ----------
    method
        What predicted them.
    table
        One row per LLM: ``log_score``, the sum of its held-out cells' log predictive probabilities (higher is
        better), and ``num_cells``, how many there are.
    held_out_digest
        Which cells they were: scores of other cells cannot be compared.

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> train, held_out = split_cells(simulate_suite(6, 20).responses)
    >>> score = held_out_score(fit_cbmm(train, penalty=Priors()), held_out)
    >>> score.num_cells, -1 < score.mean < 0
    (24, True)
    """

    method: str
    table: pd.DataFrame
    held_out_digest: str

    @property
    def num_cells(self) -> int:
        """Number of held-out cells."""
        return int(self.table["num_cells"].sum())

    @property
    def mean(self) -> float:
        """Mean log predictive probability of a cell."""
        return float(self.table["log_score"].sum() / self.num_cells)

    def __repr__(self) -> str:
        return f"HeldOutScore: {self.mean:.4f} per cell by {self.method}, {self.num_cells:,} cells"


def split_cells(responses: Responses, *, share: float = 0.2, seed: int = 0) -> tuple[Responses, HeldOut]:
    """Hold some cells out of the data at random, with all their attempts.

    Parameters
    ----------
    responses
        The data.
    share
        Share of the observed cells to hold out.
    seed
        Seed of the choice.

    Returns
    -------
    tuple of Responses and HeldOut
        The training part, in which every LLM and every item keeps at least one answer, with the same labels and
        metadata; and the held-out cells.

    Raises
    ------
    InvalidConfigurationError
        If the share or the seed is out of range, or so many cells cannot be held out.

    Examples
    --------
    >>> from bayes_irt import simulate_suite
    >>> train, held_out = split_cells(simulate_suite(6, 20).responses, share=0.25)
    >>> train.num_observed, len(held_out.cells)
    (90, 30)
    """
    require_number("share", share, 0.0, 1.0)
    require_whole("seed", seed, 0)
    observed = np.flatnonzero(responses.attempts)
    rng = np.random.default_rng(seed)
    free = np.setdiff1d(observed, _kept(observed, responses, rng), assume_unique=True)
    number = round(share * len(observed))
    if not 1 <= number <= len(free):
        raise InvalidConfigurationError(
            f"A share of {share:g} is {number:,} of {len(observed):,} cells, but between 1 and {len(free):,} can be "
            "held out: every LLM and every item keeps an answer. Choose another share."
        )
    chosen = np.sort(rng.choice(free, size=number, replace=False))
    llm, item = np.divmod(chosen, responses.num_items)
    counts = {}
    for name in ("successes", "attempts"):
        counts[name] = np.array(getattr(responses, name))
        counts[name].flat[chosen] = 0
    dims = ("llm", "item")
    train = Responses(responses.dataset.assign({name: (dims, array) for name, array in counts.items()}))
    cells = CellList(
        llm.astype(np.int32),
        item.astype(np.int32),
        responses.successes[llm, item],
        responses.attempts[llm, item],
    )
    return train, HeldOut(responses.llms, responses.items, cells, train.digest)


def _kept(
    observed: Integer[np.ndarray, " cell"], responses: Responses, rng: np.random.Generator
) -> Integer[np.ndarray, " kept"]:
    """Choose one observed cell of each LLM at random, and one of each item that has none yet."""
    shuffled = rng.permutation(observed)
    by_llm = shuffled[np.unique(shuffled // responses.num_items, return_index=True)[1]]
    items, first = np.unique(shuffled % responses.num_items, return_index=True)
    by_item = shuffled[first[~np.isin(items, by_llm % responses.num_items)]]
    return np.union1d(by_llm, by_item)


def held_out_score(fit: Posterior | PointEstimate, held_out: HeldOut) -> HeldOutScore:
    """Score a fit by the log predictive probability of held-out cells, binomial coefficients included.

    A posterior predicts a cell by the mean of its probability over the draws, which are visited one by one; a point
    estimate by the probability at the estimate.

    Parameters
    ----------
    fit
        Fitted to the training part.
    held_out
        The cells to predict.

    Returns
    -------
    HeldOutScore
        By LLM.

    Raises
    ------
    InvalidConfigurationError
        If the fit is not of the training part.

    References
    ----------
    Gneiting, T. & Raftery, A. E. (2007). Strictly proper scoring rules, prediction, and estimation. Journal of the
    American Statistical Association 102, 359-378.

    Examples
    --------
    >>> from bayes_irt import Sampler, fit_nuts, simulate_suite
    >>> train, held_out = split_cells(simulate_suite(6, 20).responses)
    >>> posterior = fit_nuts(train, sampler=Sampler(num_chains=2, num_warmup=100, num_draws=100))
    >>> held_out_score(posterior, held_out)
    HeldOutScore: -0... per cell by nuts, 24 cells
    """
    require_training_part(fit.provenance.data_digest, held_out)
    cells = held_out.cells
    if isinstance(fit, PointEstimate):
        sigma = fit.provenance.configuration["sigma"]
        found = log_probability(cell_logits(fit.parameters, cells) / sigma, cells)
    else:
        found = np.full(len(cells), -np.inf)
        laws = fit.laws
        for draw in range(fit.num_draws):
            np.logaddexp(found, laws.at(draw).log_probability(cells), out=found)
        found -= np.log(fit.num_draws)
    return score_by_llm(found, held_out, fit.provenance.method)


def require_training_part(digest: str, held_out: HeldOut) -> None:
    """Make sure that cells were held out of the data that were fitted.

    Parameters
    ----------
    digest
        Digest of the data that were fitted.
    held_out
        The cells.

    Raises
    ------
    InvalidConfigurationError
        If they were not.
    """
    if digest != held_out.train_digest:
        raise InvalidConfigurationError(
            "These held-out cells belong to another training part. Fit what split_cells returned beside them."
        )


def score_by_llm(
    log_probabilities: Float[np.ndarray, " cell"], held_out: HeldOut, method: str
) -> HeldOutScore:
    """Add the binomial coefficients, and sum by LLM.

    Parameters
    ----------
    log_probabilities
        Of the held-out cells, without coefficients.
    held_out
        The cells.
    method
        What predicted them.

    Returns
    -------
    HeldOutScore
        By LLM.
    """
    scored = log_probabilities + log_coefficient(held_out.cells)
    return HeldOutScore(method, score_table(scored, held_out.cells.llm, held_out.llms), held_out.digest)


def score_table(
    scored: Float[np.ndarray, " unit"], llm: Integer[np.ndarray, " unit"], llms: tuple[str, ...]
) -> pd.DataFrame:
    """Sum scores by LLM.

    Parameters
    ----------
    scored
        Log predictive probabilities of cells, or of whole LLMs.
    llm
        Position of the LLM of each.
    llms
        Labels of all LLMs.

    Returns
    -------
    pandas.DataFrame
        As `HeldOutScore` holds it.
    """
    size = len(llms)
    columns = {
        "log_score": np.bincount(llm, weights=scored, minlength=size),
        "num_cells": np.bincount(llm, minlength=size),
    }
    return pd.DataFrame(columns, index=pd.Index(llms, name="llm", dtype=object))


@dataclass(frozen=True, slots=True, eq=False)
class ScoreComparison:
    """Hold held-out scores beside the best.

    Parameters
    ----------
    table
        One row per score, best first: ``mean`` (log predictive probability per cell), ``difference`` (from the best,
        per cell, 0 or less), ``se`` (its standard error, paired by LLM) and ``tied``, true where the difference is
        less than 2 standard errors.
    num_cells
        Number of held-out cells.

    Examples
    --------
    >>> from bayes_irt import Priors, baseline_scores, fit_cbmm, simulate_suite
    >>> train, held_out = split_cells(simulate_suite(30, 80).responses)
    >>> cbmm = held_out_score(fit_cbmm(train, penalty=Priors()), held_out)
    >>> comparison = compare_scores({"cbmm": cbmm, **baseline_scores(train, held_out)})
    >>> comparison.table.index.tolist()[2]
    'row mean'
    """

    table: pd.DataFrame
    num_cells: int

    @property
    def sentence(self) -> str:
        """The result in words; ties are called ties."""
        best, *others = self.table.itertuples()
        tied = [_words(row) for row in others if row.tied]
        worse = [_words(row) for row in others if not row.tied]
        text = f"{best.Index} has the best log score ({best.mean:.4f} per cell, {self.num_cells:,} cells)"
        text += f"; tied with it: {', '.join(tied)}" if tied else ""
        text += f"; worse: {', '.join(worse)}" if worse else ""
        return text + "."


def compare_scores(scores: Mapping[str, HeldOutScore]) -> ScoreComparison:
    """Compare held-out scores with the best of them, paired by LLM.

    Parameters
    ----------
    scores
        Name to score, at least two, of the same held-out cells.

    Returns
    -------
    ScoreComparison
        Differences per cell. Their standard error treats an LLM's cells as one cluster; it does not cover the choice
        of the items, which all scores share.

    Raises
    ------
    InvalidConfigurationError
        If there are fewer than two scores, they are of different cells, or the cells are of one LLM.

    References
    ----------
    Cochran, W. G. (1977). Sampling Techniques, 3rd ed., section 2.11 (the ratio estimator).

    Examples
    --------
    >>> from bayes_irt import Priors, fit_cbmm, simulate_suite
    >>> train, held_out = split_cells(simulate_suite(6, 20).responses)
    >>> score = held_out_score(fit_cbmm(train, penalty=Priors()), held_out)
    >>> compare_scores({"one": score, "other": score}).sentence
    'one has the best log score (-0... per cell, 24 cells); tied with it: other (0.0000 ± 0.0000).'
    """
    if len(scores) < 2 or len({score.held_out_digest for score in scores.values()}) > 1:
        raise InvalidConfigurationError("Give two scores or more, all of the same held-out cells.")
    ranked = sorted(scores, key=lambda name: -scores[name].mean)
    best = scores[ranked[0]]
    cells = best.table["num_cells"].to_numpy()
    llms = np.count_nonzero(cells)
    if llms < 2:
        raise InvalidConfigurationError(
            "The held-out cells are of one LLM; a standard error takes two. Hold out more."
        )
    rows = []
    for name in ranked:
        gap = (scores[name].table["log_score"] - best.table["log_score"]).to_numpy()
        difference = gap.sum() / cells.sum()
        squares = np.square(gap - difference * cells).sum()
        error = np.sqrt(squares * llms / (llms - 1)) / cells.sum()
        tied = name == ranked[0] or abs(difference) < _TIE * error or difference == 0
        rows.append((scores[name].mean, difference, error, tied))
    table = pd.DataFrame(
        rows, columns=["mean", "difference", "se", "tied"], index=pd.Index(ranked, name="score", dtype=object)
    )
    return ScoreComparison(table, best.num_cells)


def _words(row: Any) -> str:
    return f"{row.Index} ({row.difference:.4f} ± {row.se:.4f})"
