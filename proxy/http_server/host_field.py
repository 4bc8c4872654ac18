"""The Host field of a request, as RFC 9112, 3.2 has it. For `connections`.

A server in front of this one might read a request with two of them, or with a malformed one, as
being for another host than we do.
"""

from __future__ import annotations

import re

from triton_openai.proxy.domain.errors import ErrorCode
from triton_openai.proxy.http_server.parsing_limits import BoundedParsing

# RFC 3986, 3.2.2 and 3.2.3: a name, an address, an address in brackets; and a port.
VALID = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[0-9A-Fa-fv.:]+\])(?::[0-9]*)?", re.ASCII)


class OneHost(BoundedParsing):
    """One valid Host field in each request; HTTP/1.0 may do without."""

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
            return None if is_old else "The request has no Host field, which HTTP/1.1 demands."
        return None if VALID.fullmatch(hosts[0]) else "The request's Host field names no host."
