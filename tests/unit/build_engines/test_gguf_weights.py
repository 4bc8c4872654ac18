"""gguf_weights: a GGUF file becomes the model that it was made from, or is refused by name."""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build_engines import gguf_config, gguf_tokenizer, one_folder
from build_engines.errors import BuildError
from build_engines.gguf_config import UNSUPPORTED_KEYS
from build_engines.gguf_file import KINDS, OWN_KINDS, GgufFile
from build_engines.gguf_weights import QuantizedMatrix, matrices, write_folder
from build_engines.weights import gguf_in
from tests.fixtures import gguf_files
from tests.fixtures.examples import examples
from tests.fixtures.gguf_files import FAMILIES, MIXED, write


def dequantized(matrix: QuantizedMatrix) -> np.ndarray:
    scales = np.repeat(matrix.scales, 32, axis=1)
    codes = matrix.codes.astype(np.float32)
    return scales * (codes - np.float32(8 if matrix.bits == 4 else 128))


def folder_of(path: Path) -> Path:
    folder = path.parent / "folder"
    folder.mkdir()
    write_folder(path, folder)
    return folder


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


def logits(model: Any) -> np.ndarray:
    import torch

    ids = torch.arange(3, 403).reshape(2, 200)  # longer than gemma2's window
    with torch.no_grad():
        return model(input_ids=ids).logits.numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_folder_has_the_model_that_the_file_was_made_from(tmp_path, family):
    written = write(tmp_path / "model.gguf", family)
    model = loaded(folder_of(written.path))
    assert type(model) is type(written.model)
    wanted = written.model.state_dict()
    found = model.state_dict()
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=2e-7, err_msg=name)
    np.testing.assert_allclose(logits(model), logits(written.model), atol=2e-4)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma"])
