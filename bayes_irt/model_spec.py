"""`ModelSpec`: the statistical model as data, read by every engine. Needs no NumPyro."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bayes_irt.arguments import require_number, require_whole
from bayes_irt.errors import InvalidConfigurationError
from bayes_irt.priors import (
    Common,
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
#: Name of the correlation of two attempts in one cell.
DISPERSION = "dispersion"
#: Name of the standard deviation of the testlets' effects.
TESTLET_SCALE = "testlet_scale"

_LARGEST_FLOOR = 0.99
_TESTLET_SCALE = LearnedScale(0.5, 1.0)
_KINDS = {"ability_share": LearnedShare, "dispersion": LearnedShare, "testlet_scale": LearnedScale}


#: Name of the correlations between traits, and of the trait that all items of a bifactor model load on.
TRAIT_CORRELATION, GENERAL = "trait_correlation", "general"


#: What attempts at one item by one LLM have in common.
Observation = Literal["auto", "binomial", "beta-binomial"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """State the statistical model: how chances depend on LLM and item, how answers depend on chances, and all priors.

    The chance of a right answer is ``c + (1 - c) logistic(a theta + d)`` with discrimination a, easiness d and, where
    guessing helps, a floor c: the 2PL, with `Common` discriminations the 1PL.

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
    floor
        Probability that a guess is right: None for 0; a number for all items; the name of a column of the items'
        metadata, which holds such probabilities or, where its entries are whole numbers from 2, numbers of options
        (the floor is one over them; items without an entry have none); or a `LearnedShare`, the beta prior of floors
        that are learned item by item.
    observation
        How attempts at one item by one LLM hang together. "binomial": they are independent. "beta-binomial": the
        chance differs from cell to cell, so that two attempts correlate by the `dispersion`. "auto": the latter where
        cells have several attempts; with one attempt the two are the same.
    dispersion
        Prior of the correlation of two attempts in one cell, which is learned.
    dispersion_groups
        Column of the items' metadata whose groups have a dispersion each; None for one in common.
    item_groups
        Column of the items' metadata that says which items belong together (a repository, a text with several
        questions); None where none do. Each LLM then has an effect on each group's logits, normal around 0: a testlet
        model. Items without an entry belong to no group.
    testlet_scale
        Prior of the standard deviation of these effects, in logits, which is learned.
    traits
        Several abilities: the column of the items' metadata that names the trait of each item (a subject, a benchmark),
        or the names of columns of 0 and 1 that say, trait by trait, which items load on it. An LLM's abilities on the
        traits are correlated, and standardised trait by trait. None for one ability. A number is exploratory: so many
        traits, on all of which every item may load. Which abilities these are, only a prior that shrinks small
        discriminations to 0 says (`priors.sparse_priors`); in which order they come, nothing does: strongest first.
    general
        Whether all items load on a general ability too, as well as on their trait: a bifactor model. Its traits are
        what is left of each group beside the general ability, and uncorrelated. Items without an entry in the column
        load on the general ability alone.
    trait_concentration
        Concentration of the prior of the correlations (LKJ): at 1 all correlation matrices are equally likely, above
        that those near 0 are likelier.

    Raises
    ------
    InvalidConfigurationError
        If a column's name is no text, a floor does not lie from 0 to below 1, an observation is unknown, or there is a
        prior of something that the model does not have.

    References
    ----------
    Birnbaum, A. (1968). Some latent trait models and their use in inferring an examinee's ability. In Lord, F. M. &
    Novick, M. R., Statistical Theories of Mental Test Scores.
    Lewandowski, D., Kurowicka, D. & Joe, H. (2009). Generating random correlation matrices based on vines and extended
    onion method. Journal of Multivariate Analysis 100, 1989-2001.
    Reckase, M. D. (2009). Multidimensional Item Response Theory. Springer.
    Wainer, H., Bradlow, E. T. & Wang, X. (2007). Testlet Response Theory and Its Applications. Cambridge.

    Examples
    --------
    >>> ModelSpec().hyperparameters
    ('discrimination_scale', 'easiness_location', 'easiness_scale')
    >>> ModelSpec(llm_groups="family").hyperparameters[-1]
    'ability_share'
    >>> ModelSpec(observation="beta-binomial", floor=0.25).hyperparameters[-1]
    'dispersion'
    """

    priors: Priors = field(default_factory=Priors)
    llm_groups: str | None = None
    ability_share: LearnedShare = field(default_factory=LearnedShare)
    floor: float | str | LearnedShare | None = None
    observation: Observation = "auto"
    dispersion: LearnedShare = field(default_factory=LearnedShare)
    dispersion_groups: str | None = None
    item_groups: str | None = None
    testlet_scale: LearnedScale = _TESTLET_SCALE
    traits: str | tuple[str, ...] | int | None = None
    general: bool = False
    trait_concentration: float = 1.0

    def __post_init__(self) -> None:
        for name, of in (("llm_groups", "LLMs"), ("dispersion_groups", "items"), ("item_groups", "items")):
            column = getattr(self, name)
            if column is not None and not (isinstance(column, str) and column):
                raise InvalidConfigurationError(
                    f"{name} is {column!r}; it must be the name of a column of the {of}' metadata, or None."
                )
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise InvalidConfigurationError(
                    f"The prior {name} is {getattr(self, name)!r}; it must be a {kind.__name__}."
                )
        self._require_used()
        if self.observation not in ("auto", "binomial", "beta-binomial"):
            raise InvalidConfigurationError(
                f"observation is {self.observation!r}; it must be 'auto', 'binomial' or 'beta-binomial'."
            )
        if self.floor is not None and not isinstance(self.floor, str | LearnedShare):
            require_number("floor", self.floor, 0.0, _LARGEST_FLOOR)
        if self.floor == "":
            raise InvalidConfigurationError("The floor's column has no name.")
        self._require_traits()

    def _require_traits(self) -> None:
        """Refuse traits that cannot be, and what is not fitted beside several."""
        columns = self._trait_columns()
        if not isinstance(self.general, bool):
            raise InvalidConfigurationError(f"general is {self.general!r}; it must be True or False.")
        require_number("trait_concentration", self.trait_concentration, 0.1, 1000.0)
        if self.traits is None:
            if self.general or self.trait_concentration != 1.0:
                raise InvalidConfigurationError(
                    "general and trait_concentration are for several traits. Name them with traits."
                )
            return
        if len(columns) == 1 and not isinstance(self.traits, str) and not self.general:
            raise InvalidConfigurationError(
                f"One column of 0 and 1 ({columns[0]!r}) is one trait. Name more, or add a general one."
            )
        if self.general and self.trait_concentration != 1.0:
            raise InvalidConfigurationError(
                "The traits of a bifactor model are uncorrelated: no concentration."
            )
        if self.exploratory and self.general:
            raise InvalidConfigurationError(
                f"{self.traits} exploratory traits have no general one beside them: any of them may be."
            )
        lacking = {
            "related LLMs (llm_groups)": self.related,
            "testlets (item_groups)": self.item_groups is not None,
            "learned floors (floor)": isinstance(self.floor, LearnedShare),
            "one common discrimination (Common)": isinstance(self.priors.discrimination, Common),
        }
        for what, there in lacking.items():
            if there:
                raise InvalidConfigurationError(
                    f"Several traits and {what} cannot be fitted together. Drop one."
                )

    def _trait_columns(self) -> tuple[str, ...]:
        """Return the columns that say which items load on which trait; none where that is to be explored."""
        if self.traits is None:
            return ()
        if self.exploratory:
            require_whole("traits", self.traits, 2)
            return ()
        given: Any = self.traits
        columns: tuple[str, ...] = (given,) if isinstance(given, str) else given
        named = isinstance(given, str | tuple) and len(columns) > 0
        if not (named and all(isinstance(column, str) and column for column in columns)):
            raise InvalidConfigurationError(
                f"traits is {self.traits!r}; it must be the name of a column of the items' metadata, several names, a "
                "number of traits to explore, or None."
            )
        if len(set(columns)) < len(columns):
            raise InvalidConfigurationError(f"The columns of traits {columns} are named more than once.")
        return columns

    def _require_used(self) -> None:
        """Refuse priors of what the model does not have."""
        if self.llm_groups is None and self.ability_share != LearnedShare():
            raise InvalidConfigurationError(
                f"ability_share is {self.ability_share!r}, but no LLMs are related. Name their groups with llm_groups."
            )
        if self.observation == "binomial" and (self.dispersion, self.dispersion_groups) != (
            LearnedShare(),
            None,
        ):
            raise InvalidConfigurationError("Binomial attempts have no dispersion. Choose 'beta-binomial'.")
        if self.item_groups is None and self.testlet_scale != _TESTLET_SCALE:
            raise InvalidConfigurationError(
                f"testlet_scale is {self.testlet_scale!r}, but no items belong together. Name their groups with "
                "item_groups."
            )

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of all that is learned besides LLMs and items: locations and scales of priors, dispersion, shares."""
        named = {
            DISPERSION: self.dispersed,
            TESTLET_SCALE: self.item_groups is not None,
            SHARE: self.related,
            TRAIT_CORRELATION: self.traits is not None and not self.general,
        }
        return (*hyperpriors(self), *(name for name, there in named.items() if there))

    @property
    def title(self) -> str:
        """The model in a few words."""
        prior = type(self.priors.discrimination).__name__
        words = ["1PL" if prior == "Common" else f"2PL with {prior} discriminations"]
        if self.exploratory:
            words.append(f"{self.traits} exploratory traits")
        elif self.traits is not None:
            named = repr(self.traits) if isinstance(self.traits, str) else ", ".join(self._trait_columns())
            words.append(f"{'a general trait and ' if self.general else ''}traits by {named}")
        if isinstance(self.floor, str):
            words.append(f"floors by {self.floor!r}")
        elif isinstance(self.floor, LearnedShare):
            words.append("learned floors")
        elif self.floor is not None:
            words.append(f"floor {self.floor:g}")
        words += ["beta-binomial attempts"] if self.dispersed else []
        words += [f"testlets by {self.item_groups!r}"] if self.item_groups is not None else []
        return ", ".join(words)

    @property
    def exploratory(self) -> bool:
        """Say whether all items may load on all of several traits."""
        return isinstance(self.traits, int) and not isinstance(self.traits, bool)

    @property
    def related(self) -> bool:
        """Say whether some LLMs are related."""
        return self.llm_groups is not None

    @property
    def dispersed(self) -> bool:
        """Say whether attempts are known to hang together; "auto" is not before `settled`."""
        return self.observation == "beta-binomial"

    def settled(self, most_attempts: int) -> ModelSpec:
        """Return the model with "auto" decided.

        Parameters
        ----------
        most_attempts
            Largest number of attempts in a cell.

        Returns
        -------
        ModelSpec
            "beta-binomial" where cells have several attempts, else "binomial".

        Examples
        --------
        >>> [ModelSpec().settled(attempts).observation for attempts in (1, 8)]
        ['binomial', 'beta-binomial']
        """
        if self.observation != "auto":
            return self
        if most_attempts > 1:
            return replace(self, observation="beta-binomial")
        plain_dispersion: dict[str, Any] = {"dispersion": LearnedShare(), "dispersion_groups": None}
        return replace(self, observation="binomial", **plain_dispersion)

    def for_mode(self) -> ModelSpec:
        """Return the model of one ability per LLM and two parameters per item that is nearest to this one.

        It lacks related LLMs, testlets, learned floors and several traits.

        Returns
        -------
        ModelSpec
            Floors that are learned are held at their prior mean.

        Examples
        --------
        >>> ModelSpec(llm_groups="family").for_mode() == ModelSpec()
        True
        """
        floor = self.floor.mean if isinstance(self.floor, LearnedShare) else self.floor
        return replace(ModelSpec(self.priors), floor=floor, **_observed(self))

    @property
    def beyond_mode(self) -> bool:
        """Say whether the model has what `for_mode` leaves out."""
        return self != self.for_mode()


def _observed(spec: ModelSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in ("observation", "dispersion", "dispersion_groups")}


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
    discriminations = (HalfNormal, LogNormal, Gamma, Exponential, TruncatedNormal, Common)
    kinds = (ModelSpec, Priors, *discriminations, Normal, LearnedLocation, LearnedScale, LearnedShare)
    spec: ModelSpec = restored(described, kinds)
    return spec
