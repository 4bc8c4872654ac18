"""Who may call, and how callers are known."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import NoDecode

from proxy.settings.group import Group, Secret, Words, secret_value

# All verify with a public key; HMAC (HS256, …) and "none" are not among them.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
ScopeName = Literal[
    "chat", "completions", "embeddings", "tokens", "models", "admin", "metrics", "kserve"
]
# Nobody between us and the server can replace what it answers: TLS, or this machine.
SAFE_URL = re.compile(r"https://[^/\s]+|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
SHORTEST = 32  # characters of a key or a pepper


def _network(text: str) -> str:
    ip_network(text)
    return text


def _is_long_and_plain(value: str | None) -> bool:
    if value is None:
        return True
    return len(value) >= SHORTEST and value.isascii() and value.isprintable() and " " not in value


class Callers(Group):
    """Who may call"""

    auth: Literal["auto", "on", "off"] = "auto"
    """`on`: every request but health checks needs a key or token. `auto`: the same as soon as
    `API_KEY`, `KEY_PEPPER`, `JWT_ISSUER` or `CLIENT_NAME_HEADER` is set; without them the proxy
    serves this machine only, and everybody on it. `off`: everybody who reaches the proxy may do
    everything but administer. Set `on` to be sure that a start without keys fails."""
    admin: Literal["on", "off"] = "off"
    """`on`: where there are no keys, everybody on this machine may use the administration
    (`/admin/…`) and Triton's internal models. With keys the scope `admin` decides; with
    `AUTH=off` nobody may. Set it on a machine of your own."""
    api_key: Secret = None
    """One key that may do everything, without a store of keys: at least 32 characters. For one user
    or one program."""
    metrics_key: Secret = None
    """A key that may read `/metrics` and nothing else, for Prometheus: at least 32 characters. Set
    it where Prometheus scrapes a proxy with keys."""
    public_metrics: bool = False
    """Whether `/metrics` needs no key. Only where a network or a front keeps callers from it."""
    tenant_from_metadata: bool = False
    """Whether `metadata.tenant_id` of a request names its tenant, for logs, metrics and the fair
    queue; only without keys. Everybody can name any tenant, so set it where all callers are
    yours."""
    key_pepper: Secret = None
    """Secret under which the keys in the store are hashed: at least 32 characters. All proxies of a
    store need the same one; without it no key of the store works. Set it to give several tenants
    keys."""

    @model_validator(mode="after")
    def _secrets_are_long_and_plain(self) -> Callers:
        """The message does not show the value."""
        for name in ("api_key", "metrics_key", "key_pepper"):
            if not _is_long_and_plain(secret_value(getattr(self, name))):
                raise ValueError(
                    f"{name.upper()} must have at least {SHORTEST} printable ASCII characters, and "
                    'no spaces (such as `python3 -c "import secrets; '
                    'print(secrets.token_urlsafe())"` prints)'
                )
        return self


class Identities(Group):
    """Callers without a key of ours: tokens of an issuer, client certificates"""

    jwt_issuer: str | None = None
    """Issuer of JWTs that are accepted as keys: the `iss` of the tokens, an https URL. Set it where
    callers have tokens of an identity provider."""
    jwt_audience: Annotated[tuple[str, ...], NoDecode, Words] = ()
    """Values of `aud`, separated by commas. A token must have at least one of them. Needed with
    `JWT_ISSUER`."""
    jwt_jwks_url: str | None = None
    """Where the issuer's public keys are. Without it: where its `/.well-known/openid-configuration`
    says. Set it for an issuer without discovery."""
    jwt_algorithms: Annotated[tuple[Algorithm, ...], NoDecode, Words] = ("RS256", "ES256", "EdDSA")
    """Signature algorithms that are accepted, separated by commas. Change it where the issuer signs
    with another one."""
    jwt_tenant_claim: str = "tenant"
    """The claim that names the tenant. A dot leads into an object: `app.tenant`. Change it to what
    the issuer names it."""
    jwt_scope_claim: str = "scope"
    """The claim with the scopes: words in one string, or a list. `admin` is one of them. Change it
    to what the issuer names it."""
    jwt_priority_claim: str | None = None
    """The claim with the highest priority that a token's requests get, an integer; higher numbers
    go first. In a token without it the ceiling is the tenant's, or else `MAX_PRIORITY`. Set it
    where the issuer decides who goes first."""
    client_name_header: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,64}$")] | None = None
    """Header in which a front reports the name, or the distinguished name, of a client certificate
    that it has verified. The name is the tenant. Needs `TRUSTED_FRONTS`. Set it where clients have
    certificates."""
    trusted_fronts: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], NoDecode, Words
    ] = ()
    """Addresses or networks of these fronts, separated by commas. From any other address
    `CLIENT_NAME_HEADER` is ignored."""
    client_name_scopes: Annotated[tuple[ScopeName, ...], NoDecode, Words] = (
        "chat",
        "completions",
        "embeddings",
        "tokens",
        "models",
    )
    """Scopes of such a caller, separated by commas. Change it where such callers may do less, or
    use the administration."""

    @model_validator(mode="after")
    def _token_rules(self) -> Identities:
        if self.jwt_issuer is None and self.jwt_audience:
            raise ValueError("JWT_AUDIENCE goes with JWT_ISSUER, which is not set")
        if self.jwt_issuer is not None and not self.jwt_audience:
            raise ValueError(
                "JWT_ISSUER needs JWT_AUDIENCE: otherwise tokens that the issuer made for other "
                "services would be accepted"
            )
        for name, url in (("ISSUER", self.jwt_issuer), ("JWKS_URL", self.jwt_jwks_url)):
            if url is not None and not SAFE_URL.match(url):
                raise ValueError(
                    f"JWT_{name}={url}: it must be https (http only on a loopback address)"
                )
        return self

    @model_validator(mode="after")
    def _fronts_are_named(self) -> Identities:
        if (self.client_name_header is None) != (not self.trusted_fronts):
            raise ValueError("CLIENT_NAME_HEADER and TRUSTED_FRONTS go together: set both")
        return self
