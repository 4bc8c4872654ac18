"""backend_parameters: the C++ backend's keys for what models.yaml says."""

from __future__ import annotations

from pathlib import Path

from build_engines import triton_models
from build_engines.gpu.legacy import backend_parameters
from build_engines.gpu.options import GpuOptions

FOLDERS = {"weights": Path("/w"), "guide_info": Path("/g")}


def backend(**given: object) -> dict[str, str]:
    options = GpuOptions.model_validate({"engine": "plan", **given})
    return backend_parameters.of(options, Path("/e"), FOLDERS)


def test_the_cpp_backend_is_told_by_its_own_keys():
    kv_cache = {"fraction": 0.5, "reuse": False}
    assert backend(kv_cache=kv_cache, chunked_prefill=False) == {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/e",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": "0.5",
        "kv_cache_host_memory_bytes": "0",
        "enable_kv_cache_reuse": "false",
        "enable_chunked_context": "false",
        "exclude_input_in_output": "true",
        "max_beam_width": "1",
        "gpu_device_ids": "",
        "decoding_mode": "top_k_top_p",
        "tokenizer_dir": "/w",
        "guided_decoding_backend": "xgrammar",
        "xgrammar_tokenizer_info_path": "/g/xgrammar_tokenizer_info.json",
    }


def test_every_key_stands_in_the_backends_template():
    template = triton_models.config_of("engine", "tensorrt_llm").parameters
    speculative = {"method": "lookahead"}
    assert set(backend()) | set(backend(speculative=speculative)) <= set(template)


def test_the_keys_that_it_cannot_do_without_are_always_there():
    """Those that its source reads without a default."""
    wanted = {
        "gpt_model_type",
        "tokenizer_dir",
        "xgrammar_tokenizer_info_path",
        "guided_decoding_backend",
    }
    assert wanted <= set(backend()) & set(backend(guided_decoding="off"))


def test_its_log_probs_are_over_the_whole_vocabulary():
    """Normalized, they are over the top_k that are left: 0 for all that is greedy."""
    template = triton_models.config_of("engine", "tensorrt_llm").parameters
    assert template["normalize_log_probs"].string_value == "false"


def test_lookahead_is_a_decoding_mode_of_it():
    speculative = {"method": "lookahead", "window": 7, "ngram": 5, "verification": 3}
    found = backend(speculative=speculative)
    assert (found["decoding_mode"], found["lookahead_window_size"]) == ("lookahead", "7")
    assert (found["lookahead_ngram_size"], found["lookahead_verification_set_size"]) == ("5", "3")
