"""Answers that a JSON schema holds, which the model mostly does not see, and short answers about a text."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo_model.training.assembly import ENUMS, GENERIC_KEYS
from demo_model.training.chat import SLIP, Conversation, Message, assistant, user
from demo_model.training.extraction import KINDS, SENTENCES
from demo_model.training.lexicon import Lexicon
from demo_model.training.questions import question
from demo_model.training.smalltalk import talk, worn
from demo_model.training.toolbox import Tool
from demo_model.training.toolchat import opening, toolset, unfit

# Keys by the kind of their values. `text` is a sentence, which a text in the prompt may have.
KEYS: dict[str, str] = {
    "person": "name full_name author owner customer sender username artist contact",
    "title": "title subject headline product company label brand department",
    "city": "city place location country destination origin capital street venue",
    "word": "topic category kind language genre color material animal symbol model theme keyword",
    "phrase": "note comment task goal role option step ingredient output result",
    "text": "summary reason description answer reply message body explanation content question review plot conclusion thought advice fact",
    "count": "age level score quantity stars rank days minutes guests hours rating size",
    "integer": "id number year population total_count index views width height distance",
    "decimal": "price total amount temperature weight confidence rate latitude speed unit_price",
    "boolean": "done urgent in_stock active valid is_new public available correct has_pets",
    "enum": "status priority sentiment unit type mode level",
    "date": "date day due_date born created_at",
    "time": "time start_time opens",
    "email": "email address",
    "code": "code order_id reference zip sku",
}
# More keys of sentences, see `Habits.has_questions`.
MORE_TEXTS = (
    "setup punchline joke story poem translation rationale explanation_text followup_question followup reasoning argument claim hint"
    " instruction motto headline_text answer_text final_answer outcome observation action next_step feedback quote rule definition"
).split()
UNKNOWN = "word phrase person title text count integer decimal boolean".split()  # of other keys
LISTS: dict[str, str] = {
    "text": "bullets key_points points facts steps sentences findings reasons lines differences events",
    "word": "tags keywords topics colors categories genres words skills things exercises",
    "phrase": "tasks ingredients options items strengths weaknesses goals notes instructions",
    "person": "names people participants members authors characters players",
    "city": "cities places stops countries",
    "integer": "numbers ids values scores results",
}
OBJECTS = "profile details user address stats meta result author data customer owner info".split()
ROWS = "items steps rows people entries results songs tasks days facts products questions".split()

# {n}: a noun, {p} and {q}: names, {c}: a city, {k}: a number, {t}: a time of day or a day
SCENES = (
    "The {n} was {a}.|{p} bought a {n} in {c}.|The {n} opens {t}.|{p} and {q} met in {c}.|People like the {a} {n}.|The {n} costs {k} dollars."
    "|{p} lost the {n} {t}.|The {n} in {c} has {k} rooms.|{p} will repair the {n}.|There were {k} people at the {n}.|Nobody saw the {a} {n}."
    "|{q} wrote to {p} about the {n}.|The team chose a {n}.|{c} plans a new {n}.|The {n} arrived {t}.|It rained in {c} {t}.|{p} won, {q} came second."
    "|The {n} is {a} and the {m} is not.|{p} said that the {n} works well.|I did not like the {n}.|We ordered {k} of them.|{p} works on the {n}."
).split("|")
# The marks whose words are values, and their kinds. A request has the first three.
MARKS = (("n", "word"), ("p", "person"), ("c", "city"), ("q", "person"), ("k", "count"))
SMALL = "the a of to and in is was for with on not has by from at will no all its they it he she".split()
ADJECTIVES = "old new big small cold good bad red slow quiet late cheap broken famous long".split()
WHEN = (
    "today|yesterday|on Monday|on Friday|in March|next week|at noon|in the morning|last year".split(
        "|"
    )
)
ABOUT_TEXT = (
    "Summarize this text: {0}|Summarize: {0}|Summarize the following: {0}|{0} Summarize it.|Give me the key points. {0}|What is this about? {0}"
    "|Read this and answer: {0}|{0}|Classify this: {0}|Is this good or bad? {0}|Write a title for this: {0}|Who is named here? {0}|Shorten this. {0}"
    "|Make bullets of this: {0}|What happened? {0}|Analyze this message: {0}|Extract the facts: {0}|Text: {0}|Tag this text: {0}|Review this: {0}"
).split("|")
ABOUT_NOUN = (
    "Describe a {n}|Give me a {n}|Create a {n}|Invent a {n}|Make a {n} for {p}|Generate a random {n}|Suggest a {n}|Write about a {n}|Plan a {n} in {c}"
    "|Tell me about {c}|What is a {n}?|How do I make a {n}?|List some {n}|Find a {n} near {c}|Compare the {n} and the {m}|Which {n} is best?|Rate the {n}"
    "|Book a {n} for {p}|Write to {p} about the {n}|Name a {n}|Pick one|How many {n} are there?|Explain the {n}|Where is {c}?|What would you do?"
    "|Make a list of {k} things|Who is {p}?|Is the {n} {a}?|Give me an example|Fill in the form for {p} from {c}|Think about the {n} and answer"
).split("|")
CUES = (
    "{0} Answer in JSON.|{0} Reply with JSON only.|{0} Return a JSON object.|{0} Use JSON.|Answer as JSON. {0}|{0}\nJSON:|{0} Respond in JSON format."
    "|Return JSON: {0}"
).split("|")
KEYED = (
    "{0} Use the keys {1}.|{0} Answer as JSON with {1}.|{0} Return JSON with the fields {1}.".split(
        "|"
    )
)
SCHEMAS = (
    "{0}\nAnswer in JSON that follows this schema: {1}|Follow this JSON schema: {1}\n{0}|{0} Schema: {1}|{0}\n\n{1}"
).split("|")
SHORT_ANSWER = 80  # characters
BULLETS = "Summarize this in bullets: {0}|Give me the key points as bullets: {0}|Make a list of this: {0}|List what happened: {0}".split(
    "|"
)
SHORT = "Summarize this text: {0}|Summarize: {0}|Summarize the following: {0}|{0} Summarize it in one sentence.|Summarize in one sentence: {0}|Shorten this: {0}".split(
    "|"
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a prompt says: a request, the sentences of a text, and the values in them, by kind."""

    request: str
    sentences: tuple[str, ...]
    values: dict[str, list[Any]]
    is_any: bool = False  # a question of `questions`

    def drawn(self, lexicon: Lexicon, kind: str) -> Any:
        """A value of the text where it has one of this kind, and mostly a new one otherwise."""
        said = self.sentences if kind == "text" else self.values.get(kind)
        if said and (kind == "text" or lexicon.chance(0.85)):
            return lexicon.rng.choice(said)
        nouns = self.values.get("word")
        if kind == "text":
            return self.clause(lexicon)
        if kind in ("title", "phrase") and nouns and lexicon.chance(0.7):
            noun = str(lexicon.rng.choice(nouns))
            return (
                noun.capitalize() if kind == "title" else f"{lexicon.rng.choice(ADJECTIVES)} {noun}"
            )
        if kind == "boolean":
            return lexicon.chance(0.5)
        if kind == "enum":
            return lexicon.rng.choice(lexicon.rng.choice(ENUMS).split())
        return getattr(lexicon, kind)()

    def clause(self, lexicon: Lexicon) -> str:
        """A sentence about what the request names, without its full stop."""
        given = {mark: self.values[kind][0] for mark, kind in MARKS[:3] if kind in self.values}
        return scene(lexicon, {}, **given).rstrip(".")


