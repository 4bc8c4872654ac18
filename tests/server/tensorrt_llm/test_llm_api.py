"""The engine's tensorrt_llm runtime in a real Triton, on the stand-in, through the proxy."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from openai import NotFoundError, OpenAI

from proxy.domain.constraint import Constraint, GuideKind
from tests.fixtures.stack import HANG_S, eventually, triton_log

PROMPT = [75, 76, 77, 78]  # which the stand-in says again, over and over
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<a>",
        "content": {"type": "regex", "pattern": "[0-9]{2}"},
        "end": "</a>",
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


def complete(stack, model="llm", **fields) -> httpx.Response:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 6, "temperature": 0, **fields}
    return httpx.post(f"{stack.url}/v1/completions", json=body, timeout=HANG_S)


def choice(stack, model="llm", **fields) -> dict:
    return complete(stack, model, **fields).raise_for_status().json()["choices"][0]


@pytest.fixture
def numbers(triton):
    """numbers(model) -> the engine's own counters, of Triton's metrics port."""
    return triton.settled_engine


def test_text_its_length_and_its_usage(stack):
    answer = complete(stack).raise_for_status().json()
    (only,) = answer["choices"]
    assert only["finish_reason"] == "length"
    assert only["text"] == (only["text"][:4] * 2)[:6]
    assert answer["usage"]["prompt_tokens"] == 4
    assert answer["usage"]["completion_tokens"] == 6


def test_several_tokens_a_response_and_a_last_one_without_any(stack):
    assert choice(stack, "slow", max_tokens=5)["text"] == choice(stack, max_tokens=5)["text"]
    assert choice(stack, "slow", max_tokens=5)["finish_reason"] == "length"


def test_a_stop_string_ends_it_in_the_engine_too(stack, numbers):
    text = choice(stack)["text"]
    before = numbers("slow")
    stopped = choice(stack, "slow", max_tokens=4000, stop=text[3])
    assert (stopped["text"], stopped["finish_reason"]) == (text[:3], "stop")
    after = numbers("slow")
    assert after["requests_cancelled"] == before["requests_cancelled"] + 1
    assert after["generated_tokens"] < before["generated_tokens"] + 500


def test_a_client_that_leaves_frees_the_engine(stack, numbers):
    before = numbers("slow")
    body = {"model": "slow", "prompt": PROMPT, "max_tokens": 4000, "stream": True}
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body) as response:
        next(response.iter_lines())
    after = numbers("slow")
    assert after["requests_cancelled"] == before["requests_cancelled"] + 1


def test_log_probs_of_the_tokens_and_of_alternatives(stack):
    found = choice(stack, max_tokens=3, logprobs=2)["logprobs"]
    assert found["token_logprobs"] == [-0.5, -0.5, -0.5]
    assert [sorted(top.values()) for top in found["top_logprobs"]] == [[-1.5, -0.5]] * 3


def test_cached_tokens_are_told_and_counted(stack, numbers):
    prompt = list(range(60, 160))
    usages = [
        complete(stack, prompt=prompt, max_tokens=1).json()["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert [usage["cached_tokens"] for usage in usages] == [0, 96]
    assert numbers("llm")["cached_tokens"] >= 96


@pytest.fixture
def sdk(stack):
    with OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_an_adapter_is_a_model_to_openais_sdk(sdk):
    """The stand-in's adapters say tokens further on, each by its own id."""

    def text(model: str, prompt: list[int]) -> str:
        answer = sdk.completions.create(model=model, prompt=prompt, max_tokens=4, temperature=0)
        return answer.choices[0].text

    token = {at: text("llm", [at])[0] for at in range(75, 81)}
    assert text("poet", PROMPT) == token[76] + token[77] + token[78] + token[79]
    assert text("sql", PROMPT) == token[77] + token[78] + token[79] + token[80]
    chat = {"model": "sql", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    assert {chunk.model for chunk in sdk.chat.completions.create(**chat, stream=True)} == {"sql"}
    with pytest.raises(NotFoundError, match="'prose'"):
        text("prose", PROMPT)


def test_an_adapter_that_the_engine_does_not_know_is_refused_there_too(ask):
    """As the ensemble's own clients see it; the proxy knows them all."""
    assert "no adapter 'x'; its adapters: poet, sql" in ask(PROMPT, "llm", adapter="x")


def test_many_streams_at_once_keep_apart(stack):
    prompts = [[60 + at, 61 + at, 62 + at] for at in range(24)]
    with ThreadPoolExecutor(len(prompts)) as pool:
        alone = [choice(stack, prompt=prompt, max_tokens=3)["text"] for prompt in prompts]
        together = pool.map(lambda p: choice(stack, prompt=p, max_tokens=30)["text"], prompts)
    assert list(together) == [text * 10 for text in alone]


def test_its_own_statistics_are_on_tritons_metrics_port(stack, numbers):
    before = numbers("llm")
    complete(stack, max_tokens=200)
    eventually(
        lambda: numbers("llm")["decode_steps"] >= before["decode_steps"] + 199, 5, "steps are told"
    )


@pytest.mark.parametrize(
    ("guide", "pattern"),
    [
        (Constraint(GuideKind.JSON_SCHEMA, json.dumps(SCHEMA)), r'\{\s*"a"\s*:\s*[12]\s*\}'),
        (Constraint(GuideKind.REGEX, r"\d{3}-x"), r"\d{3}-x"),
        (Constraint(GuideKind.GRAMMAR, 'root ::= "yes" | "no"'), "yes|no"),
        (Constraint(GuideKind.STRUCTURAL_TAG, json.dumps(TAG)), "<a>[0-9]{2}</a>"),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Constraint) else "",
)
def test_a_guide_is_held_to(ask, guide, pattern):
    assert re.fullmatch(pattern, ask(PROMPT, "llm", constraint=guide, max_tokens=60))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"priority": 1}, "priority"),
        ({"min_p": 0.1}, "min_p"),
        ({"seed": 3}, "seed"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"bad_words": ["a"]}, "bad_words"),
    ],
)
def test_what_this_version_would_ignore_is_refused_by_name(stack, fields, param):
    refused = complete(stack, **fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (
        400, "unsupported_parameter", param,
    )  # fmt: skip


def test_a_crashed_executor_is_told_makes_triton_unready_and_is_recovered_from(stack):
    streamed = complete(stack, "mortal", max_tokens=100, stream=True)
    *tokens, error, done = [line for line in streamed.text.splitlines() if line]
    assert len(tokens) >= 1
    assert "The model server failed." in error
    assert "CUDA out of memory" in stack.log.read_text()
    assert done == "data: [DONE]"
    eventually(lambda: not stack.is_ready(), 5, "readiness says so")
    eventually(stack.is_ready, 60, "it is started anew")
    assert choice(stack)["finish_reason"] == "length"


def test_a_hang_ends_the_streams_with_an_error_and_the_model_starts_anew(stack, triton):
    """No response and no iteration for two seconds, and no error of TensorRT-LLM's."""
    stalled = []

    def watch_metrics() -> None:
        url = f"http://127.0.0.1:{triton.triton_metrics_port}/metrics"
        while not is_over.wait(0.1):
            with contextlib.suppress(httpx.HTTPError):
                found = re.findall(
                    r'engine_seconds_without_progress{model="stuck"} (\S+)',
                    httpx.get(url, timeout=1).text,
                )
                stalled.extend(map(float, found))

    is_over = threading.Event()
    watcher = threading.Thread(target=watch_metrics)
    watcher.start()
    streamed = complete(stack, "stuck", max_tokens=100, stream=True)
    is_over.set()
    watcher.join()
    *tokens, error, done = [line for line in streamed.text.splitlines() if line]
    assert len(tokens) >= 1
    assert "in the middle of this answer, which was continued 1 times already" in error
    assert done == "data: [DONE]"
    assert "TensorRT-LLM hangs: 1 requests are in flight, and for 2 s" in stack.log.read_text()
    assert max(stalled) > 0.5, "the metrics show the stall before the engine ends"
    eventually(lambda: not stack.is_ready(), 5, "readiness says so")
    eventually(stack.is_ready, 60, "it is started anew")
    assert choice(stack)["finish_reason"] == "length"


def test_what_cannot_start_is_named_and_only_that(run, tmp_path_factory):
    """The tokenizer, the detokenizer and the ensemble around the C++ backend load without a GPU."""
    from tests.fixtures.trtllm_models import TrtllmModels

    models = TrtllmModels(tmp_path_factory.mktemp("broken"))
    models.add_cpp_backend("cpp", None)
    models.add_llm_api("bad", {"start_error": "no CUDA-capable device is detected"})
    triton = run(models.artifacts)
    assert triton.process.wait(HANG_S) == 1
    log = triton_log(models.artifacts).read_text()
    failed = dict(re.findall(r"failed to load '(\w+)' version 1: (.*)", log))
    assert failed.keys() == {"cpp_engine", "bad_engine"}
    assert "unable to find backend library for backend 'tensorrtllm'" in failed["cpp_engine"]
    assert "cannot start the model in" in failed["bad_engine"]
    assert "no CUDA-capable device is detected" in failed["bad_engine"]
    unloaded = re.findall(r"failed to load model '(\w+)'|ensemble '(\w+)' depends on '(\w+)'", log)
    assert set(unloaded) == {
        ("", "cpp", "cpp_engine"), ("", "bad", "bad_engine"),
    }  # fmt: skip
