"""A tritonserver with stand-ins for models of others, and the proxy over it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.fixtures import adopted as repository
from tests.fixtures.running import ARTIFACTS, Start, alone, build
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import PLAIN, ROOT, Stack, eventually

TOKENIZER = str(ROOT / "demo_model" / "shipped")
TENSORS = {"prompt": "PROMPT", "text": "OUTPUT", "inputs": {"max_tokens": "MAX_TOKENS"}}
BUILT = {
    "demo": {"weights": TOKENIZER, "onnx": {"threads": 1}},
    "endless": scripted("And then it began anew. Grüße! ", repeats=True, step_ms=6.0),
}
# Public name -> what models.yaml says. `llmapi_old` is served without an entry.
ENTRIES: dict[str, dict[str, Any]] = {
    "vllm": {"adopt": "qwen_vllm", "adapters": list(repository.LORAS)},
    "llmapi": {"adopt": "llmapi"},
    "llmapi_whole": {"adopt": "llmapi_whole"},
    "cpp": {"adopt": "ensemble"},
    "bls": {"adopt": "tensorrt_llm_bls"},
    "bls_sum": {"adopt": "accumulating_bls"},
    "team": {"adopt": "team", "tensors": TENSORS},
    "team_whole": {"adopt": "team_whole", "tensors": TENSORS},
    "team_unbounded": {"adopt": "team", "tensors": {"prompt": "PROMPT", "text": "OUTPUT"}},
    "capped": {"adopt": "qwen_vllm", "limits": {"max_tokens": 5, "prompt_tokens": 60}},
    "embedder": {"adopt": "embedder"},
    "seeing": {"adopt": "qwen_vllm"},  # with a template that has a place for images
    "mixed": {
        "adopt": "qwen_vllm",
        "deployments": [
            {"name": "theirs", "model": "qwen_vllm", "weight": 1},
            {"name": "ours", "model": "demo", "weight": 1},
        ],
    },
}
ENGINES = {"vllm": "qwen_vllm", "llmapi": "llmapi", "cpp": "tensorrt_llm", "bls": "tensorrt_llm"}
ENGINES |= {name: name for name in ("llmapi_whole", "team", "team_whole")}
ENGINES |= {"bls_sum": "tensorrt_llm"}
KINDS = tuple(ENGINES)
SAMPLED = tuple(kind for kind in KINDS if not kind.startswith("team"))
MESSAGES = [{"role": "user", "content": "Hello! Who are you?"}]
ENDLESS = [{"role": "user", "content": "Tell me a story without end."}]


def greedy(kind: str) -> dict[str, Any]:
    """The text models take no temperature, and are greedy."""
    return {"model": kind} if kind.startswith("team") else {"model": kind, "temperature": 0}


@dataclass(frozen=True)
class Adopted:
    """triton: tritonserver alone. proxy: over it."""

    triton: Stack
    proxy: Stack

    def engine(self, kind: str) -> dict[str, float]:
        return self.triton.engine(ENGINES[kind])

    def wait_idle(self, kind: str) -> dict[str, float]:
        return self.triton.settled_engine(ENGINES[kind])


@pytest.fixture(scope="session")
def adopted_folder() -> Path:
    """What a tritonserver of `tests.fixtures.adopted` needs."""
    folder = ARTIFACTS / "adopted"
    with alone():
        build(_written(folder / "built.yaml", BUILT), folder)
        repository.write(folder)
    return folder


@pytest.fixture(scope="session")
def adopted_triton(start_shared: Start, adopted_folder: Path) -> Stack:
    return start_shared(module="tests.fixtures.adopted", ARTIFACTS_DIR=adopted_folder)


def over(triton: Stack, start: Start, **settings: object) -> Adopted:
    """settings: of the proxy."""
    folder = ARTIFACTS / "adopted"
    served = {name: {"tokenizer": TOKENIZER, **entry} for name, entry in ENTRIES.items()}
    served["seeing"]["tokenizer"] = str(_with_images(folder / "seeing"))
    proxy = start(
        "proxy",
        ADMIN="off",
        ARTIFACTS_DIR=folder,
        MODELS_FILE=_written(folder / "served.yaml", {**BUILT, **served}),
        TRITON_URL=f"grpc://127.0.0.1:{triton.triton_grpc_port}",
        **settings,
    )
    eventually(partial(_is_ready, triton, proxy), 120, "the proxy is ready")
    for name in (*ENTRIES, "demo"):
        eventually(partial(_answers, proxy, name), 60, f"{name} answers")
    return Adopted(triton, proxy)


@pytest.fixture(scope="session")
def adopted(adopted_triton: Stack, start_shared: Start) -> Adopted:
    return over(adopted_triton, start_shared)


@pytest.fixture(scope="module")
def client(adopted: Adopted) -> Iterator[openai.OpenAI]:
    url = f"{adopted.proxy.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def _with_images(folder: Path) -> Path:
    """The demo's tokenizer, with a chat template that reads images."""
    folder.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(Path(TOKENIZER, name), folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.content is string %}{{ m.content }}{% else %}{% for one in m.content %}"
        "{% if one.type == 'image' %}picture{% else %}{{ one.text }}{% endif %}{% endfor %}"
        "{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    return folder


def _written(path: Path, models: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"models": models}))
    return path


def _is_ready(triton: Stack, proxy: Stack) -> bool:
    for stack in (triton, proxy):
        assert stack.process.poll() is None, stack.log.read_text()[-3000:]
    return proxy.is_ready()


def _answers(proxy: Stack, name: str) -> bool:
    body = {**greedy(name), "prompt": "Hello", "max_tokens": 1}
    return PLAIN.post(f"{proxy.url}/v1/completions", json=body).status_code in (200, 400)
