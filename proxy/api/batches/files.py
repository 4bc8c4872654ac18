"""The files of tenants. A file is there once `about` it is; its contents are written before."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex

import orjson

from proxy.api.openai.field_types import Json
from proxy.domain.errors import ErrorCode, RateLimited, RequestError, echoed
from proxy.domain.identity import TENANT_NAME, current_caller
from proxy.settings.state import Batches as Limits
from proxy.state.objects import Objects

DAY_S = 86_400
MOST_FILES = 1_000  # of one tenant
READ_AT_ONCE = 16
ID = re.compile(r"file-[0-9a-f]{24}")
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose files they are: not those of a deleted tenant that had the same name. has_one_caller:
    callers without a name are one, else their addresses tell them apart.
    """

    has_one_caller: bool

    def folder(self, caller: str) -> str:
        """caller: see authentication.caller_name."""
        who = current_caller.get()
        if not who.is_shared and re.fullmatch(TENANT_NAME, who.tenant):
            since = f"={who.tenant_since}" if who.tenant_since else ""
            return f"tenants/{who.tenant}{since}"
        name = who.tenant if not who.is_shared else "" if self.has_one_caller else caller
        return f"tenants/-{sha256(name.encode()).hexdigest()[:32]}"


def new_id(prefix: str, mark: str | None = None, at_s: float | None = None) -> str:
    """In order of time. mark: 13 hex digits in place of random ones."""
    ms = int((time.time() if at_s is None else at_s) * 1000)
    return f"{prefix}{ms:011x}{mark or token_hex(7)[:13]}"


def created_s(id: str, prefix: str) -> float:
    return int(id[len(prefix) :][:11], 16) / 1000


class Files:
    """tenant: the folder of an Owner."""

    def __init__(self, objects: Objects, limits: Limits) -> None:
        self.objects = objects
        self.limits = limits

    async def create(self, tenant: str, id: str, pieces: AsyncIterator[bytes]) -> int:
        """Writes the contents; returns their bytes. Raises RequestError: they are too large."""
        size, most = 0, int(self.limits.max_file_mb * MB)

        async def bounded() -> AsyncIterator[bytes]:
            nonlocal size
            async for piece in pieces:
                size += len(piece)
                if size > most:
                    raise too_large(most)
                yield piece

        await self.objects.write(f"{tenant}/files/{id}", bounded())
        return size

    async def publish(
        self, tenant: str, id: str, *, name: str, size: int, purpose: str, keep_s: int, at: int
    ) -> Json:
        """What the API says of the file, whose contents are there. keep_s: at most."""
        file = {
            "id": id,
            "object": "file",
            "bytes": size,
            "created_at": at,
            "filename": name,
            "purpose": purpose,
            "status": "processed",
            "expires_at": at + min(keep_s, self.limits.files_keep_days * DAY_S),
        }
        await self.objects.create(f"{tenant}/about/{id}", orjson.dumps(file))
        return file

    async def check_room(self, tenant: str) -> None:
        """Counts what is there already, so that uploads at the same time are counted, too.

        Raises RateLimited: the tenant has too many files, or too many bytes.
        """
        held = await self.objects.below(f"{tenant}/files")
        most = self.limits.max_tenant_files_mb
        if len(held) > MOST_FILES or sum(size for _, size in held) > most * MB:
            raise RateLimited(
                f"Your files are more than {most:g} MB (the setting MAX_TENANT_FILES_MB), or more "
                f"than {MOST_FILES}: delete some.",
                retry_after_s=float("inf"),
                code=ErrorCode.INSUFFICIENT_QUOTA,
            )

    async def get(self, tenant: str, id: str, param: str | None = None) -> Json:
        """Raises RequestError: there is none with this id, or it is another's, or has expired."""
        found = None
        if ID.fullmatch(id):
            found = await self.objects.read(f"{tenant}/about/{id}")
        if found is None or (file := orjson.loads(found))["expires_at"] <= time.time():
            raise RequestError(
                f"There is no file {echoed(id)}: it may have expired, or been deleted.",
                code=ErrorCode.FILE_NOT_FOUND,
                param=param,
            )
        whole: Json = file
        return whole

    async def all(self, tenant: str) -> list[Json]:
        """Those that have not expired, the oldest first."""
        ids = [id for id, _ in await self.objects.below(f"{tenant}/about")]
        files: list[Json] = []
        for at in range(0, len(ids), READ_AT_ONCE):
            reads = (self.objects.read(f"{tenant}/about/{id}") for id in ids[at:][:READ_AT_ONCE])
            files += (orjson.loads(each) for each in await asyncio.gather(*reads) if each)
        return [each for each in files if each["expires_at"] > time.time()]

    async def delete(self, tenant: str, id: str) -> None:
        await self.objects.delete([f"{tenant}/about/{id}", f"{tenant}/files/{id}"])

    async def remove_expired(self, tenant: str) -> None:
        """Also contents without a file: of an upload whose process has ended, a day ago."""
        known = {each["id"] for each in await self.all(tenant)}
        for id in {path for path, _ in await self.objects.below(f"{tenant}/files")} - known:
            found = await self.objects.read(f"{tenant}/about/{id}")  # it may be there by now
            ends_at = created_s(id, "file-") + DAY_S
            if found is not None:
                ends_at = orjson.loads(found)["expires_at"]
            if ends_at <= time.time():
                await self.delete(tenant, id)


def too_large(most: int) -> RequestError:
    return RequestError(
        f"The file is larger than {most} bytes (the setting MAX_FILE_MB).",
        code=ErrorCode.REQUEST_TOO_LARGE,
        param="file",
    )
