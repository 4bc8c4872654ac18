"""What the stand-ins have in common: the engine, requests, and the responses of one stream."""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

import metrics
from leases import Leases
from metrics import MetricReporter
from port import FinishReason, GenerationInput, Job, Token
from request_tensors import scalar
from response_writer import ResponseWriter, usable_cores
from runtimes import RUNTIMES
from stream import Stream
from token_bytes import TokenBytes

ENDLESS = "story without end"
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def strings(request: Any, name: str) -> list[str]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [] if tensor is None else [one.decode() for one in tensor.as_numpy().ravel()]


def text(request: Any, name: str) -> str:
    return next(iter(strings(request, name)), "")


def flag(request: Any, name: str) -> bool:
    return bool(scalar(request, name))


def tensor(name: str, values: Any, dtype: Any) -> Any:
    return pb_utils.Tensor(name, np.asarray(values, dtype=dtype))


class Vocabulary:
    """The tokenizer of an artifacts folder."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.context_length: int = facts["context_length"]
        self.end_ids: list[int] = facts["end_ids"]
        self._specials = {
            int(token): one.encode() for token, one in facts["special_tokens"].items()
        }
        self._bytes = TokenBytes.load(folder / "token_bytes.npz")

    def ids(self, given: str) -> list[int]:
        return list(self.tokenizer.encode(given).ids)

    def bytes_of(self, token: int, *, shows_special: bool = False) -> bytes:
        if token in self._specials:
            return self._specials[token] if shows_special else b""
        return self._bytes.lookup([token])[0]


class Answer:
    """The text of one stream: what each token adds, with incomplete characters held back.

    shows_stop: the text of the token that ended the answer is part of it.
    """

    def __init__(
        self, words: Vocabulary, *, shows_special: bool = False, shows_stop: bool = False
    ) -> None:
        self._words, self._shows_special, self._shows_stop = words, shows_special, shows_stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: list[Token], finish: FinishReason | None) -> str:
        shown = tokens[:-1] if finish == "stop" and not self._shows_stop else tokens
        raw = [self._words.bytes_of(one.id, shows_special=self._shows_special) for one in shown]
        return self._decoder.decode(b"".join(raw), final=finish is not None)


Shape = Callable[[list[Token], "FinishReason | None"], list[Any]]


class ForeignStream(Stream):
    """Sends what `shape` makes of the tokens; in one response, unless it `streams`.

    failed: before the text of an error. cancelled_as: the text of the error that ends a cancelled
    stream; none for an empty end.
    """

    def __init__(
        self,
        sender: Any,
        prompt_tokens: int,
        post: Callable[[Stream], None],
        shape: Shape,
        *,
        streams: bool,
        failed: str,
        cancelled_as: str | None,
    ) -> None:
        super().__init__(sender, prompt_tokens, post)
        self._shape, self._streams = shape, streams
        self._failed, self._cancelled_as = failed, cancelled_as
        self._kept: list[Token] = []

    def token(self, token: Token, finish: FinishReason | None) -> None:
        if self._streams or finish is not None:
            super().token(token, finish)
        else:
            self._kept.append(token)

    def refuse(self, param: str, message: str, *, code: str = "") -> None:
        self._close("refused", self._failed + message, pb_utils.TritonError.INTERNAL)

    def fail(self, message: str) -> None:
        super().fail(self._failed + message)

    def cancelled(self) -> None:
        self._close("cancelled", self._cancelled_as, pb_utils.TritonError.CANCELLED)

    def _response(self, tokens: list[Token], finish: FinishReason | None) -> Any:
        kept, self._kept = self._kept, []
        return pb_utils.InferenceResponse(self._shape([*kept, *tokens], finish))


class Writer(ResponseWriter):
    """Takes streams that others made."""

    def add(self, stream: Stream, prompt_tokens: int) -> None:
        self._open[stream] = None
        self.totals["prompt_tokens"] += prompt_tokens

    def post(self, stream: Stream) -> None:
        self._posted.put(stream)


class StandIn:
    """A model with an engine of ours. `options`: stand_in.json beside its model.py or config.

    A prompt that has the words of ENDLESS is answered by a scripted engine, which does not end.
    """

    failed = ""
    cancelled_as: str | None = None

    def initialize(self, args: dict[str, str]) -> None:
        folder = Path(args["model_repository"], args["model_version"])
        self.options = json.loads((folder / "stand_in.json").read_text(encoding="utf-8"))
        self.config = json.loads(args["model_config"])
        self.name = args["model_name"]
        artifacts = Path(self.options["artifacts"])
        self.words = Vocabulary(artifacts)
        self._writer = Writer(Leases(), cores=usable_cores(), wanted_a_core=1000.0, hold_s=0.0)
        parameters = {"public_name": self.name, **self.options["parameters"]}
        self._runtime = RUNTIMES["onnx"](parameters, artifacts, self._die)
        self._endless = RUNTIMES["scripted"]({}, Path(self.options["endless"]), self._die)
        self._reporter = MetricReporter(pb_utils, self.name)
        metrics.add_all(self._reporter, self._writer, self._runtime.stats)
        self._reporter.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                self.start(request)
            except Exception as error:  # as upstream's models: any error is the request's
                self.refuse(request, self.failed + str(error))

    def start(self, request: Any) -> None:
        raise NotImplementedError

    def refuse(self, request: Any, message: str) -> None:
        answered = [tensor("text_output", [b"N/A"], np.object_)]
        error = pb_utils.TritonError(message)
        response = pb_utils.InferenceResponse(output_tensors=answered, error=error)
        request.get_response_sender().send(response, flags=FINAL)

    def generate(
        self, request: Any, wanted: GenerationInput, shape: Shape, *, streams: bool
    ) -> None:
        stream = ForeignStream(
            request.get_response_sender(),
            len(wanted.prompt_ids),
            self._writer.post,
            shape,
            streams=streams,
            failed=self.failed,
            cancelled_as=self.cancelled_as,
        )
        self._writer.add(stream, len(wanted.prompt_ids))
        told = self.words.tokenizer.decode(wanted.prompt_ids)
        runtime = self._endless if ENDLESS in told else self._runtime
        runtime.submit(Job(request.request_id(), wanted, stream))

    def cancel(self, request_id: str) -> None:
        self._runtime.cancel(request_id)
        self._endless.cancel(request_id)

    def finalize(self) -> None:
        self._runtime.close()
        self._endless.close()
        self._writer.close()
        self._reporter.close()

    def _die(self, reason: str) -> None:
        raise RuntimeError(reason)
