"""Checks of what Laplace and SVI say about themselves, recorded in the posterior's group ``approximation``."""

from __future__ import annotations

import math

import numpy as np

from bayes_irt.checks import Check, Outcome
from bayes_irt.inference.ability_coordinates import FAR_SHARE, FEWEST_FOR_FAR
from bayes_irt.inference.mode import TOLERANCE
from bayes_irt.item_law import ItemTraits
from bayes_irt.posterior import Posterior
from bayes_irt.responses import Responses

#: Moves of Laplace's mean below this share of a posterior standard deviation end the search for it.
CENTRE_TOLERANCE = 0.05
#: With fewer LLMs the intervals of approximations are too narrow: of everything, and of discriminations.
VERY_FEW_LLMS, FEW_LLMS = 25, 100
#: With fewer answers per LLM the intervals of abilities are too narrow.
FEW_ANSWERS = 80
#: Beyond this Pareto k-hat importance weights do not mend an approximation.
LARGEST_PARETO_K = 0.7
#: Ability sds that differ from Laplace's by more, in the median or for one LLM, are said to disagree.
MEDIAN_DISAGREEMENT, WORST_DISAGREEMENT = 1.1, 1.5

_NAMES = (
    *("mode", "mean", "few LLMs", "few answers", "LLMs far out"),
    *("testlets", "learned floors", "ELBO", "agreement with Laplace", "Pareto k-hat"),
)
#: Checks of the data that both engines warn of.
WARNED_OF = ("few LLMs", "few answers", "LLMs far out")


def answer_counts(responses: Responses, traits: ItemTraits | None = None) -> dict[str, np.ndarray]:
    """Return what an approximate engine records of its data, for `check_approximation`.

    Parameters
    ----------
    responses
        The data.
    traits
        Which items load on which trait; None for one trait.

    Returns
    -------
    dict
        Median numbers of answered items per LLM, of several traits on that with the fewest, and of LLMs per item.

    Examples
    --------
    >>> {name: int(value) for name, value in answer_counts(Responses.from_arrays([[1, 0, 1], [1, 1, 0]])).items()}
    {'answers_per_llm': 3, 'llms_per_item': 2}
    """
    seen = responses.attempts > 0
    loads = np.ones((responses.num_items, 1)) if traits is None else traits.loads
    return {
        "answers_per_llm": np.asarray(np.median(seen @ loads.astype(float), axis=0).min()),
        "llms_per_item": np.asarray(np.median(seen.sum(axis=0))),
    }


def check_approximation(posterior: Posterior) -> list[Check]:
    """Check what an approximate engine recorded.

    Parameters
    ----------
    posterior
        The draws.

    Returns
    -------
    list of Check
        "mode" and "mean" (Laplace), "few LLMs", "few answers" and "LLMs far out" (both), "testlets", "learned
        floors", "ELBO", "agreement with Laplace" and "Pareto k-hat" (SVI); what the engine has no record of is "not
        applicable". Where traits are explored, also "one solution".
    """
    method = posterior.provenance.method
    found = {}
    if "approximation" in posterior.tree.children:
        stored = posterior.tree["approximation"].to_dataset()
        values = {str(name): float(stored[name]) for name in stored}
        own = [*_svi(values), *_beyond_laplace(posterior)] if method == "svi" else _laplace(values)
        made = [*own, _few_llms(len(posterior.llms), values["llms_per_item"], method)]
        made += [_few_answers(values["answers_per_llm"], len(posterior.traits)), _far_out(posterior)]
        found = {check.name: check for check in made}
        if "starts" in values:
            found["one solution"] = _starts(int(values["starts"]), int(values["starts_agreeing"]))
        elif posterior.traits and posterior.spec.exploratory:
            message = (
                f"{method} starts from one estimate alone. Use fit_laplace or fit_nuts, which take several."
            )
            found["one solution"] = Check("one solution", Outcome.CANNOT_TELL, message)
    missing = f"{method} has no such record."
    made = [found.get(name, Check(name, Outcome.NOT_APPLICABLE, missing)) for name in _NAMES]
    return [*made, *(check for name, check in found.items() if name not in _NAMES)]


def _starts(number: int, agreeing: int) -> Check:
    """Say whether starts lead to the same traits."""
    message = f"Of {number} starts {agreeing} lead to the traits of the likeliest."
    if agreeing == number:
        return Check("one solution", Outcome.PASS, message)
    if 2 * agreeing >= number:
        message += " Others may describe the data as well: compare with fit_nuts."
        return Check("one solution", Outcome.CANNOT_TELL, message)
    message += " There may be fewer traits than asked for, or none that these data tell apart."
    return Check("one solution", Outcome.FAIL, message)


def _few_llms(num_llms: int, per_item: float, method: str) -> Check:
    """Say whether there are LLMs enough for a Gaussian."""
    counted = f"{num_llms} LLMs" if per_item == num_llms else f"{num_llms} LLMs, {per_item:g} per item"
    if per_item >= FEW_LLMS:
        return Check("few LLMs", Outcome.PASS, f"{counted} (at least {FEW_LLMS} are wanted).")
    if num_llms < VERY_FEW_LLMS:
        short = f"below {VERY_FEW_LLMS} all intervals are too narrow."
    else:
        others = "" if method == "laplace" else ", those of abilities too"
        short = f"below {FEW_LLMS} the intervals of discriminations are too narrow, 90 % ones hold about 85 %"
        short = f"{short}{others}."
    return Check("few LLMs", Outcome.CANNOT_TELL, f"{counted}: {short} Use fit_nuts where that matters.")


