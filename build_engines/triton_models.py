"""Built models -> artifacts/model_repository/: the templates with names and parameters filled in.

Templates are parsed with Triton's own protobuf, so what is written is valid by construction.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repository"
ROLES = ("tokenizer", "engine", "detokenizer")
CONTRACT_VERSION = "2"


def role_name(model: str, role: str) -> str:
    """The Triton model that fills a role for a public model."""
    return f"{model}_{role}"


def config_of(role: str) -> ModelConfig:
    """The template of `ensemble`, `tokenizer`, `engine` or `detokenizer`, parsed."""
    text = (TEMPLATES / role / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, ModelConfig())


def render(model: str, repository: Path, parameters: Mapping[str, Mapping[str, str]]) -> None:
    """Writes the model's four Triton models. `parameters`: role -> its config parameters."""
    for role in ("ensemble", *ROLES):
        config = config_of(role)
        config.name = model if role == "ensemble" else role_name(model, role)
        for step in config.ensemble_scheduling.step:
            step.model_name = role_name(model, step.model_name)
        for key, value in parameters.get(role, {}).items():
            config.parameters[key].string_value = value
        folder = repository / config.name
        version = folder / "1"
        if (TEMPLATES / role / "1").is_dir():
            shutil.copytree(
                TEMPLATES / role / "1", version, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            version.mkdir(parents=True)
        (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
