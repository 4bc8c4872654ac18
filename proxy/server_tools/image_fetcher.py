"""Fetches the images that a chat names by URL. Called by the service, once a request may run."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import httpx

from proxy.access.concurrency import SharedConcurrency
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.image import MEDIA_TYPES, Image, NoSize, media_type, pixels
from proxy.domain.request import ChatPrompt
from proxy.domain.server_tools import CallStatus
from proxy.server_tools.addresses import resolved
from proxy.server_tools.pinned_http import OUR_HEADERS, FetchFailed, PinnedHttp, body_of

TIMEOUT_S = 10.0  # for all images of a request
MOST_REQUESTS = 64  # that fetch at once
MOST_PIXELS = 50_000_000  # of a request: a file of half a megabyte can hold an engine for seconds
NO_IMAGE = f"by its first bytes it is none of {', '.join(MEDIA_TYPES)}"
UNREACHABLE = (httpx.InvalidURL, OSError, ValueError)


class ImageFetcher:
    """most_bytes: of the images of one request together; callers can send as many themselves."""

    def __init__(self, most_bytes: int, http: PinnedHttp | None = None) -> None:
        self._most_bytes = most_bytes
        # not the loop's threads: names whose servers do not answer would hold up all who need one
        threads = ThreadPoolExecutor(MOST_REQUESTS, thread_name_prefix="image-names")
        self._http = http or PinnedHttp(partial(resolved, executor=threads))
        self._permits = SharedConcurrency(MOST_REQUESTS, what="requests that fetch images")

    async def fetched(self, prompt: ChatPrompt, caller: str) -> ChatPrompt:
        """The prompt with the images themselves, one fetched after the other.

        Raises:
            InvalidRequest: one of them cannot be fetched, or is none, or has too many pixels.
            RateLimited: too many requests fetch images now.
        """
        has_links = any(image.url is not None for image in prompt.images)
        images, total, left = list(prompt.images), 0, self._most_bytes
        now = asyncio.get_running_loop().time
        until = now() + TIMEOUT_S
        with self._permits.permits(caller) if has_links else nullcontext():
            for number, image in enumerate(images):
                try:
                    if image.url is not None:
                        data = await asyncio.wait_for(self._file(image.url, left), until - now())
                        left -= len(data)
                        images[number] = replace(_image(data), place=image.place)
                    await asyncio.sleep(0)  # each image takes up to a few milliseconds
                    total += pixels(b64decode(images[number].base64))
                    if total <= MOST_PIXELS:
                        continue
                    why = f"up to it there are over {MOST_PIXELS} pixels"
                except FetchFailed as error:
                    why = str(error)
                except asyncio.TimeoutError:
                    why = f"it was not complete within {TIMEOUT_S:g} s"
                except NoSize:
                    why = "its head says no size"
                except UNREACHABLE:  # it may be a host of the server's network: no more is said
                    why = "it cannot be reached"
                raise InvalidRequest(
                    f"The image {echoed(image.url or image.media_type)} cannot be used: {why}. "
                    "Send a smaller one, or its bytes as data:image/png;base64,…",
                    code=ErrorCode.INVALID_MESSAGES,
                    param=prompt.place_of_image(number),
                )
        return replace(prompt, images=tuple(images))

    async def _file(self, url: str, most: int) -> bytes:
        request = httpx.Request("GET", url, headers={**OUR_HEADERS, "Accept": "image/*"})
        async with self._http.response(request) as response:
            if response.status_code != 200:
                is_moved = ", a redirect, which is not followed" if response.is_redirect else ""
                why = f"its server answers with status {response.status_code}{is_moved}"
                raise FetchFailed(CallStatus.FAILED, why)
            return await body_of(response, most)


def _image(data: bytes) -> Image:
    if (kind := media_type(data)) is None:
        raise FetchFailed(CallStatus.FAILED, NO_IMAGE)
    return Image(media_type=kind, base64=b64encode(data).decode())
