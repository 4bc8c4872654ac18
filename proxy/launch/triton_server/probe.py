"""One HTTP GET to loopback, to learn whether a server of ours is ready."""

from __future__ import annotations

import asyncio


async def get(host: str, port: int, path: str, timeout_s: float = 2.0) -> tuple[int, str]:
    """Status and body.

    Raises:
        OSError: nobody listens there, or it does not answer in time or in HTTP.
    """
    try:
        return await asyncio.wait_for(_get(host, port, path), timeout_s)
    except (asyncio.TimeoutError, ValueError, IndexError) as error:
        raise OSError(f"{host}:{port} gave no answer") from error


async def _get(host: str, port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        head, _, body = (await reader.read(-1)).decode(errors="replace").partition("\r\n\r\n")
        return int(head.split(" ", 2)[1]), body
    finally:
        writer.close()
