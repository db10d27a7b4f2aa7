"""Priors as printable data, read by the penalty of cBMM and by the NumPyro model alike.

Abilities are standardised (mean 0, sd 1 over the LLMs fitted), so the scales of the items are quantities of the
data: their location and scale are learned under wide hyperpriors. Fixed scales would throw LLMs with few answers to
the extremes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

from bayes_irt.arguments import require_number
from bayes_irt.errors import InvalidConfigurationError

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-6, 1e6
_SPARSE_SHAPE = 0.3
_SMALLEST_EXPONENT = 0.01


def _require_positive(name: str, value: float) -> None:
    if not (_is_number(value) and value > 0):
        raise InvalidConfigurationError(f"{name} is {value!r}; it must be a positive, finite number.")


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _require_finite(name: str, value: float) -> None:
    if not _is_number(value):
        raise InvalidConfigurationError(f"{name} is {value!r}; it must be a finite number.")


@dataclass(frozen=True, slots=True)
class LearnedScale:
    """Learn a scale; a priori its logarithm is normal.

    Parameters
    ----------
    median
        Median of the scale, in logits.
    log_sd
        Standard deviation of its logarithm.

    Raises
    ------
    InvalidConfigurationError
        If either is not a positive, finite number.

    Examples
    --------
    >>> LearnedScale(median=2.0)
    LearnedScale(median=2.0, log_sd=1.0)
    """

    median: float = 1.5
    log_sd: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("LearnedScale.median", self.median)
        _require_positive("LearnedScale.log_sd", self.log_sd)


@dataclass(frozen=True, slots=True)
class LearnedLocation:
    """Learn a location; a priori it is normal.

    Parameters
    ----------
    mean
        Prior mean, in logits.
    sd
        Prior standard deviation, in logits.

    Raises
    ------
    InvalidConfigurationError
        If the mean is not finite or the standard deviation not a positive, finite number.

    Examples
    --------
    >>> LearnedLocation()
    LearnedLocation(mean=0.0, sd=5.0)
    """

    mean: float = 0.0
    sd: float = 5.0

    def __post_init__(self) -> None:
        _require_finite("LearnedLocation.mean", self.mean)
        _require_positive("LearnedLocation.sd", self.sd)


@dataclass(frozen=True, slots=True)
class LearnedShare:
    """Learn a share between 0 and 1; a priori it is beta.

    Parameters
    ----------
    alpha, beta
        Exponents plus one of the share and of the rest; 1 and 1 make all shares equally likely.

    Raises
    ------
    InvalidConfigurationError
        If either does not lie between 0.01 and 1e6.

    Examples
    --------
    >>> LearnedShare(alpha=2.0)
    LearnedShare(alpha=2.0, beta=1.0)
    """

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        require_number("LearnedShare.alpha", self.alpha, _SMALLEST_EXPONENT, _LARGEST_SCALE)
        require_number("LearnedShare.beta", self.beta, _SMALLEST_EXPONENT, _LARGEST_SCALE)

    @property
    def mean(self) -> float:
        """Return the prior mean."""
        return self.alpha / (self.alpha + self.beta)


@dataclass(frozen=True, slots=True)
class HalfNormal:
    """Give discriminations a half-normal prior with a learned scale.

    Parameters
    ----------
    scale
        Scale tau of the half-normal; the prior mean of a discrimination is ``tau * sqrt(2 / pi)``.

    Examples
    --------
    >>> HalfNormal()
    HalfNormal(scale=LearnedScale(median=1.5, log_sd=1.0))
    """

    scale: LearnedScale = field(default_factory=LearnedScale)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Give discriminations a log-normal prior with learned location and scale.

    Parameters
    ----------
    location
        Mean of the log discrimination.
    scale
        Standard deviation of the log discrimination.

    Examples
    --------
    >>> LogNormal().location
    LearnedLocation(mean=0.0, sd=1.5)
    """

    location: LearnedLocation = field(default_factory=lambda: LearnedLocation(0.0, 1.5))
    scale: LearnedScale = field(default_factory=lambda: LearnedScale(0.5, 0.75))


