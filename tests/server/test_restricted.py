"""What a client of Triton may not do without the launcher's secret, on a real tritonserver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import grpc
import httpx
import psutil
import pytest
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

from proxy.triton.target import RESTRICTED_HEADER, RESTRICTED_KEY
from tests.fixtures.stack import HANG_S, PLAIN, SECRET, Stack, eventually

Call = Callable[..., object]
RIGHT = ((RESTRICTED_HEADER, SECRET),)
WRONG = ((RESTRICTED_HEADER, "x" * len(SECRET)),)
RESTRICTED = {
    "RepositoryIndex": messages.RepositoryIndexRequest(),
    "RepositoryModelLoad": messages.RepositoryModelLoadRequest(model_name="demo"),
    "RepositoryModelUnload": messages.RepositoryModelUnloadRequest(model_name="demo"),
    "SystemSharedMemoryStatus": messages.SystemSharedMemoryStatusRequest(),
    "SystemSharedMemoryRegister": messages.SystemSharedMemoryRegisterRequest(
        name="mine", key="/mine", byte_size=8
    ),
    "SystemSharedMemoryUnregister": messages.SystemSharedMemoryUnregisterRequest(),
    "CudaSharedMemoryStatus": messages.CudaSharedMemoryStatusRequest(),
    "CudaSharedMemoryRegister": messages.CudaSharedMemoryRegisterRequest(name="mine", byte_size=8),
    "CudaSharedMemoryUnregister": messages.CudaSharedMemoryUnregisterRequest(),
    "TraceSetting": messages.TraceSettingRequest(),
    "LogSettings": messages.LogSettingsRequest(),
}
OPEN = {
    "ServerReady": messages.ServerReadyRequest(),
    "ModelReady": messages.ModelReadyRequest(name="demo"),
    "ServerMetadata": messages.ServerMetadataRequest(),
    "ModelMetadata": messages.ModelMetadataRequest(name="demo"),
    "ModelConfig": messages.ModelConfigRequest(name="demo"),
    "ModelStatistics": messages.ModelStatisticsRequest(name="demo"),
}
# HTTP has one path for each; `/v2/health/ready` is the only one that is open.
RESTRICTED_PATHS = (
    "repository/index",
    "repository/models/demo/load",
    "repository/models/demo/unload",
    "systemsharedmemory/region/mine/register",
    "cudasharedmemory/region/mine/register",
    "trace/setting",
    "models/demo/trace/setting",
    "logging",
    "models/demo/infer",
    "models/demo/generate_stream",
)


@pytest.fixture
def call(stack: Stack) -> Iterator[Call]:
    """call(method, metadata) -> its answer."""
    with grpc.insecure_channel(f"127.0.0.1:{stack.triton_grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def made(method: str, metadata: tuple[tuple[str, str], ...] = ()) -> object:
            request = {**RESTRICTED, **OPEN}[method]
            return getattr(stub, method)(request, metadata=metadata, timeout=HANG_S)

        yield made


@pytest.mark.parametrize("metadata", [(), WRONG], ids=["none", "wrong"])
@pytest.mark.parametrize("method", RESTRICTED)
def test_what_changes_the_server_is_refused_without_the_secret(call, method, metadata):
    with pytest.raises(grpc.RpcError, match="This protocol is restricted"):
        call(method, metadata)


def test_the_secret_opens_it(call):
    index = call("RepositoryIndex", RIGHT)
    assert {"demo", "endless"} <= {model.name for model in index.models}
    call("SystemSharedMemoryStatus", RIGHT)


@pytest.mark.parametrize("method", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_models_are_neither_loaded_nor_unloaded_even_with_it(call, method):
    with pytest.raises(grpc.RpcError, match="explicit model load / unload is not allowed"):
        call(method, RIGHT)


@pytest.mark.parametrize("method", OPEN)
def test_what_clients_of_the_ensemble_need_is_open(call, method):
    call(method)


@pytest.mark.parametrize("path", RESTRICTED_PATHS)
def test_http_is_restricted_as_a_whole(stack, path):
    url = f"http://127.0.0.1:{stack.triton_http_port}/v2"
    for headers in ({}, {RESTRICTED_KEY: "x" * len(SECRET)}):
        answer = httpx.post(f"{url}/{path}", headers=headers, json={})
        assert (answer.status_code, "restricted" in answer.text) == (403, True)
    assert httpx.get(f"{url}/health/ready").status_code == 200
    answer = httpx.post(f"{url}/repository/index", headers={RESTRICTED_KEY: SECRET})
    assert answer.status_code == 200


def test_a_launchers_own_secret_reaches_its_proxy_and_no_log(fresh):
    """Ready: the proxy has read the index with it."""
    options = " ".join(fresh.tritonserver().cmdline())
    [secret] = re.findall(rf":{RESTRICTED_KEY}=(\S+)", options)
    assert len(secret) >= 40
    assert secret not in fresh.log.read_text()
    for log in (fresh.artifacts / "triton").glob("tritonserver.*.log*"):
        assert secret not in log.read_text()
    launcher = psutil.Process(fresh.process.pid)
    assert secret not in " ".join([*launcher.environ().values(), *launcher.cmdline()])


def test_triton_listens_on_grpc_and_metrics_only(fresh):
    listening = {
        connection.laddr.port
        for connection in fresh.tritonserver().net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {fresh.triton_grpc_port, fresh.triton_metrics_port}


def test_a_proxy_without_the_secret_says_what_is_missing(stack, start):
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, TRITON_SECRET=None)
    eventually(lambda: proxy.answers("/health/live"), 20, "it listens")
    answer = PLAIN.get(f"{proxy.url}/health/ready")
    assert answer.status_code == 503
    assert "TRITON_SECRET" not in answer.text
    eventually(lambda: "set TRITON_SECRET" in proxy.log.read_text(), 20, "the log says more")