def _few_answers(per_llm: float, num_traits: int) -> Check:
    """Say whether LLMs have answers enough for a Gaussian."""
    counted = f"An LLM has {per_llm:g} answers in the median"
    if num_traits:
        counted += " on the trait with the fewest"
    if per_llm >= FEW_ANSWERS:
        return Check("few answers", Outcome.PASS, f"{counted} (at least {FEW_ANSWERS} are wanted).")
    message = (
        f"{counted}: below {FEW_ANSWERS} the intervals of abilities are too narrow, 90 % ones hold about 86 % with 40 "
        "answers and 80 % with 15. Use fit_nuts where that matters."
    )
    return Check("few answers", Outcome.CANNOT_TELL, message)


def _far_out(posterior: Posterior) -> Check:
    """Say whether one LLM makes up much of the abilities' spread: how far out it is, a Gaussian does not tell."""
    name, ability = "LLMs far out", posterior.ability.mean(("chain", "draw")).to_numpy()
    furthest = (ability.reshape(len(ability), -1) ** 2).max(axis=1)
    share, place = float(furthest.max()) / len(ability), int(furthest.argmax())
    if len(ability) < FEWEST_FOR_FAR or share <= FAR_SHARE:
        return Check(name, Outcome.PASS, "No LLM makes up much of the abilities' spread.")
    message = (
        f"One LLM makes up {share:.0%} of the abilities' variance. How far out it is a Gaussian does not tell, and "
        "with it the scale of all other abilities; their order and relative intervals hold. Use fit_nuts, or drop it."
    )
    return Check(name, Outcome.CANNOT_TELL, message, (posterior.llms[place],))


def _beyond_laplace(posterior: Posterior) -> list[Check]:
    """Say whether there is what a normal law of SVI's guide is known to fall short of."""
    bent = (
        "Learned floors bend the posterior of their items: all intervals are too narrow, 90 % ones hold about 83 %. "
        "Use fit_nuts where that matters."
    )
    drawn = (
        "Testlets' effects and their scale are drawn to zero where data say little about them, and intervals of "
        "abilities are a little too narrow. Use fit_nuts where that matters."
    )
    return [
        Check(name, Outcome.CANNOT_TELL, message)
        if site in posterior.draws
        else Check(name, Outcome.NOT_APPLICABLE, f"There are no {name}.")
        for name, site, message in (("testlets", "testlet", drawn), ("learned floors", "floor", bent))
    ]


def _laplace(values: dict[str, float]) -> list[Check]:
    change, cycles = values["mode_change"], int(values["mode_cycles"])
    message = f"The last of {cycles} cycles moved by {change:.2g} posterior sd (limit {TOLERANCE:g})."
    if values["precision_repaired"]:
        message += " There is no maximum: the curvature had to be made positive."
    mode = _judge("mode", change < TOLERANCE and not values["precision_repaired"], message)
    change = values["centre_change"]
    message = (
        f"The mean of an ability lies up to {values['centre_shift']:.2f} posterior sd off its mode; the last move was "
        f"{change:.2g} (limit {CENTRE_TOLERANCE:g})."
    )
    return [mode, _judge("mean", change <= CENTRE_TOLERANCE, message)]


def _svi(values: dict[str, float]) -> list[Check]:
    message = (
        f"After {int(values['steps'])} steps it is {values['elbo']:.1f}; in the last 500 it rose by "
        f"{values['elbo_trend']:.2f} (standard error {values['elbo_trend_se']:.2f})."
    )
    return [
        _judge("ELBO", bool(values["converged"]), message),
        _agreement(values),
        _pareto(values["pareto_k"]),
    ]


def _agreement(values: dict[str, float]) -> Check:
    """Compare an SVI fit's standard deviations of abilities with Laplace's, where it started there."""
    if "sd_ratio_median" not in values:
        message = "The guide is one in the coordinates of NUTS, without Laplace beside it."
        return Check("agreement with Laplace", Outcome.NOT_APPLICABLE, message)
    median = values["sd_ratio_median"]
    lowest, highest = values["sd_ratio_lowest"], values["sd_ratio_highest"]
    near = max(median, 1.0 / median) <= MEDIAN_DISAGREEMENT
    near = near and max(highest, 1.0 / lowest) <= WORST_DISAGREEMENT
    message = (
        f"Sds of abilities are {median:.2f} times Laplace's in the median ({lowest:.2f} to {highest:.2f})."
    )
    if any(check.outcome is Outcome.FAIL for check in _laplace(values)):
        message += " Laplace did not settle, so that nothing follows from it."
        return Check("agreement with Laplace", Outcome.CANNOT_TELL, message)
    return _judge("agreement with Laplace", near, message)


def _pareto(k: float) -> Check:
    name = "Pareto k-hat"
    if math.isnan(k):
        return Check(name, Outcome.NOT_APPLICABLE, "The suite is too large for it.")
    message = f"It is {k:.2f} (limit {LARGEST_PARETO_K})."
    if k < LARGEST_PARETO_K:
        return Check(name, Outcome.PASS, message)
    message += " Importance weights break down with so many parameters: it cannot tell how good the guide is."
    return Check(name, Outcome.CANNOT_TELL, message)


def _judge(name: str, good: bool, message: str) -> Check:
    advice = "" if good else " Use fit_nuts."
    return Check(name, Outcome.PASS if good else Outcome.FAIL, message + advice)
