"""Sentences with fields, and the JSON that holds them."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

import json

from demo_model.training.chat import Conversation, Message, assistant, system, user
from demo_model.training.lexicon import Lexicon

# sentences; a field is written {key}, and KINDS has its kind
SENTENCES = (
    "{name} is {age} years old and lives in {city}.|{name}, {age}, works as a {job} in {city}.|My name is {name} and I am {age}."
    "|{name} from {city} works for {company}.|{name} ({email}) is a {job}.|Contact {name} at {email} or call {phone}."
    "|{name} bought {quantity} {product} for {price} dollars.|The order {order_id} of {name} costs {price} euros."
    "|{company} is based in {city} and has {employees} employees.|{name} joined {company} on {date} as a {job}."
    "|The {product} costs {price} and comes in {color}.|On {date} {name} flew to {city}.|The meeting about {topic} is on {date} at {time}."
    "|{name} is a {job}.|Please send {quantity} {product} to {city} by {date}.|Order {order_id}: {quantity} {product}, {price} each."
    "|{name} will arrive in {city} at {time}.|I am {name}, my email is {email} and my phone number is {phone}."
    "|{title} was written by {author} in {year}.|{author} wrote {title}.|{company} sold {quantity} {product} in {year}."
    "|Ticket {order_id} was opened by {name} on {date} about {topic}.|{name} lives in {city}.|{name} is {age}."
    "|A {color} {product} was found in {city} on {date}.|{name} and {friend} met in {city} at {time}."
    "|In {city}, {name} sold a {product} for {price}.|On {date} at {time} {friend} will meet {name} to talk about {topic}."
    "|{quantity} {product} were ordered by {company} on {date}.|Dear {name}, your order {order_id} leaves {city} on {date}."
    "|At {company}, {name} earns {employees} a year as a {job}.|{name}, born in {year}, grew up in {city} and became a {job}."
    "|Call {friend} at {phone} before {time}.|For {price} dollars you get {quantity} {product} in {color}.|{author}: {title}, {year}."
    "|Invoice {order_id} over {price} was paid by {company} on {date}.|Hi, this is {name} from {company}. My number is {phone}."
    "|Flight {order_id} to {city} leaves at {time} on {date}.|{friend} told {name} about the {color} {product}."
    "|The book {title} ({year}) by {author} costs {price}.|{employees} people work for {company} in {city}, {name} is one of them."
    "|Write to {email} if you have seen the {color} {product}.|Name: {name}\nAge: {age}\nCity: {city}|{order_id}, {product}, {color}, {price}"
).split("|")
KINDS = {
    "name": "person", "age": "count", "city": "city", "job": "word", "company": "title", "email": "email", "phone": "phone",
    "quantity": "count", "product": "word", "price": "decimal", "order_id": "code", "employees": "integer", "date": "date",
    "color": "word", "topic": "word", "time": "time", "title": "title", "author": "person", "year": "integer", "friend": "name",
}  # fmt: skip
REQUESTS = (
    "Extract the {fields} as JSON: {text}|Extract {fields} from this text as JSON: {text}|Return JSON with the fields {fields}. Text: {text}"
    "|{text} Give me the {fields} as JSON.|{text}\nExtract {fields} as JSON.|Give me a JSON object with {fields}: {text}"
    "|Text: {text}\nFields: {fields}\nJSON:|From the sentence below extract {fields} as JSON.\n{text}|Find the {fields} in: {text} Answer in JSON."
    "|Read this and return {fields} as JSON: {text}|{text} What are {fields}? Answer as JSON.|As JSON, with the keys {fields}: {text}"
).split("|")
SYSTEMS = "You extract fields as JSON.|Answer only with JSON.|You are a helpful assistant.".split(
    "|"
)
MADE_STYLES = (
    "the {0} is {{{0}}}|{0}: {{{0}}}|{0} {{{0}}}|its {0} is {{{0}}}|{{{0}}} is the {0}|{0} = {{{0}}}|a {0} of {{{0}}}"
    "|with {{{0}}} as {0}"
).split("|")
VALUE_FIRST = (
    "{{{0}}} is the {0}|with {{{0}}} as {0}|{{{0}}} as the {0}|{{{0}}} for the {0}|{{{0}}} is its {0}|{{{0}}} ({0})"
    "|with {{{0}}} as {0}|{{{0}}} is the {0}|using {{{0}}} as its {0}"
).split("|")
MADE_KINDS = "word name city integer count decimal date code title".split()


def made_sentence(lexicon: Lexicon) -> tuple[str, dict[str, str]]:
    """A sentence that names its own fields; some are in no list."""
    keys = list(dict.fromkeys(lexicon.word() for _ in range(lexicon.rng.randint(2, 5))))
    style = lexicon.rng.choice(
        VALUE_FIRST if lexicon.has_habit(lexicon.habits.values_first) else MADE_STYLES
    )
    text = ", ".join(style.format(key) for key in keys)
    return f"{text[0].upper()}{text[1:]}.", {key: lexicon.rng.choice(MADE_KINDS) for key in keys}


def joined(lexicon: Lexicon, keys: list[str]) -> str:
    if len(keys) == 1:
        return keys[0]
    return ", ".join(keys[:-1]) + lexicon.rng.choice([" and ", ", ", " and "]) + keys[-1]


def example(lexicon: Lexicon, made: float = 0.3) -> list[Message]:
    rng = lexicon.rng
    if lexicon.chance(made):
        sentence, kinds = made_sentence(lexicon)
    else:
        sentence, kinds = rng.choice(SENTENCES), KINDS
    values = {
        key: getattr(lexicon, kind)() for key, kind in kinds.items() if "{" + key + "}" in sentence
    }
    for key, value in values.items():
        sentence = sentence.replace("{" + key + "}", str(value))
    keys = rng.sample(list(values), rng.randint(1, len(values)))
    answer = json.dumps({key: values[key] for key in keys}, ensure_ascii=False)
    return [
        user(rng.choice(REQUESTS).format(fields=joined(lexicon, keys), text=sentence)),
        assistant(answer),
    ]


def extraction(lexicon: Lexicon) -> Conversation:
    head: list[Message] = []
    if lexicon.chance(0.25):
        head = [system(lexicon.rng.choice(SYSTEMS))]
    return Conversation((*head, *example(lexicon)))


def extractions(lexicon: Lexicon) -> Conversation:
    """Several texts in one conversation."""
    turns = [message for _ in range(lexicon.rng.randint(1, 4)) for message in example(lexicon)]
    return Conversation(tuple(turns))


def made_extractions(lexicon: Lexicon) -> Conversation:
    """Only sentences that name their own fields, so that only the position tells the value."""
    turns = [message for _ in range(lexicon.rng.randint(1, 4)) for message in example(lexicon, 1.0)]
    return Conversation(tuple(turns))
