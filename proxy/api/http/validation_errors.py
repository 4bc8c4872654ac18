"""Turns pydantic's validation errors into an InvalidRequest. Called by `body_reader`."""

from __future__ import annotations

import re
from typing import Any, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError

from build_engines.models_yaml import near_key
from proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest, echoed

# Fields of OpenAI's and similar APIs that this server refuses, and what to use instead: fields in
# quotes, where the body has them.
ADVICE = {
    "functions": "it is deprecated, use 'tools'",
    "function_call": "it is deprecated, use 'tool_choice'",
    "audio": "answers are text only",
    "web_search_options": "it has no web search; offer one of yours in 'tools'",
    "moderation": "moderate the text in your application",
    "thinking": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "chat_template_args": "use 'chat_template_kwargs'",
    "enable_thinking": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "reasoning": "use 'reasoning_effort', or 'chat_template_kwargs'",
    "stop_regex": "use 'stop' with the strings themselves",
    "no_stop_trim": "use 'include_stop_str_in_output'",
    "repeat_penalty": "use 'repetition_penalty'",
    "max_new_tokens": "use 'max_tokens'",
    "n_predict": "use 'max_tokens'",
    "use_beam_search": "there is no beam search",
    "length_penalty": "there is no beam search",
    "early_stopping": "there is no beam search",
    "logits_processors": "use 'logit_bias', 'allowed_token_ids' or 'bad_words'",
    "custom_logit_processor": "use 'logit_bias', 'allowed_token_ids' or 'bad_words'",
    "prompt_logprobs": "/v1/completions has them with `echo` and `logprobs`",
    "prompt_embeds": "send text or token ids",
    "input_ids": "use 'prompt_token_ids'",
    "mm_processor_kwargs": "images are read as the engine is set up",
    "rid": "use 'request_id'",
    "extra_key": "use 'cache_salt'",
    "lora_path": "give the adapter's name in 'model', as /v1/models lists it",
    "lora_request": "give the adapter's name in 'model', as /v1/models lists it",
    "repetition_detection": "use 'repetition_penalty' or 'frequency_penalty'",
    "session_control": "cached prefixes are found without it",
    "nvext.backend_instance_id": "the server chooses the worker",
    "nvext.prefill_worker_id": "the server chooses the worker",
    "nvext.decode_worker_id": "the server chooses the worker",
    "nvext.dp_rank": "the server chooses the worker",
    "nvext.prefill_dp_rank": "the server chooses the worker",
    "nvext.session_control": "cached prefixes are found without it",
    "nvext.agent_hints.strict_priority": "use 'nvext.agent_hints.priority'",
}


QUOTED = re.compile(r"'(\w+)[\w.]*'")
LISTED_AT_MOST = 10
ALIKE = 0.75  # temprature; not num_predict and prediction
# By the first word of pydantic's error types.
TIMES = {
    "datetime": "write a time such as 2027-01-31T12:00:00Z",
    "timezone": "write a time with its zone, such as 2027-01-31T12:00:00Z",
    "date": "write a day such as 2027-01-31",
}


class FieldError(ValueError):
    """The error that our validators raise.

    param: path of the field that is wrong, which the message names as well. None in a validator of
    that field itself: the path is then pydantic's.
    """

    def __init__(
        self,
        param: str | None,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_PARAMETER,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def refusal(error: ValidationError, kind: type[BaseModel]) -> InvalidRequest:
    """The first problem gives code and param; the message lists at most ten.

    kind: what was to be made, whose fields misspelt ones are compared with.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = first["ctx"]["error"]
        return InvalidRequest(
            f"The body is not valid JSON: {reason}", code=ErrorCode.INVALID_JSON, param=None
        )
    listed = [_described(problem, kind) for problem in problems[:LISTED_AT_MOST]]
    if len(problems) > LISTED_AT_MOST:
        listed.append(f"and {len(problems) - LISTED_AT_MOST} more")
    path = _param(first)
    return InvalidRequest("; ".join(listed), code=_code(first, path), param=path or None)


def _param(problem: Any) -> str:
    raised = problem.get("ctx", {}).get("error")
    named = raised.param if isinstance(raised, FieldError) else None
    return named or _path(problem["loc"])


def _described(problem: Any, kind: type[BaseModel]) -> str:
    path = _path(problem["loc"])
    raised = problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError) and raised.param is not None:
        return str(raised)
    match problem["type"]:
        case "missing":
            return f"Missing required parameter: '{path}'"
        case "extra_forbidden":
            refused = f"Unsupported parameter: '{path}' is not supported by this server"
            if (advice := _advice(path, kind)) is not None:
                return f"{refused}: {advice}"
            near = near_key(problem["loc"], kind, ALIKE)
            return f"{refused}: did you mean '{near}'?" if near else refused
        case _:
            reason = TIMES.get(problem["type"].split("_")[0]) or problem["msg"]
            reason = reason.removeprefix("Value error, ")
            value = echoed(problem["input"])
            if bounds := _bounds(problem, kind):
                return f"Invalid value for '{path}': {path} must be {bounds}, got {value}"
            return f"Invalid value for '{path or 'body'}': {reason} (given: {value})"


def _advice(path: str, kind: type[BaseModel]) -> str | None:
    """None where it would name fields that this body does not have."""
    named = QUOTED.findall(ADVICE.get(path, ""))
    return ADVICE.get(path) if kind.model_fields.keys() >= {*named} else None


def _bounds(problem: Any, kind: type[BaseModel]) -> str | None:
    """Both bounds of a field of the body that breaks one of them."""
    field = kind.model_fields.get(str(problem["loc"][-1])) if len(problem["loc"]) == 1 else None
    if field is None or problem["type"] not in ("less_than_equal", "greater_than_equal"):
        return None
    members = (field.annotation, *get_args(field.annotation))
    inner = [info for member in members for info in getattr(member, "__metadata__", ())]
    rules = [rule for info in (field, *inner) for rule in getattr(info, "metadata", ())]
    least = [rule.ge for rule in rules if isinstance(rule, Ge)]
    most = [rule.le for rule in rules if isinstance(rule, Le)]
    number = type(*problem["ctx"].values())  # float or int, as the field is
    return f"between {number(least[0])} and {number(most[0])}" if least and most else None


def _code(problem: Any, path: str) -> ErrorCode:
    kind, raised = problem["type"], problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError):
        return raised.code
    if kind == "extra_forbidden":
        return ErrorCode.UNSUPPORTED_PARAMETER
    if path.startswith("messages"):
        is_missing = (kind, path) == ("missing", "messages")
        return ErrorCode.MISSING_PARAMETER if is_missing else ErrorCode.INVALID_MESSAGES
    return ErrorCode.MISSING_PARAMETER if kind == "missing" else ErrorCode.INVALID_PARAMETER


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 2, "<parts>", "content") -> messages[2].content; `<…>` are union tags."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<") and part != "[key]":
            path += f".{part}" if path else part
    return path[:ECHO_AT_MOST]
