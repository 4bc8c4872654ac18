"""Elements of tensors: JSON's values <-> raw bytes, for each datatype. Pure; used by both codecs.

Raw bytes are little-endian and row-major; of BYTES, each element stands behind its length.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

LENGTH = struct.Struct("<I")
BYTES, BINARY_ONLY = "BYTES", "BF16"
NUMPY = {
    "BOOL": "?",
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
SIZES = {name: np.dtype(code).itemsize for name, code in NUMPY.items()} | {BINARY_ONLY: 2}
DATATYPES = (*SIZES, BYTES)
# Python's types of elements, by numpy's kind; of integers, `int` alone
TYPES: dict[str, frozenset[type]] = {"b": frozenset({bool}), "f": frozenset({int, float})}


class WrongElements(ValueError):
    """The end of a sentence that begins with the tensor's name."""


def encoded(values: list[Any], datatype: str, shape: tuple[int, ...]) -> bytes:
    """JSON's values, flat or nested as the shape is, as raw bytes. Raises WrongElements."""
    if datatype == BINARY_ONLY:
        raise WrongElements("is BF16, which JSON has no numbers for: send it as binary data")
    found, expected = np.array(values, object), math.prod(shape)
    flat = found.ravel().tolist()
    is_nested = found.ndim > 1 or any(isinstance(each, list) for each in flat)
    # an empty list has no elements that would show the dimensions after it
    known = shape[: found.ndim] if not found.size else shape
    if is_nested and found.shape != known:
        how = "deeper" if found.ndim > len(shape) else "otherwise"
        raise WrongElements(f"is nested {how} than its shape")
    if len(flat) != expected:
        raise WrongElements(f"has {len(flat)} elements, but its shape is of {expected}")
    if datatype == BYTES:
        return b"".join(map(_with_length, flat))
    return _numbers(flat, datatype)


def _numbers(flat: list[Any], datatype: str) -> bytes:
    dtype = np.dtype(NUMPY[datatype])
    wrong = {type(each) for each in flat} - TYPES.get(dtype.kind, frozenset({int}))
    if wrong:
        found = ", ".join(sorted(each.__name__ for each in wrong))
        raise WrongElements(f"is {datatype}, and has elements of another type: {found}")
    beyond = WrongElements(f"has a number that is out of the range of {datatype}")
    if dtype.kind in "iu" and flat:
        limits = np.iinfo(dtype)
        if min(flat) < limits.min or max(flat) > limits.max:
            raise beyond
    try:
        with np.errstate(over="ignore"):
            made = np.array(flat, dtype)
    except OverflowError:
        raise beyond from None
    if dtype.kind == "f" and not np.isfinite(made).all():
        raise beyond
    raw: bytes = made.tobytes()
    return raw


def _with_length(element: Any) -> bytes:
    if not isinstance(element, str):
        raise WrongElements("is BYTES, and has elements that are not strings")
    try:
        content = element.encode()
    except UnicodeEncodeError:
        raise WrongElements("has a string that is not valid Unicode") from None
    return LENGTH.pack(len(content)) + content


def check(data: bytes, datatype: str, shape: tuple[int, ...]) -> None:
    """Raises WrongElements: raw bytes are not of this type and shape."""
    expected = math.prod(shape)
    if datatype != BYTES:
        if len(data) != expected * SIZES[datatype]:
            raise WrongElements(
                f"has {len(data)} bytes, but its shape and type need {expected * SIZES[datatype]}"
            )
    elif (found := sum(1 for _ in _split(data))) != expected:
        raise WrongElements(f"has {found} elements, but its shape is of {expected}")


def decoded(data: bytes, datatype: str, shape: tuple[int, ...]) -> list[Any]:
    """Raw bytes as a flat list of JSON's values. Raises WrongElements: JSON cannot have them."""
    check(data, datatype, shape)
    if datatype == BINARY_ONLY:
        raise WrongElements("is BF16, which JSON has no numbers for: ask for it as binary data")
    if datatype == BYTES:
        try:
            return [element.decode() for element in _split(data)]
        except UnicodeDecodeError:
            raise WrongElements("is not valid UTF-8: ask for it as binary data") from None
    found = np.frombuffer(data, NUMPY[datatype])
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise WrongElements("has NaN or infinity, which JSON lacks: ask for it as binary data")
    values: list[Any] = found.tolist()
    return values


def _split(data: bytes) -> Iterator[bytes]:
    """The elements of BYTES. Raises WrongElements: a length does not fit."""
    start = 0
    while start < len(data):
        if start + LENGTH.size > len(data):
            raise WrongElements("ends inside the length of an element")
        (length,) = LENGTH.unpack_from(data, start)
        start += LENGTH.size
        if start + length > len(data):
            raise WrongElements("has an element that is longer than the data")
        yield data[start : start + length]
        start += length
