"""The dashboard of tenants: requests, tokens and waits. A bounded number of tenants have series of
their own; all others share `other`.
"""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable
from dashboards.promql import quantile, quantiles, rate

TENANT = 'tenant=~"$tenant"'

USE = Row(
    title="Use",
    panels=(
        Panel(
            title="Requests a second",
            unit="reqps",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_tenant_requests_total", "tenant", where=TENANT),
                    legend="{{tenant}}",
                ),
            ),
        ),
        Panel(
            title="Generated tokens a second",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_tenant_completion_tokens_total", "tenant", where=TENANT),
                    legend="{{tenant}}",
                ),
            ),
        ),
        Panel(
            title="Prompt tokens a second",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_tenant_prompt_tokens_total", "tenant", where=TENANT),
                    legend="{{tenant}}",
                ),
            ),
        ),
        Panel(
            title="Requests a second, by result",
            note="`refused`: an error of the caller's, or a limit. `failed`: an error of ours.",
            unit="reqps",
            queries=(
                Query(
                    expr=rate("proxy_tenant_requests_total", "tenant", "result", where=TENANT),
                    legend="{{tenant}} {{result}}",
                ),
            ),
        ),
        Panel(
            title="Limits that refused, a second",
            note="Of all tenants: the metric has no tenant.",
            unit="reqps",
            queries=(Query(expr=rate("proxy_limit_refusals_total", "limit"), legend="{{limit}}"),),
        ),
    ),
)

WAITS = Row(
    title="Waits",
    panels=(
        Panel(
            title="Time to first token",
            unit="s",
            queries=quantiles("proxy_tenant_time_to_first_token_seconds", where=TENANT),
        ),
        Panel(
            title="Time to first token, by tenant (95 %)",
            unit="s",
            queries=(
                Query(
                    expr=quantile(
                        0.95, "proxy_tenant_time_to_first_token_seconds", "tenant", where=TENANT
                    ),
                    legend="{{tenant}}",
                ),
            ),
        ),
        Panel(
            title="Queue time, by tenant (95 %)",
            note="Waiting for a row, in the proxy and in the engine.",
            unit="s",
            queries=(
                Query(
                    expr=quantile(0.95, "proxy_tenant_queue_time_seconds", "tenant", where=TENANT),
                    legend="{{tenant}}",
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="tenant",
    title="tenant",
    note="Requests, tokens and waits of each tenant.",
    variables=(Variable(label="tenant", metric="proxy_tenant_requests_total", title="Tenant"),),
    rows=(USE, WAITS),
)
