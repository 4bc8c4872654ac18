"""/v2 in front of a real tritonserver with models that are no language models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from proxy.triton.client import TritonClient
from proxy.triton.kserve_backend import TritonKserve
from proxy.triton.target import Target
from tests.fixtures.application import application, operations
from tests.fixtures.stack import SECRET, Stack, eventually, free_ports, stopped_at_the_end

TYPES = {
    **{"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"},
    **{f"INT{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
}
ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor(each.name().replace("in", "out"), each.as_numpy())
            for each in request.inputs()
        ]) for request in requests]
"""
STREAM = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(flags=1)
"""


def config(name: str, more: str = "") -> str:
    def tensors(side: str, prefix: str) -> str:
        rows = (
            f'{{name: "{prefix}_{each}" data_type: TYPE_{each.replace("BYTES", "STRING")} '
            f"dims: [-1]{' optional: true' * (side == 'input')}}}"
            for each in (*TYPES, "BYTES")
        )
        return f"{side} [{', '.join(rows)}]"

    both = f"{tensors('input', 'in')} {tensors('output', 'out')}"
    return f'name: "{name}" backend: "python" {both} {more}'


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("kserve")
    decoupled = "model_transaction_policy { decoupled: true }"
    for name, code, more in (
        ("echo", ECHO, ""),
        ("streams", STREAM, decoupled),
        ("batches", ECHO, "max_batch_size: 8"),
    ):
        model = folder / "model_repository" / name
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(config(name, more))
        (model / "1" / "model.py").write_text(code)
    environment = {**free_ports(), "ARTIFACTS_DIR": str(folder), "TRITON_SECRET": SECRET}
    with stopped_at_the_end() as stacks:
        stack = Stack([], environment, folder / "log.txt", "tests.fixtures.rendered_triton")
        stacks.append(stack)
        yield stack


@pytest.fixture(scope="module")
def client(triton: Stack) -> Iterator[TestClient]:
    """Of a proxy over one TritonClient; everybody may use these routes."""
    engine = TritonClient(Target(f"127.0.0.1:{triton.triton_grpc_port}"))
    operated = operations(kserve=TritonKserve(engine))
    with TestClient(application(engine, operations=operated)) as client:

        def is_ready() -> bool:
            assert triton.process.poll() is None, triton.log.read_text()[-3000:]
            return client.get("/v2/health/ready").status_code == 200

        eventually(is_ready, 110, "Triton is ready")
        yield client


def test_metadata_and_readiness_are_tritons(client):
    assert client.get("/v2").json()["name"] == "triton"
    found = client.get("/v2/models/echo").json()
    assert (found["versions"], found["platform"]) == (["1"], "python")
    assert {"name": "in_FP32", "datatype": "FP32", "shape": [-1]} in found["inputs"]
    assert client.get("/v2/models/echo/versions/1/ready").status_code == 200
    assert client.get("/v2/models/none").status_code == 404
    assert client.get("/v2/models/echo/versions/9").status_code == 404


def test_every_datatype_there_and_back_in_json(client):
    values = {name: [True, False] if name == "BOOL" else [0, 1, 100] for name in TYPES} | {
        "FP32": [0.5, -2.0, 2.0**100],
        "BYTES": ["é", "", "a\0b"],
    }
    inputs = [
        {"name": f"in_{name}", "datatype": name, "shape": [len(data)], "data": data}
        for name, data in values.items()
    ]
    answer = client.post("/v2/models/echo/infer", json={"id": "a-1", "inputs": inputs})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["model_name"], body["model_version"], body["id"]) == ("echo", "1", "a-1")
    found = {each["datatype"]: each["data"] for each in body["outputs"]}
    assert found == values


def test_every_number_type_there_and_back_in_binary(client):
    arrays = {name: np.array([0, 1, 100]).astype(code) for name, code in TYPES.items()}
    inputs = [
        {
            "name": f"in_{name}",
            "datatype": name,
            "shape": [3],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    outputs = [{"name": f"out_{name}", "parameters": {"binary_data": True}} for name in arrays]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    data = b"".join(array.tobytes() for array in arrays.values())
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = client.post("/v2/models/echo/infer", content=head + data, headers=headers)
    assert answer.status_code == 200, answer.text
    size = int(answer.headers["Inference-Header-Content-Length"])
    start, found = size, {}
    for each in json.loads(answer.content[:size])["outputs"]:
        end = start + each["parameters"]["binary_data_size"]
        found[each["datatype"]] = answer.content[start:end]
        start = end
    assert start == len(answer.content)
    assert found == {name: array.tobytes() for name, array in arrays.items()}


def test_what_triton_refuses_is_said_in_its_words(client):
    one = {"name": "nonsense", "datatype": "FP32", "shape": [1], "data": [1]}
    answer = client.post("/v2/models/echo/infer", json={"inputs": [one]})
    assert answer.status_code == 400
    assert "nonsense" in answer.json()["error"]
    unknown = client.post("/v2/models/none/infer", json={"inputs": [one]})
    assert (unknown.status_code, "none" in unknown.json()["error"]) == (404, True)


def test_a_decoupled_model_is_refused_by_name(client):
    one = {"name": "in_FP32", "datatype": "FP32", "shape": [1], "data": [1]}
    answer = client.post("/v2/models/streams/infer", json={"inputs": [one]})
    assert answer.status_code == 400
    assert "The model 'streams' is decoupled" in answer.json()["error"]


@pytest.mark.parametrize("shape", [[0, 0], [0, 3]])
def test_an_empty_batch_which_triton_never_answers_is_refused(client, shape):
    one = {"name": "in_FP32", "datatype": "FP32", "shape": shape, "data": []}
    answer = client.post("/v2/models/batches/infer", json={"inputs": [one]})
    assert answer.status_code == 400
    assert "an empty batch: the model 'batches' batches" in answer.json()["error"]
