"""What is read of a head is what was meant, whatever the table is like."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder

from proxy.triton.http2.frames import END_HEADERS, Kind
from proxy.triton.http2.headers import HeadEncoder, HeaderBlocks

SHARED = (
    (":method", "POST"),
    (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
    ("te", "trailers"),
    ("user-agent", "a" * 200),
)


def own(number: int) -> list[tuple[str, str]]:
    return [("grpc-timeout", f"{number}m"), ("x-long", "b" * number)]


@pytest.mark.parametrize("table_size", [0, 60, 100, 300, 4096])
def test_every_head_is_read_as_it_was_written(table_size):
    heads, reader = HeadEncoder(SHARED), Decoder()
    reader.max_allowed_table_size = reader.header_table_size = 4096
    for number in range(3):
        assert reader.decode(heads.encode(own(number))) == [*SHARED, *own(number)]
    heads.resize(table_size)
    for number in (0, 1, 2, 126, 127, 128, 300):
        assert reader.decode(heads.encode(own(number))) == [*SHARED, *own(number)]


def test_what_is_shared_shrinks_to_a_byte_a_field():
    heads = HeadEncoder(SHARED)
    first, second, third = (heads.encode([]) for _ in range(3))
    assert len(first) > 150
    assert len(second) == len(SHARED)
    assert third == second


def test_a_block_of_references_means_what_the_table_has_now():
    def read(*fields: tuple[str, str]) -> dict[str, str]:
        block = peers.encode(fields)
        return blocks.push(Kind.HEADERS, END_HEADERS, 1, block)

    peers, blocks = Encoder(), HeaderBlocks()
    peers.header_table_size = blocks._decoder.max_allowed_table_size = 60  # room for one field
    for value in ("a", "a", "a", "b", "b", "a", "b"):
        assert read(("x-name", value)) == {"x-name": value}
