"""How many pixels a file has, by its head: of each type, of lies, and of heads without an end."""

from __future__ import annotations

import struct
import time

import pytest

from proxy.domain.image import NoSize, media_type, pixels
from tests.fixtures.pictures import GIF, JPEG, PNG, WEBP

PNG_HEAD, GIF_HEAD, JPEG_HEAD = b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0\x00\x04ab"


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + b"crc!"


def header(wide: int, high: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">II", wide, high) + b"\x08\x02\0\0\0")


def frame(wide: int, high: int, marker: int = 0xC2) -> bytes:
    return struct.pack(">BBHBHHB", 0xFF, marker, 11, 8, high, wide, 1) + b"\x01\x11\x00"


def picture(wide: int, high: int, left: int = 0) -> bytes:
    return struct.pack("<BHHHHB", 0x2C, left, 0, wide, high, 0)


SCREEN = struct.pack("<HHBBB", 2, 3, 0, 0, 0)
SCAN = b"\xff\xda\x00\x08"


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, WEBP])
def test_the_smallest_files_have_one(data):
    assert pixels(data) == 1


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (PNG_HEAD + header(300, 200) + chunk(b"IDAT"), 60_000),
        (PNG_HEAD + chunk(b"tEXt", b"x" * 999) + header(300, 200) + chunk(b"IDAT"), 60_000),
        (PNG_HEAD + header(1, 1) + header(300, 200) + chunk(b"IDAT"), 60_000),
        (JPEG_HEAD + frame(300, 200) + SCAN, 60_000),
        (JPEG_HEAD + b"\xff\xff" + frame(300, 200, 0xC0) + SCAN, 60_000),
        (JPEG_HEAD + frame(1, 1) + frame(300, 200) + SCAN, 60_000),
        (GIF_HEAD + SCREEN + picture(2, 3), 6),
        (GIF_HEAD + SCREEN + picture(300, 200), 60_000),
        (GIF_HEAD + SCREEN + picture(2, 2, left=298), 900),
        (
            GIF_HEAD + SCREEN + b"\x21\xfe\x2c" + picture(1, 1) + bytes(34) + b"\0" + picture(9, 9),
            81,
        ),
        (
            b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\x2b\x01\0" + b"\xc7\0\0",
            60_000,
        ),
        (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 300, 200), 60_000),
    ],
)
def test_a_head_says_what_a_decoder_makes_of_it(data, count):
    assert pixels(data) == count


@pytest.mark.parametrize(
    "data",
    [
        *(whole[:length] for whole in (PNG, GIF, JPEG, WEBP) for length in (12, 15, 20)),
        PNG_HEAD + chunk(b"IDAT") + header(1, 1),
        JPEG_HEAD + b"\xff\xd0" + frame(1, 1) + SCAN,  # it has no length, and could hide a frame
        JPEG_HEAD + b"ab" + frame(1, 1) + SCAN,
        JPEG_HEAD + SCAN,
        GIF_HEAD + SCREEN + b"\x07",
        b"RIFF\0\0\0\0WEBPANIM" + bytes(40),
        b"text",
    ],
)
def test_what_a_decoder_could_read_in_another_way_has_no_size(data):
    with pytest.raises(NoSize):
        pixels(data)


@pytest.mark.parametrize(
    "data",
    [
        PNG_HEAD + chunk(b"tEXt") * 150_000,
        b"\xff\xd8" + b"\xff" * 1_900_000,
        b"\xff\xd8" + b"\xff\xe0\0\2" * 480_000,
        GIF_HEAD + SCREEN + b"\x21\xfe" + b"\1a" * 900_000,
        GIF_HEAD + SCREEN + b"\x21\xfe\0" * 600_000,
    ],
)
def test_a_head_without_an_end_costs_little(data):
    assert media_type(data) is not None
    began = time.process_time()
    with pytest.raises(NoSize):
        pixels(data)
    assert time.process_time() - began < 0.5
