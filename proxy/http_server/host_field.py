"""Refuses requests whose Host field violates RFC 9112, 3.2. Used by `slow_senders`.

A server in front of this one might take a request with two Host fields, or a malformed one, as
meant for another host than we do.
"""

from __future__ import annotations

import re

from triton_openai.proxy.domain.errors import ErrorCode
from triton_openai.proxy.http_server.parsing_limits import BoundedParsing

# RFC 3986, 3.2.2 and 3.2.3: a name, an address, an address in brackets; and a port.
VALID = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[0-9A-Fa-fv.:]+\])(?::[0-9]*)?", re.ASCII)


class HostFieldCheck(BoundedParsing):
    """Each request has exactly one valid Host field; HTTP/1.0 may omit it."""

    def on_headers_complete(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        if fault := self._fault(hosts):
            self.stop_parsing(ErrorCode.INVALID_HOST, fault)
        super().on_headers_complete()

    def _fault(self, hosts: list[bytes]) -> str | None:
        if len(hosts) > 1:
            return "The request has more than one Host field."
        if not hosts:
            is_old = self.parser.get_http_version() == "1.0"
            return None if is_old else "The request has no Host field, which HTTP/1.1 requires."
        return None if VALID.fullmatch(hosts[0]) else "The request's Host field is malformed."
