"""Exceptions and warnings of the package.

Every exception derives from `BayesIRTError` and from the built-in class a caller would expect, so that
``except ValueError`` keeps working. A message says what is wrong (labels, counts), what is required
and what to do about it.
"""


class BayesIRTError(Exception):
    """Base of all exceptions that the package raises on purpose."""


class InvalidResponsesError(BayesIRTError, ValueError):
    """The response data cannot be used as they are."""


class InvalidConfigurationError(BayesIRTError, ValueError):
    """An option, a prior or a combination of options makes no sense."""


class RunDirectoryError(BayesIRTError, ValueError):
    """A result directory exists already, is missing, or is not what it should be."""


class DatasetError(BayesIRTError, RuntimeError):
    """A public data set cannot be had: no network, no such file, or not the file that was pinned."""


class NumericalError(BayesIRTError, RuntimeError):
    """A computation became non-finite where it never should."""


class ConvergenceWarning(UserWarning):
    """A fit ended before it met its own stop rule; its result is marked accordingly."""


class ModelMisfitWarning(UserWarning):
    """The data contradict the model in a way that makes its error bars too narrow."""


class ApproximationWarning(UserWarning):
    """An approximation was asked for where it is known to miss: its error bars are not to be trusted."""


def some(labels: list[str] | tuple[str, ...], limit: int = 5) -> str:
    """Return the first few labels for a message, and how many more there are.

    Parameters
    ----------
    labels
        The labels to name.
    limit
        How many to print.

    Returns
    -------
    str
        The labels in quotes, separated by commas.

    Examples
    --------
    >>> some(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(str(label)) for label in labels[:limit])
    rest = len(labels) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown
