"""Fetches the images that a chat names by URL. Called by the service, once a request may run."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace

import httpx

from proxy.access.concurrency import SharedConcurrency
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.image import MEDIA_TYPES, Image, media_type
from proxy.domain.request import ChatPrompt
from proxy.domain.server_tools import CallStatus
from proxy.server_tools.pinned_http import OUR_HEADERS, FetchFailed, PinnedHttp, body_of

TIMEOUT_S = 10.0  # for all images of a request
MOST_REQUESTS = 64  # that fetch at once
FAILURES = (
    FetchFailed,
    asyncio.TimeoutError,
    httpx.HTTPError,
    httpx.InvalidURL,
    OSError,
    ValueError,  # of a name that cannot be encoded
)


class ImageFetcher:
    """most_bytes: of the images of one request together; callers can send as many themselves."""

    def __init__(self, most_bytes: int, http: PinnedHttp | None = None) -> None:
        self._most_bytes = most_bytes
        self._http = http or PinnedHttp()
        self._permits = SharedConcurrency(MOST_REQUESTS, what="requests that fetch images")

    async def fetched(self, prompt: ChatPrompt, caller: str) -> ChatPrompt:
        """The prompt with the images themselves, one fetched after the other.

        Raises:
            InvalidRequest: one of them cannot be fetched, or is none.
            RateLimited: too many requests fetch images now.
        """
        if all(image.url is None for image in prompt.images):
            return prompt
        images, left, until = list(prompt.images), self._most_bytes, _now() + TIMEOUT_S
        with self._permits.permits(caller):
            for number, image in enumerate(images):
                if image.url is None:
                    continue
                try:
                    data = await asyncio.wait_for(self._data(image.url, left), until - _now())
                    left -= len(data)
                    images[number] = _image(data)
                except FAILURES as error:
                    raise InvalidRequest(
                        f"The image {echoed(image.url)} cannot be used: {_reason(error)}. Send its "
                        "bytes as data:image/png;base64,…",
                        code=ErrorCode.INVALID_MESSAGES,
                        param=prompt.place_of_image(number),
                    ) from error
        return replace(prompt, images=tuple(images))

    async def _data(self, url: str, most: int) -> bytes:
        request = httpx.Request("GET", url, headers={**OUR_HEADERS, "Accept": "image/*"})
        async with self._http.response(request) as response:
            if response.status_code != 200:
                is_moved = ", a redirect, which is not followed" if response.is_redirect else ""
                why = f"its server answers with status {response.status_code}{is_moved}"
                raise FetchFailed(CallStatus.FAILED, why)
            return await body_of(response, most)


def _image(data: bytes) -> Image:
    if (kind := media_type(data)) is None:
        known = ", ".join(MEDIA_TYPES)
        raise FetchFailed(CallStatus.FAILED, f"by its first bytes it is none of {known}")
    return Image(media_type=kind, base64=base64.b64encode(data).decode())


def _reason(error: Exception) -> str:
    """Says no more of a host that cannot be reached, which may be one of the server's network."""
    if isinstance(error, FetchFailed):
        return str(error)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return f"it was not complete within {TIMEOUT_S:g} s"
    return "it cannot be reached"


def _now() -> float:
    return asyncio.get_running_loop().time()
