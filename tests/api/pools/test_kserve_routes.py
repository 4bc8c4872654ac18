"""/v2: any Triton model by KServe's protocol, in JSON and with binary data, for those who may."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from proxy.domain.identity import Limits, Scope
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.doubles.kserve import EchoModels
from tests.doubles.sandbox import InProcess
from tests.fixtures.application import application, operations
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.limits import AsCaller, caller

INFER = "/v2/models/echo/infer"
HEAD = "inference-header-content-length"


class Front:
    """The proxy over models that answer with their own inputs, one of them internal to `demo`."""

    def __init__(self, **given: object) -> None:
        self.keys, self.sandbox = KeysInMemory(), InProcess()
        given |= {"keys": self.keys} if "key_pepper" in given else {}
        self.models = EchoModels("echo", "demo_engine")
        operated = operations(kserve=self.models)
        self.app = application(sandbox=self.sandbox, operations=operated, **given)

    def header(self, *scopes: Scope, models: tuple[str, ...] = ()) -> dict[str, str]:
        key = self.keys.add(f"caller{len(self.keys.keys)}", scopes=frozenset(scopes), models=models)
        return {"authorization": f"Bearer {key}"}


@pytest.fixture
def front() -> Front:
    """Whose callers need keys."""
    return Front(max_request_size_mb=0.4, key_pepper=PEPPER)


@pytest.fixture
def client(front) -> Iterator[TestClient]:
    with TestClient(front.app) as client:
        client.headers.update(front.header(Scope.KSERVE))
        yield client


def tensor(**fields: object) -> dict[str, object]:
    return {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2.5, 3, 4], **fields}


def test_health_and_metadata(client, front):
    assert client.get("/v2").json()["name"] == "triton"
    assert client.get("/v2/").json()["extensions"] == ["binary_tensor_data"]
    nobody = {"authorization": ""}
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert client.get(path, headers=nobody).status_code == 200
    for version in ("", "/versions/1"):
        found = client.get(f"/v2/models/echo{version}").json()
        assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        assert client.get(f"/v2/models/echo{version}/ready").status_code == 200
    front.models.is_ready = False
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/models/echo/ready").status_code == 503


def test_json_there_and_back_with_parameters_version_and_id(client, front):
    body = {
        "id": "a1",
        "parameters": {"sequence_id": 7, "is_last": True, "rate": 0.5},
        "inputs": [
            tensor(parameters={"note": "n"}),
            tensor(name="s", datatype="BYTES", shape=[2], data=["é", ""]),
            tensor(name="i", datatype="INT64", shape=[1, 2], data=[[-(2**63), 2**63 - 1]]),
        ],
        "outputs": [{"name": "i", "parameters": {"classification": 3}}, {"name": "s"}],
    }
    answer = client.post("/v2/models/echo/versions/3/infer", json=body)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "model_name": "echo",
        "model_version": "3",
        "id": "a1",
        "outputs": [
            {"name": "s", "datatype": "BYTES", "shape": [2], "data": ["é", ""]},
            {"name": "i", "datatype": "INT64", "shape": [1, 2], "data": [-(2**63), 2**63 - 1]},
        ],
    }
    ((model, version, sent),) = front.models.requests
    assert (model, version) == ("echo", "3")
    assert sent.parameters == {"sequence_id": 7, "is_last": True, "rate": 0.5}
    assert sent.inputs[0].parameters == {"note": "n"}
    assert sent.outputs[0].parameters == {"classification": 3}


def binary(body: dict[str, object], *data: bytes) -> dict[str, object]:
    """The options of a request, as tritonclient's HTTP client sends it."""
    head = json.dumps(body).encode()
    return {"content": b"".join((head, *data)), "headers": {HEAD: str(len(head))}}


