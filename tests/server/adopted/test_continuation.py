"""Two tritonservers serve adopted models. One of them is killed while they stream."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial

import httpx
import pytest
import yaml

from tests.fixtures.running import ARTIFACTS
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually
from tests.server.adopted.conftest import TENSORS, TOKENIZER

STREAMS, LENGTH = 8, 300
NAMES = {
    "by_ids": {"adopt": "qwen_vllm"},
    "by_text": {"adopt": "qwen_vllm", "continue": "text"},
    "llmapi_text": {"adopt": "llmapi", "continue": "text"},
    "team_text": {"adopt": "team", "tensors": TENSORS, "continue": "text"},
    "refused": {"adopt": "llmapi"},
}


class Pair:
    """Two tritonservers that serve the same, behind one proxy."""

    def __init__(self, start, folder) -> None:
        self._start, self._file = start, folder / "endpoints"
        self.tritons = [self.new(), self.new()]
        models = {name: {"tokenizer": TOKENIZER, **entry} for name, entry in NAMES.items()}
        (folder / "models.yaml").write_text(yaml.safe_dump({"models": models}))
        self.name()
        self.proxy = start(
            "proxy",
            MODELS_FILE=folder / "models.yaml",
            TRITON_URL=f"file+grpc://{self._file}",
            CONTINUE_AFTER_SILENCE_S=3600,
        )
        self.wait()

    def new(self) -> Stack:
        return self._start(module="tests.fixtures.adopted", ARTIFACTS_DIR=ARTIFACTS / "adopted")

    def name(self) -> None:
        lines = (
            f"127.0.0.1:{one.triton_grpc_port}?metrics={one.triton_metrics_port}"
            for one in self.tritons
        )
        self._file.write_text("\n".join(lines))

    def wait(self) -> None:
        """Until both serve every model."""
        self.proxy.wait_ready()
        eventually(partial(self._serve, 2), 120, "both tritonservers serve")

    def _serve(self, count: int) -> bool:
        text = PLAIN.get(f"{self.proxy.url}/metrics").text
        return f'proxy_pool_endpoints{{pool="default",state="ready"}} {count}.0' in text

    def kill_one(self) -> None:
        self.tritons[0].process.kill()
        self.tritons = [self.tritons[1], self.new()]


@pytest.fixture(scope="module")
def pair(adopted_triton, start, tmp_path_factory) -> Pair:
    return Pair(start, tmp_path_factory.mktemp("pair"))  # of what `adopted_triton` has built


async def streamed(http: httpx.AsyncClient, model: str, number: int, seen: list[int]) -> str:
    body = {"model": model, "prompt": f"Once upon a time {number}", "stream": True}
    body |= {"max_tokens": LENGTH}
    if not model.startswith("team"):
        body["temperature"] = 0
    if model.startswith("by"):
        body |= {"min_tokens": LENGTH}
    text = ""
    async with http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                text += f"<{line}>" if "continued" in line else ""
            elif line.startswith("data: {"):
                found = json.loads(line[6:])
                if "error" in found:
                    return f"error: {found['error']['message']}"
                text += "".join(one["text"] for one in found["choices"])
                seen[number] += 1
    return text


async def all_of(pair: Pair, model: str, kill_after: int | None) -> list[str]:
    """kill_after: tokens of the streams together."""
    seen = [0] * STREAMS
    async with httpx.AsyncClient(base_url=pair.proxy.url, timeout=HANG_S) as http:
        tasks = [asyncio.create_task(streamed(http, model, one, seen)) for one in range(STREAMS)]
        while kill_after is not None and sum(seen) < kill_after:
            assert not all(one.done() for one in tasks)
            await asyncio.sleep(0.001)
        if kill_after is not None:
            pair.kill_one()
        return await asyncio.gather(*tasks)


def cut_out(text: str) -> tuple[str, int]:
    """The text without the comments, and how many there were."""
    parts = text.split("<: continued 1 (endpoint lost")
    rest = [part.partition(">")[2] for part in parts[1:]]
    return parts[0] + "".join(rest), len(parts) - 1


@pytest.mark.parametrize("model", [name for name in NAMES if name != "refused"])
def test_streams_go_on_after_kill_9_and_by_ids_they_are_the_undisturbed_greedy_ones(pair, model):
    undisturbed = asyncio.run(all_of(pair, model, None))
    assert not any(cut_out(text)[1] for text in undisturbed)
    continued = 0
    for number in range(2 if model == "by_ids" else 1):  # each starts a tritonserver
        after = random.Random(f"{model}{number}").randrange(STREAMS, STREAMS * 30)
        found = asyncio.run(all_of(pair, model, after))
        pair.name()
        pair.wait()
        for text, whole in zip(found, undisturbed, strict=True):
            plain, count = cut_out(text)
            continued += count
            if "text" in model:  # with other tokens the rest may differ, but not what was there
                before = text.partition("<")[0]
                assert whole.startswith(before)
                assert ("by its text" in text) is bool(count)
                assert len(plain) > len(before) or not count or before == whole
            else:
                assert plain == whole
    assert continued, "no stream was cut in its middle"


def test_without_leave_a_stream_of_texts_ends_with_an_error_that_says_why(pair):
    found = asyncio.run(all_of(pair, "refused", STREAMS * 3))
    pair.name()
    errors = [one for one in found if one.startswith("error")]
    assert errors
    assert all("the model reports no token ids" in one for one in errors)
