"""All routes that operate pools. Called by `app`.

They change where requests go, so they are for callers with the scope `admin`. Where everybody who
reaches the proxy may do everything (AUTH=off), `app` leaves them out; without any key they serve
this machine, as the whole proxy does then.
"""

from __future__ import annotations

from fastapi import APIRouter

from proxy.api.http.body_reader import BodyReader
from proxy.api.pools import (
    deployments_routes,
    endpoints_routes,
    loading_routes,
    queues_routes,
)
from proxy.domain.audit_trail import AuditTrail
from proxy.domain.configured_deployments import ConfiguredDeployments
from proxy.domain.endpoints import Decisions, Pools
from proxy.domain.scheduling import Scheduler


def routes(
    pools: Pools,
    decisions: Decisions,
    deployments: ConfiguredDeployments,
    audit: AuditTrail,
    scheduler: Scheduler,
    *,
    bodies: BodyReader,
) -> tuple[APIRouter, ...]:
    return (
        endpoints_routes.routes(pools, decisions, bodies=bodies),
        loading_routes.routes(pools, audit, bodies=bodies),
        deployments_routes.routes(deployments, decisions, bodies=bodies),
        queues_routes.routes(scheduler),
    )
