"""Integers as rules of EBNF: an automaton whose state is the remainder that the digits leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from math import ceil, floor, gcd
from typing import Any

BEYOND = 10**24  # a larger number is left to xgrammar
OPEN_DIGITS = 16  # at least, on a side without a bound
STATES_AT_MOST = 512  # which xgrammar compiles in 60 ms
PLAIN_TYPES = frozenset({"integer", "null", "boolean", "string"})  # without schemas in them
ALONE = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})  # xgrammar ignores the type
BOUNDS: dict[str, tuple[str, Any, Callable[[Fraction], int]]] = {
    "minimum": ("minimum", max, ceil),
    "exclusiveMinimum": ("minimum", max, lambda bound: floor(bound) + 1),
    "maximum": ("maximum", min, floor),
    "exclusiveMaximum": ("maximum", min, lambda bound: ceil(bound) - 1),
}


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    named = schema.get("type", [])
    return frozenset(map(str, named if isinstance(named, list) else [named]))


def whole_bounds(schema: Mapping[str, Any]) -> dict[str, int]:
    """An integer's bounds as whole numbers: `minimum`, `maximum`, both, or none."""
    found: dict[str, int] = {}
    for name, (end, tighter, whole) in BOUNDS.items():
        if type(schema.get(name)) in (int, float):
            bound = whole(Fraction(str(schema[name])))
            found[end] = tighter(bound, found.get(end, bound))
    return found


def integers_of(schema: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """What an integer is a multiple of, its lowest and its highest value, where xgrammar does not
    hold these and the automaton is small; proxy/language/structured/keywords.py has this formula.
    """
    types, step, bounds = types_of(schema), schema.get("multipleOf", 1), whole_bounds(schema)
    if "integer" not in types or not types <= PLAIN_TYPES or ALONE & set(schema):
        return None
    is_held = "multipleOf" not in schema and all(-(2**63) <= one < 2**63 for one in bounds.values())
    if is_held or type(step) not in (int, float) or step <= 0:
        return None
    step = Fraction(str(step)).numerator  # an integer that is a multiple of 2.5 is one of 5
    most = max(map(abs, (step, *bounds.values())))
    if most >= BEYOND:
        return None
    digits = len(str(most)) if len(bounds) == 2 else max(OPEN_DIGITS, len(str(most)) + 1)
    states = sum(
        min(10 ** (digits - left), min(10**left, step) // gcd(10**left, step))
        for left in range(digits)
    )
    if states > STATES_AT_MOST:
        return None
    most = 10**digits - 1
    return step, bounds.get("minimum", -most), bounds.get("maximum", most)


def rules_of(step: int, low: int, high: int, *, name: str) -> str:
    """Rules for the multiples of `step`; `name` is one. Raises ValueError: there is no multiple."""
    rules: dict[str, str] = {}

    @cache
    def between(least: str, most: str, rest: int) -> str | None:
        """The rule for as many digits whose number leaves `rest`; None if there are none."""
        if rest >= 10 ** len(least):
            return None
        if not least:
            return ""
        left, first, last = len(least) - 1, int(least[0]), int(most[0])
        digits: dict[str, str] = {}
        for digit in range(first, last + 1):
            lower = least[1:] if digit == first else "0" * left
            upper = most[1:] if digit == last else "9" * left
            rule = between(lower, upper, (rest - digit * 10**left) % step)
            if rule is not None:
                digits[rule] = f"{digits.get(rule, '')}{digit}"
        if not digits:
            return None
        found = f"{name}_{len(rules)}"
        rules[found] = " | ".join(f"[{some}] {rule}" for rule, some in digits.items())
        return found

    ways = []
    for sign, least, most in (("", max(low, 0), high), ('"-" ', max(-high, 1), -low)):
        for digits in range(len(str(least)), len(str(most)) + 1) if least <= most else ():
            first = max(least, 10 ** (digits - 1) if digits > 1 else 0)
            rule = between(str(first), str(min(most, 10**digits - 1)), 0)
            ways += [] if rule is None else [sign + rule]
    if not ways:
        raise ValueError("no multiple of multipleOf is in one of its ranges")
    rules[name] = " | ".join(ways)
    return "".join(f"{rule} ::= {body}\n" for rule, body in rules.items())