def test_quantized_weights_are_those_that_transformers_reads(tmp_path, family):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    written = write(tmp_path / "model.gguf", family, kinds=MIXED, has_q4_k=True)
    model = loaded(folder_of(written.path))
    ours = logits(model)
    theirs = load_gguf_checkpoint(written.path, return_tensors=True, model_to_load=model)
    for name, tensor in theirs["tensors"].items():
        np.testing.assert_array_equal(model.state_dict()[name], tensor, err_msg=name)
    model.load_state_dict(theirs["tensors"], strict=False)
    np.testing.assert_array_equal(ours, logits(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_32_are_unpacked_as_they_are(tmp_path, family):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    path = write(tmp_path / "model.gguf", family, kinds=MIXED, has_q4_k=True).path
    found, file = matrices(path), GgufFile.open(path)
    stored = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    kinds = set()
    assert any(tensor.tensor_type.name == "Q4_K" for tensor in stored.values())
    for parameter, name in file.parameters():
        tensor = stored[name]
        if tensor.tensor_type.name not in ("Q4_0", "Q8_0"):
            assert parameter not in found
            continue
        kinds.add(tensor.tensor_type.name)
        values = dequantized(found[parameter])
        if family == "llama" and "q_proj" in parameter:
            values = gguf_files.permuted(values, gguf_files.SIZES["num_attention_heads"])
        if family == "llama" and "k_proj" in parameter:
            values = gguf_files.permuted(values, gguf_files.SIZES["num_key_value_heads"])
        np.testing.assert_array_equal(values, dequantize(tensor.data, tensor.tensor_type))
    assert kinds == {"Q4_0", "Q8_0"}
    assert all(matrix.codes.dtype == np.uint8 for matrix in found.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_have_the_floats_of_the_folder(tmp_path, family):
    path = write(tmp_path / "model.gguf", family, kinds=("Q4_0", "Q8_0")).path
    state = loaded(folder_of(path)).state_dict()
    found = matrices(path)
    two = {name for name, weight in state.items() if weight.ndim == 2}
    tied = {"lm_head.weight"} if family in ("llama", "gemma", "gemma2") else set()
    assert found.keys() == two - tied
    for name, matrix in found.items():
        np.testing.assert_array_equal(dequantized(matrix), state[name], err_msg=name)


@pytest.mark.hypothesis
def test_the_order_of_rows_undoes_llama_cpps(tmp_path):
    file = GgufFile.open(write(tmp_path / "model.gguf", "llama").path)

    @settings(max_examples=examples(50))
    @given(heads=st.integers(1, 9), groups=st.integers(1, 4), half=st.integers(1, 40))
    def undoes(heads: int, groups: int, half: int) -> None:
        counts = {"attn_q": heads * groups, "attn_k": heads}
        own = {"llama.attention.head_count": heads * groups, "llama.attention.head_count_kv": heads}
        for module, count in counts.items():
            weight = np.arange(count * half * 2 * 3).reshape(-1, 3)
            tensor = type("Shaped", (), {"shape": weight.shape})
            name = f"blk.0.{module}.weight"
            one = GgufFile(
                path=file.path, metadata={**file.metadata, **own}, tensors={name: tensor}
            )
            assert (gguf_files.permuted(weight, count)[one.row_order(name)] == weight).all()
            assert one.row_order("blk.0.attn_v.weight") is None

    undoes()


# --- config -------------------------------------------------------------------------------------


def config_of(path: Path) -> dict[str, Any]:
    return json.loads((folder_of(path) / "config.json").read_text())


def test_llama_3s_rope_is_recovered_from_its_frequencies(tmp_path):
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = AutoConfig.for_model("llama", **gguf_files.SIZES, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1 / 500_000.0 ** (np.arange(0, 16, 2) / 16)
    factors = (plain / scaled.numpy()).astype(np.float32)
    path = write(
        tmp_path / "model.gguf",
        "llama",
        values={"llama.rope.freq_base": 500_000.0},
        tensors={"rope_freqs.weight": factors},
    ).path
    assert config_of(path)["rope_parameters"] == rope


def test_phi_3s_long_rope_is_in_the_config(tmp_path):
    long, short = np.linspace(1, 9, 8, dtype=np.float32), np.ones(8, np.float32)
    path = write(
        tmp_path / "model.gguf",
        "phi3",
        values={"phi3.rope.scaling.original_context_length": 64},
        tensors={"rope_factors_long.weight": long, "rope_factors_short.weight": short},
    ).path
    config = config_of(path)
    assert config["rope_parameters"]["rope_type"] == "longrope"
    np.testing.assert_array_equal(np.float32(config["rope_parameters"]["long_factor"]), long)
    assert config["original_max_position_embeddings"] == 64
    assert loaded(tmp_path / "folder").config.rope_parameters["short_factor"] == [1.0] * 8


def test_linear_scaling_is_in_the_config(tmp_path):
    scaling = {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 4.0}
    path = write(tmp_path / "model.gguf", "qwen2", values=scaling).path
    assert config_of(path)["rope_parameters"] == {
        "rope_type": "linear",
        "rope_theta": 10_000.0,
        "factor": 4.0,
    }


def test_numbers_are_those_of_the_published_config(tmp_path):
    values = {"llama.attention.layer_norm_rms_epsilon": 1e-5}
    assert config_of(write(tmp_path / "model.gguf", "llama", values=values).path)[
        "rms_norm_eps"
    ] == pytest.approx(1e-5, abs=0)


# --- tokenizer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_the_tokenizer_is_the_original(tmp_path, family):
    from transformers import AutoTokenizer

    written = write(tmp_path / "model.gguf", family)
    found = AutoTokenizer.from_pretrained(folder_of(written.path))
    for text in ("Hello, world!  12", "naïve 你好\n", "def make(x):\n    return x"):
        ids = written.tokenizer(text, add_special_tokens=False).input_ids
        assert found(text, add_special_tokens=False).input_ids == ids
        assert found.decode(ids) == written.tokenizer.decode(ids)
    assert found.chat_template == gguf_files.TEMPLATE


def test_both_tokens_that_end_an_answer_are_kept(tmp_path):
    values = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 1}
    folder = folder_of(write(tmp_path / "model.gguf", "llama", values=values).path)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 1]


def test_a_token_that_ends_an_answer_is_known_by_its_name(tmp_path):
    """<|end|> is 2 in the vocabulary; many files name only <|endoftext|>."""
    values = {"tokenizer.ggml.eos_token_id": 0}
    folder = folder_of(write(tmp_path / "model.gguf", "qwen2", values=values).path)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [0, 2]


def test_a_template_for_tools_is_kept(tmp_path):
    from transformers import AutoTokenizer

    values = {
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "{{ tools }}",
    }
    folder = folder_of(write(tmp_path / "model.gguf", "llama", values=values).path)
    found = AutoTokenizer.from_pretrained(folder).chat_template
    assert found == {"default": gguf_files.TEMPLATE, "tool_use": "{{ tools }}"}


def test_smollm_splits_digits_from_spaces(tmp_path):
    from tokenizers import Tokenizer

    path = write(tmp_path / "m.gguf", "llama", values={"tokenizer.ggml.pre": "smollm"}).path
    backend = Tokenizer.from_file(str(folder_of(path) / "tokenizer.json"))
    pieces = backend.pre_tokenizer.pre_tokenize_str("a  12")
    assert [piece for piece, _ in pieces] == ["a", "ĠĠ", "1", "2"]


def test_no_space_is_added_before_a_text_where_the_file_says_so(tmp_path):
    from transformers import AutoTokenizer

    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [0.0] * 512,
        "tokenizer.ggml.add_space_prefix": False,
    }
    folder = folder_of(write(tmp_path / "model.gguf", "llama", values=values).path)
    found = AutoTokenizer.from_pretrained(folder)
    assert found.decode(found("ab", add_special_tokens=False).input_ids) == "ab"
    assert found.convert_ids_to_tokens(found("a", add_special_tokens=False).input_ids) == ["a"]


# --- refusals -----------------------------------------------------------------------------------


def test_a_folder_with_one_file_is_gguf(tmp_path):
    path = write(tmp_path / "model.gguf", "llama").path
    assert gguf_in(path) == path
    assert gguf_in(tmp_path) == path
    assert matrices(tmp_path).keys() == matrices(path).keys()
    (tmp_path / "config.json").write_text("{}")
    assert gguf_in(tmp_path) is None
    assert gguf_in(tmp_path / "config.json") is None
    assert gguf_in(tmp_path / "nothing") is None


REFUSED = {
    "experts": ({"llama.expert_count": 8}, "llama.expert_count = 8"),
    "a scale of attention": ({"llama.attention.scale": 0.5}, "llama.attention.scale = 0.5"),
    "partly rotated heads": ({"llama.rope.dimension_count": 8}, "rotates 8 of the 16 numbers"),
    "values of another width": ({"llama.attention.value_length": 8}, "values of 8"),
    "YaRN": ({"llama.rope.scaling.type": "yarn"}, "by 'yarn', and only 'linear' is supported"),
    "longrope without factors": ({"llama.rope.scaling.type": "longrope"}, "by 'longrope'"),
    "a count for each layer": ({"llama.attention.head_count_kv": [2, 1]}, r"is \[2, 1\]"),
    "no width": ({"llama.embedding_length": None}, "llama.embedding_length is None"),
    "a wrong width": ({"llama.feed_forward_length": 128}, "mlp.down_proj.weight has the shape"),
    "a layer too many": ({"llama.block_count": 3}, "layers.2.input_layernorm.weight has .* None"),
    "an unknown split": ({"tokenizer.ggml.pre": "klingon"}, "the pre-tokenizer 'klingon'"),
    "a wordpiece tokenizer": ({"tokenizer.ggml.model": "bert"}, "the kind 'bert'"),
    "more layers than tensors": ({"llama.block_count": 2**31 - 1}, "block_count = 2147483647"),
    "heads that have no halves": ({"llama.attention.key_length": 15}, "heads of 15 numbers"),
    "a token that is not there": ({"tokenizer.ggml.eos_token_id": 512}, "eos_token_id is 512"),
    "a control token that is not there": ({"tokenizer.ggml.padding_token_id": 2**31 - 1}, "paddin"),
    "no tokens": ({"tokenizer.ggml.tokens": []}, "token_type has 512 entries, and .*tokens 0"),
    "a type too few": ({"tokenizer.ggml.token_type": [1]}, "token_type has 1 entries"),
    "a merge of one": ({"tokenizer.ggml.merges": ["a"]}, "vocabulary makes no tokenizer: "),
    "a merge of unknown tokens": ({"tokenizer.ggml.merges": ["a 語"]}, "makes no tokenizer: "),
    "no scores": ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.merges": None}, "'scores'"),
    "a template that is not there": ({"tokenizer.chat_templates": ["one"]}, "the name 'one'"),
    "a template in another folder": (
        {"tokenizer.chat_templates": ["../a"], "tokenizer.chat_template.../a": "x"},
        r"'\.\./a'",
    ),
    "one part in its metadata": ({"split.count": 3}, "join the parts .* llama-gguf-split --merge"),
}


@pytest.mark.parametrize(("values", "said"), REFUSED.values(), ids=REFUSED)
def test_a_model_that_would_be_another_is_refused(tmp_path, values, said):
    path = write(tmp_path / "model.gguf", "llama", values=values).path
    with pytest.raises(BuildError, match=said):
        folder_of(path)


def test_an_unknown_architecture_is_refused_by_name(tmp_path):
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BuildError, match="architecture 'mamba'; GGUF is read of llama, qwen2, "):
        folder_of(tmp_path / "model.gguf")


