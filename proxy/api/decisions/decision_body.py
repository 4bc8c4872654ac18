"""The body of POST /v1/decisions, and its answer.

As openai 3.57.0 types them. Each question becomes a chat of its own: the input, then the question
with a label before each option.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from proxy.access.request_size import COPIED_BYTES, exceed
from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import Label, ListOf, RequestBody, text_or_list, type_of
from proxy.api.openai.generation_body import PromptCacheOptions
from proxy.api.openapi.responses import Answer
from proxy.api.responses.conversation import BETWEEN, conversation
from proxy.api.responses.input_items import (
    CallItem,
    Content,
    CustomCallItem,
    InputImage,
    InputText,
    MessageItem,
    OutputItem,
    Part,
)
from proxy.api.responses.tool_bodies import Offer
from proxy.domain.output import Usage
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, PromptBatch, Sampling
from proxy.generation.decisions import TOP, labels_of
from proxy.language.prompting.chat_template import EFFORT, NONE
from proxy.models.registry import ServedModel

MOST_QUESTIONS, MOST_OPTIONS = 400, 255
MOST_LABELS = 4_096  # of all questions of a request together
MOST_COPIES = 16_384  # items x questions: each question is sent with all items
JSON_LEVELS, JSON_VALUES, JSON_BYTES = 32, 10_000, 262_144
_as_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
ONE_LETTER = "Answer with the letter of one option only."
LETTERS = "Answer with the letters of one option only."


def _json_as_text(given: Any) -> Any:
    """Parts of JSON become parts of text, as OpenAI has it."""
    if not isinstance(given, list):
        return given
    return [
        {**part, "type": "input_text", "data": None, "text": _written(part)}
        if isinstance(part, dict) and part.get("type") == "input_json"
        else part
        for part in given
    ]


def _written(part: dict[str, Any]) -> str:
    """Compact JSON of a part's `data`. Raises FieldError: it is no object or objects, over a bound,
    or has a text as well.
    """
    data: Any = part.get("data")
    if part.get("text") is not None:
        raise FieldError(None, "a part of the type 'input_json' has no 'text'")
    rows = data if isinstance(data, list) else [data]
    if not all(isinstance(row, dict) for row in rows):
        raise FieldError(None, "'data' must be a JSON object, or an array of objects")
    level, count = [data], 1
    for _ in range(JSON_LEVELS):
        inner = [
            value for one in level for value in (one.values() if isinstance(one, dict) else one)
        ]
        count += len(inner)
        level = [value for value in inner if isinstance(value, (dict, list))]
        if not level or count > JSON_VALUES:
            break
    is_bounded = not level and count <= JSON_VALUES
    try:
        text = _as_text(data) if is_bounded else ""
    except ValueError:
        raise FieldError(None, "'data' has a number that JSON has not") from None
    if not is_bounded or exceed(JSON_BYTES, [(text, 1)]):
        raise FieldError(
            None,
            f"JSON has at most {JSON_LEVELS} levels, {JSON_VALUES} values and {JSON_BYTES} bytes",
        )
    return text


Words = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[InputText], Tag("<list>")],
    Discriminator(text_or_list),
    BeforeValidator(_json_as_text),
]


class DecisionMessage(MessageItem):
    content: Annotated[Content, BeforeValidator(_json_as_text)]


ITEMS = (
    *("message", "function_call", "custom_tool_call"),
    *("function_call_output", "custom_tool_call_output"),
)
QUESTIONS = ("predicate", "choice", "score")


def _by_type(error_type: str, kinds: Sequence[str], usual: str | None = None) -> Discriminator:
    """Chooses by `type`. usual: where there is none. Tags in angle brackets are no error paths."""

    def tag(given: Any) -> str | None:
        kind = type_of(given) or usual
        return f"<{kind}>" if kind in kinds else None

    return Discriminator(
        tag,
        custom_error_type=error_type,
        custom_error_message=f"must have a 'type' that is one of {', '.join(kinds)}",
    )


DecisionItem = Annotated[
    Annotated[DecisionMessage, Tag("<message>")]
    | Annotated[CallItem, Tag("<function_call>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[OutputItem, Tag("<function_call_output>")]
    | Annotated[OutputItem, Tag("<custom_tool_call_output>")],
    _by_type("input_item_type", ITEMS, usual="message"),
]
Input = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[ListOf[DecisionItem], Tag("<list>"), Field(min_length=1)],
    Discriminator(text_or_list),
]


class _Question(RequestBody):
    """instructions: what is asked, or a statement that is true or false."""

    instructions: Words
    name: str | None = None

    @property
    @abstractmethod
    def options(self) -> list[tuple[str, str | None]]:
        """In the order of the labels; each with its description."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of options."""

    @abstractmethod
    def answer(self, chances: Sequence[float]) -> dict[str, Any]:
        """chances: of the options."""

    @property
    def _asked(self) -> str:
        words = self.instructions
        return words if isinstance(words, str) else "".join(part.text for part in words)

    def text(self) -> str:
        """As the model reads it."""
        options = self.options
        labels = labels_of(len(options))
        lines = [
            f"{label}: {option} - {description}" if description else f"{label}: {option}"
            for label, (option, description) in zip(labels, options, strict=True)
        ]
        end = ONE_LETTER if len(labels[0]) == 1 else LETTERS
        return "\n".join((f"Question: {self._asked}", *lines, end))


