"""elements: JSON's values and raw bytes of tensors, there and back, for each datatype."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from proxy.api.kserve import elements
from proxy.api.kserve.elements import DATATYPES, NUMPY, WrongElements

IN_JSON = st.sampled_from(sorted(NUMPY))
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def tensors(draw):
    datatype, shape = draw(IN_JSON), draw(SHAPES)
    dtype = np.dtype(NUMPY[datatype])
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    return datatype, draw(arrays.arrays(dtype, shape, elements=arrays.from_dtype(dtype, **finite)))


@pytest.mark.hypothesis
@given(tensors())
def test_numbers_are_the_same_there_and_back_flat_and_nested(tensor):
    datatype, array = tensor
    flat = array.ravel().tolist()
    for values in (flat, array.tolist()):
        values = values if isinstance(values, list) else [values]  # of a shape without dimensions
        raw = elements.encoded(values, datatype, array.shape)
        assert raw == array.tobytes()
    assert elements.decoded(raw, datatype, array.shape) == flat


@pytest.mark.hypothesis
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_strings_are_the_same_there_and_back(values):
    raw = elements.encoded(values, "BYTES", (len(values),))
    assert raw == b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in values)
    assert elements.decoded(raw, "BYTES", (len(values),)) == values


@pytest.mark.hypothesis
@given(st.binary(max_size=40), st.sampled_from(DATATYPES), SHAPES)
def test_any_bytes_are_checked_or_refused_and_never_crash(raw, datatype, shape):
    try:
        values = elements.decoded(raw, datatype, shape)
    except WrongElements:
        return
    assert len(values) == math.prod(shape)
    if datatype == "BOOL":  # every byte but 0 is true, and is written as 1
        raw = bytes(map(bool, raw))
    assert elements.encoded(values, datatype, shape) == raw


@pytest.mark.parametrize(
    ("values", "datatype", "shape", "said"),
    [
        ([1, 2, 3], "INT32", (2,), "has 3 elements, but its shape is of 2"),
        ([[1, 2], [3]], "INT32", (2, 2), "nested otherwise"),
        ([[1, 2], 3], "INT32", (2, 2), "nested otherwise"),
        ([[1], [2]], "INT32", (2,), "nested deeper"),
        ([[1, 2]], "INT32", (2, 1), "nested otherwise"),
        ([1.5], "INT32", (1,), "elements of another type: float"),
        ([True], "INT32", (1,), "elements of another type: bool"),
        ([1], "BOOL", (1,), "elements of another type: int"),
        (["1"], "FP32", (1,), "elements of another type: str"),
        ([None], "FP32", (1,), "elements of another type: NoneType"),
        ([{}], "FP32", (1,), "elements of another type: dict"),
        ([300], "UINT8", (1,), "out of the range of UINT8"),
        ([-1], "UINT64", (1,), "out of the range of UINT64"),
        ([2**64], "UINT64", (1,), "out of the range of UINT64"),
        ([1e6], "FP16", (1,), "out of the range of FP16"),
        ([1e39], "FP32", (1,), "out of the range of FP32"),
        ([10**400], "FP64", (1,), "out of the range of FP64"),
        ([1], "BYTES", (1,), "not strings"),
        (["\ud800"], "BYTES", (1,), "not valid Unicode"),
        ([1.0], "BF16", (1,), "send it as binary data"),
    ],
)
def test_wrong_values_are_named(values, datatype, shape, said):
    with pytest.raises(WrongElements, match=said):
        elements.encoded(values, datatype, shape)


@pytest.mark.parametrize(
    ("raw", "datatype", "shape", "said"),
    [
        (b"\0" * 3, "INT32", (1,), "has 3 bytes, but its shape and type need 4"),
        (b"\0" * 2, "BF16", (1,), "ask for it as binary data"),
        (np.array([np.nan], "<f4").tobytes(), "FP32", (1,), "NaN or infinity"),
        (b"\1\0\0\0\xff", "BYTES", (1,), "not valid UTF-8"),
        (b"\1\0", "BYTES", (1,), "ends inside the length"),
        (b"\xff\xff\xff\xffab", "BYTES", (1,), "longer than the data"),
        (b"\0" * 8, "BYTES", (1,), "has 2 elements, but its shape is of 1"),
    ],
)
def test_wrong_bytes_are_named(raw, datatype, shape, said):
    with pytest.raises(WrongElements, match=said):
        elements.decoded(raw, datatype, shape)
