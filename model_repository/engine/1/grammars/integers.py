"""Integers as rules of xgrammar's EBNF, where xgrammar ignores `multipleOf` or refuses a bound.

The rules are an automaton over the digits: its state is the remainder that they have to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor, gcd, inf
from typing import Any

BEYOND = 10**24  # a larger number is left to xgrammar
OPEN_DIGITS = 16  # at least, on a side without a bound
STATES_AT_MOST = 512  # which xgrammar compiles in 60 ms
# Types that an integer's schema may have besides: none of them contains another schema.
PLAIN_TYPES = frozenset({"integer", "null", "boolean", "string"})
# Where a schema has one of these, xgrammar ignores its type.
ALONE = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})
BOUNDS: dict[str, tuple[str, Any, Callable[[Fraction], int]]] = {
    "minimum": ("minimum", max, ceil),
    "exclusiveMinimum": ("minimum", max, lambda bound: floor(bound) + 1),
    "maximum": ("maximum", min, floor),
    "exclusiveMaximum": ("maximum", min, lambda bound: ceil(bound) - 1),
}
IN_64_BITS = range(-(2**63), 2**63)


Integers = tuple[int, int, int]  # the multiples of the first, from the second to the third


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    named = schema.get("type", ())
    return frozenset({named} if isinstance(named, str) else map(str, named))


def whole_bounds(schema: Mapping[str, Any]) -> dict[str, int]:
    """An integer's bounds as whole numbers: `minimum`, `maximum`, both, or none."""
    found: dict[str, int] = {}
    for name, (end, tighter, whole) in BOUNDS.items():
        if _is_number(schema.get(name)):
            bound = whole(Fraction(str(schema[name])))
            found[end] = tighter(bound, found.get(end, bound))
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -inf < value < inf


def integers_of(schema: Mapping[str, Any]) -> Integers | None:
    """An integer's values where xgrammar does not hold them, and the automaton is small.

    The proxy tells by the same formula whether it is (proxy/language/structured/keywords.py).
    """
    types, step = types_of(schema), schema.get("multipleOf", 1)
    if "integer" not in types or not types <= PLAIN_TYPES or ALONE & set(schema):
        return None
    bounds = whole_bounds(schema)
    is_held = "multipleOf" not in schema and all(one in IN_64_BITS for one in bounds.values())
    if is_held or not _is_number(step) or step <= 0:
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
    """The rules for the multiples of `step` in a range; `name` is that of the first.

    Raises:
        ValueError: there is no such number.
    """
    rules: dict[str, str] = {}
    known: dict[tuple[str, str, int], str | None] = {}

    def between(least: str, most: str, rest: int) -> str | None:
        """The rule for as many digits whose number leaves `rest`; None if there are none."""
        if rest >= 10 ** len(least):
            return None
        if not least:
            return ""
        if (least, most, rest) not in known:
            left, first, last = len(least) - 1, int(least[0]), int(most[0])
            digits: dict[str, str] = {}
            for digit in range(first, last + 1):
                lower = least[1:] if digit == first else "0" * left
                upper = most[1:] if digit == last else "9" * left
                rule = between(lower, upper, (rest - digit * 10**left) % step)
                if rule is not None:
                    digits[rule] = f"{digits.get(rule, '')}{digit}"
            found = f"{name}_{len(rules)}" if digits else None
            if found is not None:
                rules[found] = " | ".join(f"[{some}] {rule}" for rule, some in digits.items())
            known[least, most, rest] = found
        return known[least, most, rest]

    ways = []
    for sign, least, most in (("", max(low, 0), high), ('"-" ', max(-high, 1), -low)):
        for digits in range(len(str(least)), len(str(most)) + 1) if least <= most else ():
            first = max(least, 10 ** (digits - 1) if digits > 1 else 0)
            rule = between(str(first), str(min(most, 10**digits - 1)), 0)
            ways += [] if rule is None else [sign + rule]
    if not ways:
        raise ValueError("no multiple of multipleOf is in one of its ranges")
    return "".join(
        f"{rule} ::= {body}\n" for rule, body in ({name: " | ".join(ways)} | rules).items()
    )
