"""Fetches the images that a chat names by URL. Called by the service, once a request may run."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import httpx

from proxy.access.concurrency import SharedConcurrency
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.image import MEDIA_TYPES, Image, media_type
from proxy.domain.request import ChatPrompt
from proxy.domain.server_tools import CallStatus
from proxy.server_tools.addresses import resolved
from proxy.server_tools.pinned_http import OUR_HEADERS, FetchFailed, PinnedHttp, body_of

TIMEOUT_S = 10.0  # for all images of a request
MOST_REQUESTS = 64  # that fetch at once
NO_IMAGE = f"by its first bytes it is none of {', '.join(MEDIA_TYPES)}"
UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)


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
            InvalidRequest: one of them cannot be fetched, or is none.
            RateLimited: too many requests fetch images now.
        """
        if all(image.url is None for image in prompt.images):
            return prompt
        now = asyncio.get_running_loop().time
        images, left, until = list(prompt.images), self._most_bytes, now() + TIMEOUT_S
        with self._permits.permits(caller):
            for number, image in enumerate(images):
                if image.url is None:
                    continue
                try:
                    data = await asyncio.wait_for(self._file(image.url, left), until - now())
                    if (kind := media_type(data)) is None:
                        raise FetchFailed(CallStatus.FAILED, NO_IMAGE)
                except FetchFailed as error:
                    why = str(error)
                except asyncio.TimeoutError:
                    why = f"it was not complete within {TIMEOUT_S:g} s"
                except UNREACHABLE:  # it may be a host of the server's network: no more is said
                    why = "it cannot be reached"
                else:
                    left -= len(data)
                    images[number] = Image(media_type=kind, base64=b64encode(data).decode())
                    continue
                raise InvalidRequest(
                    f"The image {echoed(image.url)} cannot be used: {why}. Send its bytes as "
                    "data:image/png;base64,…",
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
