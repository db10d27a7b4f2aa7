"""Numbers that callers give: of the right kind and in range, or an error that says what is."""

from __future__ import annotations

from numbers import Integral, Real

from bayes_irt.errors import InvalidConfigurationError


def require_whole(name: str, value: object, least: int) -> None:
    """Make sure that an option is a whole number.

    Parameters
    ----------
    name
        Name of the option.
    value
        Its value.
    least
        Smallest value allowed; the largest is 2^32 - 1.

    Raises
    ------
    InvalidConfigurationError
        If it is anything else.

    Examples
    --------
    >>> require_whole("seed", 7, 0)
    """
    if str(value) in ("True", "False") or not (isinstance(value, Integral) and least <= int(value) < 2**32):
        raise InvalidConfigurationError(
            f"{name} is {value!r}; it must be a whole number of at least {least}, below 2^32."
        )


def require_number(name: str, value: object, least: float, most: float) -> None:
    """Make sure that an option is a number within limits.

    Parameters
    ----------
    name
        Name of the option.
    value
        Its value.
    least, most
        Limits, allowed themselves.

    Raises
    ------
    InvalidConfigurationError
        If it is anything else.

    Examples
    --------
    >>> require_number("sigma", 0.5, 1e-6, 1e6)
    """
    if not (isinstance(value, Real) and least <= float(value) <= most):
        raise InvalidConfigurationError(
            f"{name} is {value!r}; it must be a number between {least:g} and {most:g}."
        )


def require_probability(name: str, value: object) -> None:
    """Make sure that an option is a probability, 0 and 1 not among them.

    Parameters
    ----------
    name
        Name of the option.
    value
        Its value.

    Raises
    ------
    InvalidConfigurationError
        If it is anything else.

    Examples
    --------
    >>> require_probability("prob", 0.9)
    """
    if isinstance(value, bool) or not (isinstance(value, Real) and 0.0 < float(value) < 1.0):
        raise InvalidConfigurationError(f"{name} is {value!r}; it must lie between 0 and 1, such as 0.9.")
