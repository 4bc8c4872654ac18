"""A trained Hugging Face folder -> the folder that is shipped, which is served without torch.

It gains what `triton-openai build` would make from it: the ONNX graph, and the tables of the
tokenizer. Called by `export`, and by hand after a new version of a tool that writes them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from build_engines import onnx_build, onnx_folder, tokenizer_tables
from build_engines.tool import Say
from demo_model.training.shared_weights import SafetensorsFile, share

GRAPH = "model.onnx"
WEIGHTS = "model.safetensors"


def complete(folder: Path, say: Say) -> None:
    """Writes the graph, genai_config.json and the tables into the folder.

    Raises:
        BuildError: the builder failed, or its graph cannot be served.
        UnknownWeight: the builder changed a weight.
    """
    with tempfile.TemporaryDirectory() as place:
        built = Path(place) / "engine"
        log = Path(place) / "builder.log"
        chosen = onnx_build.ChosenPrecision("fp32", "for the demo")
        onnx_build.export(folder, built, chosen=chosen, log=log, say=say)
        graph = share(built / GRAPH, SafetensorsFile(folder / WEIGHTS))
        (folder / GRAPH).write_bytes(graph.SerializeToString(deterministic=True))
        shutil.copyfile(built / onnx_folder.CONFIG, folder / onnx_folder.CONFIG)
    servable = onnx_folder.check(str(folder))
    config = json.loads((folder / onnx_folder.CONFIG).read_text())["model"]
    tokenizer_tables.make(
        str(folder), config, str(folder), servable.context_length, servable.kv_token_bytes
    )
