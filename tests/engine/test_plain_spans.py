"""Added tokens that a prompt's spans spell stay plain text, with every kind of tokenizer."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from plain_spans import PlainSpans, one_of
from prompt_encoder import PromptTruncation
from proxy.language.prompting.control_tokens import one_of as proxys_one_of
from refusal import Refusal
from tests.fixtures import phi_folder, random_model
from tests.fixtures.examples import examples

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "demo_model" / "shipped" / "tokenizer.json"


def demo() -> Tokenizer:
    """Byte-level, as Qwen's: special tokens, and marks that are not."""
    return Tokenizer.from_file(str(DEMO))


def byte_level() -> Tokenizer:
    return random_model.byte_level_tokenizer().backend_tokenizer


def sentencepiece() -> Tokenizer:
    """As Llama 2's: a space before each piece between special tokens."""
    return random_model.sentencepiece_tokenizer().backend_tokenizer


def phi() -> Tokenizer:
    """The same; special tokens take the white space behind them."""
    return phi_folder.tokenizer().backend_tokenizer


def unigram() -> Tokenizer:
    """Whose model makes a special token of plain letters, since it is in the vocabulary."""
    letters = [(letter, -2.0) for letter in "abcdefghijklmnopqrstuvwxyz<>/▁|{}"]
    special = ["<unk>", "<s>", "</s>"]
    made = Tokenizer(models.Unigram([(one, 0.0) for one in special] + letters, 0))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.add_special_tokens(special)
    return made


def gapped() -> Tokenizer:
    """Ids beyond the number of tokens."""
    saved = json.loads(byte_level().to_str())
    saved["model"]["vocab"]["zz"] = 700
    return Tokenizer.from_str(json.dumps(saved))


KINDS = [demo, byte_level, sentencepiece, phi, unigram, gapped]


@lru_cache
def made(kind) -> tuple[Tokenizer, PlainSpans]:
    tokenizer = kind()
    return tokenizer, PlainSpans(tokenizer)


@lru_cache
def untouched(kind) -> Tokenizer:
    return kind()


def added(tokenizer: Tokenizer) -> list[str]:
    known = untouched_added(tokenizer)
    return sorted(known)


def untouched_added(tokenizer: Tokenizer) -> set[str]:
    return {
        one.content
        for one in tokenizer.get_added_tokens_decoder().values()
        if one.content.isascii() and one.content != "<unk>"
    }


def encoded(kind, pieces: list[tuple[str, bool]], **options) -> list[int]:
    """pieces: texts, and whether they are callers'."""
    tokenizer, spans = made(kind)
    found, at = [], 0
    for text, is_callers in pieces:
        if is_callers and text:
            found += [at, at + len(text)]
        at += len(text)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return spans.encode("".join(text for text, _ in pieces), found, encode, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_span_spells_is_plain_text_and_the_rest_is_special(kind):
    tokens = sorted(untouched_added(untouched(kind)))
    for token in tokens:
        other = tokens[0] if token != tokens[0] else tokens[-1]
        pieces = [(other, False), ("a", True), (token, True), ("b", True), (other, False)]
        ids = encoded(kind, pieces)
        original = untouched(kind)
        real, plain = original.token_to_id(other), original.token_to_id(token)
        assert (ids[0], ids[-1]) == (real, real)
        assert plain not in ids[1:-1]
        inner = original.decode(ids[1:-1], skip_special_tokens=False)
        assert inner.lstrip() == f"a{token}b"


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_any_mix_has_the_ids_of_its_text_without_that_token_in_the_vocabulary(kind):
    """Real tokens come as ever, in their order; between them the text is what was written."""
    original = untouched(kind)
    tokens = sorted(untouched_added(original))
    special = {original.token_to_id(token): token for token in tokens}
    piece = st.tuples(st.sampled_from([*tokens, "ab", " a", "hi ", "<", "|"]), st.booleans())

    @settings(max_examples=examples(150))
    @given(st.lists(piece, min_size=1, max_size=8))
    def holds(pieces: list[tuple[str, bool]]) -> None:
        pieces = [(text, is_callers and text in tokens) for text, is_callers in pieces]
        pieces = [part for each in pieces for part in (each, ("a", False))]
        ids = encoded(kind, pieces)
        expected = [text for text, is_callers in pieces if not is_callers and text in tokens]
        assert [special[token] for token in ids if token in special] == expected
        decoded = original.decode(ids, skip_special_tokens=False)
        assert "".join(decoded.split()) == "".join("".join(text for text, _ in pieces).split())
        assert max(ids) <= max(original.get_vocab().values())

    holds()


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_all_other_texts_keep_their_ids(kind):
    """With a tokenizer that has encoded spans before."""
    encoded(kind, [(token, bool(at % 2)) for at, token in enumerate(added(untouched(kind)) * 2)])
    tokenizer, spans = made(kind)
    words = st.sampled_from([*added(untouched(kind)), "ab", " ", "\n", "héllo"])
    texts = st.one_of(st.text(), st.lists(words).map("".join))

    @settings(max_examples=examples(200))
    @given(texts)
    def holds(text: str) -> None:
        for special in (False, True):
            before = untouched(kind).encode(text, add_special_tokens=special).ids
            assert tokenizer.encode(text, add_special_tokens=special).ids == before
        plain = spans.encode(text, [], lambda text: tokenizer.encode(text).ids)
        if not any(token in text for token in added(untouched(kind))):
            assert plain == untouched(kind).encode(text).ids

    holds()


def test_the_ids_are_those_of_a_tokenizer_that_does_not_know_the_token():
    saved = json.loads(DEMO.read_text())
    saved["added_tokens"] = [
        one for one in saved["added_tokens"] if "tool_call" not in one["content"]
    ]
    without = Tokenizer.from_str(json.dumps(saved))
    pieces = [("<|im_start|>user\nCall <tool_call>", False), ("</tool_call>", True), ("!", False)]
    pieces[0:1] = [("<|im_start|>user\nCall ", False), ("<tool_call>", True)]
    text = "".join(text for text, _ in pieces)
    assert encoded(demo, pieces) == without.encode(text, add_special_tokens=False).ids


def test_a_token_of_the_tokenizers_own_frame_stays():
    tokenizer = unigram()
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", bos + 1)]
    )
    spans = PlainSpans(tokenizer)
    assert spans.frame == (1, 1)
    ids = spans.encode("a<s>", [1, 4], lambda text: tokenizer.encode(text).ids, spans.frame)
    assert (ids[0], ids[-1]) == (bos, bos + 1)
    assert bos not in ids[1:-1]


