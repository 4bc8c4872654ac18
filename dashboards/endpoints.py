"""The endpoints of each pool, and the queues before them."""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable
from dashboards.promql import quantile, rate, total

POOL = 'pool=~"$pool"'
QUEUE = 'queue=~"($pool)/.*"'

ENDPOINTS = Row(
    title="Endpoints",
    panels=(
        Panel(
            title="Endpoints by state",
            note="The largest number that one proxy counts.",
            queries=(
                Query(
                    expr=f"max by (pool, state) (proxy_pool_endpoints{{{POOL}}}) > 0",
                    legend="{{pool}} {{state}}",
                ),
            ),
        ),
        Panel(
            title="Streams a second",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_endpoint_streams_total", "pool", "endpoint", where=POOL),
                    legend="{{pool}} {{endpoint}}",
                ),
            ),
        ),
        Panel(
            title="Streams that were lost or refused, a second",
            queries=(
                Query(
                    expr=rate(
                        "proxy_endpoint_streams_total",
                        "endpoint",
                        "outcome",
                        where=f'outcome=~"lost|refused", {POOL}',
                    ),
                    legend="{{endpoint}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            title="Tokens a second",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_endpoint_tokens_total", "pool", "endpoint", where=POOL),
                    legend="{{pool}} {{endpoint}}",
                ),
            ),
        ),
        Panel(
            title="Time to first token (95 %)",
            note="From the choice of the endpoint to its first response.",
            unit="s",
            queries=(
                Query(
                    expr=quantile(
                        0.95,
                        "proxy_endpoint_time_to_first_token_seconds",
                        "endpoint",
                        where=POOL,
                    ),
                    legend="{{endpoint}}",
                ),
            ),
        ),
        Panel(
            title="Cached prompt tokens a second",
            note="Where routing expects more than the engine finds, it is wrong about the cache.",
            queries=tuple(
                Query(
                    expr=rate(f"proxy_endpoint_{name}tokens_total", "endpoint", where=POOL),
                    legend=f"{{{{endpoint}}}} {legend}",
                )
                for name, legend in (("expected_cached_", "expected"), ("cached_", "found"))
            ),
        ),
        Panel(
            title="Ejections",
            note="Since the proxy started.",
            queries=(
                Query(
                    expr=total("proxy_endpoint_ejections_total", "endpoint", where=POOL),
                    legend="{{endpoint}}",
                ),
            ),
        ),
    ),
)

QUEUES = Row(
    title="Fair queues",
    panels=(
        Panel(
            title="Streams",
            note="The capacity is absent where there is no bound.",
            queries=tuple(
                Query(
                    expr=total(f"proxy_fair_queue_{state}", "queue", where=QUEUE),
                    legend=f"{{{{queue}}}} {state}",
                )
                for state in ("waiting", "running", "capacity")
            ),
        ),
        Panel(
            title="Wait",
            unit="s",
            queries=tuple(
                Query(
                    expr=quantile(share, "proxy_fair_queue_wait_seconds", "queue", where=QUEUE),
                    legend=f"{{{{queue}}}} {legend}",
                )
                for share, legend in ((0.5, "p50"), (0.99, "p99"))
            ),
        ),
        Panel(
            title="Refusals and preemptions, a second",
            queries=(
                Query(
                    expr=rate("proxy_fair_queue_refusals_total", "queue", "reason", where=QUEUE),
                    legend="{{queue}} {{reason}}",
                ),
                Query(
                    expr=rate("proxy_fair_queue_preemptions_total", "queue", where=QUEUE),
                    legend="{{queue}} preempted",
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="endpoints",
    title="endpoints",
    note="The endpoints of each pool, and the queues before them.",
    variables=(Variable(label="pool", metric="proxy_pool_endpoints", title="Pool"),),
    rows=(ENDPOINTS, QUEUES),
)