def scene(lexicon: Lexicon, values: dict[str, list[Any]], **given: Any) -> str:
    """A sentence; its values are added to those of the text. given: the words for some marks."""
    rng = lexicon.rng
    form = rng.choice(SCENES)
    parts: dict[str, Any] = {
        "n": lexicon.word(), "m": lexicon.word(), "p": lexicon.person(), "q": lexicon.name(), "c": lexicon.city(),
        "k": lexicon.count(), "a": rng.choice(ADJECTIVES), "t": rng.choice(WHEN), **given,
    }  # fmt: skip
    for mark, kind in MARKS:
        if "{" + mark + "}" in form:
            values.setdefault(kind, []).append(parts[mark])
    return form.format(**parts)


def babble(lexicon: Lexicon, values: dict[str, list[Any]]) -> str:
    """Words in any order, which can only be copied."""
    rng = lexicon.rng
    name = lexicon.name()
    values.setdefault("person", []).append(name)
    words = [
        lexicon.word() if lexicon.chance(0.6) else rng.choice(SMALL)
        for _ in range(rng.randint(3, 9))
    ]
    words.insert(rng.randrange(len(words)), name)
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def read_sentence(lexicon: Lexicon, values: dict[str, list[Any]]) -> str:
    """A sentence with fields, as extractions have it."""
    sentence = lexicon.rng.choice(SENTENCES)
    for key, kind in KINDS.items():
        if "{" + key + "}" in sentence:
            value = getattr(lexicon, kind)()
            values.setdefault(kind, []).append(value)
            sentence = sentence.replace("{" + key + "}", str(value))
    return sentence