def test_a_tensor_that_the_model_has_not_is_refused(tmp_path):
    tensors = {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    path = write(tmp_path / "model.gguf", "llama", tensors=tensors).path
    with pytest.raises(BuildError, match=r"'blk.0.attn_sinks.weight', which no LlamaForCausalLM"):
        matrices(path)


def test_a_type_that_cannot_be_dequantized_is_refused(tmp_path):
    tensors = {"rope_freqs.weight": np.ones(8, np.int32)}
    path = write(tmp_path / "model.gguf", "llama", tensors=tensors).path
    with pytest.raises(BuildError, match=r"rope_freqs.weight has the type I32, which cannot be de"):
        folder_of(path)


def test_an_unknown_type_is_refused(tmp_path):
    path = write(tmp_path / "model.gguf", "llama").path
    content = bytearray(path.read_bytes())
    place = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    content[place] = 250
    path.write_bytes(content)
    with pytest.raises(BuildError, match=r"token_embd.weight has the type 250, which is unknown"):
        matrices(path)


def test_other_files_are_refused(tmp_path):
    from gguf import GGUFEndian

    named = tmp_path / "other.gguf"
    named.write_bytes(b"GGML\3\0\0\0" + bytes(40))
    with pytest.raises(BuildError, match=r"not a GGUF file: it begins with b'GGML'"):
        matrices(named)
    named.write_bytes(b"GGUF\1\0\0\0" + bytes(40))
    with pytest.raises(BuildError, match="in version 1 of GGUF; 2 and 3 are read"):
        matrices(named)
    big = write(tmp_path / "big.gguf", "llama", endianess=GGUFEndian.BIG).path
    with pytest.raises(BuildError, match="big-endian: convert it with `gguf-convert-endian"):
        matrices(big)
    part = tmp_path / "model-00001-of-00003.gguf"
    part.write_bytes(b"GGUF\3\0\0\0" + bytes(40))
    with pytest.raises(BuildError, match="one part of a split file"):
        matrices(part)


@pytest.mark.hypothesis
def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path):
    content = write(tmp_path / "model.gguf", "llama", kinds=MIXED).path.read_bytes()
    cut = tmp_path / "cut.gguf"
    padding = 32  # after the last tensor

    @settings(max_examples=examples(100))
    @given(st.integers(4, len(content) - padding - 1))
    def refused(length: int) -> None:
        cut.write_bytes(content[:length])
        with pytest.raises(BuildError, match="cut off"):
            matrices(cut)

    refused()


