"""What a prior says: draws of parameters and suites from a `ModelSpec`, and the accuracies that they imply.

The model is drawn from as it is fitted, hyperpriors and standardisation included: locations and scales, then items
given them, then abilities ``standardise(z)`` with ``z ~ Normal(0, 1)``, correlated where LLMs are related, then cells.
NumPy's generator is used throughout.

References
----------
Gabry, J. et al. (2019). Visualization in Bayesian workflow. Journal of the Royal Statistical Society A 182, 389-402.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Integer
from scipy.special import expit

from bayes_irt.arguments import require_whole
from bayes_irt.cell_laws import CellLaw
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.identify import canonicalize
from bayes_irt.item_law import ItemLaw, ItemTraits, law_of_items
from bayes_irt.llm_groups import NO_GROUP, group_labels, groups_from_labels
from bayes_irt.model_spec import DISPERSION, SHARE, TESTLET_SCALE, TRAIT_CORRELATION, ModelSpec
from bayes_irt.parameters import DIMS, Parameters
from bayes_irt.prior_densities import draw_hyperparameters, draw_items
from bayes_irt.priors import LearnedShare
from bayes_irt.responses import Responses
from bayes_irt.simulate import SimulatedSuite

#: Items with an expected accuracy beyond these tell LLMs apart hardly at all.
DEAD_BELOW, DEAD_ABOVE = 0.02, 0.98


@dataclass(frozen=True, slots=True, eq=False)
class PriorPredictive:
    """Hold draws from a prior and the accuracies that they imply.

    Parameters
    ----------
    draws
        Dims ``draw, llm, item``: ``ability`` (mean 0 and sd 1 over the LLMs of a draw), ``discrimination``,
        ``easiness``, the learned locations and scales; ``llm_accuracy``, each LLM's expected share of right answers
        over the items, and ``item_accuracy``, each item's over the LLMs.
    spec
        The model drawn from.
    seed
        Seed of the draws.

    Examples
    --------
    >>> predictive = prior_predictive(ModelSpec(), 6, 20, num_draws=50)
    >>> predictive
    PriorPredictive: 50 draws of 6 LLMs x 20 items
    >>> predictive.draws["item_accuracy"].dims
    ('draw', 'item')
    """

    draws: xr.Dataset
    spec: ModelSpec
    seed: int

    @property
    def by_suite(self) -> pd.DataFrame:
        """What the prior says about a suite as a whole, one row per draw.

        Columns ``mean accuracy``; ``sd between LLMs`` and ``best minus worst LLM`` of the expected accuracies;
        ``items below .02`` and ``items above .98``, the shares of items with such an expected accuracy.
        """
        by_llm, by_item = self.draws["llm_accuracy"].to_numpy(), self.draws["item_accuracy"].to_numpy()
        return pd.DataFrame(
            {
                "mean accuracy": by_llm.mean(axis=1),
                "sd between LLMs": by_llm.std(axis=1),
                "best minus worst LLM": np.ptp(by_llm, axis=1),
                "items below .02": (by_item < DEAD_BELOW).mean(axis=1),
                "items above .98": (by_item > DEAD_ABOVE).mean(axis=1),
            },
            index=pd.RangeIndex(len(by_llm), name="draw"),
        )

    def summary(self, probs: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> pd.DataFrame:
        """Summarise what the prior says about a suite.

        Parameters
        ----------
        probs
            Probabilities of the quantiles.

        Returns
        -------
        pandas.DataFrame
            One row per column of `by_suite`: its mean and quantiles over the draws, as shares between 0 and 1.

        Examples
        --------
        >>> predictive = prior_predictive(ModelSpec(), 6, 20, num_draws=50)
        >>> predictive.summary(probs=(0.5,)).columns.tolist()
        ['mean', 0.5]
        """
        by_suite = self.by_suite
        table = by_suite.quantile(list(probs)).T
        table.insert(0, "mean", by_suite.mean())
        return table

    def histograms(self, num_bins: int = 25) -> pd.DataFrame:
        """Return how often accuracies of each size occur.

        Parameters
        ----------
        num_bins
            Number of equal bins between 0 and 1.

        Returns
        -------
        pandas.DataFrame
            One row per bin, with its limits ``lower`` and ``upper``, and the shares of all draws' ``llm accuracy``
            and ``item accuracy`` and of the columns of `by_suite` that lie in it.

        Raises
        ------
        InvalidConfigurationError
            If there is no bin.

        Examples
        --------
        >>> table = prior_predictive(ModelSpec(), 6, 20, num_draws=50).histograms(10)
        >>> len(table), float(table["item accuracy"].sum().round(6))
        (10, 1.0)
        """
        require_whole("num_bins", num_bins, 1)
        edges = np.linspace(0, 1, num_bins + 1)
        values: dict[str, np.ndarray] = {
            "llm accuracy": self.draws["llm_accuracy"].to_numpy().ravel(),
            "item accuracy": self.draws["item_accuracy"].to_numpy().ravel(),
        }
        values |= {str(name): column.to_numpy() for name, column in self.by_suite.items()}
        shares = {name: np.histogram(value, edges)[0] / value.size for name, value in values.items()}
        return pd.DataFrame({"lower": edges[:-1], "upper": edges[1:], **shares})

    def __repr__(self) -> str:
        sizes = self.draws.sizes
        return f"PriorPredictive: {sizes['draw']} draws of {sizes['llm']} LLMs x {sizes['item']} items"


def prior_predictive(
    spec: ModelSpec,
    num_llms: int,
    num_items: int,
    *,
    num_draws: int = 500,
    seed: int = 0,
    groups: Sequence[str] | None = None,
    item_metadata: pd.DataFrame | None = None,
) -> PriorPredictive:
    """Draw parameters from a prior, and tell what accuracies it expects.

    Parameters
    ----------
    spec
        The model.
    num_llms, num_items
        Size of the suite, at least 2 each.
    num_draws
        Number of draws. The logits of one draw at a time are in memory.
    seed
        Seed of NumPy's generator.
    groups
        Label of each LLM's group, empty for none; wanted where the model has groups.
    item_metadata
        One row per item, in order, with the columns of floors and testlets that the model names.

    Returns
    -------
    PriorPredictive
        The draws, with the expected accuracies of LLMs and items.

    Raises
    ------
    InvalidConfigurationError
        If a size is below 2, `num_draws` or `seed` is not a whole number in range, `groups` does not fit the model or
        the number of LLMs, or a column that the model names is absent.

    Examples
    --------
    >>> table = prior_predictive(ModelSpec(), 30, 200).summary()
    >>> bool(table.loc["best minus worst LLM", 0.5] > 0.1)
    True
    """
    _check_size(num_llms, num_items)
    require_whole("num_draws", num_draws, 1)
    require_whole("seed", seed, 0)
    labels = _checked_groups(spec, num_llms, groups)
    rng, items = np.random.default_rng(seed), _item_law(spec, item_metadata, num_items)
    parameters, hyper = _draw_parameters(
        spec, (num_llms, num_items), rng, int(num_draws), labels, items.traits
    )
    by_llm, by_item = np.empty((num_draws, num_llms)), np.empty((num_draws, num_items))
    for draw in range(num_draws):
        chance = _chances(_draw_law(spec, parameters.at(draw), items, rng)[0])
        by_llm[draw], by_item[draw] = chance.mean(axis=1), chance.mean(axis=0)
    last, of_trait = (slice(None), ("trait",)) if items.traits is not None else (0, ())
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "ability": (("draw", "llm", *of_trait), np.asarray(parameters.ability[..., last])),
        "discrimination": (("draw", "item", *of_trait), np.asarray(parameters.discrimination[..., last])),
        "easiness": (("draw", "item"), np.asarray(parameters.easiness)),
        "llm_accuracy": (("draw", "llm"), by_llm),
        "item_accuracy": (("draw", "item"), by_item),
    }
    variables |= {name: (("draw", *DIMS[name]), values) for name, values in hyper.items()}
    return PriorPredictive(xr.Dataset(variables), spec, int(seed))


def simulate_from_prior(
    spec: ModelSpec,
    num_llms: int,
    num_items: int,
    *,
    attempts: int | Integer[np.ndarray, "llm item"] = 1,
    seed: int = 0,
    groups: Sequence[str] | None = None,
    item_metadata: pd.DataFrame | None = None,
) -> SimulatedSuite:
    """Draw a suite from the very model that is fitted: hyperpriors, items, standardised abilities, cells.

    Parameters
    ----------
    spec
        The model.
    num_llms, num_items
        Size of the suite, at least 2 each.
    attempts
        Attempts per cell, one number or one per cell; 0 where the outcome is missing.
    seed
        Seed of NumPy's generator.
    groups
        Label of each LLM's group, empty for none; wanted where the model has groups. The responses have them as
        metadata.
    item_metadata
        One row per item, in order, with the columns of floors and groups of items that the model names.

    Returns
    -------
    SimulatedSuite
        Responses and truth, hyperparameters, floors, dispersions and testlets included. No LLM and no
        item is left out, constant ones neither: wide hyperpriors give suites that are all right or all wrong now and
        then.

    Raises
    ------
    InvalidConfigurationError
        If a size is below 2, `attempts` has another shape, `seed` is not a whole number in range, or `groups` does not
        fit the model or the number of LLMs.
    InvalidResponsesError
        If an LLM or an item has no attempt.

    Examples
    --------
    >>> suite = simulate_from_prior(ModelSpec(), 8, 10, seed=1)
    >>> suite.responses.num_llms, sorted(suite.hyperparameters)
    (8, ['discrimination_scale', 'easiness_location', 'easiness_scale'])
    """
    _check_size(num_llms, num_items)
    require_whole("seed", seed, 0)
    tried = np.asarray(attempts)
    if tried.shape not in ((), (num_llms, num_items)):
        raise InvalidConfigurationError(
            f"attempts has the shape {tried.shape}; it must be one number or of shape {(num_llms, num_items)}."
        )
    labels, rng = _checked_groups(spec, num_llms, groups), np.random.default_rng(seed)
    tried = np.broadcast_to(tried, (num_llms, num_items))
    spec = spec.settled(int(tried.max()))
    items = _item_law(spec, item_metadata, num_items)
    parameters, hyper = _draw_parameters(spec, (num_llms, num_items), rng, 1, labels, items.traits)
    law, further = _draw_law(spec, parameters.at(0), items, rng)
    successes = law.draw(tried.astype(np.float64), law.chances(slice(None)).astype(np.float64), rng).astype(
        np.int64
    )
    truth = Parameters(parameters.ability[0], parameters.discrimination[0], parameters.easiness[0])
    further |= {name: values[0] for name, values in hyper.items() if np.ndim(values) > 1}
    learned = {name: float(values[0]) for name, values in hyper.items() if np.ndim(values) == 1}
    learned |= {name: float(value) for name, value in further.items() if np.ndim(value) == 0}
    further = {name: value for name, value in further.items() if np.ndim(value)}
    responses = Responses.from_arrays(successes, tried)
    if item_metadata is not None:
        columns = {str(name): ("item", column.to_numpy()) for name, column in item_metadata.items()}
        responses = Responses(responses.dataset.assign_coords(columns))
    if labels is not None:
        known = np.where(labels == NO_GROUP, np.nan, labels)
        responses = Responses(responses.dataset.assign_coords({spec.llm_groups: ("llm", known)}))
    return SimulatedSuite(responses, truth, learned, further)


def _check_size(num_llms: int, num_items: int) -> None:
    require_whole("num_llms", num_llms, 2)
    require_whole("num_items", num_items, 2)


def _checked_groups(spec: ModelSpec, num_llms: int, groups: Sequence[str] | None) -> np.ndarray | None:
    """Return each LLM's group, None where the model has no groups."""
    if (groups is None) != (spec.llm_groups is None):
        raise InvalidConfigurationError(
            f"groups is {'given' if spec.llm_groups is None else 'absent'}, and the model's llm_groups is "
            f"{spec.llm_groups!r}. Give both or neither."
        )
    if groups is None or spec.llm_groups is None:
        return None
    if len(groups) != num_llms:
        raise InvalidConfigurationError(
            f"There are {len(groups):,} groups for {num_llms:,} LLMs; one label per LLM is wanted."
        )
    known = [None if label == NO_GROUP else str(label) for label in groups]
    return group_labels(pd.DataFrame({spec.llm_groups: pd.Series(known, dtype=object)}), spec.llm_groups)


