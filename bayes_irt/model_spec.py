"""`ModelSpec`: the statistical model as data, read by every engine. Needs no NumPyro."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.priors import (
    Exponential,
    Gamma,
    HalfNormal,
    LearnedLocation,
    LearnedScale,
    LearnedShare,
    LogNormal,
    Normal,
    Priors,
    TruncatedNormal,
)
from bayes_irt.provenance import restored

#: Name of the share of the abilities' variance that lies between groups of LLMs.
SHARE = "ability_share"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """State the statistical model: a 2PL for binomial cells under the given priors.

    Parameters
    ----------
    priors
        Priors of the items.
    llm_groups
        Column of the LLMs' metadata that says who is related, such as the family or the base LLM; None where nobody is.
        An ability is then, before standardisation, ``sqrt(share) u + sqrt(1 - share) e`` with standard normal u, the
        same for all LLMs of a group, and e, its own: an LLM with few answers is drawn to its group. LLMs without an
        entry are related to nobody.
    ability_share
        Prior of the share of the abilities' variance that lies between groups, which is learned.

    Raises
    ------
    InvalidConfigurationError
        If the column's name is no text, or there is a prior of the share without groups.

    Examples
    --------
    >>> ModelSpec().hyperparameters
    ('discrimination_scale', 'easiness_location', 'easiness_scale')
    >>> ModelSpec(llm_groups="family").hyperparameters[-1]
    'ability_share'
    """

    priors: Priors = field(default_factory=Priors)
    llm_groups: str | None = None
    ability_share: LearnedShare = field(default_factory=LearnedShare)

    def __post_init__(self) -> None:
        if self.llm_groups is not None and not (isinstance(self.llm_groups, str) and self.llm_groups):
            raise InvalidConfigurationError(
                f"llm_groups is {self.llm_groups!r}; it must be the name of a column of the LLMs' metadata, or None."
            )
        if not isinstance(self.ability_share, LearnedShare):
            raise InvalidConfigurationError(
                f"The prior of the abilities' share is {self.ability_share!r}; it must be a LearnedShare."
            )
        if self.llm_groups is None and self.ability_share != LearnedShare():
            raise InvalidConfigurationError(
                f"ability_share is {self.ability_share!r}, but no LLMs are related. Name their groups with llm_groups."
            )

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the learned locations and scales of the item priors, and of the abilities' share between groups."""
        return (*hyperpriors(self), *(() if self.llm_groups is None else (SHARE,)))

    def without_groups(self) -> ModelSpec:
        """Return the model in which no LLMs are related.

        Returns
        -------
        ModelSpec
            With the same priors of the items.

        Examples
        --------
        >>> ModelSpec(llm_groups="family").without_groups() == ModelSpec()
        True
        """
        return ModelSpec(self.priors)


def hyperpriors(spec: ModelSpec) -> dict[str, LearnedLocation | LearnedScale]:
    """Return the prior of every learned location and scale of the item priors.

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
    kinds = (ModelSpec, Priors, *discriminations, Normal, LearnedLocation, LearnedScale, LearnedShare)
    spec: ModelSpec = restored(described, kinds)
    return spec
