"""memory: estimates against published file sizes, and what is said where a model does not fit."""

from __future__ import annotations

import re

import pytest

from build_engines.gpu import memory
from build_engines.gpu.options import GpuOptions
from tests.fixtures.published import MODEL_OPTIMIZER_FP8, shape


def options(**given: object) -> GpuOptions:
    return GpuOptions.model_validate(given)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [  # the sum of the repository's safetensors files
        ("llama-3.1-8b", 16.06),
        ("llama-3.1-70b", 141.1),
        ("qwen2.5-7b", 15.23),
        ("qwen3-30b-a3b", 61.06),
        ("mistral-7b-v0.3", 14.50),
        ("mixtral-8x7b", 93.41),
        ("phi-3.5-mini", 7.64),
        ("gpt-oss-20b", 13.76),
    ],
)
def test_weights_take_what_their_files_take(name, gigabytes):
    found = memory.estimate(shape(name), options())
    assert found.weights / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("name", "given", "size"),
    [
        ("llama-3.1-8b", {}, 131_072),
        ("llama-3.1-8b", {"kv_cache": {"dtype": "fp8"}}, 65_536),
        ("llama-3.1-70b", {"tensor_parallel": 8}, 40_960),
        ("llama-3.1-70b", {"tensor_parallel": 16}, 40_960),  # 8 heads: two GPUs have the same one
        ("llama-3.1-70b", {"pipeline_parallel": 3}, 110_592),  # 27 of the 80 layers
        ("qwen2.5-7b", {}, 57_344),
        ("phi-3.5-mini", {}, 393_216),
        ("qwen3-30b-a3b", {"tensor_parallel": 4}, 24_576),
        ("qwen3-30b-a3b", {"tensor_parallel": 4, "attention_dp": True}, 98_304),
        ("deepseek-v3", {}, 70_272),  # 61 layers, (512 + 64) numbers
        ("deepseek-v3", {"tensor_parallel": 8}, 70_272),  # one vector for all heads
        ("deepseek-v3", {"tensor_parallel": 8, "attention_dp": True}, 70_272),
        ("deepseek-v3", {"kv_cache": {"dtype": "fp8"}}, 35_136),
        ("deepseek-v3", {"speculative": {"method": "mtp"}}, 71_424),
        ("deepseek-v2-lite", {}, 31_104),
    ],
)
def test_a_tokens_keys_and_values(name, given, size):
    assert memory.estimate(shape(name), options(**given)).kv_token == size


@pytest.mark.parametrize(
    ("checkpoint", "chosen", "size"),
    [
        ({}, "auto", 131_072),
        ({"kv_cache_quant_algo": "FP8"}, "auto", 65_536),
        ({"kv_cache_quant_algo": "NVFP4"}, "auto", 36_864),  # 4 bits, and 8 for each 16 numbers
        ({}, "fp8", 65_536),
    ],
)
def test_auto_takes_the_checkpoints_type_of_the_kv_cache(checkpoint, chosen, size):
    llama = shape("llama-3.1-8b", **{"hf_quant_config.json": {"quant_algo": "FP8", **checkpoint}})
    given = options(kv_cache={"dtype": chosen})
    assert memory.estimate(llama, given).kv_token == size


def test_the_readmes_model_fits_on_24_gb_at_its_whole_context():
    """nvidia/Llama-3.1-8B-Instruct-FP8: 131,072 tokens, of 65,536 bytes each, are 8.6 GB.

    With 16-bit keys and values, they would be 17.2 GB, and 11.3 GB are left.
    """
    llama = shape("llama-3.1-8b", **{"hf_quant_config.json": MODEL_OPTIMIZER_FP8})
    given = options()
    assert not list(memory.problems(llama, given, memory_gb=24))
    needed, left = memory.arithmetic(llama, given, memory_gb=24)
    assert "9.1 GB of weights" in needed
    assert "one token of KV cache takes 65,536 bytes" in needed
    assert "11." in left.partition(" = ")[2][:3]
    wide = shape("llama-3.1-8b", **{"hf_quant_config.json": {"quant_algo": "FP8"}})
    assert "takes 17.2 GB of KV cache" in "".join(memory.problems(wide, given, memory_gb=24))


def test_the_files_of_deepseek_v3_have_the_layers_for_multi_token_prediction():
    """688.59 GB, which TensorRT-LLM loads without the second embedding and output layer."""
    found = memory.estimate(shape("deepseek-v3"), options(speculative={"method": "mtp"}))
    v3 = shape("deepseek-v3")
    copied = 61 * 128 * 512 * 128  # each head's keys, a second time
    twice = 2 * v3.table_parameters
    assert (found.weights - copied + twice) / 1e9 == pytest.approx(688.59, rel=0.005)


