"""Images of a request, as vLLM takes them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from port import BadParameter

MOST_PIXELS = 50_000_000  # of a request; the proxy has the same limit
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def decoded(files: Sequence[bytes]) -> list[Any]:
    """Images of PIL. files: as base64. Takes up to seconds.

    Raises:
        BadParameter: they are too large together, or one is damaged.
    """
    from PIL import Image

    found, left = list[Any](), MOST_PIXELS
    for number, file in enumerate(files, start=1):
        try:
            image: Any = Image.open(
                io.BytesIO(base64.b64decode(file, validate=True)), formats=FORMATS
            )
            left -= image.width * image.height  # before it is decoded
            if left >= 0:
                if image.mode == "RGBA":  # on white, as vLLM's own server has it
                    white = Image.new("RGBA", image.size, "white")
                    image = Image.alpha_composite(white, image)
                found.append(image.convert("RGB"))
        except Exception as error:  # its decoders raise anything
            raise BadParameter("image", f"image {number} cannot be decoded: {error}") from error
        if left < 0:
            raise BadParameter("image", f"the images have more than {MOST_PIXELS:,} pixels")
    return found