class PredicateQuestion(_Question):
    type: Literal["predicate"]

    @property
    def options(self) -> list[tuple[str, str | None]]:
        return [("true", None), ("false", None)]

    @property
    def count(self) -> int:
        return 2

    def answer(self, chances: Sequence[float]) -> dict[str, Any]:
        return {"type": "predicate", "name": self.name, "probability": chances[0]}

    @property
    def _asked(self) -> str:
        return f"Is this statement true or false?\n{super()._asked}"


class Choice(RequestBody):
    value: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[bool, Tag("<flag>")],
        Discriminator(lambda given: "<flag>" if isinstance(given, bool) else "<text>"),
    ]
    description: str | None = None


class ChoiceQuestion(_Question):
    type: Literal["choice"]
    choices: Annotated[ListOf[Choice], Field(min_length=2, max_length=MOST_OPTIONS)]

    @property
    def values(self) -> list[str]:
        """As JSON, since true and "true" are two."""
        return [_as_text(one.value) for one in self.choices]

    @property
    def count(self) -> int:
        return len(self.choices)

    @property
    def options(self) -> list[tuple[str, str | None]]:
        told = [one.description for one in self.choices]
        return [*zip(self.values, told, strict=True)]

    def answer(self, chances: Sequence[float]) -> dict[str, Any]:
        best = max(range(len(chances)), key=chances.__getitem__)
        return {
            "type": "choice",
            "name": self.name,
            "choice": self.choices[best].value,
            "confidence": chances[best],
            "probabilities": [
                {"value": one.value, "probability": chance}
                for one, chance in zip(self.choices, chances, strict=True)
            ],
        }


class Level(RequestBody):
    label: str
    description: str | None = None


class ScoreQuestion(_Question):
    type: Literal["score"]
    levels: Annotated[ListOf[Level], Field(min_length=2, max_length=MOST_OPTIONS)]

    @property
    def options(self) -> list[tuple[str, str | None]]:
        return [(one.label, one.description) for one in self.levels]

    @property
    def count(self) -> int:
        return len(self.levels)

    def answer(self, chances: Sequence[float]) -> dict[str, Any]:
        return {
            "type": "score",
            "name": self.name,
            "score": sum(level * chance for level, chance in enumerate(chances)),
            "confidence": max(chances),
            "probabilities": [
                {"value": level, "label": one.label, "probability": chance}
                for level, (one, chance) in enumerate(zip(self.levels, chances, strict=True))
            ],
        }


Question = Annotated[
    Annotated[PredicateQuestion, Tag("<predicate>")]
    | Annotated[ChoiceQuestion, Tag("<choice>")]
    | Annotated[ScoreQuestion, Tag("<score>")],
    _by_type("question_type", QUESTIONS),
]


