"""`ModelSpec`: the statistical model as data, read by every engine. Needs no NumPyro."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bayes_irt.priors import (
    Exponential,
    Gamma,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LogNormal,
    Normal,
    Priors,
    TruncatedNormal,
)
from bayes_irt.provenance import restored


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """State the statistical model: a 2PL for binomial cells under the given priors.

    Parameters
    ----------
    priors
        Priors of the items.

    Examples
    --------
    >>> ModelSpec().hyperparameters
    ('discrimination_scale', 'easiness_location', 'easiness_scale')
    """

    priors: Priors = field(default_factory=Priors)

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the learned locations and scales of the item priors."""
        return tuple(hyperpriors(self))


def hyperpriors(spec: ModelSpec) -> dict[str, LearnedLocation | LearnedScale]:
    """Return the prior of every learned location and scale.

    Parameters
    ----------
    spec
        The model.

    Returns
    -------
    dict
        Site name to hyperprior, in the order in which the sites are sampled.

    Examples
    --------
    >>> hyperpriors(ModelSpec())["easiness_location"]
    LearnedLocation(mean=0.0, sd=5.0)
    """
    learned: dict[str, LearnedLocation | LearnedScale] = {}
    for name, prior in (("discrimination", spec.priors.discrimination), ("easiness", spec.priors.easiness)):
        for part in ("location", "scale"):
            if hasattr(prior, part):
                learned[f"{name}_{part}"] = getattr(prior, part)
    return learned


def restored_spec(described: dict[str, Any]) -> ModelSpec:
    """Return the model that a provenance describes.

    Parameters
    ----------
    described
        What `plain` made of a model.

    Returns
    -------
    ModelSpec
        An equal model.

    Raises
    ------
    InvalidConfigurationError
        If the description holds something else than priors.

    Examples
    --------
    >>> from bayes_irt.provenance import plain
    >>> restored_spec(plain(ModelSpec())) == ModelSpec()
    True
    """
    discriminations = (HalfNormal, LogNormal, Gamma, Exponential, TruncatedNormal)
    kinds = (ModelSpec, Priors, *discriminations, Normal, LearnedLocation, LearnedScale)
    spec: ModelSpec = restored(described, kinds)
    return spec
