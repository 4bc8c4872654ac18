"""One HTTP GET to loopback, to learn whether a server of ours is ready."""

from __future__ import annotations

import asyncio


async def get(host: str, port: int, path: str, timeout_s: float = 2.0) -> tuple[int, str]:
    """Status and body.

    Raises:
        OSError: nothing listens there, or it does not answer in time or in HTTP.
    """
    import httpx  # takes a tenth of a second, which a start does not wait for

    url = httpx.URL(scheme="http", host=host, port=port, path=path)
    try:
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            answer = await asyncio.wait_for(client.get(url), timeout_s)
    except (httpx.HTTPError, asyncio.TimeoutError) as error:
        raise OSError(f"{host}:{port} gave no answer") from error
    return answer.status_code, answer.text
