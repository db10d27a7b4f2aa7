"""The public suites that have a name: where each lies, its pinned hash, its licence, and what to cite.

The seven suites of arXiv 2605.07046 come from its authors' repository at a pinned commit, where they are stored in
Git LFS. Hashes and lengths are those of the authors' LFS pointers. The addresses could not be tried where this was
written, for want of a network.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from bayes_irt.arguments import require_whole
from bayes_irt.errors import InvalidConfigurationError

_MEDIA = (
    "https://media.githubusercontent.com/media/JackQuu/cBMM/b6cb036d80b34f036822383e8514be4ee4ed648f/data"
)
_PAPER = (
    "Qu, Heng, Zeng, Liu (2026). An Interpretable and Scalable Framework for Evaluating Large Language Models. "
    "arXiv:2605.07046."
)
_LART = (
    "70 LLMs x 2 prompts, collected by Xu, Liu, Wang, Gu (2025). Latency-Response Theory Model: Evaluating Large "
    "Language Models via Response Accuracy and Chain-of-Thought Length. arXiv:2512.07019."
)
_LEADERBOARD = (
    "Hugging Face Open LLM Leaderboard v2, June to December 2024, curated by Wu, Nair, Candès (2026). Efficient "
    "Evaluation of LLM Performance with Statistical Guarantees. arXiv:2601.20251."
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Name a file that holds the same responses as a data set, in another format.

    Parameters
    ----------
    file_name
        What it is called in the folder that BAYES_IRT_DATA names.
    digest
        `Responses.digest` of what it holds.

    Examples
    --------
    >>> describe("math500").conversion.file_name
    'math500_paper.parquet'
    """

    file_name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Say where a wide table of responses lies, how to know it, and whom to credit.

    Parameters
    ----------
    name
        Lower-case letters, digits and underscores.
    title
        The suite's name as its authors write it.
    address
        Where the file is downloaded from; its last part is the file name, which says the format.
    sha256
        SHA-256 of the file, in hexadecimal digits.
    num_llms, num_items
        What the file holds.
    num_bytes
        Length of the file, None where it is not known.
    licence, citation, source
        Terms of use, what to cite, and where the responses come from.
    conversion
        The same responses in another format, None where there is none.

    Raises
    ------
    InvalidConfigurationError
        If the name, the address, the hash or a count cannot be one.

    Examples
    --------
    >>> suite = describe("mmlu_pro")
    >>> suite.num_llms, suite.num_items, suite.file_name
    (2211, 12032, 'MMLU_PRO.csv')
    """

    name: str
    title: str
    address: str
    sha256: str
    num_llms: int
    num_items: int
    num_bytes: int | None = None
    licence: str = "unknown"
    citation: str = "unknown"
    source: str = "unknown"
    conversion: Conversion | None = None

    def __post_init__(self) -> None:
        rules = (
            ("name", r"[a-z0-9_]+", "lower-case letters, digits and underscores"),
            ("address", r"https?://.+/[^/?#]+", "http:// or https://, and a file name at the end"),
            ("sha256", r"[0-9a-f]{64}", "64 hexadecimal digits in lower case"),
        )
        for field, pattern, required in rules:
            value = getattr(self, field)
            if not isinstance(value, str) or not re.fullmatch(pattern, value):
                raise InvalidConfigurationError(
                    f"The data set's {field} is {value!r}; it must be {required}."
                )
        require_whole("num_llms", self.num_llms, 1)
        require_whole("num_items", self.num_items, 1)

    @property
    def file_name(self) -> str:
        """Return the name of the file."""
        return self.address.rsplit("/", 1)[1]

    def __str__(self) -> str:
        length = "" if self.num_bytes is None else f", {self.num_bytes:,} bytes"
        return (
            f"{self.name}: {self.title}, {self.num_llms:,} LLMs x {self.num_items:,} items\n"
            f"source: {self.source}\n"
            f"licence: {self.licence}\n"
            f"cite: {self.citation}\n"
            f"file: {self.address}{length}\n"
            f"sha256: {self.sha256}"
        )


def names() -> tuple[str, ...]:
    """Return the names of the suites that `load` knows.

    Returns
    -------
    tuple of str
        The paper's main example, then the others by size.

    Examples
    --------
    >>> names()
    ('math500', 'ifeval', 'musr', 'gpqa', 'math', 'bbh', 'mmlu_pro')
    """
    return tuple(_SUITES)


def describe(name: str) -> Dataset:
    """Return where a suite comes from, its licence, what to cite, and its pinned hash.

    Parameters
    ----------
    name
        One of `names`.

    Returns
    -------
    Dataset
        Printed, a few lines of text.

    Raises
    ------
    InvalidConfigurationError
        If no suite has this name (close ones are suggested), or it is no string.

    Examples
    --------
    >>> describe("math500").licence
    "MIT (the authors' repository)"
    """
    if not isinstance(name, str):
        raise InvalidConfigurationError(
            f"A data set is named by a string, such as 'math500', or described by a Dataset; got {name!r}."
        )
    if name in _SUITES:
        return _SUITES[name]
    close = difflib.get_close_matches(re.sub(r"[\W_]+", "_", name.lower()), _SUITES, cutoff=0.5)
    meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise InvalidConfigurationError(
        f"No data set is called {name!r}.{meant} Known are {', '.join(_SUITES)}. "
        "A file of your own is read by read_responses, or described by a Dataset."
    )


_SHA256 = {
    "MATH_500.csv": "7d067aacfed54f14eaefe37e2ddf9d2997348792caf32c9e62f2a1023415e88a",
    "IFEval.csv": "581566a367c84cfa43d1dbcdb47491c401c41f3498a00a47f1ea939fa0d636b8",
    "MuSR.csv": "168c49c562ef8c126287a34903db9df35adb9409666e9065f53bbc552c7105fe",
    "GPQA.csv": "2cdf82fc47de2bb8af1eec08062e02bb4b1718bd45412bd5f4dd40058d2db3a1",
    "MATH.csv": "d9c21108a53df02c601e977b5e5a583bbd6ae59a174dd896193d6a523d3f0233",
    "BBH.csv": "9e5608240ba76082468b13a06b0be5007ef9c21b8e7d5fb74b3a6d0024f8dde3",
    "MMLU_PRO.csv": "8722202f9cc4af01179b6d6b35bb1b2c01ebed6945a8615b99a35c89f6387ec1",
}
_OPEN_LLM_LEADERBOARD = (  # name, title, file, items, length in bytes
    ("ifeval", "IFEval", "IFEval.csv", 541, 2_478_278),
    ("musr", "MuSR", "MuSR.csv", 756, 3_442_499),
    ("gpqa", "GPQA", "GPQA.csv", 1192, 5_370_295),
    ("math", "MATH", "MATH.csv", 1324, 5_969_804),
    ("bbh", "BBH", "BBH.csv", 5761, 25_729_320),
    ("mmlu_pro", "MMLU-Pro", "MMLU_PRO.csv", 12032, 53_370_807),
)
_SUITES = {
    "math500": Dataset(
        name="math500",
        title="MATH-500",
        address=f"{_MEDIA}/MATH_500.csv",
        sha256=_SHA256["MATH_500.csv"],
        num_llms=140,
        num_items=500,
        num_bytes=147_446,
        licence="MIT (the authors' repository)",
        citation=_PAPER,
        source=_LART,
        conversion=Conversion(
            file_name="math500_paper.parquet",
            digest="95854df080a60a3cec34423a146e6d2f38f85c1106f2d365afdfbdc8723b6c46",
        ),
    ),
    **{
        name: Dataset(
            name=name,
            title=title,
            address=f"{_MEDIA}/{file}",
            sha256=_SHA256[file],
            num_llms=2211,
            num_items=num_items,
            num_bytes=num_bytes,
            licence="MIT (the authors' repository); of the leaderboard's own records: unknown",
            citation=_PAPER,
            source=_LEADERBOARD,
        )
        for name, title, file, num_items, num_bytes in _OPEN_LLM_LEADERBOARD
    },
}
