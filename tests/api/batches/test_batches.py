"""/v1/files and /v1/batches through OpenAI's SDK: answers, errors, limits, whose they are."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from proxy.api.batches import batch_store
from proxy.domain.engine import LOWEST_PRIORITY
from proxy.domain.errors import RateLimited
from proxy.domain.identity import ALL_SCOPES, Limits, Scope
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.doubles.usage import KeptUsage
from tests.fixtures.application import application
from tests.fixtures.own_document import OwnDocument
from tests.fixtures.stack import eventually

CHAT = "/v1/chat/completions"
HI = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
BODIES = {
    CHAT: HI,
    "/v1/completions": {"model": "demo", "prompt": "hi"},
    "/v1/responses": {"model": "demo", "input": "hi"},
    "/v1/embeddings": {"model": "demo", "input": "hi"},
}
ENDED = ("completed", "failed", "cancelled", "expired")


def line(custom_id: str, body=HI, url: str = CHAT, **fields) -> str:
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body} | fields)


def lines(*bodies, url: str = CHAT) -> str:
    return "\n".join(line(f"n{number}", body, url) for number, body in enumerate(bodies)) + "\n"


@pytest.fixture
def sdk(serve, tmp_path):
    """sdk(engine, **settings) -> an SDK's client; its `http` is the test's client."""

    def start(engine=None, **settings) -> OpenAI:
        engine = engine or ScriptedEngine(deltas("ok"))
        http = serve(engine, **{"files_url": str(tmp_path / "files"), **settings})
        client = OpenAI(base_url="http://testserver/v1", api_key="k", http_client=http)
        client.http = http
        return client

    return start


def with_key(client: OpenAI, key: str) -> OpenAI:
    found = client.with_options(api_key=key, max_retries=0)
    found.http = client.http
    return found


def upload(client: OpenAI, text: str | bytes, **fields):
    data = text if isinstance(text, bytes) else text.encode()
    return client.files.create(file=("in.jsonl", data), purpose="batch", **fields)


def begin(client: OpenAI, text: str | bytes, endpoint: str = CHAT, **fields):
    file = upload(client, text)
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields
    )


def end_of(client: OpenAI, batch):
    eventually(
        lambda: client.batches.retrieve(batch.id).status in ENDED,
        within_s=20,
        what="the batch ends",
    )
    return client.batches.retrieve(batch.id)


def content(client: OpenAI, file_id: str | None) -> list[dict]:
    if file_id is None:
        return []
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


@pytest.mark.parametrize("endpoint", BODIES)
def test_each_line_is_answered_in_the_order_of_the_input(sdk, endpoint):
    client = sdk()
    wrong = {**BODIES[endpoint], "nonsense": 1}
    many = [BODIES[endpoint]] * 20
    batch = begin(client, lines(*many, wrong, BODIES[endpoint], url=endpoint), endpoint)
    assert batch.status == "validating"
    batch = end_of(client, batch)
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed) == (22, 21)
    assert batch.request_counts.failed == 1
    assert batch.model == "demo"
    found = content(client, batch.output_file_id)
    assert [each["custom_id"] for each in found] == [f"n{number}" for number in [*range(20), 21]]
    direct = client.http.post(endpoint, json=BODIES[endpoint]).json()
    for each in found:
        assert each["response"]["status_code"] == 200
        assert each["response"]["request_id"]
        assert each["error"] is None
        assert each["response"]["body"].keys() == direct.keys()
    assert len({each["id"] for each in found}) == 21
    (failed,) = content(client, batch.error_file_id)
    assert failed["custom_id"] == "n20"
    assert failed["response"]["status_code"] == 400
    assert failed["response"]["body"]["error"]["param"] == "nonsense"
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens > 0
    names = {each.purpose: each for each in client.files.list()}
    assert names.keys() == {"batch", "batch_output"}
    assert client.files.retrieve(batch.output_file_id).bytes == sum(
        len(each) + 1 for each in client.files.content(batch.output_file_id).text.splitlines()
    )


@pytest.mark.parametrize(
    ("text", "code", "number", "param"),
    [
        ("", "empty_file", None, None),
        ("\n \n", "empty_file", None, None),
        ("\ufeff \r\n\n", "empty_file", None, None),
        ("\n" * 20_000 + line("a"), "invalid_json_line", 1, None),
        (line("a") + "\n" + " " * 3_000_000 + "\n" + line("b"), "invalid_json_line", 2, None),
        (f"{line('a')}\nnonsense", "invalid_json_line", 2, None),
        (f"{line('a')}\n\n[1]", "invalid_json_line", 3, None),
        (f"{line('a')}\n{line('b')}\n{line('a')}", "duplicate_custom_id", 3, "custom_id"),
        (line("a", url="/v1/completions"), "invalid_url", 1, "url"),
        (line("a", method="GET"), "invalid_method", 1, "method"),
        (line("a", body=[]), "invalid_request", 1, "body"),
        (line(""), "invalid_custom_id", 1, "custom_id"),
        (line(3), "invalid_custom_id", 1, "custom_id"),
        ('{"custom_id":"a"}', "missing_required_parameter", 1, "body"),
        (line("a", more=1), "unknown_parameter", 1, "more"),
        (line("a", body={"a": "x" * 3_000_000}), "line_too_long", 1, None),
        (line("a", body=eval("[" * 90 + "]" * 90)) + "[" * 2000, "invalid_json_line", 1, None),
        ("\n".join(line(str(n)) for n in range(12)), "too_many_requests", None, None),
        (b"\xff\xfe{}", "invalid_json_line", 1, None),
    ],
)
def test_a_wrong_file_fails_as_a_whole(sdk, text, code, number, param):
    engine = ScriptedEngine(deltas("ok"))
    client = sdk(engine, max_batch_lines=11)
    batch = end_of(client, begin(client, text))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert batch.failed_at
    (found,) = batch.errors.data
    assert (found.code, found.line, found.param) == (code, number, param)
    assert found.message.endswith(".")
    assert not engine.requests


@pytest.mark.parametrize(
    "body",
    [
        {**HI, "stream": True},
        {**HI, "model": "other"},
        {"model": "demo"},
        {},
        {**HI, "temperature": -1},
        {**HI, "max_tokens": 10**30},
    ],
)
def test_a_wrong_body_fails_its_line_only(sdk, body):
    client = sdk()
    batch = end_of(client, begin(client, lines(HI, body, HI)))
    assert batch.status == "completed"
    assert [each["custom_id"] for each in content(client, batch.output_file_id)] == ["n0", "n2"]
    (found,) = content(client, batch.error_file_id)
    assert found["custom_id"] == "n1"
    assert found["response"]["status_code"] in (400, 404)
    assert found["response"]["body"]["error"]["message"]


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30, 0.1, 1e300])
def test_numbers_are_those_of_the_line(sdk, number):
    """Each field is answered as the endpoint answers it, whatever the number's size."""
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": number}}}
    bodies = [HI | one for one in ({"seed": number}, {"top_k": number}, {"response_format": shape})]
    engine = ScriptedEngine(deltas("ok"))
    client = sdk(engine)
    direct = [client.http.post(CHAT, json=each).json() for each in bodies]
    asked = [each.sampling for each in engine.requests]
    batch = end_of(client, begin(client, lines(*bodies)))
    found = content(client, batch.output_file_id) + content(client, batch.error_file_id)
    for each in found:
        body = each["response"]["body"]
        assert body.get("error") == direct[int(each["custom_id"][1:])].get("error")
    assert len(found) == len(bodies)
    assert [each.sampling for each in engine.requests[len(asked) :]] == asked


