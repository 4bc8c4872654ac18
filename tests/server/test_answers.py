"""Many streams at once: every text right, whole, in order. Oracle: onnxruntime-genai."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import openai
import pytest

from tests.fixtures.stack import HANG_S

PROMPTS = [f"Number {n}: once upon a time" for n in range(20)]


class Oracle:
    """Greedy text of a model folder, by onnxruntime-genai's own Generator and HF's tokenizer."""

    def __init__(self, artifacts: Path) -> None:
        import onnxruntime_genai
        from tokenizers import Tokenizer

        self._og = onnxruntime_genai
        self._model = onnxruntime_genai.Model(str(artifacts / "engine"))
        self._tokenizer = Tokenizer.from_file(str(artifacts / "tokenizer.json"))

    def text(self, prompt: str, max_tokens: int) -> str:
        ids = self._tokenizer.encode(prompt).ids
        parameters = self._og.GeneratorParams(self._model)
        parameters.set_search_options(do_sample=False, max_length=len(ids) + max_tokens)
        generator = self._og.Generator(self._model, parameters)
        generator.append_tokens(ids)
        while not generator.is_done():
            generator.generate_next_token()
        return self._tokenizer.decode(
            generator.get_sequence(0)[len(ids) :].tolist(), skip_special_tokens=True
        )


@pytest.fixture(scope="module")
def oracle(stack) -> Oracle:
    return Oracle(stack.artifacts / "endless")


async def texts(url: str, prompts: Sequence[str], max_tokens: int) -> list[tuple[str, int]]:
    """Text and number of tokens of each prompt's stream, all at once."""

    async def one(client: openai.AsyncOpenAI, prompt: str) -> tuple[str, int]:
        stream = await client.completions.create(
            model="endless", prompt=prompt, max_tokens=max_tokens, temperature=0,
            stream=True, stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        return text, chunks[-1].usage.completion_tokens

    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=HANG_S
    ) as client:
        return await asyncio.gather(*(one(client, prompt) for prompt in prompts))


def test_64_streams_of_200_tokens_lose_repeat_and_reorder_nothing(stack, oracle):
    prompts = (PROMPTS * 4)[:64]
    expected = {prompt: oracle.text(prompt, 200) for prompt in PROMPTS}
    assert len(set(expected.values())) > 5
    answers = asyncio.run(texts(stack.url, prompts, 200))
    # the tokenizer writes a character that the limit cuts in two as U+FFFD
    cut = [(text.rstrip("\ufffd"), tokens) for text, tokens in answers]
    assert cut == [(expected[prompt].rstrip("\ufffd"), 200) for prompt in prompts]


def test_split_characters_arrive_whole(stack, oracle):
    """The random model writes broken UTF-8 all the time: the text is still decode's own."""
    ((text, _),) = asyncio.run(texts(stack.url, ["é你🙂"], 300))
    assert text == oracle.text("é你🙂", 300)
    assert "�" in text
