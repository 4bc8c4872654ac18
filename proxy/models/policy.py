"""Which models are served and how: models.yaml, or the one folder that MODEL_PATH names.

Asked by `app` for the registry and by the commands for `build`.
"""

from __future__ import annotations

from collections.abc import Mapping

from triton_openai.build_engines import models_file, one_folder
from triton_openai.build_engines.models_file import ModelEntry, ModelsFile, ModelsFileError
from triton_openai.proxy.server_tools.arguments import check_schema
from triton_openai.proxy.server_tools.secrets import Secrets
from triton_openai.proxy.settings import Settings
from triton_openai.proxy.syntax import parsers


def models(settings: Settings) -> ModelsFile:
    """With the settings' own defaults where a model has none.

    Raises:
        ModelsFileError: models.yaml cannot be read, or is wrong.
        UnservableFolder: MODEL_PATH holds no model.
    """
    if settings.model_path is not None:
        named = one_folder.models_of(settings.model_path, settings.model_id)
    else:
        named = models_file.load(settings.models_file)
    entries = {
        name: entry.model_copy(
            update={
                "sampling": entry.sampling.or_else(
                    settings.default_temperature, settings.default_max_tokens
                )
            }
        )
        for name, entry in named.models.items()
    }
    for name, entry in entries.items():
        _check_parsers(name, entry)
        _check_server_tools(name, entry)
    return named.model_copy(update={"models": entries})


def _check_parsers(name: str, entry: ModelEntry) -> None:
    try:
        parsers.check_names(entry.tool_parser, entry.reasoning_parser)
    except KeyError as error:
        raise ModelsFileError(f"models.{name}: {error.args[0]}") from error


def _check_server_tools(name: str, entry: ModelEntry) -> None:
    if entry.server_tools and entry.tool_parser == parsers.NONE:
        raise ModelsFileError(
            f"models.{name}: 'server_tools' need a tool parser, and 'tool_parser' is none"
        )
    for tool, one in entry.server_tools.items():
        try:
            check_schema(tool, one.parameters)
        except ValueError as error:
            raise ModelsFileError(f"models.{name}.server_tools.{tool}: {error}") from error


def secrets(models: Mapping[str, ModelEntry], environment: Mapping[str, str]) -> Secrets:
    """What the headers of server tools need of the environment.

    Raises:
        ModelsFileError: a variable is not set, or cannot stand in a header.
    """
    found: dict[str, str] = {}
    for name, entry in models.items():
        for tool, one in entry.server_tools.items():
            for variable in sorted(one.variables):
                value = environment.get(variable, "")
                if not value or not (value.isascii() and value.isprintable()):
                    raise ModelsFileError(
                        f"models.{name}.server_tools.{tool}.headers: the environment variable "
                        f"{variable} is not set, or is no text that a header may have"
                    )
                found[variable] = value
    return Secrets(found)


def has_models(settings: Settings) -> bool:
    """A proxy for a remote Triton needs none, unless a file was named: that Triton's facts do."""
    is_named = "models_file" in settings.model_fields_set
    return settings.model_path is not None or is_named or settings.models_file.exists()
