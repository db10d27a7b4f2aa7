"""Hold NUTS's item parameters against published maximum-likelihood fits of LSAT7 and of GSM8K form A.

The reference fits stand in the folder in ``BAYES_IRT_DATA``, with abilities normal in a population. They are moved to
the gauge of the LLMs fitted: with m the mean and s the sd of those LLMs' abilities (variance of the posterior means
plus mean posterior variance), a becomes a s and d becomes d + a m. Printed is the share of items whose posterior mean
lies within 2 of the reference's standard errors (for GSM8K, which gives none, within 2 posterior sds).
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).parent))
from devices import use_all_cores

use_all_cores()

from bayes_irt import Posterior, Responses, Sampler, fit_nuts, read_responses  # noqa: E402


@dataclass(frozen=True)
class Reference:
    """Hold a reference fit, moved to the gauge of the LLMs."""

    discrimination: np.ndarray
    easiness: np.ndarray
    discrimination_error: np.ndarray
    easiness_error: np.ndarray


def grid_eap(responses: Responses, a: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return posterior means and sds of ability at fixed items, on 61 nodes with normal weights."""
    nodes = np.linspace(-6, 6, 61)
    p = expit(nodes[:, None] * a + d)
    y = responses.successes.astype(float)
    log_likelihood = y @ np.log(p).T + (1 - y) @ np.log1p(-p).T - nodes**2 / 2
    weights = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ nodes
    return mean, np.sqrt(weights @ nodes**2 - mean**2)


def moved(
    a: np.ndarray, d: np.ndarray, errors: tuple[np.ndarray, np.ndarray], eap: np.ndarray, eap_sd: np.ndarray
) -> Reference:
    """Move a reference fit to the gauge in which these LLMs have mean 0 and sd 1."""
    location, scale = eap.mean(), np.sqrt(eap.var() + np.mean(eap_sd**2))
    return Reference(
        a * scale, d + a * location, errors[0] * scale, np.hypot(errors[1], errors[0] * location)
    )


def report(name: str, posterior: Posterior, reference: Reference) -> None:
    """Print how far posterior and reference agree, in standard errors."""
    for site in ("discrimination", "easiness"):
        draws = posterior.draws[site]
        mean, sd = draws.mean(("chain", "draw")).to_numpy(), draws.std(("chain", "draw")).to_numpy()
        error = getattr(reference, f"{site}_error")
        z = (mean - getattr(reference, site)) / np.where(np.isfinite(error), error, sd)
        agreement = np.corrcoef(mean, getattr(reference, site))[0, 1]
        near, far = np.mean(np.abs(z) < 1), np.mean(np.abs(z) < 2)
        print(
            f"{name:22s} {site:15s} within 1 SE {near:.3f}, within 2 SE {far:.3f}, largest {np.abs(z).max():.2f}, "
            f"mean {z.mean():+.2f}, correlation {agreement:.4f}",
            flush=True,
        )


def lsat7(folder: Path, sampler: Sampler) -> None:
    """Compare on 1,000 persons x 5 items; the reference has standard errors of its own."""
    responses = read_responses(folder / "classic_lsat7.parquet")
    table = (
        pd.read_parquet(folder / "classic_reference_2pl.parquet")
        .query("dataset == 'lsat7'")
        .set_index("item")
    )
    table = table.loc[list(responses.items)]
    a, d = table["a"].to_numpy(), table["d"].to_numpy()
    errors = (table["se_a"].to_numpy(), table["se_d"].to_numpy())
    reference = moved(a, d, errors, *grid_eap(responses, a, d))
    report("LSAT7, 1,000 x 5", fit_nuts(responses, sampler=sampler), reference)


def gsm8k(folder: Path, sampler: Sampler, num_llms: int) -> None:
    """Compare on a random subset of the LLMs that took form A."""
    everything = read_responses(folder / "metabench.parquet")
    described = everything.item_metadata
    form = described[(described["benchmark"] == "gsm8k") & (described["form"] == "A")]
    llms = everything.llm_metadata.dropna(subset=["gsm8k_A_theta"])
    llms = llms.sample(num_llms, random_state=0)
    responses = everything.subset(llms=list(llms.index), items=list(form.index))
    unknown = np.full(len(form), np.nan)
    reference = moved(
        form["ref_a"].to_numpy(float),
        form["ref_d"].to_numpy(float),
        (unknown, unknown),
        llms["gsm8k_A_theta"].to_numpy(float),
        llms["gsm8k_A_theta_se"].to_numpy(float),
    )
    report(f"GSM8K A, {num_llms} x {len(form)}", fit_nuts(responses, sampler=sampler), reference)


def main() -> None:
    """Fit both suites and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llms", type=int, default=800, help="number of LLMs of GSM8K")
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    folder = Path(os.environ["BAYES_IRT_DATA"])
    sampler = Sampler(num_warmup=options.warmup, num_draws=options.draws)
    lsat7(folder, sampler)
    gsm8k(folder, sampler, options.llms)


if __name__ == "__main__":
    main()