@pytest.mark.parametrize("keeps_start", [True, False])
def test_a_cut_prompt_has_the_ids_that_a_cut_of_all_its_ids_has(keeps_start):
    tokenizer, spans = made(demo)
    text = "<|im_start|>user\n<|im_end|> one two<|im_end|>\n" * 300
    starts = [at for at in range(len(text)) if text.startswith("<|im_end|> one", at)]
    numbers = [number for at in starts for number in (at, at + len("<|im_end|>"))]
    whole = spans.encode(text, numbers, lambda text: tokenizer.encode(text).ids)
    truncation = PromptTruncation(tokens=100, keeps_start=keeps_start)
    kept = spans.encode(
        text, numbers, lambda text: truncation.of_text(tokenizer, text, add_special_tokens=False)
    )
    assert kept == (whole[:100] if keeps_start else whole[-100:])


def test_a_word_only_token_is_real_where_the_library_finds_it():
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("[w]", single_word=True, normalized=False)])
    spans, text = PlainSpans(tokenizer), "[w] a[w]b <|end|>"
    at = text.index("<|end|>")
    ids = spans.encode(text, [at, len(text)], lambda text: tokenizer.encode(text).ids)
    assert ids.count(tokenizer.token_to_id("[w]")) == 1
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_tokenizer_that_has_no_other_way_to_write_a_token_refuses_it():
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("a", -1.0)], 0))
    tokenizer.add_special_tokens(["<unk>", "<s>"])
    with pytest.raises(Refusal, match="only as its control token"):
        PlainSpans(tokenizer).encode("a<s>", [1, 4], lambda text: tokenizer.encode(text).ids)


@pytest.mark.parametrize("numbers", [[1], [2, 1], [-1, 2], [0, 5], [0, 2, 1, 3]])
def test_wrong_spans_are_refused(numbers):
    tokenizer, spans = made(demo)
    with pytest.raises(Refusal) as refusal:
        spans.encode("abcd", numbers, lambda text: tokenizer.encode(text).ids)
    assert refusal.value.param == "plain_spans"


def test_the_cost_grows_with_the_text_alone():
    """In calls of the library, and characters: 20,000 spans in one encoding."""
    _, spans = made(demo)
    seen = []

    def encode(text: str) -> list[int]:
        seen.append(len(text))
        return []

    text = "<|im_end|>" * 20_000
    numbers = [number for at in range(20_000) for number in (10 * at, 10 * at + 10)]
    spans.encode(text, numbers, encode)
    assert seen == [len(text)]


@given(st.lists(st.text(alphabet="<|ab>.*", max_size=6), max_size=12))
def test_the_proxy_and_the_tokenizer_find_tokens_alike(words):
    assert one_of(words) == proxys_one_of(words)
