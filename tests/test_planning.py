"""How many items it takes: against what is known in closed form, and by what changes it."""

from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

from bayes_irt import Posterior, Separation, plan_suite
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.item_law import ItemGroups, ItemLaw
from bayes_irt.model_spec import ModelSpec
from bayes_irt.posterior import posterior_from_draws
from bayes_irt.provenance import Provenance, plain

ITEMS, SLOPE = 40, 1.5
FEW = Separation(num_suites=1000, most_items=2000)


@cache
def made(dispersion: float | None = None, floor: float | None = None) -> Posterior:
    """Return draws that know everything: items of one kind, LLMs from -1.5 to 1.5."""
    ability = np.linspace(-1.5, 1.5, 9)
    ability = (ability - ability.mean()) / ability.std()
    draws = {
        "ability": np.tile(ability[None, None, :, None], (1, 5, 1, 1)),
        "discrimination": np.full((1, 5, ITEMS, 1), SLOPE),
        "easiness": np.zeros((1, 5, ITEMS)),
    }
    law = ItemLaw(None if floor is None else np.full(ITEMS, floor), None, None)
    if dispersion is not None:
        draws["dispersion"] = np.full((1, 5, 1), dispersion)
        law = ItemLaw(law.floor, ItemGroups(("",), np.zeros(ITEMS, dtype=int)), None)
    labels = tuple(f"m{n}" for n in range(9)), tuple(f"q{n}" for n in range(ITEMS))
    return posterior_from_draws(
        draws, {}, labels, Provenance("made", {"spec": plain(ModelSpec())}, "none", 0), law=law
    )


def needed(posterior: Posterior, gap: float = 0.3, attempts: int = 1, **options) -> int:
    found = plan_suite(posterior, gap, attempts=(attempts,), at="m4", **options).needed[attempts]
    assert found is not None
    return found


def test_the_number_of_items_is_that_of_a_normal_approximation():
    """Ability 0 on items of slope a: information a^2 / 4 each; gap over sd of the difference is z_prob + z_power."""
    z = NormalDist().inv_cdf
    wanted = 2 * (z(0.95) + z(0.8)) ** 2 / (0.3**2 * SLOPE**2 / 4)
    assert needed(made(), separation=FEW) == pytest.approx(wanted, rel=0.25)


def test_half_the_gap_takes_four_times_the_items():
    assert needed(made(), 0.15, separation=FEW) / needed(made(), 0.3, separation=FEW) == pytest.approx(
        4, rel=0.35
    )


def test_independent_attempts_are_worth_as_many_items():
    assert needed(made(), 0.3, 1, separation=FEW) / needed(made(), 0.3, 4, separation=FEW) == pytest.approx(
        4, rel=0.3
    )


def test_attempts_that_hang_together_are_worth_less():
    """With correlation .8 four attempts are worth 4 / 3.4."""
    ratio = needed(made(), 0.3, 1, separation=FEW) / needed(made(0.8), 0.3, 4, separation=FEW)
    assert ratio == pytest.approx(4 / 3.4, rel=0.3)


def test_guessing_takes_more_items():
    assert needed(made(floor=0.5), separation=FEW) > 1.5 * needed(made(), separation=FEW)


def test_what_no_suite_tells_apart_is_said():
    plan = plan_suite(made(), 0.01, separation=Separation(num_suites=20, most_items=100))
    assert plan.needed == {1: None}
    assert "more than 100 items" in plan.sentences[0]


def test_the_wrong_way_round_is_rare():
    table = plan_suite(made(), 0.3, separation=FEW).table
    assert table["wrong"].max() < 0.06
    assert (table["power"].diff().dropna() > -0.08).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gap": 0}, "gap"),
        ({"attempts": ()}, "attempts"),
        ({"attempts": (0,)}, "attempts"),
        ({"at": "nobody"}, "nobody"),
    ],
)
def test_bad_questions_are_refused(change, message):
    arguments = {"gap": 0.3, **change}
    with pytest.raises(InvalidConfigurationError, match=message):
        plan_suite(made(), **arguments)


@pytest.mark.parametrize("change", [{"prob": 0.3}, {"power": 0}, {"most_items": 5}, {"num_suites": 1}])
def test_bad_separations_are_refused(change):
    with pytest.raises(InvalidConfigurationError, match=next(iter(change))):
        Separation(**change)
