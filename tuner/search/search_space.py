"""The search space: which knobs are searched, over which values, as Optuna's distributions.

The reference's own value is always among the values, and so is every number that a start point proposes:
both are told to the sampler whole. A range is widened by what lies outside it. A knob of which one of these
lies where the range's scale has none (0 or -1 as "off") becomes a choice among them and a grid over the
range. A list of choices is closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from knobs.catalogue import Catalogue
from knobs.errors import InvalidInput
from knobs.knob import Knob, TuningRange

_GRID_POINTS = 6
Parameter = int | float | str


@dataclass(frozen=True)
class SearchSpace:
    """The distributions by full knob name, and the reference's value of each. ``needs`` are those of the
    ranges: what a choice needs is set with it, and is no knob of the space."""

    distributions: Mapping[str, BaseDistribution]
    reference: Mapping[str, Parameter]
    needs: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)

    def parameters(self, settings: Mapping[str, str]) -> dict[str, Parameter]:
        """The point of the space that has these settings and otherwise the reference's.

        Raises InvalidInput with every setting that lies outside the space.
        """
        point = dict(self.reference)
        faults = []
        needed = self._needed(settings)
        for name, value in settings.items():
            distribution = self.distributions.get(name)
            if needed.get(name) == value:
                continue
            if distribution is None:
                faults.append(f"{name} is not searched")
                continue
            parameter = _parameter(distribution, value)
            if parameter is None:
                faults.append(f"{name}={value} is outside {_words(distribution)}")
            else:
                point[name] = parameter
        if faults:
            raise InvalidInput(
                "; ".join(faults), where="search space", hint="name other values or --only/--exclude"
            )
        return point

    @property
    def choices(self) -> dict[str, list[str]]:
        """The values of every knob that is searched among given ones."""
        return {
            name: [str(choice) for choice in found.choices]
            for name, found in self.distributions.items()
            if isinstance(found, CategoricalDistribution)
        }

    def takes(self, name: str, value: str) -> bool:
        """Whether the knob is searched and the value is one that the search may propose."""
        distribution = self.distributions.get(name)
        return distribution is not None and _parameter(distribution, value) is not None

    def settings(self, parameters: Mapping[str, Parameter]) -> dict[str, str]:
        """What a point sets otherwise than the reference, in the engine's text, with what that needs."""
        found = {name: _text(value) for name, value in parameters.items() if value != self.reference[name]}
        return {**found, **self._needed(found)}

    def _needed(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {
            other: wanted
            for name, value in settings.items()
            for choice, other, wanted in self.needs.get(name, ())
            if value == choice
        }


def build_space(
    catalogue: Catalogue,
    ranges: Mapping[str, TuningRange],
    reference: Mapping[str, str],
    proposed: Sequence[Mapping[str, str]] = (),
) -> SearchSpace:
    """The space over the given ranges; ``reference`` holds what the reference sets over the defaults, and
    ``proposed`` what each start point sets over it, normalised."""
    distributions: dict[str, BaseDistribution] = {}
    values: dict[str, Parameter] = {}
    for name, tuning in ranges.items():
        knob = catalogue.knob(name)
        current = catalogue.normalise(name, reference.get(name, knob.default))
        others = [settings[name] for settings in proposed if name in settings]
        distribution = _distribution(knob, tuning, list(dict.fromkeys([current, *others])))
        parameter = _parameter(distribution, current)
        assert parameter is not None, f"the reference's {name}={current} is in its own distribution"
        distributions[name], values[name] = distribution, parameter
    return SearchSpace(distributions, values, {name: found.needs for name, found in ranges.items()})


def _distribution(knob: Knob, tuning: TuningRange, included: Sequence[str]) -> BaseDistribution:
    """Of ``included``, the texts that a number must be able to take, the first is the reference's."""
    if tuning.choices:
        current = included[0]
        choices = tuning.choices if current in tuning.choices else (current, *tuning.choices)
        return CategoricalDistribution(choices)
    assert tuning.low is not None and tuning.high is not None, f"{knob.name} has a range or choices"
    whole = knob.kind in ("integer", "size") or (float(tuning.low).is_integer() and knob.kind != "real")
    numbers = [number for text in included if (number := _number(text)) is not None]
    if len(numbers) < len(included) or min(numbers) <= 0 < tuning.low:
        grid = (
            np.geomspace(tuning.low, tuning.high, _GRID_POINTS)
            if tuning.log
            else np.linspace(tuning.low, tuning.high, _GRID_POINTS)
        )
        texts = [_text(int(point) if whole else float(point)) for point in grid]
        return CategoricalDistribution(tuple(dict.fromkeys([*included, *texts])))
    low, high = min(tuning.low, *numbers), max(tuning.high, *numbers)
    if whole:
        return IntDistribution(int(low), int(high), log=tuning.log)
    return FloatDistribution(float(low), float(high), log=tuning.log)


def _parameter(distribution: BaseDistribution, value: str) -> Parameter | None:
    if isinstance(distribution, CategoricalDistribution):
        return value if value in distribution.choices else None
    number = _number(value)
    if number is None:
        return None
    parameter: Parameter = int(number) if isinstance(distribution, IntDistribution) else number
    return parameter if distribution._contains(distribution.to_internal_repr(parameter)) else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: Parameter) -> str:
    return value if isinstance(value, str) else repr(value)


def _words(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return ", ".join(map(str, distribution.choices))
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    return f"{distribution.low} to {distribution.high}"
