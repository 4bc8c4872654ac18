"""A prompt has the tokens that it has without the cache, and only its new parts are tokenized."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

import prompt_cache
from plain_spans import PlainSpans
from prompt_cache import PromptCache, isolated_tokens
from tests.engine import test_plain_spans as kinds
from tests.fixtures.examples import examples


def with_tokens(kind: Callable[[], Tokenizer], *added: AddedToken, normalizer=None) -> Tokenizer:
    tokenizer = kind()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    for one in added:
        (tokenizer.add_special_tokens if one.special else tokenizer.add_tokens)([one])
    return tokenizer


special = partial(AddedToken, special=True, normalized=False)
plain = partial(AddedToken, special=False)
CUT = special("[CUT]")
CHANGED = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
KINDS = {
    "demo": kinds.demo,
    "byte_level": kinds.byte_level,
    "sentencepiece": kinds.sentencepiece,
    "phi": kinds.phi,
    "unigram": kinds.unigram,
    "gapped": kinds.gapped,
    "normalized": partial(with_tokens, kinds.sentencepiece, CUT, normalizer=CHANGED),
    "normalized unigram": partial(with_tokens, kinds.unigram, CUT, normalizer=CHANGED),
    "takes white space": partial(
        with_tokens, kinds.byte_level, CUT, special("<l>", lstrip=True), special("<r>", rstrip=True)
    ),
    "words": partial(
        with_tokens, kinds.byte_level, CUT, special("cut"), special("<w>", single_word=True)
    ),
    "sharing": partial(
        with_tokens, kinds.byte_level, CUT, special("<a<"), special("<b<b"), plain("b[C")
    ),
    "normalized tokens": partial(
        with_tokens, kinds.byte_level, CUT, plain("Ab", normalized=True), normalizer=CHANGED
    ),
}  # fmt: skip
TEXTS = [
    "Hello",
    " wörld",
    "\n",
    "  ",
    " 12",
    "…",
    "<|",
    "<s",
    "|>",
    "[CU",
    "b",
    "a" * 30,
    "\uff21\uff22",
]


def nothing(tokens: int) -> None:
    pass


class Encoder:
    """Encodes, and keeps what it encoded."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.plain = tokenizer, PlainSpans(tokenizer)
        self.asked: list[str] = []

    def __call__(self, text: str, spans=None) -> list[int]:
        self.asked.append(text)
        return self._ids(text) if spans is None else self.plain.encode(text, spans, self._ids)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.fixture
def _short_texts_too(monkeypatch):
    for name, value in (("FROM_CHARACTERS", 1), ("PART_CHARACTERS", 16), ("AT_ONCE", 100)):
        monkeypatch.setattr(prompt_cache, name, value)


@pytest.mark.usefixtures("_short_texts_too")
@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_prompt_has_the_tokens_that_it_has_alone(kind, data):
    """Turns of conversations that begin alike, with and without plain spans, and without their
    oldest turns.
    """
    tokenizer = KINDS[kind]()
    added = [one.content for one in tokenizer.get_added_tokens_decoder().values()]
    piece = st.tuples(st.sampled_from([*TEXTS, *added, *added]), st.booleans())
    parts = st.lists(piece, max_size=20)
    cache, encode, alone = PromptCache(tokenizer), Encoder(tokenizer), Encoder(KINDS[kind]())
    said: list[list[tuple[str, bool]]] = [[]]
    for _ in range(data.draw(st.integers(1, 6))):
        before = data.draw(st.sampled_from(said))
        start, kept = data.draw(st.integers(0, 3)), data.draw(st.integers(0, len(before)))
        said.append(before[start:kept] + data.draw(parts))
        text, spans = "", []
        for one, is_plain in said[-1]:
            spans += (len(text), len(text) + len(one)) if is_plain and one in added else ()
            text += one
        given = spans if spans and kind != "sharing" else None  # such tokens cannot be plain
        salt = data.draw(st.sampled_from(["", "a"]))
        assert cache.encode(text, given, salt, encode, nothing).tolist() == alone(text, given)


@pytest.mark.parametrize(
    ("kind", "isolated", "others"),
    [
        ("demo", {"<|im_start|>", "<|im_end|>"}, set()),
        ("takes white space", {"[CUT]", "<r>"}, {"<l>"}),
        ("words", {"[CUT]"}, {"cut", "<w>"}),
        ("sharing", set(), {"[CUT]", "<a<", "<b<b"}),
    ],
)
def test_only_tokens_that_nothing_touches_are_cuts(kind, isolated, others):
    found = isolated_tokens(KINDS[kind]())
    assert isolated <= found.keys()
    assert not others & found.keys()