class DecisionBody(RequestBody):
    """The fields that OpenAI reads for its prompt cache have no effect: prefixes are cached."""

    model: str = Field(description="A public name or alias.")
    input: Input = Field(description="What is asked about: a text, or the items of a conversation.")
    questions: Annotated[ListOf[Question], Field(min_length=1, max_length=MOST_QUESTIONS)] = Field(
        description="Each with two options or more."
    )
    prompt_cache_key: Label | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    safety_identifier: Label | None = Field(None, description="Written to the log.")

    @model_validator(mode="after")
    def _is_bounded(self) -> DecisionBody:
        count, items = len(self.questions), self._items()
        for at, one in enumerate(self.questions):
            if isinstance(one, ChoiceQuestion) and len(set(one.values)) < len(one.choices):
                raise FieldError(f"questions[{at}].choices", "each must have another 'value'")
        if (labels := sum(one.count for one in self.questions)) > MOST_LABELS:
            raise FieldError(
                "questions",
                f"they have {labels} options together, at most {MOST_LABELS} are allowed",
            )
        if exceed(COPIED_BYTES, [(text, count) for text in _texts(items)]):
            raise FieldError(
                "questions",
                f"'input' is sent with each of the {count} questions, and at most {COPIED_BYTES} "
                "bytes are allowed: ask fewer, or shorten it",
            )
        if len(items) * count > MOST_COPIES:
            raise FieldError(
                "questions",
                f"{len(items)} items are sent with each of the {count} questions, and at most "
                f"{MOST_COPIES} are allowed: ask fewer",
            )
        return self

    def _items(self) -> list[DecisionItem]:
        if isinstance(self.input, str):
            return [DecisionMessage(role="user", content=self.input)]
        return self.input

    def options(self) -> list[int]:
        """How many each question has."""
        return [one.count for one in self.questions]

    def names(self) -> dict[str, str]:
        """Prepared field -> the caller's."""
        names = {"messages": "input", "prompt": "input", "choices": "questions"}
        return names | dict.fromkeys(("log_probs", "top_log_probs", "constraint"), "model")

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        """Raises InvalidRequest: a call of the input has no output, or an output no call."""
        messages, images = conversation(None, self._items(), Offer())
        prompts = tuple(
            ChatPrompt(
                messages=_with_question(messages, one.text()),
                images=images,
                template_values={EFFORT: NONE},
            )
            for one in self.questions
        )
        return GenerationRequest(
            caller=caller,
            id=f"decision-{token_hex(16)}",
            model=served.name,
            fallback_from=served.fallback_from,
            prompt=PromptBatch(prompts=prompts),
            sampling=Sampling(temperature=0, top_log_probs=TOP),
            max_tokens=1,
            offers_server_tools=False,
            safety_identifier=self.safety_identifier,
        )

    def answered(
        self, chances: Sequence[Sequence[float]], model: str, usage: Usage
    ) -> dict[str, Any]:
        """The answer's body. chances: of each question's options."""
        answers = [one.answer(each) for one, each in zip(self.questions, chances, strict=True)]
        return {
            "model": model,
            "answers": answers,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": 0,
                },
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            },
        }


def _texts(items: Sequence[DecisionItem]) -> Iterator[str]:
    for item in items:
        match item:
            case CallItem():
                yield from (item.call_id, item.name, item.arguments)
            case CustomCallItem():
                yield from (item.call_id, item.name, item.input)
            case _:
                content = item.content if isinstance(item, MessageItem) else item.output
                parts = [content] if isinstance(content, str) else content
                yield from (_text(part) for part in parts)


def _text(part: str | Part) -> str:
    if isinstance(part, InputImage):
        return part.image_url
    return part if isinstance(part, str) else part.text


def _with_question(messages: tuple[Message, ...], question: str) -> tuple[Message, ...]:
    """In the user's last message, if that is the last of all: templates want turns to alternate."""
    if not messages or messages[-1].role != "user":
        return (*messages, Message(role="user", content=question))
    last, text = messages[-1], f"{BETWEEN}{question}"
    parts = (*last.parts, text) if last.parts else ()
    content = f"{last.content or ''}{text}"
    shown = last.result_images
    own = Message(role="user", content=content, parts=parts, result_images=shown)
    return (*messages[:-1], own)


class DecidedProbability(Answer):
    value: str | bool
    probability: float


class DecidedLevel(Answer):
    value: int = Field(ge=0, description="The level's place in `levels`, from 0 on.")
    label: str
    probability: float


class DecidedPredicate(Answer):
    type: Literal["predicate"]
    name: str | None
    probability: float = Field(description="That it is true.")


class DecidedChoice(Answer):
    type: Literal["choice"]
    name: str | None
    choice: str | bool
    confidence: float = Field(description="The probability of `choice`.")
    probabilities: list[DecidedProbability]


class DecidedScore(Answer):
    type: Literal["score"]
    name: str | None
    score: float = Field(description="The expected level.")
    confidence: float = Field(description="The probability of the likeliest level.")
    probabilities: list[DecidedLevel]


class DecisionInputDetails(Answer):
    cached_tokens: int = Field(ge=0)
    cache_write_tokens: int = Field(ge=0)


class DecisionOutputDetails(Answer):
    reasoning_tokens: int = Field(ge=0)


class DecisionUsage(Answer):
    """Each generated token counts the input."""

    input_tokens: int = Field(ge=0)
    input_tokens_details: DecisionInputDetails
    output_tokens: int = Field(ge=0)
    output_tokens_details: DecisionOutputDetails
    total_tokens: int = Field(ge=0)


class Decision(Answer):
    model: str = Field(examples=["demo"])
    answers: list[DecidedPredicate | DecidedChoice | DecidedScore]
    usage: DecisionUsage
