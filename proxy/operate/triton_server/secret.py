"""The secret for the protocols that our launcher restricts in Triton (`command.RESTRICTED`).

It lasts as long as the launcher, and is neither printed nor logged. tritonserver gets it as an
option, so other users of the machine can read it in /proc: see docs/security.md.
"""

from __future__ import annotations

import secrets

from pydantic import SecretStr

from proxy.settings import Settings

BYTES = 32


def settled(settings: Settings) -> Settings:
    """Returns settings with a secret: TRITON_SECRET, or else a new one."""
    return settings.model_copy(update={"triton_secret": SecretStr(of(settings))})


def of(settings: Settings) -> str:
    return settings.triton_secret_value or secrets.token_urlsafe(BYTES)
