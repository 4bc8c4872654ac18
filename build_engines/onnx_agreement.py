"""How near a quantized graph is to the weights that it was made from, on a fixed text.

`onnx_build` runs `measure` in a child process, because it imports torch and transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines.onnx_folder import DecoderConfig

TEXT = """\
A lighthouse stands at the end of the harbour, and its keeper writes down every ship that passes. \
In the morning he counts 14 of them; in the evening, when the fog comes in from the west, he can \
only hear their horns. His daughter asks why nobody has built a machine for this work.

"Because a machine would have to decide what a ship is," he says, "and last winter I wrote down a \
whale."

Question: How many ships passed before noon, and what made it difficult to count them later?
Answer: Fourteen ships passed in the morning. In the evening there was fog, so that they could be \
heard but not seen.

def fibonacci(n: int) -> int:
    \"\"\"Returns the n-th Fibonacci number.\"\"\"
    previous, current = 0, 1
    for _ in range(n):
        previous, current = current, previous + current
    return previous

The capital of France is Paris, and that of Italy is Rome. Water boils at 100 degrees Celsius at \
sea level, but at 93 degrees on a mountain of 2,000 metres, because the air there is thinner.
{"name": "Anna", "age": 31, "city": "Vienna", "languages": ["German", "English", "Czech"]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    tokens: int
    argmax: float  # the share of tokens after which both find the same next token likeliest
    divergence: float  # the mean Kullback-Leibler divergence of the next token's distribution, nats

    def __str__(self) -> str:
        return (
            f"after {self.argmax:.1%} of {self.tokens} tokens of a fixed text it finds the same "
            f"next token likeliest as fp32 does (mean KL divergence {self.divergence:.4f})"
        )


def measure(weights: str, engine: str) -> Agreement:
    """weights: a Hugging Face folder. engine: what the builder, and then `rewrite`, made of it."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(weights)(TEXT).input_ids
    ids = ids[: DecoderConfig.read(Path(engine)).context_length]
    with torch.inference_mode():
        exact = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1).numpy()
    found = torch.log_softmax(torch.from_numpy(_logits(Path(engine), ids)).double(), -1).numpy()
    width = min(exact.shape[1], found.shape[1])  # graphs may pad the vocabulary
    exact, found = exact[:, :width], found[:, :width]
    return Agreement(
        tokens=len(ids),
        argmax=float(np.mean(exact.argmax(1) == found.argmax(1))),
        divergence=float(np.mean(np.sum(np.exp(exact) * (exact - found), 1))),
    )


def _logits(engine: Path, ids: list[int]) -> Any:
    """[tokens, vocabulary]: one run over an empty KV cache."""
    import numpy as np
    import onnxruntime as ort

    config = DecoderConfig.read(engine)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(engine / config.filename), options)
    logits = session.run([config.logits], prefill_feeds(session, config, ids))[0][0]
    return np.asarray(logits, np.float32)


def prefill_feeds(session: Any, config: DecoderConfig, ids: list[int]) -> dict[str, Any]:
    """The inputs of a run over `ids` and an empty KV cache."""
    import numpy as np

    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    inputs = {node.name: node for node in session.get_inputs()}
    feeds: dict[str, Any] = {
        config.input_ids: np.array([ids]),
        config.attention_mask: np.ones((1, len(ids)), np.int64),
        config.position_ids: np.arange(len(ids))[None],
    }
    feeds = {name: value for name, value in feeds.items() if name in inputs}
    for name in config.of_each_layer(config.past):
        shape = (1, config.kv_heads, 0, config.head_size)
        feeds[name] = np.zeros(shape, kinds[inputs[name].type])
    return feeds
