"""A LoRA adapter with random weights for the demo model.

usage: adapter.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RANK = 4
LAYERS, HIDDEN = 6, 256
PROJECTIONS = {"q_proj": 256, "v_proj": 128}


def make(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = {}
    for layer in range(LAYERS):
        for name, width in PROJECTIONS.items():
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{module}.lora_A.weight"] = torch.randn(RANK, HIDDEN)
            weights[f"{module}.lora_B.weight"] = torch.randn(width, RANK)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    config |= {"target_modules": [*PROJECTIONS], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