@pytest.mark.parametrize(
    "text", ["1\n" * 200_000, "\n" * 2_000_000, "\n".join(line(str(n)) for n in range(11_000))]
)
def test_an_input_of_many_short_lines_holds_nobody_up(sdk, text):
    client, waits, asked = sdk(max_batch_lines=10_000), [], time.perf_counter
    batch = begin(client, text)
    while client.batches.retrieve(batch.id).status not in ENDED:
        began = asked()
        client.http.get("/health/live")
        waits.append(asked() - began)
    assert max(waits, default=0) < 0.3


@pytest.mark.parametrize("start", ["\ufeff", "\ufeff\n", "\n\ufeff \r\n", "\ufeff \n\ufeff"])
def test_lines_and_ids_are_those_of_the_input(sdk, start):
    """Also with marks of the encoding, blank lines, other line ends, and Python's line ends."""
    ids = ["a", "b\u2028\x85c", "\u2029", "d" * 512, "😀"]
    text = start + "\r\n \n\n".join(line(each) for each in ids)
    client = sdk()
    batch = end_of(client, begin(client, text))
    assert [each["custom_id"] for each in content(client, batch.output_file_id)] == ids


def test_lines_have_the_lowest_priority(sdk):
    engine = ScriptedEngine(deltas("ok"))
    client = sdk(engine, max_priority=5)
    end_of(client, begin(client, lines({**HI, "priority": -5})))
    assert engine.requests[0].priority == LOWEST_PRIORITY