# Every value that a build reads, by key, as a file may have it.
EXAMPLES: dict[str, Any] = {
    "general.architecture": "llama", "general.name": "Llama 3.2 1B", "general.alignment": 32,
    "split.count": 1, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.token_type": [1],
    "tokenizer.ggml.scores": [1.0], "tokenizer.ggml.merges": ["a b"],
    **{f"tokenizer.ggml.{name}_token_id": 1
       for name in ("bos", "eos", "eot", "eom", "unknown", "padding")},
    "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_space_prefix": True,
    "tokenizer.chat_template": "{{ x }}", "tokenizer.chat_templates": ["tool_use"],
    "tokenizer.chat_template.tool_use": "{{ x }}",
    **{f"llama.{name}": 64
       for name in ("block_count", "context_length", "embedding_length", "feed_forward_length",
                    "attention.head_count", "attention.head_count_kv", "attention.key_length",
                    "attention.value_length", "rope.dimension_count")},
    **{f"llama.{name}": 1.5
       for name in ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor")},
    "llama.rope.scaling.type": "linear",
    "phi3.attention.sliding_window": 64, "phi3.rope.scaling.original_context_length": 64,
    "gemma2.attn_logit_softcapping": 1.5, "gemma2.final_logit_softcapping": 1.5,
}  # fmt: skip
ODD = (
    *(0, 1, -1, 3, 2**31 - 1, 2**63, 0.0, 1.5, -1e300, 1e300, math.nan, math.inf),
    *("", "word", "../x", True, False, [], [0], [-1], [1.5], [math.nan], ["a"], [True], [[1]]),
)  # fmt: skip


def own_family(key: str) -> str:
    family = key.partition(".")[0]
    return family if family in FAMILIES else "phi3" if key.endswith("scores") else "llama"


def fits(value: Any, example: Any) -> bool:
    """Whether the value has the example's type; one that fits may be wrong for other reasons."""
    if isinstance(example, list):
        return isinstance(value, list) and all(fits(item, example[0]) for item in value)
    return type(value) is type(example) or (type(value) is int and type(example) is float)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # weights read at wrong places
@pytest.mark.parametrize("key", EXAMPLES)
def test_a_value_of_any_type_is_read_or_refused_by_name(tmp_path, key):
    family, longrope = own_family(key), {}
    if family == "phi3":
        factors = np.ones(8, np.float32)
        longrope = {f"rope_factors_{name}.weight": factors for name in ("long", "short")}
    path = write(tmp_path / "model.gguf", family, tensors=longrope).path
    file, content = GgufFile.open(path), path.read_bytes()
    metadata = {"phi3.rope.scaling.original_context_length": 64, **file.metadata}
    for number, value in enumerate(ODD):
        values = {**metadata, key: value}
        path.write_bytes(gguf_files.with_values(content, values, next(iter(file.tensors))))
        (folder := tmp_path / str(number)).mkdir()
        if value == [[1]] or not fits(value, EXAMPLES[key]):
            wrong = "list of lists" if value == [[1]] else re.escape(f"{key} is ")
            with pytest.raises(BuildError, match=wrong):
                write_folder(path, folder)
            continue
        with contextlib.suppress(BuildError):
            write_folder(path, folder)
    assert not list(tmp_path.glob("*.jinja"))


class Recorded(dict[str, Any]):
    """Metadata that know which of them were read."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        super().__init__(metadata)
        self.keys_read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_that_is_read_has_its_type_checked(tmp_path, family):
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING

    opened = GgufFile.open(write(tmp_path / "model.gguf", family).path)
    file = replace(opened, metadata=(recorded := Recorded(opened.metadata)))
    gguf_config.config(file)
    gguf_tokenizer.tokenizer(file)
    gguf_tokenizer.end_ids(file)
    one_folder._gguf_name(file)
    read = {f"tokenizer.{key}" for keys in GGUF_TOKENIZER_MAPPING.values() for key in keys}
    read -= {"tokenizer.ggml.precompiled_charsmap"}  # of tokenizers that are refused
    own = {f"{family}.{key}" for key in (*OWN_KINDS, *UNSUPPORTED_KEYS)}
    assert (read | recorded.keys_read) - own <= set(KINDS)
    examples = {re.sub(r"^(llama|phi3|gemma2)\.", "", key) for key in EXAMPLES}
    assert examples - {"tokenizer.chat_template.tool_use"} == {*KINDS, *OWN_KINDS}


def test_lists_in_lists_are_refused_however_deep(tmp_path):
    path = write(tmp_path / "model.gguf", "llama").path
    deep = struct.pack("<IQ", 9, 1) * 100_000
    values = struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9) + deep
    path.write_bytes(path.read_bytes()[:16] + struct.pack("<Q", 1) + values)
    with pytest.raises(BuildError, match="list of lists"):
        GgufFile.open(path)


@pytest.mark.parametrize(
    ("family", "name", "shape"),
    [
        ("llama", "rope_freqs.weight", (9,)),
        ("llama", "rope_freqs.weight", (8, 1)),
        ("phi3", "rope_factors_long.weight", (8,)),  # and no short ones
        ("phi3", "rope_factors_long.weight", (9,)),
    ],
)
def test_factors_of_rotary_frequencies_have_one_for_each(tmp_path, family, name, shape):
    values = {"phi3.rope.scaling.original_context_length": 64}
    tensors = {name: np.full(shape, 2, np.float32)}
    path = write(tmp_path / "model.gguf", family, values=values, tensors=tensors).path
    with pytest.raises(BuildError, match=r"rope_f.*\.weight has the shape .* \(8,\) is needed"):
        folder_of(path)


def test_a_tensor_without_numbers_is_refused(tmp_path):
    tensors = {"rope_freqs.weight": np.ones((8, 0), np.float32)}
    path = write(tmp_path / "model.gguf", "llama", tensors=tensors).path
    with pytest.raises(BuildError, match=r"rope_freqs.weight has the shape \(8, 0\)"):
        folder_of(path)