@dataclass(frozen=True, slots=True)
class Common:
    """Give all items one discrimination: the model is a 1PL (Rasch) then, in every engine.

    Parameters
    ----------
    location
        Logarithm of the common discrimination, which is learned.

    Examples
    --------
    >>> Common().location
    LearnedLocation(mean=0.0, sd=1.5)
    """

    location: LearnedLocation = field(default_factory=lambda: LearnedLocation(0.0, 1.5))


@dataclass(frozen=True, slots=True)
class Gamma:
    """Give discriminations a gamma prior with a learned scale.

    Parameters
    ----------
    scale
        Scale of the gamma; the prior mean of a discrimination is ``shape * scale``.
    shape
        Shape, a positive number: 1 is the exponential, more keeps discriminations away from 0.

    Raises
    ------
    InvalidConfigurationError
        If the shape is not a positive, finite number.

    Examples
    --------
    >>> Gamma(shape=3.0)
    Gamma(scale=LearnedScale(median=0.75, log_sd=1.0), shape=3.0)
    """

    scale: LearnedScale = field(default_factory=lambda: LearnedScale(0.75, 1.0))
    shape: float = 2.0

    def __post_init__(self) -> None:
        require_number("Gamma.shape", self.shape, _SMALLEST_SCALE, _LARGEST_SCALE)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Give discriminations an exponential prior with a learned scale.

    Parameters
    ----------
    scale
        Prior mean of a discrimination.

    Examples
    --------
    >>> Exponential()
    Exponential(scale=LearnedScale(median=1.25, log_sd=1.0))
    """

    scale: LearnedScale = field(default_factory=lambda: LearnedScale(1.25, 1.0))


@dataclass(frozen=True, slots=True)
class TruncatedNormal:
    """Give discriminations a normal prior cut off at 0, with learned location and scale.

    Parameters
    ----------
    location
        Mode of the discriminations, if positive.
    scale
        Standard deviation before the cut.

    Examples
    --------
    >>> TruncatedNormal().location
    LearnedLocation(mean=1.0, sd=1.5)
    """

    location: LearnedLocation = field(default_factory=lambda: LearnedLocation(1.0, 1.5))
    scale: LearnedScale = field(default_factory=LearnedScale)


#: Families that a discrimination's prior can have.
DiscriminationPrior = HalfNormal | LogNormal | Gamma | Exponential | TruncatedNormal | Common


@dataclass(frozen=True, slots=True)
class Normal:
    """Give easinesses a normal prior with learned location and scale.

    Parameters
    ----------
    location
        Mean of the easinesses.
    scale
        Standard deviation of the easinesses.

    Examples
    --------
    >>> Normal().scale.median
    2.0
    """

    location: LearnedLocation = field(default_factory=LearnedLocation)
    scale: LearnedScale = field(default_factory=lambda: LearnedScale(2.0, 1.0))


@dataclass(frozen=True, slots=True)
class Priors:
    """State the priors of a fit.

    Abilities have no entry: they are standard normal, standardised over the LLMs fitted (apart from what
    `ModelSpec` says of groups).

    Parameters
    ----------
    discrimination
        Prior of the items' slopes: `HalfNormal` (the default), `LogNormal`, `Gamma`, `Exponential`,
        `TruncatedNormal`, or `Common`, the 1PL.
    easiness
        Prior of the items' intercepts.

    Raises
    ------
    InvalidConfigurationError
        If a prior is anything else, or a number stands where a location or scale is to be learned: the scale of
        abilities is the cohort's, so that fixed item scales would throw LLMs with few answers to the extremes.

    Examples
    --------
    >>> Priors(discrimination=HalfNormal(LearnedScale(median=3.0))).discrimination.scale.median
    3.0
    """

    discrimination: DiscriminationPrior = field(default_factory=HalfNormal)
    easiness: Normal = field(default_factory=Normal)

    def __post_init__(self) -> None:
        if not isinstance(self.discrimination, DiscriminationPrior):
            raise InvalidConfigurationError(
                f"The prior of the discriminations is {self.discrimination!r}; it must be HalfNormal, LogNormal, "
                "Gamma, Exponential, TruncatedNormal or Common."
            )
        if not isinstance(self.easiness, Normal):
            raise InvalidConfigurationError(
                f"The prior of the easinesses is {self.easiness!r}; it must be Normal."
            )
        _require_learned("discrimination", self.discrimination)
        _require_learned("easiness", self.easiness)


def sparse_priors() -> Priors:
    """Return priors that shrink small discriminations to 0, for traits that are explored.

    Returns
    -------
    Priors
        Discriminations are gamma with shape .3: most of them near 0, some large. Without such a prior any mixture of
        traits that keeps discriminations positive fits as well as the traits themselves.

    Examples
    --------
    >>> sparse_priors().discrimination
    Gamma(scale=LearnedScale(median=1.5, log_sd=1.0), shape=0.3)
    """
    return Priors(Gamma(LearnedScale(), _SPARSE_SHAPE))


def _require_learned(name: str, prior: DiscriminationPrior | Normal) -> None:
    for part, kind in (("location", LearnedLocation), ("scale", LearnedScale)):
        value = getattr(prior, part, None)
        if value is not None and not isinstance(value, kind):
            raise InvalidConfigurationError(
                f"The {part} of the {name} prior is {value!r}; it must be a {kind.__name__}. Abilities have the "
                "cohort's scale, so items' scales are learned; a narrow hyperprior (a small sd) all but fixes one."
            )


@dataclass(frozen=True, slots=True)
class Penalty:
    """State the quadratic penalty of a point estimate; its minimum exists for every input.

    The penalised loss is ``loss + |theta|^2 / (2 s_theta^2) + |a|^2 / (2 s_a^2) + |d - m|^2 / (2 s_d^2)``.

    Parameters
    ----------
    ability_scale
        Prior standard deviation s_theta of the abilities.
    discrimination_scale
        Scale s_a of the half-normal prior of the discriminations.
    easiness_location
        Prior mean m of the easinesses, in logits.
    easiness_scale
        Prior standard deviation s_d of the easinesses, in logits.

    Raises
    ------
    InvalidConfigurationError
        If a scale does not lie between 1e-6 and 1e6, or the location is not finite.

    Examples
    --------
    >>> Penalty(discrimination_scale=3.0)
    Penalty(ability_scale=1.0, discrimination_scale=3.0, easiness_location=0.0, easiness_scale=2.0)
    """

    ability_scale: float = 1.0
    discrimination_scale: float = 1.5
    easiness_location: float = 0.0
    easiness_scale: float = 2.0

    def __post_init__(self) -> None:
        for name in ("ability_scale", "discrimination_scale", "easiness_scale"):
            require_number(f"Penalty.{name}", getattr(self, name), _SMALLEST_SCALE, _LARGEST_SCALE)
        _require_finite("Penalty.easiness_location", self.easiness_location)


def penalty_from_priors(priors: Priors) -> Penalty:
    """Return the penalty that the priors amount to, with learned quantities at their prior medians.

    Parameters
    ----------
    priors
        Discriminations must be half-normal: only then is the penalty quadratic.

    Returns
    -------
    Penalty
        Minus the log density of the priors, without constants.

    Raises
    ------
    InvalidConfigurationError
        If the discriminations are not half-normal.

    Examples
    --------
    >>> penalty_from_priors(Priors()) == Penalty()
    True
    """
    if not isinstance(priors.discrimination, HalfNormal):
        raise InvalidConfigurationError(
            f"cBMM's penalty is quadratic, but the prior of the discriminations is "
            f"{type(priors.discrimination).__name__}. Give HalfNormal, or a Penalty with the scales wanted."
        )
    return Penalty(
        discrimination_scale=priors.discrimination.scale.median,
        easiness_location=priors.easiness.location.mean,
        easiness_scale=priors.easiness.scale.median,
    )