@pytest.mark.parametrize(
    ("given", "weights_gb"),
    [  # by hand: experts / 8, and the rest of 15.3 GB and the tables of 3.7 GB split or not
        ({"tensor_parallel": 8}, 85.0),
        ({"tensor_parallel": 8, "expert_parallel": 8}, 85.0),
        ({"tensor_parallel": 8, "attention_dp": True}, 101.2),
        ({"tensor_parallel": 16}, 42.95),
    ],
)
def test_attention_dp_splits_the_experts_only(given, weights_gb):
    found = memory.estimate(shape("deepseek-v3"), options(**given))
    assert found.weights / 1e9 == pytest.approx(weights_gb, rel=0.001)


def test_experts_that_alone_are_quantized_leave_the_rest_at_16_bits():
    """nvidia/DeepSeek-R1-FP4 is of this form."""
    quantization = {"quant_algo": "NVFP4", "exclude_modules": ["model.layers.*.self_attn*"]}
    fp4 = shape("deepseek-v3", **{"hf_quant_config.json": quantization})
    experts, rest = 0.5625 * fp4.expert_parameters, fp4.parameters - fp4.expert_parameters
    copied = 61 * 128 * 512 * 128
    assert memory.estimate(fp4, options()).weights == pytest.approx(experts + 2 * (rest + copied))
    drafted = memory.estimate(fp4, options(speculative={"method": "mtp"})).weights
    more = drafted - memory.estimate(fp4, options()).weights
    assert more == 2 * sum(fp4.mtp_parameters), "its layers for drafting are not quantized"


def test_attention_dp_counts_the_requests_of_all_gpus():
    given = options(tensor_parallel=8, attention_dp=True, max_seq_len=8_192, max_batch_size=64)
    v3 = shape("deepseek-v3")
    (said,) = memory.concurrency(v3, given, memory_gb=141, max_tokens=4_096)
    assert said.startswith("guaranteed_no_evict runs 512 requests of 5,120 tokens at once")
    found = memory.estimate(v3, given)
    each = memory.admitted(found, given, memory_gb=141, tokens=5_120)
    assert f"room for {8 * each:,}, max_batch_size allows 512" in said


def test_a_layer_with_a_window_keeps_no_more_than_it():
    found = memory.estimate(shape("gpt-oss-20b"), options())
    layer = 2 * 8 * 64 * 2
    assert found.sequence(100_000) == 12 * layer * 100_000 + 12 * layer * 128


@pytest.mark.parametrize(
    ("name", "given", "memory_gb"),
    [
        ("llama-3.1-8b", {"max_seq_len": 32_768}, 24),
        ("llama-3.1-8b", {"quantization": "fp8"}, 48),
        ("llama-3.1-70b", {"tensor_parallel": 4}, 80),
        ("llama-3.1-70b", {"tensor_parallel": 2, "pipeline_parallel": 2}, 80),
        ("llama-3.1-70b", {"quantization": "nvfp4", "max_seq_len": 8192}, 80),
        ("qwen3-30b-a3b", {"tensor_parallel": 2, "expert_parallel": 2}, 80),
        ("mixtral-8x7b", {"tensor_parallel": 2}, 80),
        ("gpt-oss-20b", {}, 24),
    ],
)
def test_what_fits_is_not_refused(name, given, memory_gb):
    assert not list(memory.problems(shape(name), options(**given), memory_gb=memory_gb))


@pytest.mark.parametrize(
    ("name", "given", "memory_gb", "said"),
    [
        ("llama-3.1-70b", {}, 80, "GB before any KV cache, and has 80"),
        ("mixtral-8x7b", {}, 80, "split the model over more GPUs, or quantize it"),
        (
            "llama-3.1-8b",
            {},
            24,
            r"max_seq_len 131072 takes 17.2 GB of KV cache on each GPU, and about",
        ),
        ("phi-3.5-mini", {"max_seq_len": 65_536}, 24, "max_seq_len 65536 takes 25.8 GB"),
    ],
)
def test_what_does_not_fit_is_said_with_the_figures(name, given, memory_gb, said):
    (found,) = memory.problems(shape(name), options(**given), memory_gb=memory_gb)
    assert said in found


def test_the_length_that_is_proposed_fits():
    given = options()
    (found,) = memory.problems(shape("llama-3.1-8b"), given, memory_gb=24)
    proposed = int(found.partition("set it to ")[2].split()[0])
    shorter = given.model_copy(update={"max_seq_len": proposed})
    longer = given.model_copy(update={"max_seq_len": proposed + 1})
    assert not list(memory.problems(shape("llama-3.1-8b"), shorter, memory_gb=24))
    assert list(memory.problems(shape("llama-3.1-8b"), longer, memory_gb=24))


