"""What each route needs of its caller: the one list of scopes, for HTTP and WebSockets.

The application does not start with a route that is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from starlette.routing import compile_path

from proxy.domain.identity import Scope

ADMINISTRATION = "/admin/"
RETURN_SECRETS = "/admin/v1/keys"  # the prefix of routes whose answers are new keys
KSERVE, KSERVE_HEALTH = "/v2/", "/v2/health/"
MESSAGES = "/v1/messages"  # Anthropic's API begins so


class Open(Enum):
    """What needs no scope. ANYBODY: no key either. CALLER: any key or token that is accepted."""

    ANYBODY = "anybody"
    CALLER = "caller"


Need = Scope | Open

# Requests whose route needs one of these generate nothing.
COUNTED = frozenset({Scope.TOKENS, Scope.MODELS, Scope.KSERVE})
KEPT_RESPONSES = "/v1/responses/"
NOT_KEPT = ("/v1/responses/compact", "/v1/responses/input_tokens")

NEEDS: Mapping[str, Need] = {
    "/v1/chat/completions": Scope.CHAT,
    "/v1/chat/completions/ws": Scope.CHAT,
    "/chat/json": Scope.CHAT,
    "/chat/stream": Scope.CHAT,
    "/chat/sse": Scope.CHAT,
    MESSAGES: Scope.CHAT,
    "/v1/responses": Scope.CHAT,
    "/v1/responses/compact": Scope.CHAT,
    "/v1/responses/{response_id}": Scope.CHAT,
    "/v1/responses/{response_id}/cancel": Scope.CHAT,
    "/v1/responses/{response_id}/input_items": Scope.CHAT,
    "/v1/responses/input_tokens": Scope.TOKENS,
    "/v1/completions": Scope.COMPLETIONS,
    "/v1/embeddings": Scope.EMBEDDINGS,
    "/v1/rerank": Scope.EMBEDDINGS,
    "/v1/score": Scope.EMBEDDINGS,
    # as other clients ask for the last two
    "/v2/rerank": Scope.EMBEDDINGS,
    "/rerank": Scope.EMBEDDINGS,
    "/score": Scope.EMBEDDINGS,
    "/v1/chat/completions/render": Scope.TOKENS,
    "/v1/messages/count_tokens": Scope.TOKENS,
    "/tokenize": Scope.TOKENS,
    "/detokenize": Scope.TOKENS,
    "/v1/models": Scope.MODELS,
    "/v1/models/{model:path}": Scope.MODELS,
    "/dynamo/alpha/list-models": Scope.MODELS,
    "/metrics": Scope.METRICS,
    "/metrics/live": Scope.METRICS,
    "/v1/usage": Open.CALLER,
    # Load balancers have no key. The answers name no model.
    "/health": Open.ANYBODY,
    "/health/live": Open.ANYBODY,
    "/health/ready": Open.ANYBODY,
    "/ping": Open.ANYBODY,
    # The web page and the documentation. A browser sends no key when it opens a page, and the pages
    # describe the software: no model, tenant or number of this server is in them but its limits.
    "/": Open.ANYBODY,
    "/page/{name:path}": Open.ANYBODY,
    "/v1": Open.ANYBODY,
    "/version": Open.ANYBODY,
    "/docs": Open.ANYBODY,
    "/docs/{name}": Open.ANYBODY,
    "/redoc": Open.ANYBODY,
    "/openapi.json": Open.ANYBODY,
}


class RouteScopes:
    """Finds the need of a request's path. A path without a route needs a caller, who gets a 404."""

    def __init__(self, *, public_metrics: bool = False) -> None:
        opened = {"/metrics": Open.ANYBODY} if public_metrics else {}
        needs = {**NEEDS, **opened}
        self._fixed = {path: need for path, need in needs.items() if "{" not in path}
        self._patterns = [
            (compile_path(path)[0], need) for path, need in needs.items() if "{" in path
        ]

    def of(self, path: str) -> Need:
        """path: as ASGI has it, decoded."""
        need = self._fixed.get(path)
        return self._of_pattern(path) if need is None else need

    def counts(self, path: str) -> bool:
        """Whether its requests generate nothing, so that the application counts them in the limits
        on requests. Generations are counted by the service, which knows what they cost.
        """
        return _is_kept(path) or self.of(path) in COUNTED

    def only_reads(self, method: str, path: str) -> bool:
        """Whether a counted request reads or ends what there is, so that it may run at any time."""
        return method == "GET" or _is_kept(path)

    def _of_pattern(self, path: str) -> Need:
        if path.startswith(ADMINISTRATION):
            return Scope.ADMIN
        if path.startswith(KSERVE) or path == KSERVE[:-1]:
            return Open.ANYBODY if path.startswith(KSERVE_HEALTH) else Scope.KSERVE
        return next((need for shape, need in self._patterns if shape.match(path)), Open.CALLER)


def _is_kept(path: str) -> bool:
    return path.startswith(KEPT_RESPONSES) and path not in NOT_KEPT


def check(routes: Iterable[Any]) -> None:
    """
    Raises:
        ValueError: a route's path is not in the list.
    """
    missing = {
        path
        for path in paths(routes)
        if path not in NEEDS and not f"{path}/".startswith((ADMINISTRATION, KSERVE))
    }
    if missing:
        raise ValueError(f"routes without a scope in route_scopes: {', '.join(sorted(missing))}")


def paths(routes: Iterable[Any]) -> Iterator[str]:
    """The paths of routes, with those of the routers that FastAPI has included."""
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:
            prefix = route.include_context.prefix
            yield from (f"{prefix}{path}" for path in paths(router.routes))
        else:
            yield getattr(route, "path", None) or repr(route)
