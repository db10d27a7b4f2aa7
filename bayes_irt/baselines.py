"""What a model has to beat: predictions from averages alone.

References
----------
Rasch, G. (1960). Probabilistic models for some intelligence and attainment tests (the additive logit).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from bayes_irt.cell_lists import cell_logits, log_probability
from bayes_irt.errors import NumericalError
from bayes_irt.held_out import HeldOut, HeldOutScore, require_training_part, score_by_llm
from bayes_irt.likelihood import Cells, log_likelihood, tile_cells
from bayes_irt.parameters import Parameters
from bayes_irt.responses import Responses

_SCALE = 2.0


def baseline_scores(train: Responses, held_out: HeldOut) -> dict[str, HeldOutScore]:
    """Score held-out cells by two predictions that know of no discrimination.

    Parameters
    ----------
    train
        The training part.
    held_out
        The cells held out of it.

    Returns
    -------
    dict
        "additive logit": LLM plus item, a logistic regression with a normal penalty of sd 2 on either. "row mean":
        each LLM's share of right attempts, ``(s + .5) / (n + 1)``, for all items.

    Raises
    ------
    InvalidConfigurationError
        If the cells were held out of other data.
    NumericalError
        If the regression does not converge.

    Examples
    --------
    >>> from bayes_irt import simulate_suite, split_cells
    >>> scores = baseline_scores(*split_cells(simulate_suite(20, 50).responses))
    >>> scores["additive logit"].mean > scores["row mean"].mean
    True
    """
    require_training_part(train.digest, held_out)
    cells = held_out.cells
    right, tried = (counts.sum(axis=1, dtype=np.int64) for counts in (train.successes, train.attempts))
    row_logits = np.log((right + 0.5) / (tried - right + 0.5))[cells.llm]
    logits = {"additive logit": cell_logits(fit_additive(train), cells), "row mean": row_logits}
    return {
        name: score_by_llm(log_probability(value, cells), held_out, name) for name, value in logits.items()
    }


def fit_additive(responses: Responses) -> Parameters:
    """Fit ability plus easiness, all discriminations being 1, by penalised maximum likelihood.

    Parameters
    ----------
    responses
        The data.

    Returns
    -------
    parameters.Parameters
        Abilities and easinesses around a common level, each with a normal penalty of sd 2.

    Raises
    ------
    NumericalError
        If the optimiser does not converge.

    Examples
    --------
    >>> fit_additive(Responses.from_arrays([[1, 0], [0, 1]])).ability.round(3).ravel().tolist()
    [0.0, 0.0]
    """
    num_llms = responses.num_llms
    size = num_llms + responses.num_items + 1
    with jax.enable_x64(True):
        cells = jax.device_put(tile_cells(responses.successes, responses.attempts, "float64"))

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = _loss_and_gradient(jnp.asarray(flat), cells, num_llms)
            return float(value), np.asarray(gradient)

        found = minimize(
            objective,
            np.zeros(size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 1000, "maxfun": 2000, "ftol": 1e-12, "gtol": 1e-5},
        )
    if not found.success:
        raise NumericalError(
            f"The additive logit did not converge: {found.message}. Look for extreme counts."
        )
    return _unpacked(found.x, num_llms)


@partial(jax.jit, static_argnames="num_llms")
def _loss_and_gradient(
    flat: Float[Array, " parameter"], cells: Cells, num_llms: int
) -> tuple[Float[Array, ""], Float[Array, " parameter"]]:
    """Return the penalised loss of abilities, easinesses and, last, the common level, which is free."""

    def loss(flat: Float[Array, " parameter"]) -> Float[Array, ""]:
        return jnp.square(flat[:-1] / _SCALE).sum() / 2.0 - log_likelihood(_unpacked(flat, num_llms), cells)

    found: tuple[Array, Array] = jax.value_and_grad(loss)(flat)
    return found


def _unpacked(flat: Any, num_llms: int) -> Parameters:
    easiness = flat[num_llms:-1] + flat[-1]
    return Parameters(flat[:num_llms, None], (0.0 * easiness + 1.0)[:, None], easiness)
