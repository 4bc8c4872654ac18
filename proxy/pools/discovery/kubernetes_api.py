"""How the API of a Kubernetes cluster is reached. Made by `app`, used by `kubernetes`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proxy.pools.discovery.endpoint_address import joined

# Kubernetes mounts them into pods: "Accessing the Kubernetes API from a Pod", kubernetes.io.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesApi:
    """url: without a slash at its end. token_file: read for each request, since tokens rotate.

    ca_file: PEM file of the authorities to trust, read for each connection.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None


def in_cluster(host: str, port: int, account: Path = ACCOUNT) -> KubernetesApi:
    """The API of this pod's cluster.

    host, port: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT of the pod's environment.
    """
    return KubernetesApi(
        url=f"https://{joined(host, port)}",
        token_file=account / "token",
        ca_file=account / "ca.crt",
    )
