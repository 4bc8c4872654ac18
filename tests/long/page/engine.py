"""An engine whose answers show what the page can show, by a word of the last message."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import replace

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import CAPABILITIES, LoadedModel
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine

TEMPLATE = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content or [] %}"
    "{{ '<img>' if c.type == 'image' else c.text }}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <tool_call> <think> #}"
)
HOSTILE = "<script>alert('model')</script>"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
THOUGHTS = (
    "<think>\nThe guest asks for 17 times 23. 17 times 20 is 340, and 17 times 3 is 51. "
    "Together that is 391.\n</think>\n\n17 times 23 is 391."
)
STORY = (
    "Once upon a time there was a small shop at the end of a long street. Every morning the owner "
    "opened the door, put the bread on the shelf and waited for the first guest.\n\nOne day a girl "
    "came in and asked for a loaf that tastes of summer. The owner thought for a while, smiled, "
    "and went to the oven."
)
CODE = """A warm-up is one request before the first guest:

```python
import httpx

def warm_up(url: str, model: str) -> float:
    body = {"model": model, "prompt": "Hi", "max_tokens": 1}
    return httpx.post(f"{url}/v1/completions", json=body).elapsed.total_seconds()
```

1. Call it after each load.
2. Route traffic **when it returns**: see [the manual](https://example.com/warm-up).
   - `POST /admin/v1/models/{model}/load` waits for it.

| model | cold | warm |
|:--|--:|--:|
| llama-3.1-8b | 2.4 s | 31 ms |
| qwen3-8b | 1.9 s | 28 ms |
"""
# What a model must not be able to do to the page; harmless where it is text.
MARKUP = """# <b>Heading</b>

![a picture](https://images.invalid/1.png) <img src="https://images.invalid/2.png"> <u>under</u>

<script>window.wasRun = 1</script>

<iframe src="https://frames.invalid/"></iframe>

[a](javascript:window.wasRun=1) [b](data:text/html,x) [c](/admin/v1/keys) [d](https://example.com/?a=1&b=2)

| <i>a</i> | b |
|--|--|
| <u>c</u> | &lt;d&gt; |
"""
DEEP = "\n".join(f"{'  ' * depth}- level {depth}" for depth in range(200))
BROAD = "".join(f"- **item {number}** of a list\n" for number in range(600))  # 4,000 tokens
MARKDOWN = {"warm": CODE, "markup": MARKUP, "nested": DEEP, "broad": BROAD}
LONG = "".join(f"Line {number:05d} of a long answer, so that it grows.\n" for number in range(1064))


class PageEngine(ScriptedEngine):
    """step_s: from one token to the next."""

    def __init__(self, *, step_s: float = 0.0) -> None:
        super().__init__()
        self.step_s = step_s
        self.running = self.closed = 0

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        self.requests.append(request)
        asked = (request.text or "").rpartition("[user]")[2].partition("[assistant]")[0]
        self.running += 1
        is_done = False
        try:
            await asyncio.sleep(self.step_s)
            async for delta in self._answer(asked, request):
                yield delta
            is_done = True
        finally:
            self.running -= 1
            self.closed += not is_done

    async def _answer(self, asked: str, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        step_s, words = self.step_s, _words(f"You said: {asked}")
        if "[tool]" in (request.text or ""):
            words = _words("It is 21 degrees and sunny in Paris.")
        elif "weather" in asked:
            words = _words(CALL)
        elif text := next((text for word, text in MARKDOWN.items() if word in asked), None):
            words = [text[at : at + 6] for at in range(0, len(text), 6)]
            step_s = min(step_s, 0.001)
        elif "17" in asked:
            words = _words(THOUGHTS)
        elif "story" in asked:
            words = _words(STORY)
        elif "long" in asked:
            words, step_s = [LONG[at : at + 25] for at in range(0, len(LONG), 25)], 0.001
        elif "endless" in asked:
            words, step_s = ["on and "] * 100_000, 0.02
        for place, word in enumerate(words):
            await asyncio.sleep(step_s)
            head = {"prompt_tokens": 21, "cached_tokens": 16} if place == 0 else {}
            log_probs = (
                (_log_prob(place, word),) if request.sampling.top_log_probs is not None else ()
            )
            yield TokenDelta((word.encode(),), log_probs=log_probs, **head)
            if "fail" in asked and place == 2:
                raise ModelUnavailable("The engine of this model has stopped.", detail="killed")
        yield TokenDelta((b"",), finish=FinishReason.STOP)


def _words(text: str) -> list[str]:
    """Tokens, each with the space before it."""
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]


def _log_prob(place: int, word: str) -> TokenLogProb:
    share = (0.97, 0.71, 0.93, 0.42, 0.99, 0.18, 0.88, 0.06)[place % 8]
    rest = (1 - share) / 2
    names = (word, " some", " other")
    chances = zip(names, (share, rest, rest / 2), strict=True)
    top = tuple(Alternative(name.encode(), math.log(chance)) for name, chance in chances)
    return TokenLogProb(math.log(share), top)


class PageCatalog(FixedCatalog):
    """Models with these names; by default the name of one is hostile."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names or ("demo", HOSTILE)

    async def load(self) -> tuple[LoadedModel, ...]:
        facts = replace(FACTS, chat_template=TEMPLATE, context_length=200_000)
        return tuple(
            LoadedModel(name=name, facts=facts, capabilities=CAPABILITIES) for name in self._names
        )
