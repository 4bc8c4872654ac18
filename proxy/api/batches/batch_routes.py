"""/v1/files and /v1/batches."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse

from proxy.access.concurrency import SharedConcurrency
from proxy.api.batches.batch_bodies import (
    Batch,
    BatchBody,
    BatchesQuery,
    BatchPage,
    DeletedFile,
    FileObject,
    FilePage,
    FilesQuery,
    KeepSeconds,
)
from proxy.api.batches.batch_store import BatchStore, Opened, new_batch_id
from proxy.api.batches.files import DAY_S, MB, Files, Owner, new_id, too_large
from proxy.api.batches.manifest import BATCHES, FILES
from proxy.api.batches.multipart import MultipartReader, boundary_of, malformed
from proxy.api.batches.runner import BatchRunner
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.route_scopes import ROUTES
from proxy.api.http.typed_route import typed_router
from proxy.api.openai.field_types import Json
from proxy.api.openapi.responses import BODY, answers
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError, echoed
from proxy.domain.identity import Scope, current_caller

UPLOADS = 32  # at once; a quarter of one tenant
FIELD_BYTES = 4_096
FORM_BYTES = 65_536  # of an upload, besides the file
LONGEST_NAME = 255
_SECONDS: TypeAdapter[int] = TypeAdapter(KeepSeconds)
FileId = Annotated[str, Path(min_length=1, max_length=128, description="A file's id.")]
BatchId = Annotated[str, Path(min_length=1, max_length=128, description="A batch's id.")]
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["purpose", "file"],
                    "properties": {
                        "purpose": {"const": "batch"},
                        "file": {"type": "string", "format": "binary"},
                        "expires_after[anchor]": {"const": "created_at"},
                        "expires_after[seconds]": {"type": "integer"},
                    },
                }
            }
        },
    }
}
CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def routes(
    files: Files, store: BatchStore, runner: BatchRunner, owner: Owner, *, bodies: BodyReader
) -> list[APIRouter]:
    file_router = typed_router(bodies, FILES, tag="files")
    batch_router = typed_router(bodies, BATCHES, tag="batches")
    uploads = SharedConcurrency(UPLOADS, what="uploads")

    def folder(http: Request) -> str:
        return owner.folder(caller_name(http.scope))

    async def opened(http: Request, batch_id: str) -> Opened:
        if (batch := await store.opened(folder(http), batch_id)) is None:
            raise RequestError(
                f"There is no batch {echoed(batch_id)}.", code=ErrorCode.BATCH_NOT_FOUND
            )
        return batch

    @file_router.post("", responses=answers(FileObject, *BODY), openapi_extra=UPLOAD)
    async def create_file(http: Request) -> Response:
        """Uploads the requests of a batch, as a form with `purpose` and `file`."""
        tenant, id = folder(http), new_id("file-")
        most = int(files.limits.max_file_mb * MB)
        with uploads.permits(caller_name(http.scope)):
            try:
                reader = MultipartReader(_pieces(http, most), _boundary(http, most))
                fields, name, size = await _read_form(reader, files, tenant, id)
                keep_s = _keep_s(fields)
                await files.check_room(tenant)
                file = await files.publish(
                    tenant,
                    id,
                    name=name,
                    size=size,
                    purpose="batch",
                    keep_s=keep_s,
                    at=int(time.time()),
                )
            except Exception:
                await files.delete(tenant, id)
                raise
        return JSONResponse(file)

    @file_router.get("", responses=answers(FilePage, 400, 503))
    async def list_files(http: Request, query: Annotated[FilesQuery, Query()]) -> Response:
        """Your files, the newest first unless `order` says otherwise."""
        found = await files.all(folder(http))
        found = [each for each in found if query.purpose in (None, each["purpose"])]
        if query.order == "desc":
            found.reverse()
        ids = [each["id"] for each in found]
        start = _after(ids, query.after)
        return _page(found[start : start + query.limit], start + query.limit < len(found))

    @file_router.get("/{file_id}", responses=answers(FileObject, 404, 503))
    async def retrieve_file(http: Request, file_id: FileId) -> Response:
        """The name, size and dates of a file."""
        return JSONResponse(await files.get(folder(http), file_id))

    @file_router.get("/{file_id}/content", responses=answers(None, 404, 503, content=CONTENT))
    async def retrieve_file_content(http: Request, file_id: FileId) -> Response:
        """A file's bytes."""
        tenant = folder(http)
        file = await files.get(tenant, file_id)
        return StreamingResponse(
            files.objects.pieces(f"{tenant}/files/{file_id}"),
            headers={"content-length": str(file["bytes"])},
            media_type="application/octet-stream",
        )

    @file_router.delete("/{file_id}", responses=answers(DeletedFile, 404, 503))
    async def delete_file(http: Request, file_id: FileId) -> Response:
        """Removes a file. Batches that read it continue."""
        tenant = folder(http)
        await files.get(tenant, file_id)
        await files.delete(tenant, file_id)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})

    @batch_router.post("", responses=answers(Batch, *BODY, 404))
    async def create_batch(http: Request, body: BatchBody) -> Response:
        """Begins a batch: its requests run where rows are idle, within 24 hours."""
        caller, need = current_caller.get(), ROUTES[body.endpoint].need
        if isinstance(need, Scope) and not caller.may(need):
            raise RequestError(
                f"This API key lacks the scope {need.value!r}, which {body.endpoint} needs.",
                code=ErrorCode.INSUFFICIENT_SCOPE,
                param="endpoint",
            )
        tenant = folder(http)
        file = await files.get(tenant, body.input_file_id, "input_file_id")
        if file["purpose"] != "batch":
            raise InvalidRequest(
                "'input_file_id' names a file with another purpose than 'batch'.",
                param="input_file_id",
            )
        days = files.limits.files_keep_days
        batch = Opened(
            id=new_batch_id(),
            tenant=tenant,
            created_at=int(time.time()),
            endpoint=body.endpoint,
            input_file_id=body.input_file_id,
            metadata=body.metadata,
            keep_s=body.output_expires_after.seconds if body.output_expires_after else days * DAY_S,
            caller=caller,
            caller_name=caller_name(http.scope),
        )
        await store.open(batch, f"{tenant}/files/{body.input_file_id}")
        runner.poke()
        return JSONResponse(batch.body("validating"))

    @batch_router.get("", responses=answers(BatchPage, 400, 503))
    async def list_batches(http: Request, query: Annotated[BatchesQuery, Query()]) -> Response:
        """Your batches, the newest first."""
        tenant = folder(http)
        ids = (await store.ids(tenant))[::-1]
        start = _after(ids, query.after)
        found = []
        for id in ids[start : start + query.limit]:
            if (batch := await store.opened(tenant, id)) is not None:
                found.append(await store.body(batch))
        return _page(found, start + query.limit < len(ids))

    @batch_router.get("/{batch_id}", responses=answers(Batch, 404, 503))
    async def retrieve_batch(http: Request, batch_id: BatchId) -> Response:
        """How far a batch is."""
        return JSONResponse(await store.body(await opened(http, batch_id)))

    @batch_router.post("/{batch_id}/cancel", responses=answers(Batch, 400, 404, 503))
    async def cancel_batch(http: Request, batch_id: BatchId) -> Response:
        """Ends a batch. Its output has the requests that are answered."""
        batch = await opened(http, batch_id)
        await store.cancel(batch)
        runner.poke()
        return JSONResponse(await store.body(batch))

    return [file_router, batch_router]


