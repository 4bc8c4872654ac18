"""Two tritonservers serve adopted models. One of them is killed while they stream."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random

import httpx
import pytest
import yaml

from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually
from tests.server.adopted.conftest import TENSORS, TOKENIZER

STREAMS, LENGTH = 8, 300  # of each model
KILLS = 2
NAMES = {
    "by_ids": {"adopt": "qwen_vllm"},
    "by_text": {"adopt": "qwen_vllm", "continue": "text"},
    "llmapi_text": {"adopt": "llmapi", "continue": "text"},
    "team_text": {"adopt": "team", "tensors": TENSORS, "continue": "text"},
    "refused": {"adopt": "llmapi"},
}
LOADED = {str(entry["adopt"]) for entry in NAMES.values()}  # what the tritonservers load


class Pair:
    """Two tritonservers that serve the same, behind one proxy."""

    def __init__(self, start, artifacts, folder) -> None:
        self._start, self._artifacts, self._file = start, artifacts, folder / "endpoints"
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
        module = "tests.fixtures.adopted"
        return self._start(*sorted(LOADED), module=module, ARTIFACTS_DIR=self._artifacts)

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
def pair(adopted_folder, start, tmp_path_factory) -> Pair:
    return Pair(start, adopted_folder, tmp_path_factory.mktemp("pair"))


async def streamed(http: httpx.AsyncClient, model: str, number: int, seen: Counter[str]) -> str:
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
                seen[model] += 1
    return text


async def all_of(pair: Pair, kill_after: Mapping[str, int] | None) -> dict[str, list[str]]:
    """The texts of each model's streams. kill_after: tokens of a model's streams together."""
    seen: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=pair.proxy.url, timeout=HANG_S) as http:
        tasks = {
            model: [asyncio.create_task(streamed(http, model, one, seen)) for one in range(STREAMS)]
            for model in NAMES
        }
        if kill_after is not None:
            while any(seen[model] < count for model, count in kill_after.items()):
                assert not any(all(one.done() for one in streams) for streams in tasks.values())
                await asyncio.sleep(0.001)
            pair.kill_one()
        return {model: await asyncio.gather(*streams) for model, streams in tasks.items()}


def cut_out(text: str) -> tuple[str, int]:
    """The text without the comments, and how many there were."""
    parts = text.split("<: continued 1 (endpoint lost")
    rest = [part.partition(">")[2] for part in parts[1:]]
    return parts[0] + "".join(rest), len(parts) - 1


def test_streams_go_on_after_kill_9_and_by_ids_they_are_the_undisturbed_greedy_ones(pair):
    """Those of a model that reports no token ids end with an error that says so."""
    undisturbed = asyncio.run(all_of(pair, None))
    assert not any(cut_out(text)[1] for texts in undisturbed.values() for text in texts)
    for number in range(KILLS):
        random = Random(number)
        after = {model: random.randrange(STREAMS, STREAMS * 30) for model in NAMES}
        found = asyncio.run(all_of(pair, after))
        pair.name()
        if number + 1 < KILLS:
            pair.wait()
        errors = [text for text in found.pop("refused") if text.startswith("error")]
        assert errors
        assert all("the model reports no token ids" in one for one in errors)
        for model, texts in found.items():
            assert_continued(model, texts, undisturbed[model])


def assert_continued(model: str, texts: list[str], undisturbed: list[str]) -> None:
    continued = 0
    for text, whole in zip(texts, undisturbed, strict=True):
        plain, count = cut_out(text)
        continued += count
        if "text" in model:  # with other tokens the rest may differ, but not what was there
            before = text.partition("<")[0]
            assert whole.startswith(before)
            assert ("by its text" in text) is bool(count)
            assert len(plain) > len(before) or not count or before == whole
        else:
            assert plain == whole
    assert continued, f"no stream of {model} was cut in its middle"