def _draw_parameters(
    spec: ModelSpec,
    size: tuple[int, int],
    rng: np.random.Generator,
    num_draws: int,
    labels: np.ndarray | None,
    traits: ItemTraits | None,
) -> tuple[Parameters, dict[str, Float[np.ndarray, "*dims"]]]:
    """Draw hyperparameters, items given them, and standardised abilities."""
    hyper = draw_hyperparameters(spec, rng, num_draws)
    if traits is not None:
        return _draw_several(spec, hyper, (num_draws, *size), rng, traits)
    slopes, easiness = draw_items(spec, hyper, rng, size[1])
    raw = rng.normal(size=(num_draws, size[0], 1))
    if labels is not None:
        share = hyper[SHARE][:, None, None]
        common = rng.normal(size=raw.shape)[:, np.asarray(groups_from_labels(labels).number)]
        raw = np.sqrt(share) * common + np.sqrt(1.0 - share) * raw
    # only the abilities are standardised: the items' priors are about the standard scale
    ability = canonicalize(Parameters(raw, slopes[..., None], easiness)).ability
    return Parameters(ability, slopes[..., None], easiness), hyper


def _draw_several(
    spec: ModelSpec,
    hyper: dict[str, Float[np.ndarray, " draw"]],
    size: tuple[int, int, int],
    rng: np.random.Generator,
    traits: ItemTraits,
) -> tuple[Parameters, dict[str, Float[np.ndarray, "*dims"]]]:
    """Draw items and abilities on several traits."""
    num_draws, num_llms, num_items = size
    slopes = np.zeros((num_draws, *traits.loads.shape))
    slopes[:, traits.loads] = draw_items(spec, hyper, rng, int(traits.loads.sum()))[0]
    easiness = draw_items(spec, hyper, rng, num_items)[1]
    raw = rng.normal(size=(num_draws, num_llms, traits.num_traits))
    drawn: dict[str, np.ndarray] = dict(hyper)
    if not spec.general:
        among = np.stack(
            [draw_correlation(traits.num_traits, spec.trait_concentration, rng) for _ in range(num_draws)]
        )
        raw = raw @ np.linalg.cholesky(among).swapaxes(1, 2)
        drawn[TRAIT_CORRELATION] = among[:, *np.triu_indices(traits.num_traits, 1)]
    ability = canonicalize(Parameters(raw, slopes, easiness), sort_traits=False).ability
    return Parameters(ability, slopes, easiness), drawn


