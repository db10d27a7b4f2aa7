"""Several abilities: their profile for each LLM, what they are made of, and how far they are one."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from bayes_irt.analysis.ranks import trait_loads
from bayes_irt.analysis.reliability import ability_reliability
from bayes_irt.arguments import require_number, require_whole
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import percent_text
from bayes_irt.model_spec import TRAIT_CORRELATION
from bayes_irt.posterior import Posterior
from bayes_irt.provenance import require_same_data
from bayes_irt.responses import Responses

#: Variance of the logistic law: what answers have of their own, in logits.
_LOGISTIC_VARIANCE = math.pi**2 / 3


def describe_traits(posterior: Posterior, responses: Responses) -> pd.DataFrame:
    """Describe what each trait rests on, and how well the data tell LLMs apart on it.

    Parameters
    ----------
    posterior
        Draws of abilities on several traits.
    responses
        The data that were fitted.

    Returns
    -------
    pandas.DataFrame
        One row per trait (its index), in the posterior's order: ``items`` that load on it, ``llms_seen`` (LLMs that
        answered any of them), ``accuracy`` (share of right attempts at them) and ``reliability`` (1 minus the mean
        posterior variance of ability on the trait).

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, or is about other data.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, Sampler, fit_nuts, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 12, 20, seed=1, item_metadata=items)
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(suite.responses, spec=spec, sampler=sampler)
    >>> describe_traits(posterior, suite.responses)["items"].to_dict()
    {'algebra': 10, 'logic': 10}
    """
    traits = traits_of(posterior)
    require_same_data(posterior.provenance, responses.digest, "posterior")
    rows = []
    for trait, loads in zip(traits, trait_loads(posterior).T, strict=True):
        attempts, successes = responses.attempts[:, loads], responses.successes[:, loads]
        row = {
            "items": int(loads.sum()),
            "llms_seen": int((attempts > 0).any(axis=1).sum()),
            "accuracy": float(successes.sum(dtype=np.float64) / attempts.sum(dtype=np.float64)),
            "reliability": ability_reliability(posterior, trait),
        }
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index(traits, name="trait", dtype=object))


def trait_profile(posterior: Posterior, prob: float = 0.9) -> pd.DataFrame:
    """Return every LLM's ability on every trait.

    Parameters
    ----------
    posterior
        Draws of abilities on several traits.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    pandas.DataFrame
        One row per LLM and trait (its index), in the posterior's order: ``ability`` (posterior mean, in standard
        deviations of the LLMs on that trait), ``lower``, ``upper``.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, or `prob` is out of range.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, Sampler, fit_nuts, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 12, 20, seed=1, item_metadata=items)
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(suite.responses, spec=spec, sampler=sampler)
    >>> trait_profile(posterior).shape
    (24, 3)
    """
    traits = traits_of(posterior)
    ability = np.asarray(posterior.parameters.ability)
    index = pd.MultiIndex.from_product([posterior.llms, traits], names=["llm", "trait"])
    return summary_of(ability.reshape(len(ability), -1), index, "ability", prob)


def trait_loadings(posterior: Posterior, prob: float = 0.9, *, most: int | None = None) -> pd.DataFrame:
    """Return how sharply the items of each trait tell LLMs apart on it, the sharpest first.

    The items at the top of a trait say what it is: they are its labels where its own name says little.

    Parameters
    ----------
    posterior
        Draws of discriminations on several traits.
    prob
        Probability of the equal-tailed intervals.
    most
        Number of items a trait, from the top; None for all.

    Returns
    -------
    pandas.DataFrame
        One row per trait and item that loads on it by the model (its index), traits in the posterior's order:
        ``discrimination`` (posterior mean, logits per standard deviation of the LLMs on that trait), ``lower``,
        ``upper``.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, `prob` is out of range, or `most` is not a whole number of at least 1.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, Sampler, fit_nuts, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 12, 20, seed=1, item_metadata=items)
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(suite.responses, spec=spec, sampler=sampler)
    >>> trait_loadings(posterior, most=3).groupby("trait").size().to_dict()
    {'algebra': 3, 'logic': 3}
    """
    traits = traits_of(posterior)
    if most is not None:
        require_whole("most", most, 1)
    trait, item = np.nonzero(trait_loads(posterior).T)
    places = {"trait": xr.DataArray(trait, dims="load"), "item": xr.DataArray(item, dims="load")}
    draws = posterior.draws["discrimination"].isel(places).transpose("chain", "draw", "load").to_numpy()
    names = [np.array(labels, dtype=object) for labels in (traits, posterior.items)]
    index = pd.MultiIndex.from_arrays([names[0][trait], names[1][item]], names=["trait", "item"])
    table = summary_of(draws.reshape(-1, len(trait)), index, "discrimination", prob)
    table = table.iloc[np.lexsort((-table["discrimination"], trait))]
    return table if most is None else table.groupby("trait", sort=False).head(most)


def trait_correlations(posterior: Posterior, prob: float = 0.9) -> pd.DataFrame:
    """Return how the traits correlate over LLMs like these.

    The correlation is the model's, of the law that abilities are drawn from: unlike that of estimated abilities it is
    not drawn towards 0 by their errors.

    Parameters
    ----------
    posterior
        Draws of a model with correlated traits.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    pandas.DataFrame
        One row per pair of traits (its index): ``correlation`` (posterior mean), ``lower``, ``upper``.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait, its traits are uncorrelated by the model, or `prob` is out of range.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, Sampler, fit_nuts, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject")
    >>> suite = simulate_from_prior(spec, 12, 20, seed=1, item_metadata=items)
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(suite.responses, spec=spec, sampler=sampler)
    >>> trait_correlations(posterior).index.tolist()
    [('algebra', 'logic')]
    """
    traits = traits_of(posterior)
    if TRAIT_CORRELATION not in posterior.draws:
        raise InvalidConfigurationError(
            "The traits of a bifactor model are uncorrelated; variance_shares says how much the general one makes up."
        )
    first, second = np.triu_indices(len(traits), 1)
    pairs = [(traits[a], traits[b]) for a, b in zip(first, second, strict=True)]
    draws = posterior.draws[TRAIT_CORRELATION].transpose("chain", "draw", "trait_pair").to_numpy()
    index = pd.MultiIndex.from_tuples(pairs, names=["trait", "other"])
    return summary_of(draws.reshape(-1, len(pairs)), index, "correlation", prob)


def variance_shares(posterior: Posterior, prob: float = 0.9) -> pd.DataFrame:
    """Return how much of a suite is one ability, by a bifactor model.

    Items are taken as logits cut at a threshold, so that each has the variance of its abilities and that of the
    logistic law.

    Parameters
    ----------
    posterior
        Draws of a bifactor model.
    prob
        Probability of the equal-tailed intervals.

    Returns
    -------
    pandas.DataFrame
        Rows ``omega_hierarchical`` (share of the total score's variance due to the general ability), ``omega_total``
        (due to any ability) and ``explained_common_variance`` (share of the general ability in the variance that
        items owe to abilities), with ``share`` (posterior mean), ``lower`` and ``upper``.

    Raises
    ------
    InvalidConfigurationError
        If the posterior is not that of a bifactor model, or `prob` is out of range.

    References
    ----------
    Rodriguez, A., Reise, S. P. & Haviland, M. G. (2016). Evaluating bifactor models: calculating and interpreting
    statistical indices. Psychological Methods 21, 137-150.

    Examples
    --------
    >>> from bayes_irt import ModelSpec, Sampler, fit_nuts, simulate_from_prior
    >>> items = pd.DataFrame({"subject": ["algebra", "logic"] * 10})
    >>> spec = ModelSpec(traits="subject", general=True)
    >>> suite = simulate_from_prior(spec, 12, 20, seed=1, item_metadata=items)
    >>> sampler = Sampler(num_chains=2, num_warmup=100, num_draws=100)
    >>> posterior = fit_nuts(suite.responses, spec=spec, sampler=sampler)
    >>> shares = variance_shares(posterior)["share"]
    >>> bool(0 < shares["omega_hierarchical"] < shares["omega_total"] < 1)
    True
    """
    traits_of(posterior)
    if not posterior.spec.general:
        raise InvalidConfigurationError(
            "There is no general ability in this model. Fit a bifactor one: ModelSpec(traits=..., general=True)."
        )
    slopes = np.asarray(posterior.parameters.discrimination, dtype=np.float64)
    variance = (slopes**2).sum(axis=-1) + _LOGISTIC_VARIANCE
    loading = slopes / np.sqrt(variance)[..., None]
    by_trait = loading.sum(axis=1) ** 2
    total = by_trait.sum(axis=1) + (_LOGISTIC_VARIANCE / variance).sum(axis=1)
    common = (slopes**2).sum(axis=1)
    shares = np.column_stack(
        [by_trait[:, 0] / total, by_trait.sum(axis=1) / total, common[:, 0] / common.sum(axis=1)]
    )
    names = ["omega_hierarchical", "omega_total", "explained_common_variance"]
    return summary_of(shares, pd.Index(names, name="measure"), "share", prob)


def trait_sentences(posterior: Posterior, prob: float = 0.9) -> tuple[str, ...]:
    """Say how traits correlate, or how much the general ability makes up.

    Parameters
    ----------
    posterior
        Draws.
    prob
        Probability of the intervals.

    Returns
    -------
    tuple of str
        One sentence; none where there is one trait.

    Raises
    ------
    InvalidConfigurationError
        If `prob` is out of range.
    """
    if not posterior.traits:
        return ()
    percent = percent_text(prob)
    if posterior.spec.general:
        omega = variance_shares(posterior, prob).loc["omega_hierarchical"]
        share = f"{omega['share']:.0%} ({omega['lower']:.0%} to {omega['upper']:.0%})"
        return (
            f"{share} of the total score's variance is the general ability's (omega hierarchical, {percent} interval).",
        )
    found = trait_correlations(posterior, prob).sort_values("correlation").reset_index()
    texts = [
        f"{row['trait']} and {row['other']} {row['correlation']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
        for row in found.iloc[[0, -1]].drop_duplicates().to_dict("records")
    ]
    which = "Correlation of traits" if len(texts) == 1 else "Lowest and highest correlation of traits"
    return (f"{which} ({percent} interval): {'; '.join(texts)}.",)


def traits_of(posterior: Posterior) -> tuple[str, ...]:
    """Return the names of several traits.

    Parameters
    ----------
    posterior
        The draws.

    Returns
    -------
    tuple of str
        In the posterior's order.

    Raises
    ------
    InvalidConfigurationError
        If the posterior has one trait.
    """
    if not posterior.traits:
        raise InvalidConfigurationError("The posterior has one trait. Name several by ModelSpec(traits=...).")
    return posterior.traits


def summary_of(
    draws: Float[np.ndarray, "sample row"], index: pd.Index, name: str, prob: float
) -> pd.DataFrame:
    """Return means and equal-tailed intervals.

    Parameters
    ----------
    draws
        Of all rows.
    index
        Labels of the rows.
    name
        Name of the column of means.
    prob
        Probability of the intervals.

    Returns
    -------
    pandas.DataFrame
        Means, ``lower`` and ``upper``.

    Raises
    ------
    InvalidConfigurationError
        If `prob` is out of range.
    """
    require_number("prob", prob, 1e-6, 1 - 1e-6)
    lower, upper = np.quantile(draws, ((1 - prob) / 2, (1 + prob) / 2), axis=0)
    return pd.DataFrame({name: draws.mean(axis=0), "lower": lower, "upper": upper}, index=index)