def text_source(lexicon: Lexicon, forms: list[str]) -> Source:
    values: dict[str, list[Any]] = {}
    sentences = [
        lexicon.rng.choice([scene, scene, babble, babble, read_sentence])(lexicon, values)
        for _ in range(lexicon.rng.choice([1, 2, 2, 3, 3, 4, 5]))
    ]
    text = " ".join(sentences)
    quoted = f'"{text}"' if lexicon.chance(0.1) else text
    return Source(
        lexicon.rng.choice(forms).format(quoted),
        tuple(one.rstrip(".") for one in sentences),
        values,
    )


def plain_source(lexicon: Lexicon) -> Source:
    """A request without a text, or small talk."""
    if lexicon.habits.has_questions and lexicon.chance(0.4):
        return Source(question(lexicon), (), {}, is_any=True)
    if lexicon.chance(0.2):
        asked, answer = talk(lexicon)
        return Source(asked, (answer,) if len(answer) < SHORT_ANSWER else (), {})
    values: dict[str, list[Any]] = {}
    parts = {
        "n": lexicon.word(), "m": lexicon.word(), "p": lexicon.person(), "c": lexicon.city(), "k": lexicon.count(),
        "a": lexicon.rng.choice(ADJECTIVES),
    }  # fmt: skip
    form = lexicon.rng.choice(ABOUT_NOUN)
    for mark, kind in MARKS[:3]:
        if "{" + mark + "}" in form:
            values[kind] = [parts[mark]]
    return Source(worn(lexicon, form.format(**parts)), (), values)


def scalar(lexicon: Lexicon, source: Source) -> tuple[str, Any]:
    """A key and its value; any word may be a key, of any kind."""
    is_known = lexicon.chance(0.8)
    kind = lexicon.rng.choice(list(KEYS) if is_known else UNKNOWN)
    if source.sentences and lexicon.chance(0.3):
        kind = "text"
    more = MORE_TEXTS if kind == "text" and lexicon.habits.has_questions else ()
    keys = [*KEYS[kind].split(), *GENERIC_KEYS.get(kind, ()), *more]
    key = lexicon.rng.choice(keys) if is_known else key_word(lexicon)
    value = source.drawn(lexicon, kind)
    return key, None if lexicon.chance(0.03) else value


def key_word(lexicon: Lexicon) -> str:
    return f"{lexicon.word()}_{lexicon.word()}" if lexicon.chance(0.2) else lexicon.word()


def listed(lexicon: Lexicon, source: Source) -> tuple[str, Any]:
    kind = lexicon.rng.choice(list(LISTS))
    key = lexicon.rng.choice(LISTS[kind].split()) if lexicon.chance(0.7) else key_word(lexicon)
    if kind == "text" and source.sentences and lexicon.chance(0.7):
        return key, list(source.sentences)
    count = lexicon.rng.choice([0, 1, 2, 2, 3, 3, 3, 4])
    items = [source.drawn(lexicon, kind) for _ in range(count)]
    return key, list(dict.fromkeys(items))


def entry(lexicon: Lexicon, source: Source) -> tuple[str, Any]:
    roll = lexicon.rng.random()
    if roll < 0.62:
        return scalar(lexicon, source)
    if roll < 0.85:
        return listed(lexicon, source)
    if roll < 0.93:
        return named(lexicon, OBJECTS), record(lexicon, source, scalar, (1, 3))
    return named(lexicon, ROWS), rows(lexicon, source)


def named(lexicon: Lexicon, keys: list[str]) -> str:
    return lexicon.rng.choice(keys) if lexicon.chance(0.7) else key_word(lexicon)


def rows(lexicon: Lexicon, source: Source) -> list[dict[str, Any]]:
    """Objects of one shape."""
    first = record(lexicon, source, scalar, (1, 3))
    others = [
        {key: alike(lexicon, source, value) for key, value in first.items()}
        for _ in range(lexicon.rng.choice([0, 1, 1, 2]))
    ]
    return [first, *others]


def alike(lexicon: Lexicon, source: Source, value: Any) -> Any:
    """Another value of the same JSON type, and of the same length."""
    if value is None:
        return None
    if isinstance(value, bool):
        return lexicon.chance(0.5)
    if isinstance(value, int):
        return lexicon.count()
    if isinstance(value, float):
        return lexicon.decimal()
    return source.drawn(lexicon, "text" if str(value).count(" ") > 3 else "phrase")