def draw_correlation(
    size: int, concentration: float, rng: np.random.Generator
) -> Float[np.ndarray, "size size"]:
    """Draw a correlation matrix from the LKJ law, by partial correlations of a vine.

    Parameters
    ----------
    size
        Number of variables.
    concentration
        1 for the uniform law; above that matrices near the identity are likelier.
    rng
        Where randomness comes from.

    Returns
    -------
    numpy.ndarray
        Positive definite.

    References
    ----------
    Lewandowski, D., Kurowicka, D. & Joe, H. (2009). Generating random correlation matrices based on vines and extended
    onion method. Journal of Multivariate Analysis 100, 1989-2001, section 2.4.

    Examples
    --------
    >>> found = draw_correlation(3, 1.0, np.random.default_rng(0))
    >>> bool(np.linalg.eigvalsh(found).min() > 0), np.diag(found).tolist()
    (True, [1.0, 1.0, 1.0])
    """
    partial, found = np.zeros((size, size)), np.eye(size)
    for first in range(size - 1):
        shape = concentration + (size - 2 - first) / 2
        for second in range(first + 1, size):
            value = partial[first, second] = 2.0 * rng.beta(shape, shape) - 1.0
            for given in range(first - 1, -1, -1):
                one, other = partial[given, first], partial[given, second]
                value = value * np.sqrt((1.0 - one**2) * (1.0 - other**2)) + one * other
            found[first, second] = found[second, first] = value
    return found