def test_cancel_keeps_what_is_done(sdk):
    client = sdk(ScriptedEngine(deltas("ok"), pause_s=0.05))
    batch = begin(client, lines(*[HI] * 40))
    eventually(
        lambda: client.batches.retrieve(batch.id).request_counts.completed > 2,
        within_s=10,
        what="lines",
    )
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = end_of(client, batch)
    counts = batch.request_counts
    assert batch.status == "cancelled"
    assert batch.cancelling_at <= batch.cancelled_at
    assert 2 < counts.completed < 40
    assert counts.failed == 0
    found = content(client, batch.output_file_id)
    assert [each["custom_id"] for each in found] == [f"n{n}" for n in range(counts.completed)]
    with pytest.raises(openai.BadRequestError, match="has the status cancelled"):
        client.batches.cancel(batch.id)


def test_a_batch_that_expires_says_so_for_each_line_that_is_left(sdk, monkeypatch):
    monkeypatch.setattr(batch_store, "WINDOW_S", 1)
    client = sdk(ScriptedEngine(deltas("ok", None), hangs=True))
    batch = end_of(client, begin(client, lines(HI, HI)))
    assert (batch.status, batch.request_counts.failed) == ("expired", 2)
    found = content(client, batch.error_file_id)
    assert [each["error"]["code"] for each in found] == ["batch_expired"] * 2
    assert [each["response"] for each in found] == [None, None]


def test_what_an_engine_loses_is_asked_again(sdk):
    client = sdk(ScriptedEngine(deltas("ok"), lost=5))
    batch = end_of(client, begin(client, lines(HI, HI)))
    assert batch.request_counts.completed == 2


@pytest.mark.parametrize(("rate", "part"), [(None, 0.5), (0.25, 0.25), (0, 0), (1, 1)])
def test_usage_is_charged_once_at_the_rate(serve, tmp_path, rate, part):
    (tmp_path / "none.yaml").write_text(
        "models: {demo: {weights: w, price: {input: 100, output: 1000}}}"
    )
    usage, settings = KeptUsage(), {} if rate is None else {"batch_rate": rate}
    written = tmp_path / "none.yaml"
    app = application(
        ScriptedEngine(deltas("ok")),
        usage=usage,
        models_file=written,
        files_url=str(tmp_path / "files"),
        **settings,
    )
    with TestClient(app) as http:
        client = OpenAI(base_url="http://testserver/v1", api_key="k", http_client=http)
        client.chat.completions.create(**HI)
        (whole,) = usage.rows
        batch = end_of(client, begin(client, lines(*[HI] * 30, {"model": "no"})))
        rows = usage.rows[1:]
        assert len(rows) == 30
        assert [each.cost for each in rows] == [pytest.approx(whole.cost * part)] * 30
        assert {replace(each, cost=0, at=None, queue_s=0) for each in rows} == {
            replace(whole, cost=0, at=None, queue_s=0)
        }
        assert batch.usage.input_tokens == 30 * whole.prompt_tokens
        assert batch.usage.output_tokens == 30 * whole.output_tokens


