"""What administrators do. The command line and `/admin/v1` share it, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.access.store.audit_log import AuditLog
from proxy.access.store.key_administration import KeyAdministration
from proxy.access.store.tenant_administration import TenantAdministration
from proxy.access.store.usage_reports import UsageReports


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    tenants: TenantAdministration
    keys: KeyAdministration
    usage: UsageReports
    audit: AuditLog
