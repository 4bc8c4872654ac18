"""A tenant's files and batches end with it: another one of the same name sees none of them."""

from __future__ import annotations

import json
from contextlib import ExitStack

import openai
import pytest
from openai import OpenAI

from tests.api.administration.conftest import Proxy
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.stack import eventually

URL, LINES = "/v1/completions", 300
BODY = {"model": "demo", "prompt": "hi"}


@pytest.fixture(params=["folder", "memory:///"])
def proxy(request, tmp_path):
    place = str(tmp_path / "files") if request.param == "folder" else request.param
    with ExitStack() as stack:
        yield Proxy(stack, tmp_path, ScriptedEngine(deltas("ok"), pause_s=0.05), files_url=place)


def begun(client: OpenAI, count: int) -> str:
    lines = (
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": URL, "body": BODY})
        for n in range(count)
    )
    file = client.files.create(file=("in", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    return batch.id


def test_a_tenant_of_the_same_name_sees_nothing_and_running_batches_end(proxy, made):
    def metric(name: str) -> float:
        page = proxy.admin.get("/metrics").text.splitlines()
        return sum(float(each.split()[-1]) for each in page if each.startswith(name))

    def client() -> tuple[OpenAI, str]:
        key = made("acme", scopes=["completions", "batches"])
        http = proxy.with_key(key["key"])
        sdk = OpenAI(base_url="http://testserver/v1", api_key=key["key"], http_client=http)
        return sdk, key["id"]

    first, key_id = client()
    batch_id = begun(first, LINES)
    eventually(lambda: first.batches.retrieve(batch_id).request_counts.completed, 20, "lines")
    assert metric("proxy_open_batches") == 1
    proxy.admin.post(f"/admin/v1/keys/{key_id}/revoke")
    assert proxy.admin.delete("/admin/v1/tenants/acme").status_code == 200
    second, _ = client()
    assert [*second.files.list()] == [*second.batches.list()] == []
    with pytest.raises(openai.NotFoundError):
        second.batches.retrieve(batch_id)
    eventually(lambda: metric("proxy_open_batches") == 0, 20, "its batch ends")
    assert 0 < metric('proxy_batch_lines_total{outcome="completed"}') < LINES
    assert [*second.files.list()] == [*second.batches.list()] == []
    own = begun(second, 2)
    eventually(lambda: second.batches.retrieve(own).status == "completed", 20, "its own")
    assert [each.id for each in second.batches.list()] == [own]
