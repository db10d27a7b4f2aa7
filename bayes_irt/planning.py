"""How many items, or attempts, does it take to tell two LLMs apart? By simulation from a posterior.

References
----------
Gelman, A. & Carlin, J. (2014). Beyond power calculations. Perspectives on Psychological Science 9, 641-651 (design by
simulation).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer
from scipy.optimize import isotonic_regression
from scipy.special import expit

from bayes_irt.analysis.ranks import llm_places
from bayes_irt.arguments import require_number, require_whole
from bayes_irt.cell_laws import CellLaw, log_chances
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.formatting import markdown_table, markdown_text, percent_text
from bayes_irt.posterior import Posterior

_NODES = 241
_LEAST_ITEMS = 10
_SIZES_PER_DOUBLING = 4


@dataclass(frozen=True, slots=True)
class Separation:
    """State when two LLMs are told apart, and how often a suite should do so.

    Parameters
    ----------
    prob
        Probability that separates two LLMs.
    power
        Share of suites that should separate them.
    most_items
        Largest suite tried.
    num_suites
        Number of suites simulated.

    Raises
    ------
    InvalidConfigurationError
        If a number is out of range.

    Examples
    --------
    >>> Separation(prob=0.9).power
    0.8
    """

    prob: float = 0.95
    power: float = 0.8
    most_items: int = 10_000
    num_suites: int = 400

    def __post_init__(self) -> None:
        require_number("prob", self.prob, 0.5, 0.99999)
        require_number("power", self.power, 0.01, 0.999)
        require_whole("most_items", self.most_items, 2 * _LEAST_ITEMS)
        require_whole("num_suites", self.num_suites, 10)


@dataclass(frozen=True, slots=True, eq=False)
class SuitePlan:
    """Hold how often suites of different sizes tell two LLMs apart.

    Parameters
    ----------
    table
        One row per number of attempts and of items: ``attempts``, ``items``, ``power`` (share of simulated suites that
        separate the two, the better one first) and ``wrong`` (share that separate them the wrong way round).
    gap
        Distance of the two LLMs, in sds of ability.
    at
        Ability between the two.
    separation
        When two LLMs are told apart, and how often a suite should do so.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> fit, few = fit_laplace(simulate_suite(30, 60).responses), Separation(num_suites=50)
    >>> plan = plan_suite(fit, 0.5, separation=few)
    >>> bool(plan.needed[1] > 10)
    True
    """

    table: pd.DataFrame
    gap: float
    at: float
    separation: Separation

    @property
    def needed(self) -> dict[int, int | None]:
        """The items it takes, by number of attempts, between the sizes tried; None where the largest would not do."""
        found: dict[int, int | None] = {}
        for attempts, rows in self.table.groupby("attempts"):
            power, items = rows["power"].to_numpy(), rows["items"].to_numpy()
            rising = isotonic_regression(power).x  # more items never tell less
            enough = int(np.searchsorted(rising, self.separation.power))
            number = None
            if enough < len(items):
                ends = slice(max(enough - 1, 0), enough + 1)
                number = math.ceil(
                    np.exp(np.interp(self.separation.power, rising[ends], np.log(items[ends])))
                )
            found[int(str(attempts))] = number
        return found

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it takes, in words."""
        lines = []
        for attempts, items in self.needed.items():
            each = "one attempt" if attempts == 1 else f"{attempts} attempts"
            most = int(self.table["items"].max())
            size = f"about {items:,} items" if items is not None else f"more than {most:,} items"
            lines.append(
                f"To tell LLMs {self.gap:g} sd apart, around an ability of {self.at:+.2f}, with P > "
                f"{percent_text(self.separation.prob)} in {percent_text(self.separation.power)} of suites takes {size} "
                f"like these with {each} each."
            )
        return tuple(lines)

    def formatted(self) -> pd.DataFrame:
        """Return the table as text.

        Returns
        -------
        pandas.DataFrame
            Ready to be printed.
        """
        shown = self.table.copy()
        shown["items"] = shown["items"].map("{:,}".format)
        for name in ("power", "wrong"):
            shown[name] = shown[name].map("{:.1%}".format)
        return shown

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
            With ``sentences``, ``needed`` and ``rows``.
        """
        described = {
            "gap": self.gap,
            "at": self.at,
            **asdict(self.separation),
            "sentences": self.sentences,
            "needed": self.needed,
            "rows": json.loads(self.table.to_json(orient="records", double_precision=15)),
        }
        return json.dumps(described, indent=2, ensure_ascii=False)


def plan_suite(
    posterior: Posterior,
    gap: float,
    *,
    attempts: Sequence[int] = (1,),
    at: str | None = None,
    separation: Separation | None = None,
    seed: int = 0,
) -> SuitePlan:
    """Find how many items like those fitted it takes to tell two LLMs apart.

    Suites are drawn with the items of a draw from the posterior, with replacement; answers of two LLMs are drawn with
    its floors and dispersion. Both are then judged as a leaderboard would: by the posteriors of their abilities, items
    being known as well as they are now. Effects of testlets are left out: where items hang together it takes more.

    Parameters
    ----------
    posterior
        A fit with one trait.
    gap
        Distance of the two LLMs, in sds of ability.
    attempts
        Numbers of attempts per item to try.
    at
        LLM around whose ability the two lie; None for the best.
    separation
        When two LLMs are told apart, and how often; None for the defaults.
    seed
        Seed of NumPy's generator.

    Returns
    -------
    SuitePlan
        Power by number of items, four sizes to a doubling from 10 on.

    Raises
    ------
    InvalidConfigurationError
        If a number is out of range, or the LLM is unknown.

    Examples
    --------
    >>> from bayes_irt import fit_laplace, simulate_suite
    >>> fit = fit_laplace(simulate_suite(30, 60).responses)
    >>> plan_suite(fit, 0.5, separation=Separation(num_suites=50)).table.columns.tolist()
    ['attempts', 'items', 'power', 'wrong']
    """
    require_number("gap", gap, 1e-3, 20.0)
    require_whole("seed", seed, 0)
    separation = Separation() if separation is None else separation
    if isinstance(attempts, int):
        raise InvalidConfigurationError(
            f"attempts is {attempts}; it must be a sequence, such as ({attempts},)."
        )
    for number in attempts:
        require_whole("attempts", number, 1)
    if not attempts:
        raise InvalidConfigurationError("Give a number of attempts or more.")
    posterior.require_one_trait("Plans of suites")
    mean = posterior.ability.mean(("chain", "draw")).to_numpy()
    centre = float(mean.max() if at is None else mean[llm_places(posterior, [at])[0]])
    sizes, num_suites = _sizes(separation.most_items), separation.num_suites
    laws, rng = posterior.laws, np.random.default_rng(seed)
    grid = np.linspace(centre - max(4.0 * gap, 4.0), centre + max(4.0 * gap, 4.0), _NODES)
    rows = []
    for number in attempts:
        tables = _log_chances(laws.mean(), grid, number)
        better, worse = np.zeros(len(sizes)), np.zeros(len(sizes))
        for draw in rng.integers(posterior.num_draws, size=num_suites).tolist():
            items = rng.integers(len(tables[0]), size=sizes[-1])
            law, posteriors = laws.at(draw), []
            for ability in (centre + gap / 2, centre - gap / 2):
                right = _answers(law, items, ability, number, rng)
                posteriors.append(_posterior(tables, items, right, number, sizes) - 0.5 * grid**2)
            found = _chance_of_order(*posteriors)
            better += found >= separation.prob
            worse += found <= 1.0 - separation.prob
        rows += [
            (number, int(size), up / num_suites, down / num_suites)
            for size, up, down in zip(sizes, better, worse, strict=True)
        ]
    table = pd.DataFrame(rows, columns=["attempts", "items", "power", "wrong"])
    return SuitePlan(table, float(gap), centre, separation)


def _sizes(most: int) -> Integer[np.ndarray, " size"]:
    steps = math.floor(_SIZES_PER_DOUBLING * math.log2(most / _LEAST_ITEMS))
    sizes = _LEAST_ITEMS * 2.0 ** (np.arange(steps + 1) / _SIZES_PER_DOUBLING)
    return np.unique(np.append(np.round(sizes), most)).astype(int)


def _chance_of_order(
    first: Float[np.ndarray, "size node"], second: Float[np.ndarray, "size node"]
) -> Float[np.ndarray, " size"]:
    """Return the probability that one ability is above the other, from their log posteriors on a grid."""
    weights = [np.exp(values - values.max(axis=1, keepdims=True)) for values in (first, second)]
    upper, lower = (values / values.sum(axis=1, keepdims=True) for values in weights)
    below = np.cumsum(lower, axis=1) - 0.5 * lower
    return np.asarray(np.sum(upper * below, axis=1))


def _part(values: Float[np.ndarray, " item"] | None, items: Integer[np.ndarray, " item"]) -> np.ndarray:
    return np.zeros(len(items)) if values is None else np.asarray(values)[items]


def _answers(
    law: CellLaw,
    items: Integer[np.ndarray, " item"],
    ability: float,
    attempts: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " item"]:
    slope = np.asarray(law.parameters.discrimination)[items, 0]
    floor = _part(law.floor, items)
    chance = floor + (1.0 - floor) * expit(slope * ability + np.asarray(law.parameters.easiness)[items])
    tried = np.full((1, len(items)), float(attempts))
    one = CellLaw(law.parameters, dispersion=None if law.dispersion is None else law.dispersion[items])
    return np.asarray(one.draw(tried, chance[None], rng)[0])


def _log_chances(
    law: CellLaw, grid: Float[np.ndarray, " node"], attempts: int
) -> tuple[Float[np.ndarray, "item node"], Float[np.ndarray, "item node"]]:
    """Return what a right and a wrong attempt at each item say of an ability, on a grid."""
    slope = np.asarray(law.parameters.discrimination)[:, 0]
    floor = np.zeros((len(slope), 1)) if law.floor is None else np.asarray(law.floor)[:, None]
    logits = np.multiply.outer(slope, grid) + np.asarray(law.parameters.easiness)[:, None]
    log_right, log_wrong = log_chances(logits, floor)
    if law.dispersion is None or attempts == 1:
        return log_right, log_wrong
    # attempts of one cell that hang together say as much as n / (1 + (n - 1) rho) that do not
    share = 1.0 / (1.0 + (attempts - 1.0) * np.asarray(law.dispersion)[:, None])
    return share * log_right, share * log_wrong


def _posterior(
    tables: tuple[Float[np.ndarray, "item node"], Float[np.ndarray, "item node"]],
    items: Integer[np.ndarray, " draw"],
    right: Float[np.ndarray, " draw"],
    attempts: int,
    sizes: Integer[np.ndarray, " size"],
) -> Float[np.ndarray, "size node"]:
    """Return the log-likelihood of an ability after so many items."""
    number = len(tables[0])
    counts = []
    for values in (right, attempts - right):
        blocks = [
            np.bincount(items[start:end], weights=values[start:end], minlength=number)
            for start, end in pairwise([0, *sizes.tolist()])
        ]
        counts.append(np.cumsum(blocks, axis=0))
    return np.asarray(counts[0] @ tables[0] + counts[1] @ tables[1])