def _item_law(spec: ModelSpec, item_metadata: pd.DataFrame | None, number: int) -> ItemLaw:
    items = pd.DataFrame(index=range(number)) if item_metadata is None else item_metadata
    return law_of_items(spec, items, number)


def _draw_law(
    spec: ModelSpec, parameters: Parameters, items: ItemLaw, rng: np.random.Generator
) -> tuple[CellLaw, dict[str, np.ndarray]]:
    """Draw floors, dispersions and testlets of one draw, where the model learns them; also by the sites' names."""
    number, found = parameters.easiness.shape[-1], {}
    floor, dispersion, effects, testlet = items.floor, None, None, None
    if isinstance(spec.floor, LearnedShare):
        floor = found["floor"] = rng.beta(spec.floor.alpha, spec.floor.beta, number)
    if items.dispersion is not None:
        by_group = rng.beta(spec.dispersion.alpha, spec.dispersion.beta, len(items.dispersion.labels))
        found[DISPERSION] = by_group if spec.dispersion_groups is not None else by_group[0]
        dispersion = by_group[items.dispersion.number]
    if items.testlets is not None:
        scale = spec.testlet_scale.median * np.exp(rng.normal(0.0, spec.testlet_scale.log_sd))
        size = (parameters.ability.shape[-2], len(items.testlets.labels))
        effects = scale * rng.normal(size=size)
        found |= {TESTLET_SCALE: np.asarray(scale), "testlet": effects}
        testlet = items.testlets.number
    return CellLaw(parameters, floor, dispersion, effects, testlet), found


def _chances(law: CellLaw) -> Float[np.ndarray, "llm item"]:
    """Return the probability of a right answer in every cell, in double precision where nothing is added to a 2PL."""
    if not law.is_plain:
        return law.chances(slice(None))
    parameters = law.parameters
    logits = np.asarray(parameters.ability) @ np.asarray(parameters.discrimination).T + parameters.easiness
    return np.asarray(expit(logits))
