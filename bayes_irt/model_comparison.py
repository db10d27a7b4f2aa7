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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import markdown_table, markdown_text
from bayes_irt.held_out import HeldOutScore, ScoreComparison, compare_scores, held_out_score, split_cells
from bayes_irt.inference.engine import settled_spec
from bayes_irt.item_law import item_law
from bayes_irt.left_out import Fit, by_laplace, cell_scores, llm_scores, require_folds
from bayes_irt.model_spec import ModelSpec
from bayes_irt.priors import Common, Priors, sparse_priors
from bayes_irt.responses import Responses

Criterion = Literal["held-out cells", "cells", "LLMs"]
CRITERIA: tuple[Criterion, ...] = ("held-out cells", "cells", "LLMs")


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


def trait_models(columns: str | Sequence[str] = (), most: int = 1) -> dict[str, ModelSpec]:
    """Return models of one ability and of several, to ask how many the data want.

    Parameters
    ----------
    columns
        Column or columns of the items' metadata that name the trait of each item. For each there is a model with
        correlated traits, and one with a general ability beside them.
    most
        Largest number of traits that are explored, from 2 on.

    Returns
    -------
    dict
        Name to model. `compare_models` scores them by the criteria "held-out cells" and "cells".

    Raises
    ------
    InvalidConfigurationError
        If ``most`` is no whole number from 1, or there is nothing to compare with one ability.

    Examples
    --------
    >>> list(trait_models(["benchmark"], most=3))
    ['one ability', 'benchmark', 'general and benchmark', '2 traits', '3 traits']
    """
    require_whole("most", most, 1)
    found = {"one ability": ModelSpec()}
    for column in (columns,) if isinstance(columns, str) else columns:
        found[column] = ModelSpec(traits=column)
        found[f"general and {column}"] = ModelSpec(traits=column, general=True)
    found |= {f"{number} traits": ModelSpec(sparse_priors(), traits=number) for number in range(2, most + 1)}
    if len(found) == 1:
        raise InvalidConfigurationError("Name a column of traits, or explore two or more (most=2).")
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
    >>> sorted(compare_models(responses, models, criteria=("held-out cells",)).table["model"])
    ['1PL', '2PL']
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
        What is predicted: "held-out cells", "cells", "LLMs"; the last for models with one ability only.
    fit
        Engine: a function of responses, model and seed that returns a posterior. Laplace by default; learned floors,
        testlets and groups of LLMs need SVI or NUTS.
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
    for spec in models.values():  # before anything is fitted
        item_law(settled_spec(responses, spec), responses)
        if "LLMs" in criteria:
            require_folds(responses, spec, plan.folds)
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
