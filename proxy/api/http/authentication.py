"""Finds out who calls, before anything of the body is read. Called by `application`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from ipaddress import ip_address, ip_network

from starlette.types import Scope as Connection

from proxy.access.authentication.authenticator import Authenticator
from proxy.api.manifest import Need
from proxy.domain.errors import ErrorCode, ProxyError, RequestError, in_short
from proxy.domain.identity import Caller, Scope, current_caller
from proxy.domain.record import RequestRecord
from proxy.telemetry.metrics import Metrics

# In the scope of a WebSocket: authenticates it again, for the record of one of its messages.
ADMIT = "admit"
# In the scope of a request that this process makes for a caller that it has accepted before.
KNOWN_CALLER = "known_caller"

Denied = Callable[[str, str, Caller | None, ErrorCode], None]


def no_audit(method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
    """Notes nothing."""


class Authentication:
    """denied: is called for each refusal of a route that needs the scope `admin`, for the audit
    log; it must not block.
    """

    def __init__(
        self, authenticator: Authenticator, metrics: Metrics, denied: Denied = no_audit
    ) -> None:
        self._authenticator = authenticator
        self._denied = denied
        self._outcomes = cache(metrics.authentications.labels)

    async def caller(self, connection: Connection, need: Need, record: RequestRecord) -> Caller:
        """
        Raises:
            ProxyError: what the authenticator raises, or a RequestError for a missing scope.
        """
        caller = None
        # `server` keeps the connection's own address where uvicorn puts a forwarded one
        peer = connection.get("peer") or connection.get("client") or ("",)
        try:
            if (known := connection.get(KNOWN_CALLER)) is not None:
                caller = await self._authenticator.again(known)
            else:
                caller = await self._authenticator.caller(connection["headers"], str(peer[0]))
            record.tenant, record.key_id = caller.tenant, caller.key_id
            if isinstance(need, Scope) and not caller.may(need):
                raise RequestError(
                    f"This API key lacks the scope {need.value!r}, which this route needs.",
                    code=ErrorCode.INSUFFICIENT_SCOPE,
                )
        except ProxyError as error:
            self._outcomes(error.code.value).inc()
            if need is Scope.ADMIN:
                method = connection.get("method", "WEBSOCKET")
                self._denied(method, in_short(connection["path"]), caller, error.code)
            raise
        self._outcomes("ok").inc()
        return caller


SITE_BITS = 64  # of an IPv6 address; a site chooses the other bits freely


def caller_name(scope: Connection) -> str:
    """For what is shared fairly: tenant and key of `current_caller`, its address if it has none.

    uvicorn has replaced the address of a proxy in FORWARDED_ALLOW_IPS by the one that it forwards.
    """
    who, client = current_caller.get(), scope.get("client")
    if not who.is_shared:
        return f"{who.tenant}/{who.key_id}"
    return "" if client is None else _site(client[0])


@lru_cache(maxsize=4096)
def _site(host: str) -> str:
    """An IPv4 address or a host name as it is; of an IPv6 address the /64."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ip_network((address, SITE_BITS), strict=False))
