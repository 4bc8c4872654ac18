"""Our code with the packages of NVIDIA's images, as an operator's first hour runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.stack import HANG_S, Stack, free_ports, stopped_at_the_end
from tests.long.images import environment
from tests.long.images.environment import Image
from tests.unit.build_engines import file_servers

# Tests of `make test` that run here as they are, with the image's packages.
SHARED = (
    "tests/engine/test_tokenizer_tables.py",
    "tests/unit/build_engines/test_remote_files.py",
)
MAKER = """\
import sys
from pathlib import Path
from tests.fixtures.random_model import byte_level_tokenizer, sentencepiece_tokenizer
kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "sentencepiece file":
    import sentencepiece
    text = [str(number) + " words, Grüße" for number in range(400)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=str(folder / "tokenizer"), vocab_size=330,
        model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=9)
    config = '{"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>", "legacy": false}'
    (folder / "tokenizer_config.json").write_text(config)
else:
    made = byte_level_tokenizer() if kind == "byte level" else sentencepiece_tokenizer()
    made.save_pretrained(folder)
"""
TABLES = """\
import sys
from build_engines import tokenizer_tables
tokenizer_tables.make(sys.argv[1], {}, sys.argv[2], 4096, 1)
"""
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096,
}  # fmt: skip
RUNTIMES = {
    "TensorRT-LLM": "runtime: tensorrt_llm, gpu: {memory_gb: 80, architecture: hopper}",
    "vLLM": "runtime: vllm, vllm: {memory_gb: 80}",
}
SCRIPTED = "runtime: scripted, scripted: {text: Hello to you}"
TOKEN = "hf_ofthetests"


@pytest.fixture(scope="module", params=environment.RECORDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def image(name: str) -> Image:
    try:
        return environment.made(name)
    except environment.Unavailable as error:
        pytest.skip(str(error))


def said(done: Any) -> str:
    return str(done.stdout + done.stderr)


def test_what_our_code_touches_has_the_recorded_version(image):
    [site] = image.theirs.parents[1].glob("lib/python3.12/site-packages")
    found = {one.name: one.version for one in metadata.distributions(path=[str(site)])}
    for package in ("transformers", "huggingface-hub", "tokenizers", "xgrammar", "pydantic"):
        by_name = {key.replace("_", "-"): version for key, version in found.items()}
        assert by_name[package] == image.packages[package][0]


@pytest.mark.parametrize("file", SHARED)
def test_tests_of_our_own_pass(image, file):
    tests = str(image.folder / "tests")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:anyio", "-m", "not hypothesis")
    done = image.run("-m", "pytest", *options, file, PYTHONPATH=tests)
    assert done.returncode == 0, said(done)


@pytest.mark.parametrize("kind", ["byte level", "byte fallback", "sentencepiece file"])
@pytest.mark.parametrize("numpy", [environment.NUMPY, "recorded"])
def test_a_tokenizers_tables_are_made(image, tmp_path, kind, numpy):
    (tmp_path / "weights").mkdir()
    (tmp_path / "tables").mkdir()
    done = image.run("-c", MAKER, kind, tmp_path / "weights")
    assert done.returncode == 0, said(done)
    path = {} if numpy != "recorded" else {"PYTHONPATH": str(image.folder / "recorded_numpy")}
    done = image.run("-c", TABLES, tmp_path / "weights", tmp_path / "tables", **path)
    assert done.returncode == 0, said(done)
    assert json.loads((tmp_path / "tables" / "facts.json").read_text())["end_ids"]


class Hub:
    """The stand-in of the hub behind a gate that wants the token, and cuts the first transfer."""

    def __init__(self, behind: Any) -> None:
        self.cut, self.tokens = False, set[str | None]()
        handler = behind.RequestHandlerClass
        hub = self

        class Gate(handler):  # type: ignore[misc, valid-type]
            def _serve(self) -> None:
                token = self.headers.get("Authorization")
                hub.tokens.add(token)
                if token != f"Bearer {TOKEN}":
                    self._answer(401, b"{}", "application/json", {"X-Error-Code": "GatedRepo"})
                else:
                    super()._serve()

            def _answer(self, status: int, body: bytes, *rest: Any) -> None:
                is_weights = self.path.endswith(".safetensors") and self.command == "GET"
                if is_weights and status == 200 and hub.cut:
                    hub.cut = False
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                    return
                super()._answer(status, body, *rest)

        behind.RequestHandlerClass = Gate


@pytest.fixture
def store(image: Image, tmp_path: Path) -> Iterator[Any]:
    folder = tmp_path / "stored"
    folder.mkdir()
    done = image.run("-c", MAKER, "byte level", folder)
    assert done.returncode == 0, said(done)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(b"weights" * 10_000)
    with file_servers.serve(folder) as server:
        yield server


def build(
    image: Image, name: str, folder: Path, source: str, *more: str, **variables: str
) -> tuple[int, str]:
    models = folder / "models.yaml"
    models.write_text(f"models: {{m: {{weights: '{source}', {RUNTIMES[name]}}}}}")
    given = {"MODELS_FILE": str(models), "ARTIFACTS_DIR": str(folder / "artifacts")}
    done = image.run("-m", "proxy.cli", "build", *more, **given, **variables)
    return done.returncode, said(done)


def test_a_repository_of_the_hub_is_planned_refused_fetched_and_resumed(
    image, name, store, tmp_path
):
    hub, hosts = Hub(store), file_servers.environment(store.url)
    code, text = build(image, name, tmp_path, "hf://org/name", **hosts)
    assert (code, "cannot be fetched" in text, "Traceback" in text) == (1, True, False), text
    hosts["HF_TOKEN"] = TOKEN
    code, text = build(image, name, tmp_path, "hf://org/name", "--dry-run", **hosts)
    assert code == 0, text
    assert "fetch hf://org/name" in text
    hub.cut = True
    code, text = build(image, name, tmp_path, "hf://org/name", **hosts)
    if code:  # this version of huggingface_hub does not try again by itself
        assert "cannot be fetched" in text
        assert "Traceback" not in text
        code, text = build(image, name, tmp_path, "hf://org/name", **hosts)
    assert code == 0, text
    assert not hub.cut
    [weights] = (tmp_path / "artifacts").glob("weights/**/model.safetensors")
    assert weights.read_bytes() == b"weights" * 10_000
    assert hub.tokens == {None, f"Bearer {TOKEN}"}


def test_a_folder_of_an_object_store_is_planned_and_built(image, name, store, tmp_path):
    hosts = file_servers.environment(store.url)
    for more in (["--dry-run"], []):
        code, text = build(image, name, tmp_path, "s3://bucket/", *more, **hosts)
        assert code == 0, text
    assert (tmp_path / "artifacts" / "m" / "guide.json").is_file()


def test_doctor_has_no_error_of_its_own(image, name, tmp_path):
    models = tmp_path / "models.yaml"
    models.write_text(f"models: {{m: {{weights: /nowhere, {RUNTIMES[name]}}}}}")
    given = {"MODELS_FILE": str(models), "ARTIFACTS_DIR": str(tmp_path)}
    for more, seen in ((), "tritonserver"), (("--gpu",), name):
        text = said(image.run("-m", "proxy.cli", "doctor", *more, **given))
        assert "Traceback" not in text
        assert seen in text


@pytest.fixture
def served(image: Image, name: str, tmp_path: Path) -> Iterator[Stack]:
    """`serve` in the image: TensorRT-LLM's stand-in, or the scripted engine beside vLLM's."""
    weights = tmp_path / "weights"
    weights.mkdir()
    done = image.run("-c", MAKER, "byte level", weights)
    assert done.returncode == 0, said(done)
    (weights / "config.json").write_text(json.dumps(CONFIG))
    (weights / "model.safetensors").write_bytes(b"weights")
    runtime = (
        RUNTIMES[name]
        if name == "TensorRT-LLM"
        else "runtime: scripted, scripted: {text: Hello to you}"
    )
    models = tmp_path / "models.yaml"
    models.write_text(f"models: {{m: {{weights: '{weights}', {runtime}}}}}")
    given = {**free_ports(), "MODELS_FILE": str(models), "ARTIFACTS_DIR": str(tmp_path / "made")}
    variables = image.environment(AUTH="off", **given)
    with stopped_at_the_end() as stacks:
        stack = Stack(
            [], variables, tmp_path / "log", program=[str(image.ours), "-m", "proxy.cli", "serve"]
        )
        stacks.append(stack)
        yield stack


def test_the_models_around_the_engine_serve_in_a_real_tritonserver(served):
    served.wait_ready(within_s=120)
    ask = {"model": "m", "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{served.url}/v1/completions", json=ask, timeout=HANG_S)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"]
    form = {"type": "regex", "regex": "("}
    refused = httpx.post(
        f"{served.url}/v1/completions", json={**ask, "response_format": form}, timeout=HANG_S
    )
    assert refused.status_code == 400, refused.text
