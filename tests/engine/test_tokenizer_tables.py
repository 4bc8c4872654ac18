"""Token bytes joined by the proxy are the tokenizer's own decode, for both kinds of vocabulary."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from build_engines.errors import BuildError
from build_engines.facts import Facts
from build_engines.tokenizer_tables import (
    NO_TEXT,
    chat_templates,
    check,
    guide_info,
    infilling,
    response_template,
    strips_leading_space,
    token_bytes,
)
from proxy.generation.choice.answer_text import TextDecoder
from proxy.language.syntax.response_template import Refused, described
from tests.fixtures.examples import examples
from tests.fixtures.random_model import byte_level_tokenizer, sentencepiece_tokenizer


@pytest.fixture(scope="module", params=[byte_level_tokenizer, sentencepiece_tokenizer])
def tokenizer(request):
    return request.param()


@pytest.fixture(scope="module")
def table(tokenizer) -> list[bytes]:
    return token_bytes(tokenizer, vocab_size=len(tokenizer) + 7)


def streamed(tokenizer, table: list[bytes], ids: list[int]) -> str:
    """Token by token, as a stream is decoded."""
    strips = strips_leading_space(tokenizer.backend_tokenizer, table)
    decoder = TextDecoder(strips_leading_space=strips)
    return "".join([*(decoder.push(table[token]) for token in ids), decoder.flush()])


def test_every_token_passes_the_builds_own_check(tokenizer, table):
    backend = tokenizer.backend_tokenizer
    strips = strips_leading_space(backend, table)
    assert strips is (tokenizer.bos_token == "<s>")
    check(backend, table, strips=strips)
    broken = [value + b"?" if value == max(table, key=len) else value for value in table]
    with pytest.raises(BuildError, match=r"its bytes say .*\?"):
        check(backend, broken, strips=strips)


@pytest.mark.hypothesis
def test_any_text_comes_back_token_by_token(tokenizer, table):
    @settings(max_examples=examples(300))
    @given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")))
    def comes_back(text: str) -> None:
        backend = tokenizer.backend_tokenizer
        ids = backend.encode(text, add_special_tokens=False).ids
        assert streamed(tokenizer, table, ids) == backend.decode(ids) == text

    comes_back()


def test_special_and_unknown_ids_have_no_bytes(tokenizer, table):
    special = tokenizer.eos_token_id
    assert table[special] == b""
    assert table[len(tokenizer) :] == [b""] * 7


def test_what_guides_need_survives_the_file(tokenizer, table):
    from xgrammar import TokenizerInfo

    width = len(tokenizer) + 3  # of the logits: the table may have more
    ends = (1, tokenizer.eos_token_id)
    info = TokenizerInfo.deserialize_json(
        guide_info(table, vocab_size=width, end_ids=ends, special={})
    )
    assert info.vocab_size == width
    for value, kept in zip(table[:width], info.decoded_vocab, strict=True):
        assert kept == value or (b"\0" in value and kept == NO_TEXT), "older xgrammars"
    assert info.stop_token_ids == sorted(ends)
    silent = {token_id for token_id, value in enumerate(table[:width]) if not value}
    assert silent == {*info.special_token_ids, *ends}


ZEROS = (b"\0", b"a\0b", b"\0\0", b"\0\xff")


def test_tokens_with_zero_bytes_are_whole_and_no_guide_takes_them_for_their_beginning(tokenizer):
    """xgrammar 0.1 ends a token at its first zero byte, and 0.2.3 where it reads its own file."""
    from xgrammar import TokenizerInfo

    saved = json.loads(tokenizer.backend_tokenizer.to_str())
    is_byte_level = tokenizer.bos_token != "<s>"
    spelled = {"\0": "\u0100", "\xff": "\u00ff"} if is_byte_level else {}
    texts = [value.decode("latin-1") for value in (ZEROS if is_byte_level else ZEROS[1:3])]
    first = max(saved["model"]["vocab"].values()) + 1
    for number, text in enumerate(texts):
        name = "".join(spelled.get(each, each) for each in text)
        saved["model"]["vocab"].setdefault(name, first + number)
    backend = Tokenizer.from_str(json.dumps(saved))
    made = type(tokenizer)(tokenizer_object=backend, eos_token=tokenizer.eos_token)
    table = token_bytes(made, vocab_size=10)
    assert {text.encode("latin-1") for text in texts} < set(table)
    guides = guide_info(table, vocab_size=len(table), end_ids=(), special={})
    kept = TokenizerInfo.deserialize_json(guides).decoded_vocab
    for value, found in zip(table, kept, strict=True):
        assert found in ((value, NO_TEXT) if b"\0" in value else (value,))


def test_an_id_beyond_the_number_of_tokens_has_its_bytes(tokenizer):
    """A vocabulary with a gap: its greatest id is greater than its size."""
    saved = json.loads(tokenizer.backend_tokenizer.to_str())
    token, before = next((t, i) for t, i in saved["model"]["vocab"].items() if t.endswith("ab"))
    saved["model"]["vocab"][token] = before + 5000
    backend = Tokenizer.from_str(json.dumps(saved))
    gapped = type(tokenizer)(tokenizer_object=backend, eos_token=tokenizer.eos_token)
    table = token_bytes(gapped, vocab_size=10)
    assert table[before + 5000].endswith(b"ab")
    assert table[before] == b""


def test_random_ids_of_whole_characters_are_decodes_own(tokenizer, table):
    backend = tokenizer.backend_tokenizer
    whole = [i for i, value in enumerate(table[: len(tokenizer)]) if value and value[-1] < 0x80]
    whole = [i for i in whole if value_is_text(table[i])]
    random = np.random.default_rng(0)
    for _ in range(300):
        ids = random.choice(whole, 12).tolist()
        assert streamed(tokenizer, table, ids) == backend.decode(ids, skip_special_tokens=True)


def value_is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_tokens_for_filling_in_the_middle_are_found_by_their_names():
    made = byte_level_tokenizer()
    assert infilling(made.backend_tokenizer) is None
    made.add_tokens(["<fim_suffix>", "<fim_prefix>"])
    assert infilling(made.backend_tokenizer) is None, "one is missing"
    made.add_tokens(["<fim_middle>"])
    assert infilling(made.backend_tokenizer) == ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, (None, None)),
        ("", (None, None)),
        ("a", ("a", None)),
        ({"default": "a", "rag": "c"}, ("a", None)),
        ({"default": "a", "tool_use": "b"}, ("a", "b")),
        ({"tool_use": "b"}, (None, "b")),
    ],
)
def test_of_named_templates_two_are_kept(given, found, tmp_path):
    made = byte_level_tokenizer()
    made.chat_template = given
    made.save_pretrained(tmp_path)
    loaded = type(made).from_pretrained(tmp_path)
    assert chat_templates(loaded) == found


RESPONSE = {"start_anchor": "<a>", "fields": {"thinking": {"open": "é", "close": "</a>"}}}


@pytest.mark.parametrize("given", [None, RESPONSE])
def test_the_response_template_becomes_a_parameter(given, tmp_path):
    made = byte_level_tokenizer()
    made.response_template = given
    made.save_pretrained(tmp_path / "weights")
    loaded = type(made).from_pretrained(tmp_path / "weights")
    found = response_template(loaded.response_template)
    assert (found and json.loads(found)) == given
    make_facts = partial(
        Facts,
        context_length=1,
        vocab_size=1,
        end_ids=(),
        chat_template=None,
        bos_token="",
        eos_token="",
        strips_leading_space=False,
        special_tokens={},
        created=1,
        kv_token_bytes=1,
    )
    make_facts(response_template=found).write(tmp_path / "facts.json")
    assert Facts.read(tmp_path / "facts.json").as_parameters().get("response_template") == found


def test_a_response_template_that_is_too_long_or_deep_is_cut():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for one in ({"fields": "x" * 20_000}, deep):
        with pytest.raises(Refused):
            described(response_template(one))
