"""The tokenizer of a model that others built: a Hugging Face folder that the operator has.

Counts prompt tokens before the engine sees them, as the tokenizer model of our own ensembles does.
The package `tokenizers` is needed for it alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError
from build_engines.json_files import read_object
from build_engines.tokenizer_tables import added_marks, infilling, response_template, special_tokens
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest, unsupported
from proxy.domain.model import ModelFacts
from proxy.domain.request_limits import smaller
from proxy.domain.tokenizer import AdmittedPrompt

AT_ONCE = 4_096  # characters that are encoded on the event loop, in about a millisecond
LONG_TOKEN = 16  # characters; few texts have longer ones on average
CUT_TOKENS = 16  # that a cut can change
MOST_TRIED = 8  # how many beginnings of an answer are encoded, until one has its tokens
UNBOUNDED = 10**9  # transformers writes 10**30 where a tokenizer has no limit
# GPT-2's printable characters for the bytes that are not printable themselves, in their order.
_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + at): byte for at, byte in enumerate(_OTHERS)
}


@dataclass(frozen=True, slots=True)
class Kept:
    """tokens: how many of the answer's are exactly the text's after the prompt. again: what the
    reader has of the others.
    """

    text: str
    tokens: int
    again: bytes


class LocalTokenizer:
    """Reads the folder, which takes part of a second. Raises BuildError."""

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BuildError(
                "a model's `tokenizer` needs the package tokenizers: pip install "
                "'triton-openai[adopt]'"
            ) from error
        try:
            self._backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower one
            raise BuildError(f"{folder} has no usable tokenizer.json: {error}") from error
        self._folder = folder
        self._config = _object(folder / "tokenizer_config.json")
        self._model = _object(folder / "config.json")
        self._bytes: dict[int, bytes] = {}
        backend = self._backend
        self._specials = special_tokens(backend)
        self._added = backend.get_added_tokens_decoder()
        self._bos = backend.token_to_id(self._text("bos_token"))
        self._always = self._ids("")  # the special tokens that it adds to every text
        self._is_byte_level = '"ByteLevel"' in json.dumps(
            json.loads(backend.to_str()).get("decoder")
        )

    def facts(self, known: ModelFacts) -> ModelFacts:
        """What a Triton model of ours carries itself."""
        backend, templates = self._backend, self._templates()
        return replace(
            known,
            chat_template=templates.get("default"),
            tool_template=templates.get("tool_use"),
            response_template=response_template(self._config.get("response_template")),
            bos_token=self._text("bos_token"),
            eos_token=self._text("eos_token"),
            vocab_size=1 + max(backend.get_vocab(with_added_tokens=True).values()),
            end_ids=self._end_ids(),
            special_tokens={one: text.encode() for one, text in self._specials.items()},
            added_marks=added_marks(backend),
            infilling=infilling(backend),
        )

    @property
    def context_length(self) -> int | None:
        """What config.json says, or else tokenizer_config.json."""
        lengths = (
            self._model.get("max_position_embeddings"),
            (self._model.get("text_config") or {}).get("max_position_embeddings"),
            self._config.get("model_max_length"),
        )
        return next((int(one) for one in lengths if one and one < UNBOUNDED), None)

    def as_text(self, request: EngineRequest) -> str:
        """The text whose tokens, with the special ones that the engine adds, are the prompt's.

        A chat template writes a BOS token that an engine which gets text adds itself.

        Raises:
            InvalidRequest: no text has exactly these tokens.
        """
        if request.token_ids is not None:
            text = self._of_ids(request.token_ids)
            if self._ids(text) != list(request.token_ids):
                raise unsupported(
                    "This model takes text only, and no text has exactly these tokens. Send text.",
                    param="prompt",
                )
            return text
        text = request.text or ""
        if request.add_special_tokens or not self._always:
            return text
        bos = self._text("bos_token")
        if self._bos is not None and self._always == [self._bos] and text.startswith(bos):
            return text[len(bos) :]
        if isinstance(request.model.facts.chat_template, str):
            return text  # the template has no BOS token, and the engine adds one all the same
        raise unsupported(
            "The engine adds this model's special tokens itself. Leave out 'add_special_tokens'.",
            param="add_special_tokens",
        )

    async def admit(self, request: EngineRequest) -> tuple[AdmittedPrompt, str]:
        """As the tokenizer model of our ensembles does; and the text that is sent.

        Raises:
            InvalidRequest: the prompt does not leave room in the context, or no text is the prompt.
        """
        size = len(request.text or "") + len(request.token_ids or ()) + len(request.said or "")
        if size <= AT_ONCE:
            return self._admitted(request)
        # the library lets other threads run while it encodes
        return await asyncio.to_thread(self._admitted, request)

    def _admitted(self, request: EngineRequest) -> tuple[AdmittedPrompt, str]:
        facts, wanted = request.model.facts, request.max_tokens
        context = facts.context_length
        longest = f"This model's maximum context length is {context} tokens"
        self._check_start(request.text or "", context, longest)
        text = self.as_text(request)
        ids = self._ids(text)
        count = len(ids)
        room = context - count
        if not count:
            reason, param = "The prompt has no tokens. Give a text or token ids.", "prompt"
            raise InvalidRequest(reason, param=param)
        if request.prompt_cap is not None and count > request.prompt_cap:
            raise _too_long(
                f"The prompt has {count} tokens. This server allows at most {request.prompt_cap}.",
                "prompt",
            )
        if room < 1:
            raise _too_long(
                f"{longest}, and the prompt has {count}, which leaves no room for an answer. "
                "Shorten the prompt.",
                "prompt",
            )
        if wanted is not None and wanted > room and request.token_cap is None:
            raise _too_long(
                f"{longest}. You asked for {count + wanted} ({count} in the prompt, {wanted} for "
                f"the answer). Shorten the prompt, or ask for at most {room} new tokens.",
                "max_tokens",
            )
        default = smaller(facts.default_max_tokens, request.token_cap)
        most = smaller(wanted or default, room) or room
        if request.said is not None:
            text += request.said
            most = max(min(most - request.said_tokens, context - len(self._ids(text))), 1)
        return AdmittedPrompt(ids=tuple(ids), max_tokens=most), text

    def kept(self, request: EngineRequest, answer: Sequence[int], said: bytes) -> Kept:
        """What a text has of an answer with these tokens, whose reader has `said`; nothing where
        that takes too many tries.
        """
        before = self._ids(prompt := self.as_text(request))
        whole, count = [*before, *answer], len(answer)
        for _ in range(MOST_TRIED):
            text = self._shown(answer[:count], specials=True).decode(errors="ignore")
            shown = self._shown(answer[:count], specials=request.shows_specials)
            found = self._ids(prompt + text)
            if found == whole[: len(before) + count] and said.startswith(shown):
                return Kept(text, count, said[len(shown) :])
            pairs = enumerate(zip(found, whole, strict=False))
            same = next((at for at, (one, other) in pairs if one != other), len(found))
            count = max(min(same - len(before), count - 1), 0)
        return Kept("", 0, said)

    def _shown(self, ids: Sequence[int], *, specials: bool) -> bytes:
        return b"".join(self.token_bytes(one, shows_special=specials) for one in ids)

    def _check_start(self, text: str, context: int, longest: str) -> None:
        """Refuses a text by its first part, if that is too long alone: a second of work or more."""
        most = context * LONG_TOKEN
        if len(text) > most and self.count(text[:most]) > context + CUT_TOKENS:
            raise _too_long(
                f"{longest}, and the prompt has more than {context}. Shorten the prompt.", "prompt"
            )

    def token_bytes(self, token: int, *, shows_special: bool = False) -> bytes:
        """Its raw bytes; a special token has none, if its text is not to be shown."""
        if shows_special and token in self._specials:
            return self._specials[token].encode()
        if (known := self._bytes.get(token)) is None:
            known = self._bytes[token] = self._raw(token)
        return known

    def count(self, text: str) -> int:
        return len(self._backend.encode(text, add_special_tokens=False).ids)

    def _raw(self, token: int) -> bytes:
        added = self._added.get(token)
        if added is not None:
            return b"" if added.special else str(added.content).encode()
        name = self._backend.id_to_token(token) or ""
        if self._is_byte_level:
            return bytes(BYTE_OF[char] for char in name if char in BYTE_OF)
        if len(name) == 6 and name.startswith("<0x"):
            return bytes([int(name[3:5], 16)])
        return name.replace("▁", " ").encode()

    def _ids(self, text: str) -> list[int]:
        """As the engine makes them of a text."""
        return list(self._backend.encode(text).ids)

    def _of_ids(self, ids: Sequence[int]) -> str:
        own = ids[1:] if ids and ids[0] == self._bos and self._always == [self._bos] else ids
        return str(self._backend.decode(list(own), skip_special_tokens=False))

    def _text(self, name: str) -> str:
        """A special token by its name in tokenizer_config.json; empty if there is none."""
        token = self._config.get(name)
        return str(token.get("content") if isinstance(token, dict) else token or "")

    def _templates(self) -> Mapping[str, str]:
        given = self._config.get("chat_template")
        if isinstance(given, list):
            return {one["name"]: one["template"] for one in given}
        if (file := self._folder / "chat_template.jinja").is_file():
            given = file.read_text(encoding="utf-8")
        if not given:  # older folders of models that read images have it beside their processor
            given = _object(self._folder / "chat_template.json").get("chat_template")
        return {"default": given} if given else {}

    def _end_ids(self) -> tuple[int, ...]:
        found: set[int] = set()
        generation = _object(self._folder / "generation_config.json")
        eos = self._backend.token_to_id(self._text("eos_token"))
        for value in (eos, self._model.get("eos_token_id"), generation.get("eos_token_id")):
            if value is not None:
                found.update(value if isinstance(value, list) else [value])
        return tuple(sorted(found))


@lru_cache(maxsize=64)
def local_tokenizer(folder: str) -> LocalTokenizer:
    """Read once. Raises BuildError."""
    return LocalTokenizer(Path(folder))


async def kept(request: EngineRequest, answer: Sequence[int], said: bytes) -> Kept:
    """See LocalTokenizer. For a model of others with a tokenizer."""
    adopted = request.model.facts.adopted
    assert adopted is not None
    tokenizer = local_tokenizer(str(adopted.tokenizer))
    size = len(request.text or "") + len(request.token_ids or ()) + len(said)
    if size * 2 <= AT_ONCE:  # it is seldom encoded more often
        return tokenizer.kept(request, answer, said)
    return await asyncio.to_thread(tokenizer.kept, request, answer, said)


async def as_text(request: EngineRequest) -> tuple[EngineRequest, int | None]:
    """The request as an engine takes it that gets text, and how many tokens its prompt has.

    Raises:
        InvalidRequest: see LocalTokenizer.admit.
    """
    adopted = request.model.facts.adopted
    if adopted is None or adopted.tokenizer is None:
        most = request.max_tokens or request.token_cap
        if request.said is not None:
            text = (request.text or "") + request.said
            most = None if most is None else max(most - request.said_tokens, 1)
            request = replace(request, text=text)
        return replace(request, max_tokens=most), None
    tokenizer = local_tokenizer(adopted.tokenizer)
    if request.embeds is not None and request.prompt_cap is None:
        return request, None  # the engine counts, and takes ids
    admitted, text = await tokenizer.admit(request)
    least, most = request.sampling.min_tokens, admitted.max_tokens
    if least is not None and least > most:  # the context is shorter; vLLM would refuse it
        request = replace(request, sampling=replace(request.sampling, min_tokens=most))
    return replace(request, text=text, token_ids=None, max_tokens=most), len(admitted.ids)


def _too_long(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param=param)


def _object(file: Path) -> dict[str, Any]:
    return read_object(file) if file.is_file() else {}