def conversation(turns: int, name: str = "") -> list[str]:
    """The prompt of each turn, in ChatML."""
    prompt, prompts = f"<|im_start|>system\n{name} says so. {'Be kind. ' * 20}<|im_end|>\n", []
    for turn in range(turns):
        prompt += f"<|im_start|>user\n{'Tell me more about it. ' * 60}{turn}<|im_end|>\n"
        prompts.append(f"{prompt}<|im_start|>assistant\n")
        prompt = f"{prompts[-1]}{'Of course, here it is. ' * 60}{turn}<|im_end|>\n"
    return prompts


def test_of_a_conversation_only_what_is_new_is_tokenized():
    cache, encode = PromptCache(kinds.demo()), Encoder(kinds.demo())
    prompts = [one for one in conversation(20) if len(one) >= prompt_cache.FROM_CHARACTERS]
    for before, prompt in pairwise(["", *prompts]):
        encode.asked.clear()
        assert cache.encode(prompt, None, "", encode, nothing).tolist() == encode._ids(prompt)
        assert sum(map(len, encode.asked)) < len(prompt) - len(before) + 100
    assert len(prompts) > 10
    oldest = prompts[-1].index("<|im_start|>", 10_000)
    for changed in (f"<|im_start|>system\nBe brief.{prompts[-1][oldest:]}", prompts[-1][oldest:]):
        encode.asked.clear()
        assert cache.encode(changed, None, "", encode, nothing).tolist() == encode._ids(changed)
        assert sum(map(len, encode.asked)) < 2_000  # one part


def test_another_salt_finds_nothing():
    cache, encode = PromptCache(kinds.demo()), Encoder(kinds.demo())
    prompt = conversation(20)[-1]
    seen = []
    for salt in ("a", "b", "a", "b", ""):
        encode.asked.clear()
        cache.encode(prompt, None, salt, encode, nothing)
        seen.append(sum(map(len, encode.asked)))
    assert seen == [len(prompt), len(prompt), 0, 0, len(prompt)]


def test_its_size_is_bounded(monkeypatch):
    """Also for parts of few characters, a huge one, and many tenants."""
    most_bytes, most_parts = 400_000, 400
    monkeypatch.setattr(prompt_cache, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(prompt_cache, "MOST_PARTS", most_parts)
    cache, encode = PromptCache(kinds.demo()), Encoder(kinds.demo())
    prompts = [conversation(4, f"Number {number}")[-1] for number in range(10)]
    prompts = [one.replace("Tell", f"Tell {at}") for at, one in enumerate(prompts)]
    prompts.append("".join(f"<|im_start|>{number} {'a ' * 30}" for number in range(800)))
    prompts.append(f"<|im_start|>{'b ' * 60_000}")
    prompts += prompts[:1]
    for number, prompt in enumerate(prompts):
        cache.encode(prompt, None, str(number % 3), encode, nothing)
        assert cache.bytes <= most_bytes
        assert cache.bytes == sum(prompt_cache._size(*one) for one in cache._kept.items())
        assert len(cache._kept) <= most_parts
    assert cache._kept


def test_the_work_ends_where_the_check_ends_it():
    cache, encode = PromptCache(kinds.demo()), Encoder(kinds.demo())
    prompt = conversation(400)[-1]

    def check(tokens: int) -> None:
        if tokens > 100:
            raise OverflowError

    with pytest.raises(OverflowError):
        cache.encode(prompt, None, "", encode, check)
    assert len(encode.asked[0]) < len(prompt) / 5
    assert len(encode.asked) == 1


def test_to_look_costs_a_small_part_of_what_tokenizing_does():
    """Also for conversations that share nothing, short messages, and where nothing but `<` stands
    in one.
    """
    tokenizer = kinds.demo()
    prompts = [conversation(16)[-1].replace("Tell", f"Tell {number}") for number in range(4)]
    prompts.append("<" * len(prompts[0]))
    prompts.append("<|im_start|>a<|im_end|>" * 2_000)

    def cost(run) -> float:
        begun = time.process_time()
        for prompt in prompts:
            run(prompt)
        return time.process_time() - begun

    encode = Encoder(tokenizer)
    plain = min(cost(encode) for _ in range(2))

    def new(prompt: str) -> None:
        PromptCache(tokenizer).encode(prompt, None, "", encode, nothing)

    cache = PromptCache(tokenizer)
    assert min(cost(new) for _ in range(2)) < 1.3 * plain
    known = partial(cache.encode, spans=None, salt="", encode=encode, check=nothing)
    assert min(cost(known) for _ in range(3)) < plain / 5
