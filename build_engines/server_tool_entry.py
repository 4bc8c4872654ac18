"""A server-run tool in models.yaml."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from build_engines.section import Section

# Headers that HTTP itself sets; operators may not.
RESERVED_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "expect",
        "te",
        "trailer",
        "upgrade",
    }
)
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is not a URL such as https://example.com/weather")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("a tool's URL has no user, password or fragment: put keys in 'headers'")
    if "{" in text:
        raise ValueError(f"{text!r} has a placeholder: arguments go into the query or the body")
    return text


def _header_name(name: str) -> str:
    if name.lower() in RESERVED_HEADERS:
        raise ValueError(f"header {name!r} is set by the proxy")
    return name


def _header_value(text: str) -> str:
    if "${" in VARIABLE.sub("", text):
        raise ValueError("has a ${ without a variable's name, such as ${WEATHER_KEY}")
    return text


ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
HeaderName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_\-]{1,64}$"), AfterValidator(_header_name)
]
HeaderValue = Annotated[
    str, StringConstraints(pattern=r"^[\x20-\x7e]{0,4096}$"), AfterValidator(_header_value)
]


class ServerToolEntry(Section):
    """One tool. parameters: a JSON Schema of the arguments; POST sends them as body, GET as query.

    headers: ${NAME} in a value stands for a variable of the proxy's environment.
    """

    url: Annotated[str, StringConstraints(max_length=2048), AfterValidator(_url)]
    method: Literal["GET", "POST"] = "POST"
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    max_response_bytes: Annotated[int, Field(ge=1, le=16_777_216)] = 65_536
    allow_private_addresses: bool = False

    @property
    def variables(self) -> frozenset[str]:
        """Names of the environment variables that the headers use."""
        return frozenset(name for text in self.headers.values() for name in VARIABLE.findall(text))
