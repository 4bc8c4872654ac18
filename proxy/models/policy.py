"""Reads which models are served and how, from models.yaml or from the folder in MODEL_PATH.

Called by `app` for the registry, and by the command line for `build`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from build_engines import models_file, one_folder
from build_engines.deployments import Where
from build_engines.errors import UnservableFolder
from build_engines.models_file import (
    CHAT_MAX_TOKENS,
    CHAT_TEMPERATURE,
    ModelEntry,
    ModelsFile,
    ModelsFileError,
    RemoteEntry,
)
from proxy.language.syntax import parsers
from proxy.models.adoption import wrong_tokenizer
from proxy.server_tools.http_tools import HeaderSecrets
from proxy.server_tools.tool_loop import check_schema
from proxy.settings import Settings


def models(settings: Settings, environment: Mapping[str, str] | None = None) -> ModelsFile:
    """The models, with defaults from the settings for those that set none of their own.

    Args:
        environment: where the variables that the file names must be; None: they are not checked.

    Raises:
        ModelsFileError: models.yaml cannot be read, or is invalid.
        UnservableFolder: MODEL_PATH holds no model.
        MissingPackage: the name of MODEL_PATH's model cannot be derived without the build tools.
    """
    temperature, max_tokens = settings.default_temperature, settings.default_max_tokens
    if settings.model_path is not None:
        try:
            named = one_folder.models_of(settings.model_path, settings.model_id)
        except UnservableFolder as error:
            raise UnservableFolder(f"MODEL_PATH={error.folder}", error.reason) from None
        temperature = CHAT_TEMPERATURE if temperature is None else temperature
        max_tokens = max_tokens or CHAT_MAX_TOKENS
    else:
        named = models_file.load(settings.models_file, partial(_problems, environment=environment))
    entries = {
        name: entry.model_copy(update={"sampling": entry.sampling.or_else(temperature, max_tokens)})
        for name, entry in named.models.items()
    }
    return named.model_copy(update={"models": entries})


def _problems(
    found: ModelsFile, environment: Mapping[str, str] | None
) -> Iterator[tuple[Where, str]]:
    for name, entry in found.models.items():
        yield from _wrong_parsers(name, entry)
        yield from _wrong_server_tools(name, entry)
        if isinstance(entry, RemoteEntry) and (reason := wrong_tokenizer(entry)) is not None:
            yield ("models", name, "tokenizer"), reason
        if environment is not None:
            yield from _missing_variables(name, entry, environment)


def _wrong_parsers(name: str, entry: ModelEntry) -> Iterator[tuple[Where, str]]:
    try:
        parsers.check_names(entry.tool_parser, entry.reasoning_parser)
    except KeyError as error:
        yield ("models", name), error.args[0]


def _wrong_server_tools(name: str, entry: ModelEntry) -> Iterator[tuple[Where, str]]:
    if entry.server_tools and entry.tool_parser == parsers.NONE:
        yield ("models", name), "'server_tools' need a tool parser, and 'tool_parser' is none"
    for tool, one in entry.server_tools.items():
        try:
            check_schema(tool, one.parameters)
        except ValueError as error:
            yield ("models", name, "server_tools", tool), str(error)


def _missing_variables(
    name: str, entry: ModelEntry, environment: Mapping[str, str]
) -> Iterator[tuple[Where, str]]:
    for tool, one in entry.server_tools.items():
        for variable in sorted(one.variables):
            value = environment.get(variable, "")
            if not value or not (value.isascii() and value.isprintable()):
                reason = (
                    f"the environment variable {variable} is not set, or has characters that a "
                    "header may not have"
                )
                yield ("models", name, "server_tools", tool, "headers"), reason


def secrets(models: Mapping[str, ModelEntry], environment: Mapping[str, str]) -> HeaderSecrets:
    """The environment variables that headers of server tools refer to.

    Raises:
        ModelsFileError: a variable is not set, or is not valid in a header.
    """
    for name, entry in models.items():
        for where, reason in _missing_variables(name, entry, environment):
            raise ModelsFileError(f"{'.'.join(map(str, where))}: {reason}")
    tools = (tool for entry in models.values() for tool in entry.server_tools.values())
    return HeaderSecrets({name: environment[name] for tool in tools for name in tool.variables})


def has_models(settings: Settings) -> bool:
    """Whether the settings name any models.

    A proxy for a remote Triton needs no models file, since Triton itself describes its models; but
    a file that the operator names must exist.
    """
    is_named = "models_file" in settings.model_fields_set
    return settings.model_path is not None or is_named or settings.models_file.exists()
