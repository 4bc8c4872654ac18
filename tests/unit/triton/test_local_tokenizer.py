"""The tokenizer of a model that others built: its facts, its bytes, and what it admits."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import Adopted, Kind
from proxy.domain.request import Sampling
from proxy.triton.local_tokenizer import Kept, LocalTokenizer, as_text
from tests.doubles.engine import CARD, FACTS

tokenizers = pytest.importorskip("tokenizers")
DEMO = Path("demo_model/shipped").absolute()
BOS = "<s>"


@pytest.fixture(scope="module")
def demo() -> LocalTokenizer:
    return LocalTokenizer(DEMO)


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory) -> LocalTokenizer:
    """The demo's, with a BOS token that it puts before each prompt."""
    folder = tmp_path_factory.mktemp("bos")
    backend = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    backend.add_special_tokens([BOS])
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    backend.save(str(folder / "tokenizer.json"))
    config = {"bos_token": {"content": BOS}, "chat_template": "{{ bos_token }}x"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return LocalTokenizer(folder)


def request(text=None, ids=None, context=4096, **fields) -> EngineRequest:
    facts = replace(FACTS, context_length=context, chat_template="x")
    card = replace(CARD, facts=facts)
    return EngineRequest(
        id="r", model=card, timeout_s=1, sampling=Sampling(), text=text, token_ids=ids, **fields
    )


def ids_of(tokenizer: LocalTokenizer, asked: EngineRequest) -> tuple[int, ...]:
    return asyncio.run(tokenizer.admit(asked))[0].ids


def admitted(tokenizer: LocalTokenizer, asked: EngineRequest) -> tuple[int, int]:
    found, _ = asyncio.run(tokenizer.admit(asked))
    return len(found.ids), found.max_tokens


def refused(tokenizer: LocalTokenizer, asked: EngineRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        admitted(tokenizer, asked)
    return error.value


def test_it_knows_what_a_model_of_ours_carries(demo):
    shipped = json.loads((DEMO / "facts.json").read_text())
    facts = demo.facts(FACTS)
    assert facts.chat_template == shipped["chat_template"]
    assert facts.end_ids == tuple(shipped["end_ids"])
    assert facts.vocab_size == shipped["vocab_size"]
    assert {str(one): text.decode() for one, text in facts.special_tokens.items()} == shipped[
        "special_tokens"
    ]
    assert (facts.bos_token, facts.eos_token) == (shipped["bos_token"], shipped["eos_token"])
    assert demo.context_length == 4096


@pytest.mark.parametrize("text", ["Hello, world!", "Grüße, 你好 🙂", " \n\ttab"])
def test_the_bytes_of_tokens_make_the_text(demo, text):
    ids = ids_of(demo, request(text))
    assert b"".join(map(demo.token_bytes, ids)).decode() == text
    assert demo.count(text) == len(ids)


def test_special_tokens_have_a_text_only_where_it_is_wanted(demo):
    (token,) = (one for one, text in demo.facts(FACTS).special_tokens.items() if b"im_end" in text)
    assert demo.token_bytes(token) == b""
    assert demo.token_bytes(token, shows_special=True) == b"<|im_end|>"


def test_a_prompt_gets_what_the_context_leaves(demo):
    count = demo.count("Hello, world!")
    assert admitted(demo, request("Hello, world!")) == (count, 4096 - count)
    assert admitted(demo, request("Hello, world!", max_tokens=7)) == (count, 7)
    assert admitted(demo, request("Hello, world!", token_cap=9)) == (count, 9)
    assert admitted(demo, request("word " * 20_000, context=10**6))[0] == demo.count(
        "word " * 20_000
    )


def test_what_does_not_fit_is_refused(demo):
    error = refused(demo, request("Hello, world! " * 100, context=50))
    assert (error.code, error.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "prompt")
    error = refused(demo, request("word " * 400_000, context=50))
    assert "more than 50" in error.message
    error = refused(demo, request("Hello", context=50, max_tokens=60))
    assert (error.code, error.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "max_tokens")
    assert "50 tokens" in error.message
    assert refused(demo, request("Hello, world!", prompt_cap=1)).param == "prompt"
    assert refused(demo, request("")).code is ErrorCode.INVALID_PARAMETER


def test_ids_are_sent_as_the_text_that_has_them(demo):
    ids = ids_of(demo, request("Hello, world!"))
    assert demo.as_text(request(ids=ids)) == "Hello, world!"
    split = tuple(one for char in "Hello" for one in ids_of(demo, request(char)))
    assert refused(demo, request(ids=split)).param == "prompt"


def test_the_templates_bos_is_not_sent_to_an_engine_that_adds_its_own(with_bos):
    chat = request(f"{BOS}Hello", add_special_tokens=False)
    assert with_bos.as_text(chat) == "Hello"
    assert with_bos.as_text(request("Hello")) == "Hello"
    ids = ids_of(with_bos, chat)
    assert ids == ids_of(with_bos, request("Hello"))
    assert with_bos.as_text(request(ids=ids)) == "Hello"


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_without_a_tokenizer_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(BuildError, match=r"tokenizer\.json"):
        LocalTokenizer(tmp_path)


def test_an_adopted_folder_says_how_answers_are_read(tmp_path):
    shutil.copy(DEMO / "tokenizer.json", tmp_path)
    assert LocalTokenizer(tmp_path).facts(FACTS).response_template is None
    (tmp_path / "tokenizer_config.json").write_text('{"response_template": {"fields": {"é": 1}}}')
    found = LocalTokenizer(tmp_path).facts(FACTS).response_template
    assert json.loads(found) == {"fields": {"é": 1}}


def test_the_chat_template_may_be_beside_the_processor_of_images(tmp_path):
    shutil.copy(DEMO / "tokenizer.json", tmp_path)
    template = "{% for c in messages[0].content %}{{ c.type }}{% endfor %}"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert LocalTokenizer(tmp_path).facts(FACTS).chat_template == template


# The parts that an engine has made an answer of, and what of them a text has.
PARTS = [
    (" story", " story"),
    ("", ""),
    (" story about a small shop", " story about a small shop"),
    (" |sto|ry", " "),  # no text is cut there
    (" story| |th|e", " story"),
    (" é", " é"),
    ("<|im_end|>\n<|im_start|>user\nNo", "<|im_end|>\n<|im_start|>user\nNo"),
]


@pytest.mark.parametrize("shows_specials", [False, True])
@pytest.mark.parametrize("hidden", [0, 1])
@pytest.mark.parametrize(("parts", "text"), PARTS)
def test_what_a_text_has_of_an_answer(demo, parts, text, hidden, shows_specials):
    """hidden: bytes at the end of the answer, of a token that shows no text yet."""
    given = [parts] if parts.startswith("<|") else parts.split("|")
    ids = [one for part in given for one in demo._ids(part)]
    asked = request("Tell me a", shows_specials=shows_specials)
    shown = demo._shown(ids, specials=shows_specials)
    cut = [*ids, *demo._ids("é")[:hidden]]
    kept = demo.kept(asked, cut, shown)
    assert kept.text == text
    assert kept.tokens <= len(ids)
    assert demo._ids("Tell me a" + text) == [*demo._ids("Tell me a"), *ids[: kept.tokens]]
    assert demo._shown(ids[: kept.tokens], specials=shows_specials) + kept.again == shown


def test_what_the_reader_has_otherwise_is_generated_again(demo):
    ids = demo._ids(" a story")
    assert demo.kept(request("Tell me"), ids, b"a story") == Kept("", 0, b"a story")


# What is asked of the prompt's answer, and which tokens are left where the reader has some.
ROOM = [
    ({"max_tokens": 50, "least": 45, "said": " story", "said_tokens": 3}, (47, 45)),
    ({"max_tokens": 50, "least": None, "said": " story", "said_tokens": 1}, (49, None)),
    ({"max_tokens": 7, "least": 7, "said": " story", "said_tokens": 1, "context": 10}, (5, 5)),
    ({"least": 4096, "context": 10}, (7, 7)),
]


@pytest.mark.parametrize(("asked", "left"), ROOM)
def test_the_tokens_that_are_left_fit_into_the_context_and_are_no_fewer_than_the_least(asked, left):
    fields = {**asked}
    sampling = Sampling(min_tokens=fields.pop("least"))
    made = replace(request("Tell me a", **fields), sampling=sampling)
    adopted = Adopted(
        kind=Kind.VLLM,
        inputs={},
        outputs={},
        has_batches=False,
        is_decoupled=True,
        tokenizer=str(DEMO),
    )
    facts = replace(made.model.facts, adopted=adopted)
    sent, count = asyncio.run(as_text(replace(made, model=replace(made.model, facts=facts))))
    assert sent.text == "Tell me a" + fields.get("said", "")
    assert (sent.max_tokens, sent.sampling.min_tokens, count) == (*left, 3)