def test_binary_data_in_both_directions(client):
    numbers = struct.pack("<4f", 1, 2, 3, float("nan"))
    words = struct.pack("<I2s", 2, b"\xff\0")
    described = {"parameters": {"binary_data_size": 16}, "data": None}
    inputs = [
        tensor(**described),
        tensor(name="j", shape=[1], data=[9]),
        {"name": "b", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
        {"name": "h", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": 2}},
    ]
    body = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    answer = client.post(INFER, **binary(body, numbers, words, b"\x80\x3f"))
    head = int(answer.headers[HEAD])
    assert answer.headers["content-type"] == "application/octet-stream"
    outputs = json.loads(answer.content[:head])["outputs"]
    assert [each["parameters"]["binary_data_size"] for each in outputs] == [16, 4, 6, 2]
    assert answer.content[head:] == numbers + struct.pack("<f", 9) + words + b"\x80\x3f"
    body["outputs"] = [
        {"name": "j", "parameters": {"binary_data": False}},
        {"name": "b", "parameters": {"binary_data": True}},
    ]
    answer = client.post(INFER, **binary(body, numbers, words, b"\x80\x3f"))
    head = int(answer.headers[HEAD])
    assert json.loads(answer.content[:head])["outputs"][0]["data"] == [9.0]
    assert answer.content[head:] == words


def test_large_tensors_are_converted_in_the_sandbox(client, front):
    small = client.post(INFER, json={"inputs": [tensor()]})
    assert (small.status_code, front.sandbox.functions) == (200, ["forms_of"])
    values = [float(n) for n in range(20_000)]
    answer = client.post(INFER, json={"inputs": [tensor(shape=[20_000], data=values)]})
    assert answer.json()["outputs"][0]["data"] == values
    assert front.sandbox.functions == ["forms_of", "parse", "head"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"inputs": []}, "inputs"),
        ({"inputs": [tensor(datatype="FP8")]}, "datatype"),
        ({"inputs": [tensor(shape=[-1])]}, "shape"),
        ({"inputs": [tensor(shape=[2])]}, "The input 'x' has 4 elements"),
        ({"inputs": [tensor(data=None)]}, "needs either"),
        ({"inputs": [tensor(colour=1)]}, "colour"),
        ({"inputs": [tensor(parameters={"binary_data_size": 4}, data=None)]}, "0 bytes are left"),
        ({"inputs": [tensor(parameters={"binary_data_size": -4}, data=None)]}, "0 bytes are left"),
        ({"inputs": [tensor(parameters={"shared_memory_region": "r"})]}, "is not supported"),
        ({"inputs": [tensor()], "parameters": {"triton_x": 1}}, "is not supported"),
        ({"inputs": [tensor()], "parameters": {"binary_data_output": 1}}, "true or false"),
        ({"inputs": [tensor(shape=[2] * 17)]}, "shape"),
        ({"inputs": [tensor()], "parameters": {"a": 2**63}}, "parameters"),
    ],
)
def test_a_wrong_body_is_refused_in_kserves_form(client, front, body, said):
    answer = client.post(INFER, json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert front.models.requests == []


@pytest.mark.parametrize("length", ["0", "-1", "x", "999999999", "9" * 30, "²"])
def test_a_wrong_length_of_the_json_is_refused(client, length):
    answer = client.post(INFER, content=b"{}", headers={HEAD: length.encode()})
    assert (answer.status_code, type(answer.json()["error"])) == (400, str)


def test_bytes_that_belong_to_no_input_and_too_large_bodies_are_refused(client):
    answer = client.post(INFER, **binary({"inputs": [tensor()]}, b"xx"))
    assert "2 bytes behind the JSON" in answer.json()["error"]
    assert client.post(INFER, content=b"x" * 400_001).status_code == 413


def test_who_may_use_which_model(client, front):
    body = {"inputs": [tensor()]}
    unknown = client.post("/v2/models/none/infer", json=body)
    assert (unknown.status_code, type(unknown.json()["error"])) == (404, str)
    for path in ("/v2/models/demo_engine", "/v2/models/demo_engine/ready"):
        assert client.get(path).status_code == 403
    assert client.post("/v2/models/demo_engine/infer", json=body).status_code == 403
    admin = front.header(Scope.KSERVE, Scope.ADMIN)
    assert client.post("/v2/models/demo_engine/infer", json=body, headers=admin).status_code == 200
    some = front.header(Scope.KSERVE, models=("ech*",))
    assert client.post(INFER, json=body, headers=some).status_code == 200
    others = front.header(Scope.KSERVE, models=("other",))
    assert client.post(INFER, json=body, headers=others).status_code == 403
    chatter = front.header(Scope.CHAT, Scope.ADMIN)
    for path in ("/v2", "/v2/models/echo", "/v2/nothing"):
        assert client.get(path, headers=chatter).status_code == 403
    assert client.get("/v2/models/echo/versions/x").status_code == 400


@pytest.mark.anyio
async def test_a_tenant_that_hangs_up_keeps_its_own_part_of_the_places_until_triton_has_answered():
    front = Front()

    def infer(tenant: str) -> Call:
        return Call(AsCaller(front.app, caller(tenant)), INFER, {"inputs": [tensor()]}, {})

    async with started(front.app):
        front.models.may_answer.clear()
        gone = [infer("noisy") for _ in range(260)]
        while len(front.models.requests) < 64:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0)
        await asyncio.gather(*(call.disconnect() for call in gone))
        assert len(front.models.requests) == 64  # none was cancelled: that could crash Triton
        assert (await infer("noisy").done()).status == 429
        waiting = infer("quiet")
        while len(front.models.requests) < 65:
            assert not waiting.task.done()
            await asyncio.sleep(0)
        front.models.may_answer.set()
        assert (await waiting.done()).status == 200
        assert (await infer("noisy").done()).status == 200


def test_inferences_and_metadata_count_in_limits_on_requests():
    front, who = Front(), caller(key=Limits(requests_per_minute=2))
    with TestClient(AsCaller(front.app, who)) as client:
        assert client.get("/v2/health/live").status_code == 200  # for load balancers: free
        assert client.get("/v2/models/echo").headers["x-ratelimit-remaining-requests"] == "1"
        assert client.post(INFER, json={"inputs": [tensor()]}).status_code == 200
        refused = client.post(INFER, json={"inputs": [tensor()]})
        assert refused.headers["x-ratelimit-exceeded"] == "key.requests_per_minute"
        assert (refused.status_code, len(front.models.requests)) == (429, 1)
