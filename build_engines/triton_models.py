"""Built models -> artifacts/model_repository/: fills names and parameters into the templates.

Templates are parsed with Triton's own protobuf, so what is written is valid by construction.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repository"
ROLES = ("tokenizer", "engine", "detokenizer")
CONTRACT_VERSION = "3"
MAX_QUEUE = "max_queue"  # the version of an engine whose queue Triton manages
# What fills the engine's role: our Python model, or NVIDIA's C++ backend.
EngineModel = Literal["engine", "tensorrt_llm"]


def role_name(model: str, role: str) -> str:
    """The name of the Triton model that fills a role for a public model."""
    return f"{model}_{role}"


def config_of(role: str, engine: EngineModel = "engine") -> ModelConfig:
    """The template of `ensemble`, `tokenizer`, `engine`, `detokenizer` or `embedding`, parsed."""
    if engine == "engine":
        return parse(_template(role, "config.pbtxt"))
    if role == "engine":
        return parse(_template(engine, "config.pbtxt"))
    if role == "ensemble":
        return parse(_template(engine, "ensemble.pbtxt"))
    config = config_of(role)
    config.MergeFrom(parse(_template(engine, f"{role}.pbtxt")))
    return config


def parse(text: str) -> ModelConfig:
    """Raises google.protobuf.text_format.ParseError."""
    return text_format.Parse(text, ModelConfig())


def render(
    model: str,
    repository: Path,
    parameters: Mapping[str, Mapping[str, str]],
    *,
    engine: EngineModel = "engine",
    without: Collection[str] = (),
) -> None:
    """Writes the model's four Triton models.

    Args:
        parameters: role -> its config parameters.
        without: tensors of the ensemble that this engine cannot honor (see engine_limits). They
            are not declared, and the proxy refuses their parameters.
    """
    configs = {role: config_of(role, engine) for role in ("ensemble", *ROLES)}
    _leave_out(configs, without)
    for role, config in configs.items():
        config.name = model if role == "ensemble" else role_name(model, role)
        for step in config.ensemble_scheduling.step:
            step.model_name = role_name(model, step.model_name)
        for key, value in parameters.get(role, {}).items():
            config.parameters[key].string_value = value
        if config.HasField("dynamic_batching"):
            policy = config.dynamic_batching.default_queue_policy
            policy.max_queue_size = int(parameters.get(role, {}).get(MAX_QUEUE, 0))
        folder = repository / config.name
        _copy_code(TEMPLATES / (role if role != "engine" else engine) / "1", folder / "1")
        _copy_code(TEMPLATES / engine / role, folder / "1")  # what only this engine needs there
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")


def render_embedding(
    model: str, repository: Path, parameters: Mapping[str, str], max_queue: int
) -> None:
    """Writes an embedding model, which is one Triton model. max_queue: calls that may wait."""
    config = config_of("embedding")
    config.name = model
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    config.dynamic_batching.default_queue_policy.max_queue_size = max_queue
    folder = repository / model
    _copy_code(TEMPLATES / "embedding" / "1", folder / "1")
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")


def _template(folder: str, name: str) -> str:
    return (TEMPLATES / folder / name).read_text(encoding="utf-8")


def _copy_code(source: Path, version: Path) -> None:
    version.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, version, ignore=ignored, dirs_exist_ok=True)


def _leave_out(configs: Mapping[str, ModelConfig], tensors: Collection[str]) -> None:
    """Removes tensors from the ensemble, from its steps, and from the engine behind them."""
    ensemble, engine = configs["ensemble"], configs["engine"]
    _drop(ensemble, tensors)
    for step in ensemble.ensemble_scheduling.step:
        unjoined = set()
        for joins in (step.input_map, step.output_map):
            for inner, outer in list(joins.items()):
                if outer in tensors:
                    unjoined.add(inner)
                    del joins[inner]
        if step.model_name == "engine":
            _drop(engine, unjoined)


def _drop(config: ModelConfig, tensors: Collection[str]) -> None:
    for rows in (config.input, config.output):
        kept = [row for row in rows if row.name not in tensors]
        del rows[:]
        rows.extend(kept)
