"""Integers as rules of xgrammar's EBNF, where xgrammar ignores `multipleOf` or refuses a bound.

xgrammar 0.2.8 has multiples only up to 1,024, and in ranges of fewer than 10,000 values, and bounds
of 64 bits. The rules are an automaton over the digits: its state is the remainder that is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, isfinite
from typing import Any

Schema = Mapping[str, Any]

DIGITS_AT_MOST, OPEN_DIGITS = 25, 16
STATES_AT_MOST = 512  # which xgrammar compiles in 60 ms
# Types that an integer's schema may have besides: none of them contains another schema.
PLAIN_TYPES = frozenset({"integer", "null", "boolean", "string"})
# Where a schema has one of these, xgrammar ignores its type.
ALONE = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})
LOWEST = {"minimum": ceil, "exclusiveMinimum": lambda bound: floor(bound) + 1}
HIGHEST = {"maximum": floor, "exclusiveMaximum": lambda bound: ceil(bound) - 1}
BOUNDS = LOWEST | HIGHEST
IN_64_BITS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Integers:
    """The multiples of `step` from `low` to `high`."""

    step: int
    low: int
    high: int

    @property
    def is_countable(self) -> bool:
        """Whether the automaton is small. The proxy decides the same by the same formula."""
        digits = len(str(max(-self.low, self.high)))
        if digits > DIGITS_AT_MOST:
            return False
        states = (
            min(10 ** (digits - left), min(10**left, self.step) // gcd(10**left, self.step))
            for left in range(digits)
        )
        return sum(map(int, states)) <= STATES_AT_MOST


def types_of(schema: Schema) -> frozenset[str]:
    named = schema.get("type", ())
    if isinstance(named, list):
        return frozenset(one for one in named if isinstance(one, str))
    return frozenset({named} if isinstance(named, str) else ())


def whole_bounds(schema: Schema) -> dict[str, int]:
    """An integer's bounds as whole numbers: `minimum`, `maximum`, both, or none."""
    given = {name: Fraction(str(schema[name])) for name in BOUNDS if _is_number(schema.get(name))}
    above = [LOWEST[name](bound) for name, bound in given.items() if name in LOWEST]
    below = [HIGHEST[name](bound) for name, bound in given.items() if name in HIGHEST]
    return ({"minimum": max(above)} if above else {}) | ({"maximum": min(below)} if below else {})


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def integers_of(schema: Schema) -> Integers | None:
    """An integer's values that xgrammar does not hold; None where it does, or where the automaton
    would be large.
    """
    types = types_of(schema)
    step = schema.get("multipleOf", 1)
    if "integer" not in types or not types <= PLAIN_TYPES or ALONE & set(schema):
        return None
    if not _is_number(step) or step <= 0:
        return None
    bounds = whole_bounds(schema)
    if "multipleOf" not in schema and all(bound in IN_64_BITS for bound in bounds.values()):
        return None
    step = Fraction(str(step)).numerator  # an integer that is a multiple of 2.5 is one of 5
    digits = max(OPEN_DIGITS, *(len(str(abs(one))) + 1 for one in (step, *bounds.values())))
    most = 10**digits - 1
    found = Integers(step, bounds.get("minimum", -most), bounds.get("maximum", most))
    return found if found.is_countable else None


class IntegerRules:
    """Collects the rules. Their names begin with `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rules: dict[str, str] = {}
        self._known: dict[tuple[int, str, str, int], str | None] = {}

    def __str__(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())

    def rule(self, wanted: Integers) -> str:
        """The name of the rule for these. Raises ValueError: there is no such number."""
        ways = []
        for sign, first, last in (
            ("", max(wanted.low, 0), wanted.high),
            ('"-" ', max(-wanted.high, 1), -wanted.low),
        ):
            for digits in range(len(str(first)), len(str(last)) + 1) if first <= last else ():
                low = max(first, 10 ** (digits - 1) if digits > 1 else 0)
                high = min(last, 10**digits - 1)
                ways.append((sign, self._between(wanted.step, str(low), str(high), 0)))
        found = [f"{sign}{name}" for sign, name in ways if name is not None]
        if not found:
            raise ValueError("no multiple of multipleOf is in one of its ranges")
        return self._add(" | ".join(found))

    def _add(self, body: str) -> str:
        name = f"{self._name}_{len(self._rules)}"
        self._rules[name] = body
        return name

    def _between(self, step: int, low: str, high: str, rest: int) -> str | None:
        """The rule for the digits from `low` to `high`, which are as many, whose number leaves
        `rest`; None if there are none.
        """
        if rest >= 10 ** len(low):
            return None
        if not low:
            return ""
        key = step, low, high, rest
        if key not in self._known:
            left = len(low) - 1
            by_rule: dict[str, str] = {}
            for digit in range(int(low[0]), int(high[0]) + 1):
                rule = self._between(
                    step,
                    low[1:] if digit == int(low[0]) else "0" * left,
                    high[1:] if digit == int(high[0]) else "9" * left,
                    (rest - digit * 10**left) % step,
                )
                if rule is not None:
                    by_rule[rule] = by_rule.get(rule, "") + str(digit)
            ways = [f"[{digits}] {rule}" for rule, digits in by_rule.items()]
            self._known[key] = self._add(" | ".join(ways)) if ways else None
        return self._known[key]
