"""GGUF files of each architecture are built, and answer as transformers does."""

from __future__ import annotations

import json

import pytest

from build_engines import onnx_build
from build_engines.models_file import OnnxEntry, OnnxOptions
from build_engines.weights import LocalFolder
from tests.fixtures.families import forget_oracles, greedy
from tests.fixtures.gguf_files import MIXED, write

PROMPT = tuple(range(20, 90))
END = 2  # onnxruntime-genai does not count it to the answer


def of_transformers(path, folder, max_tokens: int) -> list[int]:
    import torch
    from transformers import AutoModelForCausalLM

    from build_engines.gguf_weights import write_folder

    folder.mkdir()
    write_folder(path, folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")  # softcap
    ids = torch.tensor([PROMPT])
    found = model.generate(ids, do_sample=False, max_new_tokens=max_tokens)
    return [token for token in found[0, len(PROMPT) :].tolist() if token != END]


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3", "gemma2"])
def test_the_engine_answers_as_transformers_does(tmp_path, family):
    path = write(tmp_path / "model.gguf", family, kinds=MIXED, has_q4_k=True).path
    options, artifacts = OnnxOptions(precision="fp32"), tmp_path / "artifacts"
    entry = OnnxEntry(weights=LocalFolder(path), onnx=options)
    artifacts.mkdir()
    onnx_build.build("m", entry, artifacts, lambda _: None)
    assert onnx_build.is_built("m", entry, artifacts)
    assert not (artifacts / "m.weights").exists()
    tools = json.loads((artifacts / "m" / "build.json").read_text())["tools"]
    assert tools.keys() >= {"gguf", "transformers", "onnxruntime-genai"}
    found = greedy(artifacts / "m", PROMPT, 20)
    forget_oracles()
    assert found == of_transformers(path, tmp_path / "folder", 20)
