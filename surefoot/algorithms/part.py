"""Parts: the pieces that an objective is made of.

A part is a pure function of flat tensors together with its numbers. Writing the function and decorating it is all that
a new one needs::

    @part("trust", "-tanh({tau:g} (x-1)) A", r"-\\tanh({tau:g}(x-1))A")
    def soft(tokens: Tokens, ratio: Tensor, *, tau: float = 1.0) -> Tensor:
        return -torch.tanh(tau * (ratio - 1)) * tokens.advantage

Keyword-only parameters are the part's numbers: they become configuration keys (``--algorithm.trust.tau 2``), are
checked against their annotations, and fill the templates from which the card is printed, so the printed equation
cannot drift from the one that runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import ValidationError, create_model

from surefoot.algorithms import notation
from surefoot.config import Section, explain, nearest
from surefoot.errors import AlgorithmError

Template = str | Callable[..., str]

REGISTRY: dict[str, dict[str, Kind]] = {}


class Numbers(Section):
    """Base of the schemas of numbers: finite, and no switches where numbers are wanted, as in every section."""


@dataclass(eq=False)
class Kind:
    """A function of one slot, its equation and the schema of its numbers. Call it with numbers to get a :class:`Part`.

    Attributes:
        slot: which slot of an Algorithm it fills.
        name: the name of the function, which is its name in the configuration.
        fn: the function.
        text, latex: templates of its equation, in which ``{number:g}`` is filled in, or functions of the numbers.
        schema: pydantic model of its numbers.
        traits: facts that validation reads, for instance ``"group"`` (needs groups of at least two).
        shares: what to count of each token for the metrics, see :meth:`counts`.
    """

    slot: str
    name: str
    fn: Callable[..., Any]
    text: Template
    latex: Template
    schema: Any
    traits: frozenset[str]
    shares: Callable[..., dict[str, Any]] | None = None

    def counts(self, fn: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Register what the metrics count: a function of the same arguments that returns named masks [M]."""
        self.shares = fn
        return fn

    def __call__(self, **numbers: Any) -> Part:
        unknown = sorted(str(name) for name in set(numbers) - set(self.schema.model_fields))
        if unknown:
            raise AlgorithmError(
                f"the {self.slot} '{self.name}' has no number '{unknown[0]}'."
                + (nearest(unknown[0], self.schema.model_fields) or " It has no numbers.")
            )
        try:
            checked = self.schema.model_validate(numbers)
        except ValidationError as error:
            raise AlgorithmError(f"algorithm.{self.slot} '{self.name}': {explain(self.schema, error)}") from error
        values = checked.model_dump()
        if "bounds" in self.traits and values["low"] > values["high"]:
            raise AlgorithmError(
                f"algorithm.{self.slot} '{self.name}': low = {values['low']:g} is above high = {values['high']:g}, and nothing "
                "lies between them: swap them"
            )
        return Part(self, tuple(values.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name now means the kind, so that it cannot be pickled by that name; the registry knows it.
        return find, (self.slot, self.name)

    def __copy__(self) -> Kind:
        return self

    def __deepcopy__(self, memory: Any) -> Kind:
        return self

    @property
    def of_library(self) -> bool:
        return _from_library(self.fn)

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.fn) or ""


@dataclass(frozen=True)
class Part:
    """A kind with its numbers: a value that can be compared, printed, varied and called."""

    kind: Kind
    items: tuple[tuple[str, Any], ...]

    def __call__(self, *tensors: Any) -> Any:
        return self.kind.fn(*tensors, **self.numbers)

    def but(self, **numbers: Any) -> Part:
        """The same kind with some numbers changed."""
        return self.kind(**{**self.numbers, **numbers})

    def __hash__(self) -> int:
        return hash((self.slot, self.name, repr(self.items)))  # a number may be a table

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers by name; a table among them is a copy, so that nobody can change the part."""
        return {key: dict(value) if isinstance(value, dict) else value for key, value in self.items}

    @property
    def slot(self) -> str:
        return self.kind.slot

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def text(self) -> str:
        return notation.plain(_fill(self.kind.text, self.numbers))

    @property
    def latex(self) -> str:
        return notation.latex(_fill(self.kind.latex, self.numbers))

    def __getattr__(self, name: str) -> Any:
        # A copy in the making has no fields yet; asking for them here would ask again without end.
        if name.startswith("_") or name in ("kind", "items"):
            raise AttributeError(name)
        if name in (numbers := self.numbers):
            return numbers[name]
        raise AttributeError(f"the {self.kind.slot} '{self.kind.name}' has no number '{name}'")

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.items)})"


def _fill(template: Template, numbers: Mapping[str, Any]) -> str:
    if not isinstance(template, str):
        return template(**numbers)
    try:
        return template.format(**numbers)
    except (KeyError, IndexError, ValueError) as error:
        raise AlgorithmError(
            f"the equation {template!r} cannot be filled in ({type(error).__name__}: {error}): {{name:g}} stands for a number "
            f"of the part (it has {', '.join(numbers) or 'none'}), and every other brace is written twice, {{{{ }}}}"
        ) from error


def part(slot: str, text: Template, latex: Template, *traits: str) -> Callable[[Callable[..., Any]], Kind]:
    """Register a function as a kind of part of a slot. See the head of this module for an example."""

    def decorate(fn: Callable[..., Any]) -> Kind:
        hints = get_type_hints(fn, include_extras=True)
        fields: dict[str, Any] = {
            name: (hints.get(name, type(parameter.default)), parameter.default)
            for name, parameter in inspect.signature(fn).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        name = fn.__name__.removesuffix("_")
        if not _from_library(fn):
            _check_traits(slot, name, traits)
        kinds = REGISTRY.setdefault(slot, {})
        if name in kinds and _from_library(kinds[name].fn) and not _from_library(fn):
            raise AlgorithmError(f"the {slot} '{name}' is a part of the library: give yours another name")
        kinds[name] = Kind(
            slot, name, fn, text, latex, create_model(name, __base__=Numbers, **fields), frozenset(traits)
        )
        return kinds[name]

    return decorate


def _check_traits(slot: str, name: str, traits: tuple[str, ...]) -> None:
    """Refuse a part of a user for a slot, or with a trait, that nothing reads."""
    if slot not in REGISTRY:
        raise AlgorithmError(
            f"the part '{name}' is for the slot '{slot}', which is not known.{nearest(slot, REGISTRY)}"
        )
    known = {trait for kind in REGISTRY[slot].values() for trait in kind.traits}
    for trait in traits:
        if trait not in known:
            raise AlgorithmError(
                f"the {slot} '{name}' has the trait '{trait}', which nothing reads.{nearest(trait, known)}"
            )


def _from_library(fn: Callable[..., Any]) -> bool:
    return fn.__module__.split(".")[0] == "surefoot"


def find(slot: str, name: str) -> Kind:
    """The kind of that name, or an error that names the nearest one."""
    kinds = REGISTRY.get(slot, {})
    if not isinstance(name, str):
        raise AlgorithmError(
            f"algorithm.{slot}.kind = {name!r}: expected the name of a part: {', '.join(sorted(kinds))}"
        )
    if name not in kinds:
        raise AlgorithmError(f"algorithm.{slot} = '{name}' is not known.{nearest(name, kinds)}")
    return kinds[name]


def build(slot: str, given: str | Mapping[str, Any], base: Part) -> Part:
    """A part from configuration: a name, or a table of numbers over ``base`` (with ``kind`` to take another kind)."""
    if isinstance(given, str):
        return base if given == base.name else find(slot, given)()
    if not isinstance(given, Mapping):
        raise AlgorithmError(f"algorithm.{slot} = {given!r}: expected the name of a part, or a table of its numbers")
    numbers = {str(key): value for key, value in given.items() if key != "kind"}
    name = given.get("kind", base.name)
    return base.but(**numbers) if name == base.name else find(slot, name)(**numbers)