def _boundary(http: Request, most: int) -> bytes:
    """Raises RequestError: a web page sends it, it is compressed, too large, or no form."""
    headers = http.headers
    kind = headers.get("content-type", "")
    # The types of forms are those that any web page may send to this server.
    if "origin" in headers or (boundary := boundary_of(kind)) is None:
        raise RequestError(
            "A file must be sent as multipart/form-data with a boundary, and not from a web page "
            f"(given: {echoed(kind)}).",
            code=ErrorCode.UNSUPPORTED_CONTENT_TYPE,
        )
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise RequestError("The body is compressed.", code=ErrorCode.UNSUPPORTED_ENCODING)
    if int(headers.get("content-length", 0)) > most + FORM_BYTES:
        raise too_large(most)
    return boundary


async def _pieces(http: Request, most: int) -> AsyncIterator[bytes]:
    """The pieces of the body.

    Raises:
        RequestError: they have too many bytes.
        ClientDisconnect: the caller has left.
    """
    size, has_more = 0, True
    while has_more:
        message = await http.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece, has_more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > most + FORM_BYTES:
            raise too_large(most)
        if piece:
            yield piece


async def _read_form(
    reader: MultipartReader, files: Files, tenant: str, id: str
) -> tuple[dict[str, str], str, int]:
    """The fields; name and bytes of the file, whose contents are written."""
    fields, name, size = dict[str, str](), None, 0
    async for part in reader.parts():
        if part.name in fields or (part.name == "file" and name is not None):
            raise malformed(f"it has {part.name[:100]!r} twice")
        if part.name == "file":
            name = (part.filename or "file")[:LONGEST_NAME]
            size = await files.create(tenant, id, part.pieces)
            continue
        value = b""
        async for piece in part.pieces:
            value += piece
            if len(value) > FIELD_BYTES:
                raise malformed(f"{part.name[:100]!r} is longer than {FIELD_BYTES} bytes")
        fields[part.name] = value.decode("utf-8", "replace")
    if name is None:
        raise InvalidRequest("'file' is missing.", code=ErrorCode.MISSING_PARAMETER, param="file")
    return fields, name, size


def _keep_s(fields: dict[str, str]) -> int:
    """Seconds for which the file is kept. Raises InvalidRequest: a field is unknown or wrong."""
    anchor, seconds = "expires_after[anchor]", "expires_after[seconds]"
    for name in fields:
        if name not in ("purpose", anchor, seconds):
            raise InvalidRequest(
                f"{name[:100]!r} is unknown.",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
                param=name[:100],
            )
    if (purpose := fields.get("purpose")) != "batch":
        raise InvalidRequest(
            f"'purpose' must be 'batch' (given: {echoed(purpose)}).", param="purpose"
        )
    if anchor not in fields and seconds not in fields:
        return 10**9
    if fields.get(anchor) != "created_at":
        raise InvalidRequest(f"'{anchor}' must be 'created_at'.", param=anchor)
    try:
        return _SECONDS.validate_python(fields.get(seconds))
    except ValidationError:
        raise InvalidRequest(
            f"'{seconds}' must be an integer from 3600 to 2592000.", param=seconds
        ) from None


def _after(ids: Sequence[str], after: str | None) -> int:
    """Raises InvalidRequest: there is none with this id."""
    if after is None:
        return 0
    if after not in ids:
        raise InvalidRequest(
            f"'after' is {echoed(after)}, which is not in the list.", param="after"
        )
    return ids.index(after) + 1


def _page(shown: Sequence[Json], has_more: bool) -> Response:
    page = {
        "object": "list",
        "data": [*shown],
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }
    return Response(orjson.dumps(page), media_type="application/json")