def test_the_arithmetic_of_a_model_that_fits_adds_up():
    """As docs/deployment.md reckons by hand: fp8 weights, a cache of 16 bits, 80 GB."""
    given = options(quantization="fp8", max_seq_len=8_192)
    found = memory.estimate(shape("llama-3.1-8b"), given)
    needed, left = memory.arithmetic(shape("llama-3.1-8b"), given, memory_gb=80)
    assert f"{found.weights / 1e9:.1f} GB of weights" in needed
    assert "one token of KV cache takes 131,072 bytes" in needed
    numbers = re.search(r"([\d.]+) x \(80 - ([\d.]+) - ([\d.]+)\) = ([\d.]+) GB", left)
    fraction, weights, step, cache = (float(number) for number in numbers.groups())
    assert fraction * (80 - weights - step) == pytest.approx(cache, abs=0.2)
    tokens = int(re.search(r"about ([\d,]+) tokens", left)[1].replace(",", ""))
    assert tokens == pytest.approx(cache * 1e9 / 131_072, rel=0.01)
    requests = float(re.search(r"([\d.]+) requests of 8,192 tokens", left)[1])
    assert requests == pytest.approx(tokens / 8_192, rel=0.01)


@pytest.mark.parametrize(
    ("given", "max_tokens", "at_once"),
    [
        ({"max_seq_len": 8_192}, 4_096, 64),  # the cache has room for 91, max_batch_size is 64
        ({"max_seq_len": 8_192, "max_batch_size": 512}, 4_096, 91),
        ({"max_seq_len": 8_192, "max_batch_size": 512}, 8_192, 57),  # cut to the context
        ({"max_batch_size": 512}, 131_072, 3),  # the old default: all that the context leaves
        ({"kv_cache": {"fraction": 0.45}, "max_batch_size": 512}, 4_096, 45),
    ],
)
def test_the_requests_that_guaranteed_no_evict_runs_at_once(given, max_tokens, at_once):
    """By hand: 0.9 x (80 - 9.1 - 2.4 or 2.7) GB, 131,072 bytes a token, in blocks of 32."""
    options_ = options(quantization="fp8", **given)
    llama = shape("llama-3.1-8b")
    (said,) = memory.concurrency(llama, options_, memory_gb=80, max_tokens=max_tokens)
    assert said.startswith(f"guaranteed_no_evict runs {at_once} requests of ")
    found = memory.estimate(llama, options_)
    length = min(1024 + max_tokens, options_.max_seq_len or 131_072)
    cache = options_.kv_cache.fraction * (80e9 - found.weights - found.step)
    assert min(cache // (length * 131_072), options_.max_batch_size) == at_once


@pytest.mark.parametrize(
    ("name", "given", "memory_gb", "rows"),
    [
        ("llama-3.1-8b", {"quantization": "fp8"}, None, 256),  # an unknown GPU
        ("llama-3.1-8b", {}, 24, 256),  # room for 18
        ("llama-3.1-8b", {"quantization": "fp8"}, 80, 256),  # 229
        ("llama-3.1-8b", {"quantization": "fp8"}, 141, 512),  # 434
        ("llama-3.1-8b", {"quantization": "fp8", "kv_cache": {"fraction": 0.4}}, 141, 256),
        ("llama-3.1-8b", {"quantization": "fp8", "max_seq_len": 512}, 141, 2048),  # 1,738
        ("llama-3.1-70b", {"quantization": "fp8", "tensor_parallel": 8}, 80, 1024),  # 739
        ("gpt-oss-20b", {}, 192, 2048),  # 2,969
        ("gpt-oss-20b", {"max_num_tokens": 300}, 192, 300),  # a step has a token of each request
        ("gpt-oss-20b", {"max_batch_size": 8}, 192, 8),
        ("gpt-oss-20b", {"max_batch_size": 4096}, 192, 4096),
        ("llama-3.1-8b", {"engine": "plan"}, 192, 64),
    ],
)
def test_rows_that_models_yaml_leaves_out_follow_from_the_kv_cache(name, given, memory_gb, rows):
    """By hand: the requests of 2,048 tokens for which the cache has room, up to a power of 2."""
    sized = memory.with_rows(shape(name), options(**given), memory_gb=memory_gb)
    assert sized.max_batch_size == rows
    assert memory.with_rows(shape(name), sized, memory_gb=None) == sized


def test_requests_take_whole_blocks():
    given = options(quantization="fp8")
    found = memory.estimate(shape("llama-3.1-8b"), given)
    fitting = [memory.admitted(found, given, memory_gb=80, tokens=n) for n in (33, 64, 65)]
    assert fitting[0] == fitting[1] > fitting[2]
