"""Calls tools that are HTTP endpoints. Made by `app`, used by `tool_loop`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import httpx

from proxy.domain.server_tools import CallStatus, ServerTool, ToolResult
from proxy.server_tools.addresses import Resolve, resolved
from proxy.server_tools.pinned_http import OUR_HEADERS, FetchFailed, PinnedHttp, body_of

SHOWN_ERROR_CHARS = 500  # of an error's body, to the model
TEXT_TYPES = ("text/", "application/json", "application/xml", "application/problem+json")
# All others are read as UTF-8: Python knows codecs that a server could hold the event loop with.
CHARSETS = {"iso-8859-1": "latin-1", "latin-1": "latin-1", "windows-1252": "cp1252"}
HEADERS = {**OUR_HEADERS, "Accept": "application/json, text/*"}


_VARIABLE = re.compile(r"\$\{(\w+)\}")
HIDDEN = "[secret]"


class HeaderSecrets:
    """Inserts secrets into a tool's headers, and removes them from its answers.

    `values`: the secrets by the name of their environment variable. They are never logged.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def including(self, earlier: HeaderSecrets) -> HeaderSecrets:
        """With those of `earlier` that these lack: running requests may still need them."""
        return HeaderSecrets({**earlier._values, **self._values})

    def fill(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers, with each `${NAME}` replaced by its secret."""
        return {
            name: _VARIABLE.sub(lambda found: self._values[found[1]], value)
            for name, value in headers.items()
        }

    def redact(self, text: str) -> str:
        """The text without secrets, in case an endpoint echoes its headers."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return text


class _Failed(Exception):
    """The call failed. `text` tells the model why."""

    def __init__(self, status: CallStatus, text: str, response_bytes: int = 0) -> None:
        super().__init__(text)
        self.result = ToolResult(status=status, text=text, response_bytes=response_bytes)


class HttpToolRunner:
    """Implements domain.server_tools.ToolRunner."""

    def __init__(self, secrets: HeaderSecrets, resolve: Resolve = resolved) -> None:
        self._secrets = secrets
        self._http = PinnedHttp(resolve)

    def replace_secrets(self, secrets: HeaderSecrets) -> None:
        """When models.yaml has changed. Running requests keep those of tools that are gone."""
        self._secrets = secrets.including(self._secrets)

    async def run(
        self, tool: ServerTool, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> ToolResult:
        try:
            result = await asyncio.wait_for(self._called(tool, arguments), timeout_s)
        except _Failed as failure:
            result = failure.result
        except FetchFailed as failure:
            text = f"The tool failed: {failure}."
            result = ToolResult(status=failure.status, text=text, response_bytes=failure.received)
        except asyncio.TimeoutError:
            text = f"The tool did not answer within {timeout_s:g} s."
            result = ToolResult(status=CallStatus.TIMEOUT, text=text)
        except (OSError, UnicodeError):
            text = "The tool cannot be reached at present."
            result = ToolResult(status=CallStatus.FAILED, text=text)
        return replace(result, text=self._secrets.redact(result.text))

    async def _called(self, tool: ServerTool, arguments: Mapping[str, Any]) -> ToolResult:
        request = _request(tool, arguments, self._secrets.fill(tool.headers))
        allows_private = tool.allow_private_addresses
        async with self._http.response(request, allows_private=allows_private) as response:
            kind = response.headers.get("content-type", "text/plain").lower()
            if not response.is_redirect and not (kind.startswith(TEXT_TYPES) or "+json" in kind):
                why = "The tool failed: its answer is neither text nor JSON."
                raise _Failed(CallStatus.FAILED, why)
            data = await body_of(response, tool.max_response_bytes)
        charset = (response.charset_encoding or "").lower()
        text = data.decode(CHARSETS.get(charset, "utf-8"), errors="replace")
        if response.is_redirect:
            why = f"The tool failed: it redirects ({response.status_code}), which is not followed."
            raise _Failed(CallStatus.FAILED, why, len(data))
        if response.status_code >= 400:
            why = f"The tool failed with status {response.status_code}: {text[:SHOWN_ERROR_CHARS]}"
            raise _Failed(CallStatus.FAILED, why, len(data))
        return ToolResult(status=CallStatus.OK, text=text, response_bytes=len(data))


def _request(
    tool: ServerTool, arguments: Mapping[str, Any], headers: Mapping[str, str]
) -> httpx.Request:
    url = httpx.URL(tool.url)
    if tool.method == "GET":
        url = url.copy_merge_params(_query(arguments, url.params))
        return httpx.Request("GET", url, headers={**HEADERS, **headers})
    return httpx.Request("POST", url, headers={**HEADERS, **headers}, json=dict(arguments))


def _query(
    arguments: Mapping[str, Any], fixed: Iterable[str]
) -> dict[str, str | int | float | bool]:
    """The arguments as query parameters; those that are null are left out.

    fixed: names of parameters that the tool's URL sets. Some servers ignore case in names.
    """
    taken = {name.casefold() for name in fixed}
    for name, value in arguments.items():
        if name.casefold() in taken:
            raise _Failed(
                CallStatus.INVALID_ARGUMENTS, f"The argument {name!r} is fixed: leave it out."
            )
        if isinstance(value, (dict, list)):
            raise _Failed(
                CallStatus.INVALID_ARGUMENTS,
                f"The argument {name!r} must be a string, a number or a boolean.",
            )
    return {name: value for name, value in arguments.items() if value is not None}
