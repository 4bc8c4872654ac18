"""A proxy that is ready has everything started and imported, and each model has generated.

By count: what runs below the launcher, the libraries that each process has loaded, and what the
engines count.
"""

from __future__ import annotations

import httpx
import psutil
import yaml

from tests.fixtures.running import SANDBOX_PROCESSES, build
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually

MODELS = ("demo", "endless")
GUIDED = {
    "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 5,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object", "required": ["a"]}},
    },
}


def libraries(stack: Stack) -> dict[int, set[str]]:
    """By process: its mapped shared objects."""
    found = {}
    for process in psutil.Process(stack.process.pid).children(recursive=True):
        try:
            found[process.pid] = {one.path for one in process.memory_maps() if ".so" in one.path}
        except psutil.NoSuchProcess:  # a fork that a guide was tried in
            continue
    return found


def loaded_since(before: dict[int, set[str]], stack: Stack) -> set[tuple[str, str]]:
    """What runs now and has loaded a library since, or did not run then; with the library."""
    return {
        (" ".join(psutil.Process(pid).cmdline())[-80:], path)
        for pid, paths in libraries(stack).items()
        for path in paths - before.get(pid, set())
    }


def ask_with_a_guide(stack: Stack) -> None:
    """Each model, by a new connection each time, so that all instances have some."""
    for model in MODELS:
        for number in range(6):
            schema = {"type": "object", "title": f"{model} {number}"}  # no verdict is remembered
            asked = {**GUIDED, "model": model, "guided_json": schema}
            del asked["response_format"]
            answer = httpx.post(f"{stack.url}/v1/chat/completions", json=asked, timeout=HANG_S)
            assert answer.status_code == 200, answer.text


def sandboxes(stack: Stack) -> tuple[int, int]:
    """Of the tokenizers, whose instances share one, and of the proxy."""
    ours = stack.descendants("guide_check.sandbox_child")
    return len(ours), len(stack.descendants("anyio.to_process"))


def assert_is_warm(stack: Stack) -> None:
    expected = len(MODELS), SANDBOX_PROCESSES
    eventually(lambda: sandboxes(stack) == expected, 30, "all sandboxes run")
    eventually(lambda: have_imported(stack), 30, "the proxy's sandboxes have imported all")


def have_imported(stack: Stack) -> bool:
    """Whether the proxy's sandboxes have loaded the same libraries, and the last one."""
    own = [process.pid for process in stack.descendants("anyio.to_process")]
    loaded = libraries(stack)
    found = [loaded.get(pid, set()) for pid in own]
    return all(one == found[0] and any("jsonschema_rs" in p for p in one) for one in found)


def assert_each_model_has_generated(stack: Stack) -> None:
    """Engines may count what they have generated a little later."""

    def counted() -> set[tuple[float, float]]:
        engines = [stack.engine(model) for model in MODELS]
        return {(one["requests_finished"], one["generated_tokens"]) for one in engines}

    eventually(lambda: counted() == {(1, 2)}, 20, "each has generated once")


def test_each_model_has_generated_before_the_first_request_and_for_nobody(fresh):
    assert_each_model_has_generated(fresh)
    counted = PLAIN.get(f"{fresh.url}/metrics").text.splitlines()
    names = ("proxy_requests_total", "proxy_prompt_tokens_total", "proxy_endpoint_streams_total")
    assert not [line for line in counted if line.startswith(names)]


def test_a_model_whose_engine_fails_is_not_ready_and_the_other_is(start, tmp_path):
    path = tmp_path / "models.yaml"
    models = {"steady": scripted(), "broken": scripted(fails_after=1)}
    path.write_text(yaml.safe_dump({"models": models}))
    build(path, tmp_path)
    stack = start("serve", MODELS_FILE=path, ARTIFACTS_DIR=tmp_path)
    stack.wait_ready(within_s=110)
    assert PLAIN.get(f"{stack.url}/health/ready").json()["concerns"] == [
        "a model does not generate: The model server failed (1 of 2 on all endpoints)",
        "1 of 2 models have no endpoint that is ready",
    ]
    log = stack.log.read_text()
    assert '"event":"model is not ready"' in log
    assert "the model 'broken' does not generate: " in log
    ask = {"messages": GUIDED["messages"], "max_tokens": 3}
    for model, status in {"steady": 200, "broken": 503}.items():
        answer = PLAIN.post(f"{stack.url}/v1/chat/completions", json={**ask, "model": model})
        assert answer.status_code == status, answer.text


def test_the_first_guided_requests_start_and_load_nothing(fresh):
    assert_is_warm(fresh)
    before = libraries(fresh)
    assert any("xgrammar" in path for one in before.values() for path in one)
    ask_with_a_guide(fresh)
    assert loaded_since(before, fresh) == set()


def test_after_a_restart_of_triton_they_find_the_same(fresh):
    before = set(libraries(fresh))
    fresh.tritonserver().kill()
    eventually(lambda: fresh.log.read_text().count("tritonserver is ready") == 2, 30, "it is up")
    fresh.wait_ready()
    assert_each_model_has_generated(fresh)
    assert_is_warm(fresh)
    warm = libraries(fresh)
    assert set(warm) - before, "its processes are new"
    ask_with_a_guide(fresh)
    assert loaded_since(warm, fresh) == set()


def test_no_process_has_loaded_torch(fresh):
    """It would take 200 MB and two seconds in each."""
    assert not any("libtorch" in path for one in libraries(fresh).values() for path in one)
