"""What a pod of the Kubernetes manifests may do, write, read and reach."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from tests.deploy.manifests import containers_of, name_of, of_kind, pods
from tests.deploy.places import DOCKER


def test_no_pod_runs_as_root_or_gains_rights_or_has_no_memory_limit():
    assert pods()
    for pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers_of(pod):
            assert re.fullmatch(r"\d+[MG]i", container["resources"]["limits"]["memory"])
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True


def test_a_pod_with_a_read_only_root_has_places_to_write_to():
    for pod in pods():
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        for container in containers_of(pod):
            mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
            wanted = set()
            if name_of(pod) != "proxy":
                home = re.search(r"\sHOME=(/\S+)", (DOCKER / "triton.Dockerfile").read_text())[1]
                wanted = {"/tmp", "/artifacts", "/dev/shm", home}
            assert wanted <= set(mounts)
            for path in wanted - {"/artifacts"}:
                assert "sizeLimit" in volumes[mounts[path]["name"]]["emptyDir"]


def test_tritons_containers_keep_nvidias_entry_point_which_checks_driver_and_gpu():
    """`command` replaces an image's entry point, `args` its command."""
    of_triton = [
        each for pod in pods() for each in containers_of(pod) if "/triton" in each["image"]
    ]
    assert len(of_triton) == 5
    assert not any("command" in each for each in of_triton)


def test_only_the_build_has_the_hubs_token():
    for pod in pods():
        for container in containers_of(pod):
            names = [each["name"] for each in container.get("env", [])]
            assert ("HF_TOKEN" in names) is (container["name"] == "build")
        inits = [each["name"] for each in pod["spec"].get("initContainers", [])]
        serves = any("readinessProbe" in each for each in pod["spec"]["containers"])
        assert inits == (["build"] if serves and name_of(pod) == "triton" else [])


def test_triton_and_the_proxy_have_the_same_secret():
    holders = [
        (name_of(pod), each["valueFrom"]["secretKeyRef"])
        for pod in pods()
        for container in containers_of(pod)
        for each in container.get("env", [])
        if each["name"] == "TRITON_SECRET"
    ]
    assert {name for name, _ in holders} == {"proxy", "triton"}
    assert all(reference == {"name": "triton", "key": "secret"} for _, reference in holders)


def policies_for(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        each["spec"]
        for each in of_kind("NetworkPolicy")
        if each["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ]


def test_every_pod_has_an_egress_policy_that_names_its_ports():
    for pod in pods():
        policies = policies_for(pod)
        assert any("Egress" in each["policyTypes"] for each in policies), name_of(pod)
        rules = [rule for each in policies for rule in each.get("egress", [])]
        for rule in rules:
            assert rule["to"], "a rule without it would open everything"
            to_group = "triton-openai/group" in str(rule["to"])
            assert to_group or rule["ports"]


def test_triton_reaches_weights_on_the_internet_and_nothing_private():
    [policy] = [e for e in of_kind("NetworkPolicy") if e["metadata"]["name"] == "triton-weights"]
    [rule] = policy["spec"]["egress"]
    assert rule["ports"] == [{"port": 443}]
    closed = [ipaddress.ip_network(each) for each in rule["to"][0]["ipBlock"]["except"]]
    for address in ("10.1.2.3", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"):
        assert any(ipaddress.ip_address(address) in network for network in closed)


def test_the_leader_may_run_commands_in_its_workers_only():
    """By name: LeaderWorkerSet calls a worker `NAME-GROUP-WORKER`."""
    [role] = [each for each in of_kind("Role") if each["metadata"]["name"] == "triton-leader"]
    [group] = of_kind("LeaderWorkerSet")
    spec = group["spec"]
    surge = spec["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"]
    workers = {
        f"{group['metadata']['name']}-{replica}-{worker}"
        for replica in range(spec["replicas"] + surge)
        for worker in range(1, spec["leaderWorkerTemplate"]["size"])
    }
    rules = {rule["resources"][0]: rule for rule in role["rules"]}
    assert set(rules) == {"pods", "pods/exec"}
    assert all(set(rule["resourceNames"]) == workers for rule in rules.values())
    assert rules["pods/exec"]["verbs"] == ["create"]
    assert set(rules["pods"]["verbs"]) == {"get", "list", "watch"}
    assert not of_kind("ClusterRole")


def test_only_a_leader_may_reach_into_pods():
    for pod in pods():
        account = pod["spec"].get("serviceAccountName")
        leads = pod["spec"]["containers"][0].get("args") == ["lead"]
        assert (account == "triton-leader") is leads
        assert account or pod["spec"]["automountServiceAccountToken"] is False
