"""Stands in for NVIDIA's vLLM backend: vllm_backend 8de0c14, src/model.py and src/utils.

Error texts are those of vLLM 0.32 under that backend.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from stand_in import FINAL, Answer, StandIn, flag, strings, tensor, text

from port import FinishReason, GenerationInput, Guide, SamplingParams, Token

# Fields of vLLM's SamplingParams; another key is an error.
KNOWN = {
    *("n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p"),
    *("top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens"),
    *("logprobs", "prompt_logprobs", "detokenize", "skip_special_tokens", "output_kind"),
    *("spaces_between_special_tokens", "include_stop_str_in_output", "structured_outputs"),
    *("logit_bias", "allowed_token_ids", "extra_args", "bad_words", "lora_name"),
    "skip_reading_prefix_cache",
}
SWITCHES = (
    "finish_reason",
    "cumulative_logprob",
    "logprobs",
    "num_input_tokens",
    "num_output_tokens",
)
EMBEDDER = "embedder"  # the model that embeds, and cannot generate
IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")
DEFAULT_MAX_TOKENS = 16
TOO_LONG = (
    "This model's maximum context length is {most} tokens. However, your prompt contains at least "
    "{least} input tokens, which exceeds this limit even without any output tokens. Please reduce "
    "the length of the input prompt. (parameter=input_tokens, value={least})"
)
RANGES = {
    "temperature": (0, 2),
    "top_p": (1e-9, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-9, math.inf),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}


class UnknownParams(Exception):
    """Upstream logs what is wrong with the parameters, and goes on without any."""

    def __init__(self) -> None:
        super().__init__("'NoneType' object has no attribute 'lora_name'")


def guide_of(given: str) -> Guide:
    """Of the JSON text in `structured_outputs`."""
    kind, value = next(one for one in json.loads(given).items() if one[1] is not None)
    written = value if isinstance(value, str) else json.dumps(value)
    match kind:
        case "json":
            return Guide.of("json_schema", written)
        case "json_object":
            return Guide.of("json", "")
        case "choice":
            return Guide.of("ebnf_grammar", "root ::= " + " | ".join(map(json.dumps, value)))
        case "grammar":
            return Guide.of("ebnf_grammar", written)
    return Guide.of(kind, written)


class VllmBackend(StandIn):
    failed = "Error generating stream: "
    cancelled_as = "Request was cancelled"

    def start(self, request: Any) -> None:
        given = json.loads(text(request, "sampling_parameters") or "{}")
        if (refused := self._lora_error(given.get("lora_name"))) is not None:
            self.refuse(request, refused)
            return
        asked = text(request, "embedding_request")
        task = "embed" if asked else "generate"
        if task != ("embed" if self.name == EMBEDDER else "generate"):
            raise ValueError(f"Model {self.name} does not support '{task}' request")
        if asked:
            self._embed(request, json.loads(asked))
            return
        images = [base64.b64decode(one) for one in strings(request, "image")]
        if not all(one.startswith(IMAGES) for one in images):
            raise ValueError("cannot identify image file <_io.BytesIO object at 0x7f0000000000>")
        streams = flag(request, "stream")
        prepends = not flag(request, "exclude_input_in_output")
        if pb_utils.get_input_tensor_by_name(request, "exclude_input_in_output") is None:
            prepends = not streams
        if streams and prepends:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        prompt = text(request, "text_input")
        wanted = self._input(prompt, given)
        before = prompt if prepends else ""
        before += "".join(f"[image of {len(one)} bytes]" for one in images)
        shape = VllmAnswer(self, request, wanted, given, before)
        self.generate(request, wanted, shape, streams=streams)

    def _embed(self, request: Any, asked: dict[str, Any]) -> None:
        """The vector says how many tokens there were, and the first of them."""
        given, most = asked["input"], self.words.context_length
        ids = self.words.ids(given) if isinstance(given, str) else given
        if len(ids) > most:
            raise ValueError(TOO_LONG.format(most=most, least=most + 1))
        size = next(iter(asked["pooling_params"].get("dimensions", [8])))
        if size not in (4, 8):
            raise ValueError("Model '/w' only supports [4, 8] matryoshka dimensions, use others")
        vector = [float(len(ids)), float(ids[0]), *[0.5] * (size - 2)]
        outputs = [tensor("text_output", [json.dumps(vector).encode()], np.object_)]
        if flag(request, "return_num_input_tokens"):
            outputs.append(tensor("num_input_tokens", len(ids), np.uint32))
        response = pb_utils.InferenceResponse(output_tensors=outputs)
        request.get_response_sender().send(response, flags=FINAL)

    def _lora_error(self, name: str | None) -> str | None:
        loras = self.options.get("loras", [])
        if name is None or name in loras:
            return None
        if not loras:
            return "LoRA feature is not enabled."
        return f"LoRA {name} is not supported, we currently support {loras}"

    def _input(self, prompt: str, given: dict[str, Any]) -> GenerationInput:
        ids, most = self.words.ids(prompt), self.words.context_length
        if given.keys() - KNOWN or given.get("max_tokens", 1) is None:
            raise UnknownParams
        if given.get("logit_bias"):
            raise ValueError("")  # vLLM compares the keys, which are texts, with numbers
        max_tokens, guide = given.get("max_tokens", DEFAULT_MAX_TOKENS), None
        try:
            sampling = self._sampling(given)
            if given.get("structured_outputs") is not None:
                guide = guide_of(given["structured_outputs"])
        except (ValueError, TypeError) as error:
            raise UnknownParams from error
        if max_tokens < max(1, sampling.min_tokens):
            raise UnknownParams
        if not ids:
            raise ValueError("The decoder prompt cannot be empty")
        if len(ids) >= most:
            raise ValueError(TOO_LONG.format(most=most, least=most + 1))
        return GenerationInput(
            prompt_ids=ids,
            max_tokens=min(max_tokens, most - len(ids)),
            sampling=sampling,
            guide=guide,
        )

    def _sampling(self, given: dict[str, Any]) -> SamplingParams:
        if given.get("n", 1) != 1 or given.get("stop"):
            raise NotImplementedError("the stand-in has neither n nor stop")
        seed, allowed = given.get("seed"), given.get("allowed_token_ids")
        words = [f"{space}{one}" for one in given.get("bad_words") or [] for space in ("", " ")]
        floats = {name: float(given[name]) for name in RANGES if name in given}
        for name, value in floats.items():
            least, most = RANGES[name]
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}")
        return SamplingParams(
            **floats,
            top_k=max(0, given.get("top_k", 0)),
            seed=None if seed is None or seed == -1 else seed,
            min_tokens=given.get("min_tokens", 0),
            ignore_eos=bool(given.get("ignore_eos")),
            stop_token_ids=frozenset(given.get("stop_token_ids") or ()),
            allowed_token_ids=None if allowed is None else tuple(allowed),
            bad_words=tuple(tuple(self.words.ids(one)) for one in words),
            log_probs=given.get("logprobs"),
        )


class VllmAnswer:
    """The tensors of each response."""

    def __init__(
        self,
        model: VllmBackend,
        request: Any,
        wanted: GenerationInput,
        given: dict[str, Any],
        prompt: str,
    ) -> None:
        self._words, self._wanted = model.words, wanted
        self._asked = [name for name in SWITCHES if flag(request, f"return_{name}")]
        self._before = prompt + (f"{given['lora_name']}: " if given.get("lora_name") else "")
        self._sum = 0.0
        self._text = Answer(
            model.words,
            shows_special=not given.get("skip_special_tokens", True),
            shows_stop=bool(given.get("include_stop_str_in_output")),
        )

    def __call__(self, tokens: list[Token], finish: FinishReason | None) -> list[Any]:
        added, self._before = self._before + self._text.add(tokens, finish), ""
        self._sum += sum(one.log_probs.sampled for one in tokens if one.log_probs is not None)
        made = {
            "finish_reason": lambda: ([str(finish)], np.object_),
            "cumulative_logprob": lambda: ([self._sum], np.float32),
            "logprobs": lambda: ([self._log_probs(tokens)], np.object_),
            # upstream makes it without a dimension
            "num_input_tokens": lambda: (len(self._wanted.prompt_ids), np.uint32),
            "num_output_tokens": lambda: ([len(tokens)], np.uint32),
        }
        return [
            tensor("text_output", [added.encode()], np.object_),
            *(tensor(name, *made[name]()) for name in self._asked),
        ]

    def _log_probs(self, tokens: list[Token]) -> bytes:
        if self._wanted.sampling.log_probs is None:
            return b"null"
        return json.dumps([self._entry(one) for one in tokens]).encode()

    def _entry(self, token: Token) -> dict[str, dict[str, Any]]:
        """The token itself first, then the likeliest."""
        assert token.log_probs is not None
        top, own = token.log_probs.top, token.log_probs.sampled
        ranks = {one: rank for rank, (one, _) in enumerate(top, 1)}
        listed = dict([(token.id, own), *(one for one in top if one[0] != token.id)])
        return {
            str(one): {
                "logprob": log_prob,  # -Infinity in JSON, as upstream
                "rank": ranks.get(one, len(top) + 1),
                # empty for a part of a character, as upstream
                "decoded_token": self._words.bytes_of(one, shows_special=True).decode(
                    "utf-8", "ignore"
                ),
            }
            for one, log_prob in listed.items()
        }