def test_nobody_sees_the_files_and_batches_of_another_tenant(sdk):
    keys = KeysInMemory()
    keys.add_tenant("other")
    own, same, other = keys.add("own1"), keys.add("own2"), keys.add("oth1", tenant="other")
    lacks = keys.add("own3", scopes=ALL_SCOPES - {Scope.BATCHES})
    no_chat = keys.add("own4", scopes=ALL_SCOPES - {Scope.CHAT})
    root = sdk(keys=keys, key_pepper=PEPPER)
    mine = with_key(root, own)
    batch = end_of(mine, begin(mine, lines(HI)))
    for client in (with_key(root, own), with_key(root, same)):
        assert [each.id for each in client.batches.list()] == [batch.id]
        assert len([*client.files.list()]) == 2
    stranger = with_key(root, other)
    assert [*stranger.batches.list()] == [*stranger.files.list()] == []
    for ask in (
        lambda: stranger.batches.retrieve(batch.id),
        lambda: stranger.batches.cancel(batch.id),
        lambda: stranger.files.retrieve(batch.output_file_id),
        lambda: stranger.files.content(batch.output_file_id),
        lambda: stranger.files.delete(batch.input_file_id),
        lambda: stranger.batches.create(
            input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
        ),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    with pytest.raises(openai.PermissionDeniedError, match="batches"):
        with_key(root, lacks).files.list()
    with pytest.raises(openai.PermissionDeniedError, match="chat"):
        begin(with_key(root, no_chat), lines(HI))


def test_lines_of_a_key_that_was_revoked_fail(sdk):
    keys = KeysInMemory()
    own, same = keys.add("own1"), keys.add("own2")
    root = sdk(ScriptedEngine(deltas("ok"), pause_s=0.05), keys=keys, key_pepper=PEPPER)
    batch = begin(with_key(root, own), lines(*[HI] * 30))
    client = with_key(root, same)
    eventually(
        lambda: client.batches.retrieve(batch.id).request_counts.completed > 2,
        within_s=10,
        what="lines",
    )
    keys.keys["own1"] = replace(keys.keys["own1"], revoked_at=datetime.now(timezone.utc))
    keys.changes += 1
    batch = end_of(client, batch)
    assert 2 < batch.request_counts.completed < 30
    last = content(client, batch.error_file_id)[-1]
    assert last["response"]["status_code"] == 401


def test_few_lines_ask_again_where_a_limit_refuses_them(sdk):
    keys = KeysInMemory()
    own = keys.add("own1")
    keys.change("own1", limits=Limits(requests_per_minute=10))
    engine = ScriptedEngine(deltas("ok"))
    client = sdk(engine, keys=keys, key_pepper=PEPPER)
    begin(with_key(client, own), lines(*[HI] * 1_000))
    admin = {"authorization": f"Bearer {keys.add('own2')}"}
    refused = RateLimited("", retry_after_s=1).code.value

    def refusals() -> float:
        text = client.http.get("/metrics", headers=admin).text
        found = (each for each in text.splitlines() if refused in each and "_created" not in each)
        return max((float(each.rpartition(" ")[2]) for each in found), default=0)

    eventually(lambda: refusals() >= 64, within_s=20, what="refusals")
    time.sleep(0.5)
    assert refusals() <= 2 * 64  # each has asked twice at most


def test_files_can_be_listed_in_pages_and_deleted(sdk):
    client = sdk()
    made = [upload(client, lines(HI)).id for _ in range(5)]
    assert [each.id for each in client.files.list(limit=2, order="asc")] == made
    assert [each.id for each in client.files.list(limit=2)] == made[::-1]
    assert [each.id for each in client.files.list(after=made[3], order="asc")] == made[4:]
    assert [*client.files.list(purpose="batch_output")] == []
    assert client.files.content(made[0]).text == lines(HI)
    assert client.files.delete(made[0]).deleted
    for ask in (client.files.retrieve, client.files.delete, client.files.content):
        with pytest.raises(openai.NotFoundError):
            ask(made[0])
    with pytest.raises(openai.BadRequestError, match="after"):
        client.files.list(after=made[0])
    ids = [begin(client, lines(HI)).id for _ in range(3)]
    assert [each.id for each in client.batches.list(limit=2)] == ids[::-1]
    assert [each.id for each in client.batches.list(after=ids[1])] == ids[:1]


def test_a_batch_survives_the_deletion_of_its_input(sdk):
    client = sdk(ScriptedEngine(deltas("ok"), pause_s=0.02))
    batch = begin(client, lines(*[HI] * 10))
    client.files.delete(batch.input_file_id)
    assert end_of(client, batch).request_counts.completed == 10


def test_files_expire(sdk, monkeypatch):
    client = sdk()
    file = upload(client, lines(HI), expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.expires_at == file.created_at + 3600
    assert upload(client, lines(HI)).expires_at == pytest.approx(time.time() + 30 * 86400, abs=60)
    now = time.time()
    monkeypatch.setattr("proxy.api.batches.files.time.time", lambda: now + 3700)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert len([*client.files.list()]) == 1


@pytest.mark.parametrize(
    ("settings", "ask", "status", "code"),
    [
        ({"max_file_mb": 0.001}, lambda c: upload(c, b"x" * 1001), 413, "request_too_large"),
        ({"max_file_mb": 0.001}, lambda c: upload(c, b"x" * 500_000), 413, "request_too_large"),
        (
            {"max_tenant_files_mb": 0.001},
            lambda c: [upload(c, b"x" * 600) for _ in range(2)],
            429,
            "insufficient_quota",
        ),
        (
            {"max_open_batches": 1},
            lambda c: [begin(c, lines(HI)) for _ in range(2)],
            429,
            "concurrency_limit_exceeded",
        ),
    ],
)
def test_limits_refuse_by_name(sdk, settings, ask, status, code):
    root = sdk(ScriptedEngine(deltas("ok", None), hangs=True), **settings)
    client = root.with_options(max_retries=0)
    before = len([*client.files.list()])
    with pytest.raises(openai.APIStatusError) as error:
        ask(client)
    assert (error.value.status_code, error.value.code) == (status, code)
    assert "MAX_" in error.value.message
    assert before == 0
    if "open" not in str(settings):  # what is refused is not kept
        assert len([*client.files.list()]) <= 1


FILE = {"file": ("a.jsonl", b"x")}


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"files": FILE}, 400),
        ({"files": FILE, "data": {"purpose": "vision"}}, 400),
        ({"files": {"file2": b"x"}, "data": {"purpose": "batch"}}, 400),
        ({"files": FILE, "data": {"purpose": "batch", "other": "x"}}, 400),
        ({"files": FILE, "data": {"purpose": "batch", "expires_after[seconds]": "9999"}}, 400),
        ({"files": FILE, "data": {"purpose": "batch" * 2000}}, 400),
        ({"files": FILE, "data": {str(n): "x" for n in range(100)}}, 400),
        ({"files": [("file", b"a"), ("file", b"b")], "data": {"purpose": "batch"}}, 400),
        (
            {
                "files": FILE,
                "data": {"purpose": "batch"},
                "headers": {"idempotency-key": "a"},
            },
            400,
        ),
        ({"json": {"purpose": "batch"}}, 415),
        ({"files": FILE, "data": {"purpose": "batch"}, "headers": {"origin": "http://a"}}, 415),
        ({"content": b"", "headers": {"content-type": "multipart/form-data"}}, 415),
        (
            {
                "content": b"",
                "headers": {"content-type": f"multipart/form-data; boundary*{'9' * 5000}=b"},
            },
            415,
        ),
        ({"content": b"--b", "headers": {"content-type": "multipart/form-data; boundary=b"}}, 400),
        (
            {"content": b"--b--", "headers": {"content-type": "multipart/form-data; boundary=b"}},
            400,
        ),
    ],
)
def test_wrong_forms_are_refused_and_leave_nothing(sdk, tmp_path, form, status):
    client = sdk()
    assert client.http.post("/v1/files", **form).status_code == status
    left = [each for each in Path(tmp_path / "files").rglob("*") if each.is_file()]
    assert left == []


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 1000])
def test_a_form_is_read_the_same_however_it_is_cut(sdk, cut):
    text = b"\r\n--b\r\n--\r\n-\n\r" * 7
    body = (
        b"preamble\r\n--bound\r\ncontent-disposition: form-data; name=purpose\r\n\r\nbatch\r\n"
        b'--bound\r\nContent-Type: a/b\r\nContent-Disposition: form-data; name="file"; '
        b'filename="\xc3\xa9.jsonl"\r\n\r\n' + text + b"\r\n--bound--\r\nrest"
    )
    client = sdk()
    answer = client.http.post(
        "/v1/files",
        content=(body[at : at + cut] for at in range(0, len(body), cut)),
        headers={"content-type": 'multipart/form-data; boundary="bound"'},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["filename"] == "é.jsonl"
    assert client.files.content(answer.json()["id"]).content == text


FORM = "form-data; name=file; filename"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (f'{FORM}="../a/b.jsonl"', "../a/b.jsonl"),
        (f'{FORM}="a\\"b; name=c"', 'a"b; name=c'),
        (f"{FORM}*=utf-7''%2B2AA-", "file"),
        (f"{FORM}*=idna''%ff; filename=x", "x"),
        (f"{FORM}*0=a; filename*=b", "file"),
        (f"{FORM}*{'9' * 5000}=a", "file"),
        (f"{FORM}=x{';a' * 3000}", "x"),
        ('Form-Data ; NAME = "file" ; FileName = y ', "y"),
        ("form-data; filename=x", None),
        ("form-data; name*=utf-8''file", None),
    ],
)
def test_names_of_files_are_plain_parameters(sdk, said, name):
    head = f"--b\r\nContent-Disposition: {said}\r\n\r\nx\r\n--b\r\n"
    answer = sdk().http.post(
        "/v1/files",
        content=f'{head}Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--',
        headers={"content-type": "multipart/form-data; charset=utf-8; boundary=b"},
    )
    assert answer.status_code == (400 if name is None else 200)
    assert answer.json().get("filename") == name


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-no"}, "input_file_id"),
        ({"input_file_id": "../../x"}, "input_file_id"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, None),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_wrong_batches_are_refused(sdk, body, param):
    client = sdk()
    usual = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h"}
    answer = client.http.post("/v1/batches", json={**usual, **body})
    assert answer.status_code in (400, 404)
    assert param in (None, answer.json()["error"]["param"])


