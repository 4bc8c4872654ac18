"""Conversations with one to four tools: one call, two calls, none, and sentences about results."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from dataclasses import replace

from demo_model.training.about import about
from demo_model.training.catalogue import LATER, SEEN, UNSEEN, Family, Slot
from demo_model.training.chat import (
    Conversation,
    Message,
    assistant,
    system,
    tool,
    user,
)
from demo_model.training.lexicon import Lexicon, Split
from demo_model.training.phrasal import phrasal
from demo_model.training.questions import FITTING, question
from demo_model.training.results import result
from demo_model.training.siblings import siblings
from demo_model.training.smalltalk import JOKE, UNKNOWN, talk, worn
from demo_model.training.spoken import value
from demo_model.training.toolbox import Ask, Tool, ask, by_chance, fill, from_family
from demo_model.training.wordlists import VERBS

NO_TOOL = "None of my tools can do that, sorry."
SYSTEMS = (
    "You are a helpful assistant.|You are an assistant.|Use the tools when they help.|You can call functions.|Be brief."
    "|You are a helpful assistant with tools.|Answer politely.|You are a bot.|Call a tool if you need one."
).split("|")
JOKER = "tell_joke"  # the kind that small talk can replace
NEIGHBOURS = 4  # kinds this close in their file are alike
JOINTS = " and | and also |. Also, |, then |. Then |, and |; |. And |. After that, | and then |. Please also ".split(
    "|"
)


def draw_tool(lexicon: Lexicon, *, unseen: bool = False) -> Tool:
    if lexicon.chance(lexicon.habits.families):
        return from_family(lexicon, lexicon.rng.choice(UNSEEN if unseen else known(lexicon)))
    if lexicon.has_habit(lexicon.habits.phrasal):
        return phrasal(lexicon)
    return by_chance(lexicon)


def known(lexicon: Lexicon) -> tuple[Family, ...]:
    return (*SEEN, *LATER) if lexicon.habits.has_later_kinds else SEEN


def toolset(lexicon: Lexicon, count: int, *, unseen: bool = False) -> list[Tool]:
    """Tools of different kinds, some of them similar."""
    tools = siblings(lexicon, count) if lexicon.has_habit(lexicon.habits.siblings) else []
    while len(tools) < count:
        alike = len(tools) + 1 < count and lexicon.chance(lexicon.habits.alike)
        for made in likes(lexicon, unseen=unseen) if alike else [draw_tool(lexicon, unseen=unseen)]:
            if all(made.kind != other.kind and made.name != other.name for other in tools):
                tools.append(made)
    return tools


def likes(lexicon: Lexicon, *, unseen: bool) -> list[Tool]:
    """Two tools that share noun, verb or field."""
    rng = lexicon.rng
    roll = rng.random()
    if roll < 0.4 and not unseen:
        kinds = known(lexicon)
        at = rng.randrange(len(kinds) - NEIGHBOURS)
        return [from_family(lexicon, kind) for kind in rng.sample(kinds[at : at + NEIGHBOURS], 2)]
    if roll < 0.75:
        noun = lexicon.word()
        return [by_chance(lexicon, noun), by_chance(lexicon, noun)]
    verb = rng.choice(list(VERBS))
    return [by_chance(lexicon, verb=verb), by_chance(lexicon, verb=verb)]


def opening(lexicon: Lexicon) -> list[Message]:
    return [system(lexicon.rng.choice(SYSTEMS))] if lexicon.chance(0.3) else []


def asked(lexicon: Lexicon, asks: list[Ask]) -> list[Message]:
    text = asks[0].text
    for one in asks[1:]:
        head = one.text[0] if one.begins_with_value else one.text[0].lower()
        text = text.rstrip("?.") + lexicon.rng.choice(JOINTS) + head + one.text[1:]
    return answered(worn(lexicon, text, keeps_case=asks[0].begins_with_value), asks)


def answered(text: str, asks: list[Ask]) -> list[Message]:
    return [user(text), assistant("\n".join(one.call.block for one in asks))]


def declined(lexicon: Lexicon, tools: list[Tool]) -> list[Message]:
    """A request for a tool that is missing."""
    one = ask(lexicon, foreign(lexicon, tools))
    return [user(worn(lexicon, one.text, keeps_case=one.begins_with_value)), assistant(NO_TOOL)]


def one_call(lexicon: Lexicon, *, unseen: bool = False) -> Conversation:
    tools = toolset(lexicon, lexicon.rng.randint(1, 4), unseen=unseen)
    messages = opening(lexicon) + asked(lexicon, [ask(lexicon, lexicon.rng.choice(tools))])
    return Conversation(tuple(messages), tuple(made.schema for made in tools))


def two_calls(lexicon: Lexicon) -> Conversation:
    rng = lexicon.rng
    tools = toolset(lexicon, rng.randint(1, 4))
    first = rng.choice(tools)
    second = first if len(tools) == 1 or lexicon.chance(0.3) else rng.choice(tools)
    if second is first and lexicon.chance(0.5):
        messages = twin_asks(lexicon, first)
    else:
        messages = asked(lexicon, [ask(lexicon, first), ask(lexicon, second)])
    return Conversation(tuple(opening(lexicon) + messages), tuple(made.schema for made in tools))


def twin_asks(lexicon: Lexicon, made: Tool) -> list[Message]:
    """The same wording twice, or once with two values, such as "the weather in A and B"."""
    wording = lexicon.rng.choice(made.requests)
    same = replace(made, requests=(wording,))
    plain = [slot for slot in made.slots if wording.count("{" + slot.key + "}") == 1]
    if wording.count("{") > 1 or not plain or not is_joinable(plain[0]) or lexicon.chance(0.5):
        return asked(lexicon, [ask(lexicon, same), ask(lexicon, same)])
    asks = [fill(lexicon, made, wording, value) for _ in range(2)]
    both = " and ".join(str(one.call.arguments[plain[0].key]) for one in asks)
    text = wording.replace("{" + plain[0].key + "}", both)
    return answered(worn(lexicon, text, keeps_case=asks[0].begins_with_value), asks)


def is_joinable(slot: Slot) -> bool:
    return not slot.kind.startswith(("list", "boolean"))


def no_call(lexicon: Lexicon) -> Conversation:
    """Small talk with tools present, or a request for a tool that is missing."""
    rng = lexicon.rng
    tools = toolset(lexicon, rng.randint(1, 4))
    roll = rng.random()
    if roll < 0.55:
        question, answer = known_talk(lexicon, tools) if roll < 0.45 else about(lexicon)
        messages = [user(question), assistant(answer)]
    else:
        messages = declined(lexicon, tools)
    return Conversation((*opening(lexicon), *messages), tuple(made.schema for made in tools))


def known_talk(lexicon: Lexicon, tools: list[Tool]) -> tuple[str, str]:
    """Small talk that fits no tool."""
    avoided = ["I am only a small demo", "I have no clock", "Two plus", "One plus", "Three plus"]
    if lexicon.habits.has_one_joker and any(made.kind == JOKER for made in tools):
        avoided.append(JOKE)
    while (pair := talk(lexicon))[1].startswith(tuple(avoided)):
        pass
    return pair


def foreign(lexicon: Lexicon, tools: list[Tool]) -> Tool:
    taken = {made.kind for made in tools}
    if lexicon.habits.has_one_joker:
        taken.add(JOKER)
    names = {made.name for made in tools}
    while (made := draw_tool(lexicon)).kind in taken or made.name in names:
        pass
    return made


def after_result(lexicon: Lexicon) -> Conversation:
    tools = toolset(lexicon, lexicon.rng.randint(1, 2))
    messages = opening(lexicon) + asked(lexicon, [ask(lexicon, lexicon.rng.choice(tools))])
    content, sentence = result(lexicon)
    messages += [tool(content), assistant(sentence)]
    return Conversation(tuple(messages), tuple(made.schema for made in tools))


def long_chat(lexicon: Lexicon) -> Conversation:
    """Several requests to one set of tools; most of the training on tools comes from here."""
    rng = lexicon.rng
    tools = toolset(lexicon, rng.randint(1, 4))
    messages = opening(lexicon)
    for _ in range(rng.randint(2, 5)):
        roll = rng.random()
        if roll < 0.72:
            asks = [ask(lexicon, rng.choice(tools)) for _ in range(2 if lexicon.chance(0.3) else 1)]
            messages += asked(lexicon, asks)
            if lexicon.chance(0.4):
                outcomes = [result(lexicon) for _ in asks]
                messages += [tool(content) for content, _ in outcomes]
                messages.append(assistant(" ".join(sentence for _, sentence in outcomes)))
        elif roll < 0.86:
            messages += declined(lexicon, tools)
        else:
            question, answer = known_talk(lexicon, tools)
            messages += [user(question), assistant(answer)]
    return Conversation(tuple(messages), tuple(made.schema for made in tools))


def unfit(lexicon: Lexicon) -> list[Tool]:
    """Tools that no question fits."""
    while True:
        tools = toolset(lexicon, lexicon.rng.randint(1, 4))
        names = " ".join(f"{made.kind} {made.name}" for made in tools).lower()
        if not any(part in names for part in FITTING):
            return tools


def any_question(lexicon: Lexicon) -> Conversation:
    """A question that the model cannot answer, mostly beside tools that do not fit."""
    tools = unfit(lexicon) if lexicon.chance(0.7) else []
    turns = [user(question(lexicon)), assistant(NO_TOOL if tools else UNKNOWN)]
    return Conversation((*opening(lexicon), *turns), tuple(made.schema for made in tools))


def unseen_call(lexicon: Lexicon) -> Conversation:
    """For the evaluation: hand-written kinds, nouns and keys that are not in the training text."""
    if lexicon.split is not Split.HELD_OUT:
        raise ValueError("unseen tools are for the evaluation only")
    return one_call(lexicon, unseen=True)