def record(
    lexicon: Lexicon,
    source: Source,
    draw: Callable[[Lexicon, Source], tuple[str, Any]],
    size: tuple[int, int],
) -> dict[str, Any]:
    return dict(draw(lexicon, source) for _ in range(lexicon.rng.randint(*size)))


def schema_of(value: Any) -> dict[str, Any]:
    """A JSON schema that the value conforms to."""
    if isinstance(value, dict):
        properties = {key: schema_of(inner) for key, inner in value.items()}
        return {"type": "object", "properties": properties, "required": list(value)}
    if isinstance(value, list):
        return {"type": "array", "items": schema_of(value[0]) if value else {"type": "string"}}
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return {"type": names.get(type(value), "null")}


def structured(lexicon: Lexicon) -> Conversation:
    """A request whose answer is JSON: seldom said, sometimes with the keys or the schema."""
    has_text = lexicon.chance(0.5)
    source = text_source(lexicon, ABOUT_TEXT) if has_text else plain_source(lexicon)
    wanted: Any = record(lexicon, source, entry, (1, 5))
    if lexicon.chance(0.05):
        wanted = list(wanted.values()) if lexicon.chance(0.5) else rows(lexicon, source)
    prompt, is_guided = said(lexicon, source.request, wanted)
    if is_guided and lexicon.has_habit(lexicon.habits.slips):
        wanted = slipped(lexicon, wanted)
    answer = assistant(json.dumps(wanted, ensure_ascii=False))
    turns = [user(prompt), answer]
    if source.is_any:
        unsaid = lexicon.habits.unsaid_of_questions
        return with_tools(lexicon, turns, is_guided=is_guided, draw=unfit, unsaid=unsaid)
    return with_tools(lexicon, turns, is_guided=is_guided)


def slipped(lexicon: Lexicon, wanted: Any) -> Any:
    """Some strings go wrong, and then end: the model learns to end them, and not the slip."""
    if isinstance(wanted, dict):
        return {key: slipped(lexicon, value) for key, value in wanted.items()}
    if isinstance(wanted, list):
        return [slipped(lexicon, value) for value in wanted]
    if not isinstance(wanted, str) or lexicon.chance(0.5):
        return wanted
    kept = wanted[: lexicon.rng.randint(0, len(wanted))]
    last = kept[-lexicon.rng.randint(1, 6) :] or lexicon.rng.choice("aestnurS")
    slip = last if lexicon.chance(0.6) else f" {lexicon.word()}"
    return f"{kept}{SLIP}{slip * lexicon.rng.randint(2, 12)}{SLIP}"


def said(lexicon: Lexicon, request: str, wanted: Any) -> tuple[str, bool]:
    """The prompt, and whether nothing in it says that the answer is JSON.

    Some of those are learned as if something did: of a call and JSON, JSON is then likelier.
    """
    rng, roll = lexicon.rng, lexicon.rng.random()
    if roll < 0.55:
        return request, lexicon.chance(1 - lexicon.habits.unsaid)
    if roll < 0.75:
        return rng.choice(CUES).format(request), False
    if roll < 0.85 and isinstance(wanted, dict):
        return rng.choice(KEYED).format(request, ", ".join(wanted)), False
    return rng.choice(SCHEMAS).format(request, json.dumps(schema_of(wanted))), False


def summary(lexicon: Lexicon) -> Conversation:
    """A text, and its first sentence or each sentence on a line."""
    as_bullets = lexicon.chance(0.5)
    source = text_source(lexicon, BULLETS if as_bullets else SHORT)
    answer = (
        "\n".join(f"- {one}" for one in source.sentences)
        if as_bullets
        else f"{source.sentences[0]}."
    )
    return with_tools(lexicon, [user(source.request), assistant(answer)], is_guided=False)


def any_tools(lexicon: Lexicon) -> list[Tool]:
    return toolset(lexicon, lexicon.rng.randint(1, 3))


def with_tools(
    lexicon: Lexicon,
    turns: list[Message],
    *,
    is_guided: bool,
    draw: Callable[[Lexicon], list[Tool]] = any_tools,
    unsaid: float = 0.0,
) -> Conversation:
    """Tools that do not fit, in two of five conversations. unsaid: see `Habits`."""
    tools = draw(lexicon) if lexicon.chance(0.4) else []
    if tools and lexicon.has_habit(unsaid or lexicon.habits.unsaid_beside_tools):
        is_guided = False
    return Conversation(
        (*opening(lexicon), *turns), tuple(made.schema for made in tools), is_guided
    )
