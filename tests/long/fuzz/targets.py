"""What must hold of every text and every way of cutting it.

Run by test_parsers, and by make fuzz for longer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from hypothesis import strategies as st

from proxy.domain.events import AnyDelta, ReasoningDelta
from proxy.generation.choice.answer_text import TextDecoder
from proxy.language.syntax.families import REASONING_FAMILIES as REASONING
from proxy.language.syntax.families import TOOL_FAMILIES as TOOLS
from proxy.language.syntax.output_parser import OutputParser
from proxy.language.syntax.stop_matcher import StopMatcher
from tests.long.fuzz.texts import SCHEMAS, THOUGHT, reasoning_marks, samples, texts, tool_marks
from tests.strategies import cuts
from tests.unit.language.syntax.folding import Answer, answered, parser_of

Target = Callable[[st.DataObject], None]

SMALL, LARGE = 1_024, 262_144  # characters
SLOWER_AT_MOST = 4.0  # per character; a quadratic parser is 256 times slower


def tool_family(family: str) -> Target:
    def holds(data: st.DataObject) -> None:
        text = data.draw(texts(tool_marks(family), samples(family)), "text")
        whole = answered(parser_of(family, SCHEMAS), [text])
        _check_calls(whole)
        marks = TOOLS[family].control_marks()
        if not whole.names and not any(mark in text for mark in marks):
            assert whole.text == text
        for pieces in (data.draw(cuts(text), "pieces"), list(text)):
            assert answered(parser_of(family, SCHEMAS), pieces) == whole

    return holds


def reasoning_family(family: str) -> Target:
    def holds(data: st.DataObject) -> None:
        marks = reasoning_marks(family)
        text = data.draw(texts([*marks, "<tool_call>", " \n"], [THOUGHT.join(marks)]), "text")
        is_inside = data.draw(st.booleans(), "is_inside")

        def read(pieces: Sequence[str]) -> tuple[str, str]:
            kind = REASONING[family]
            parser = kind(is_inside=is_inside, tool_starts=["<tool_call>"])
            thought, answer = _folded(_pushed(parser.push, parser.flush, pieces))
            return thought, answer.text

        whole = read([text])
        if not whole[0] and not any(mark in text for mark in marks) and not is_inside:
            assert whole[1] == text
        for pieces in (data.draw(cuts(text), "pieces"), list(text)):
            assert read(pieces) == whole

    return holds


def chain(data: st.DataObject) -> None:
    """Reasoning and tools of any two families, all calls or the first one."""
    reasoning = data.draw(st.sampled_from(sorted(REASONING)), "reasoning")
    tools = data.draw(st.sampled_from(sorted(TOOLS)), "tools")
    most = data.draw(st.sampled_from([None, 1, 2]), "most_calls")
    has_ended = data.draw(st.booleans(), "has_ended")
    is_inside = data.draw(st.booleans(), "is_inside")
    marks = [*tool_marks(tools), *reasoning_marks(reasoning)]
    text = data.draw(texts(marks, samples(tools)), "text")

    def read(pieces: Sequence[str]) -> tuple[str, Answer]:
        thinker = REASONING[reasoning](is_inside=is_inside, tool_starts=TOOLS[tools].clear_starts())
        caller = parser_of(tools, SCHEMAS)
        parser = OutputParser(thinker, caller, most_calls=most)
        wanted = (piece for piece in pieces if not parser.has_all)
        flush = partial(parser.flush, has_ended=has_ended)
        thought, answer = _folded(_pushed(parser.push, flush, wanted))
        answer.is_cut = caller.is_cut and not parser.has_all
        answer.ids.clear()  # random for the calls of a thought that never ends
        return thought, answer

    whole = read([text])
    _check_calls(whole[1])
    assert most is None or len(whole[1].names) <= most
    for pieces in (data.draw(cuts(text), "pieces"), list(text)):
        assert read(pieces) == whole


def text_decoder(data: st.DataObject) -> None:
    """The sum is the decoded whole."""
    given = data.draw(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), "bytes")
    strips = data.draw(st.booleans(), "strips_leading_space")
    decoder = TextDecoder(strips_leading_space=strips)
    parts = [decoder.push(piece) for piece in data.draw(cuts(given), "pieces")]
    wanted = given.decode(errors="replace")
    assert "".join(parts) + decoder.flush() == (wanted.removeprefix(" ") if strips else wanted)


def stop_matcher(data: st.DataObject) -> None:
    """The text ends where a search through the whole says it does."""
    letters = st.text("ab\u00e9", max_size=60)
    text = data.draw(letters, "text")
    stops = data.draw(st.lists(st.text("ab\u00e9", max_size=4), max_size=4), "stops")
    includes = data.draw(st.booleans(), "includes_stop")
    matcher = StopMatcher(stops, includes_stop=includes)
    passed = "".join(matcher.push(piece) for piece in data.draw(cuts(text), "pieces"))
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop]
    found = [ends for ends in found if ends[1] >= 0]
    end = min(found)[0 if includes else 1] if found else len(text)
    assert passed + matcher.flush() == text[:end]
    assert (matcher.stop is not None) == bool(found)


def cost(data: st.DataObject) -> None:
    """CPU per character is the same for a short text and a long one, whatever is in it."""
    family = data.draw(st.sampled_from(sorted(TOOLS)), "tools")
    reasoning = data.draw(st.sampled_from(sorted(REASONING)), "reasoning")
    marks = [*tool_marks(family), *reasoning_marks(reasoning)]
    start = data.draw(texts(marks, samples(family)), "start")[:200]
    unit = data.draw(texts(marks, samples(family)).filter(bool), "unit")[:60]
    size = data.draw(st.sampled_from([7, 64, LARGE]), "piece size")

    def spent(length: int) -> float:
        """Seconds of CPU per character."""
        text = (start + unit * (length // len(unit)))[:length]
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        starts = TOOLS[family].clear_starts()
        thinker = REASONING[reasoning](tool_starts=starts)
        parser = OutputParser(thinker, parser_of(family, SCHEMAS))
        began = time.process_time()
        for _ in _pushed(parser.push, parser.flush, pieces):
            pass
        return (time.process_time() - began) / length

    short = min(spent(SMALL) for _ in range(5))
    # a noisy machine is slow once, a quadratic parser each time
    assert any(spent(LARGE) <= SLOWER_AT_MOST * short for _ in range(3))


def every_target() -> dict[str, Target]:
    return {
        **{f"tools {family}": tool_family(family) for family in sorted(TOOLS)},
        **{f"reasoning {family}": reasoning_family(family) for family in sorted(REASONING)},
        "chain": chain,
        "text": text_decoder,
        "stops": stop_matcher,
        "cost": cost,
    }


def _pushed(
    push: Callable[[str], Iterable[AnyDelta]],
    flush: Callable[[], Iterable[AnyDelta]],
    pieces: Iterable[str],
) -> Iterator[AnyDelta]:
    for piece in pieces:
        yield from push(piece)
    yield from flush()


def _folded(events: Iterable[AnyDelta]) -> tuple[str, Answer]:
    thought, answer = "", Answer()
    for event in events:
        if isinstance(event, ReasoningDelta):
            thought += event.text
        else:
            answer.add(event)
    return thought, answer


def _check_calls(answer: Answer) -> None:
    """Whole calls have JSON objects; only the last may be cut off."""
    finished = answer.arguments[:-1] if answer.is_cut else answer.arguments
    for arguments in finished:
        assert isinstance(json.loads(arguments), dict), arguments