def test_without_a_place_for_files_there_are_no_routes(serve):
    answer = serve(ScriptedEngine()).get("/v1/files")
    assert answer.status_code == 404
    assert "files" in answer.json()["error"]["message"]


def test_metadata_and_output_expiry_are_kept(sdk):
    client = sdk()
    batch = begin(
        client,
        lines(HI),
        metadata={"a": "b"},
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )
    batch = end_of(client, batch)
    assert batch.metadata == {"a": "b"}
    file = client.files.retrieve(batch.output_file_id)
    assert file.expires_at == file.created_at + 7200
    assert file.filename == f"{batch.id}_output.jsonl"


def test_answers_are_those_of_the_sdks_types(sdk):
    client = sdk()
    batch = end_of(client, begin(client, lines(HI)))
    raw = client.http.get(f"/v1/batches/{batch.id}").json()
    assert set(raw) == set(type(batch).model_fields)
    file = client.files.retrieve(batch.output_file_id)
    assert set(client.http.get(f"/v1/files/{file.id}").json()) == set(type(file).model_fields) - {
        "status_details"
    }


def test_every_answer_is_one_that_the_own_document_describes(sdk):
    client = sdk()
    http, own = client.http, OwnDocument.of(client.http, __name__)
    batch = end_of(client, begin(client, lines(HI, {"model": "no"})))
    file = batch.output_file_id
    form = {"files": FILE, "data": {"purpose": "batch"}}
    asked = {"input_file_id": batch.input_file_id, "endpoint": CHAT, "completion_window": "24h"}
    unknown = {"file_id": "file-x", "batch_id": "batch_x"}
    for path, method, more in (
        ("/v1/files", "post", form),
        ("/v1/files", "post", {"json": {}}),
        ("/v1/files", "get", {"params": {"limit": 1}}),
        ("/v1/files", "get", {"params": {"limit": 0}}),
        ("/v1/files/{file_id}", "get", {}),
        ("/v1/files/{file_id}/content", "get", {}),
        ("/v1/files/{file_id}", "delete", {}),
        ("/v1/batches", "post", {"json": asked}),
        ("/v1/batches", "post", {"json": {}}),
        ("/v1/batches", "get", {}),
        ("/v1/batches/{batch_id}", "get", {}),
        ("/v1/batches/{batch_id}/cancel", "post", {}),
    ):
        operation = own.document["paths"][path][method]
        named = path.format(file_id=file, batch_id=batch.id)
        own.judge(operation, http.request(method, named, **more))
        if "{" in path:
            own.judge(operation, http.request(method, path.format(**unknown), **more))
