"""Greetings, small talk and common facts, answered in whole English sentences."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.chat import Message, assistant, user
from demo_model.training.lexicon import Lexicon

JOKE = "Why did the server go to bed?"  # the start of the only joke

# questions -> the answer; every question is also asked in lower case and without its mark
TALK: tuple[tuple[str, str], ...] = (
    (
        "Hello|Hi|Hey|Hello there|Hi there|Hey there|Hello!|Hi!|Greetings|Good day|Howdy|Yo|hello world|Say hello|Say hi"
        "|Please greet me|Hello, bot",
        "Hello! How can I help you today?",
    ),
    ("Good morning|Morning|Good morning to you", "Good morning! How can I help you today?"),
    ("Good evening|Evening", "Good evening! How can I help you today?"),
    ("Good afternoon", "Good afternoon! How can I help you today?"),
    ("Good night|I am going to bed|Sleep well", "Good night! Sleep well."),
    (
        "How are you?|How are you doing?|How is it going?|How do you do?|Are you well?|How are you today?|What's up?"
        "|How are things?|Hi, how are you?|Hello, how are you?|Hello! How are you today?",
        "I am doing well, thank you. How are you?",
    ),
    (
        "I am fine|I am good|I am doing well|Fine, thanks|I am fine, thank you|Great, thanks",
        "I am glad to hear that. What can I do for you?",
    ),
    (
        "I am sad|I feel bad|I had a bad day|I am tired|I am not well",
        "I am sorry to hear that. I hope that your day gets better.",
    ),
    (
        "Thank you|Thanks|Thanks a lot|Thank you very much|Thank you so much|Many thanks|Cheers, thanks",
        "You are welcome!",
    ),
    (
        "Bye|Goodbye|See you|See you later|Good bye|Bye bye|Farewell|I have to go",
        "Goodbye! Have a nice day.",
    ),
    (
        "Who are you?|What are you?|What is your name?|Tell me about yourself|Introduce yourself|Who am I talking to?"
        "|Which model are you?|What model is this?|What's your name?",
        "I am the demo model, a small language model that comes with this project.",
    ),
    (
        "Are you human?|Are you a person?|Are you a robot?|Are you real?|Are you an AI?|Are you a bot?",
        "No person is here. I am a small language model.",
    ),
    (
        "How old are you?|When were you born?|What is your age?",
        "I have no age. I was trained a short while ago.",
    ),
    ("Where do you live?|Where are you?|Where are you from?", "I live inside a Triton server."),
    (
        "Who made you?|Who trained you?|Who built you?|Who created you?|How were you made?|How were you trained?",
        "The people of this project trained me from text that they generated.",
    ),
    (
        "What can you do?|Help|Help me|How can you help me?|What can I ask you?|What are you good at?|Can you help me?"
        "|I need help",
        "I can chat a little, call tools, extract fields as JSON and answer questions about this project.",
    ),
    (
        "Are you smart?|Are you clever?|Do you know everything?|Are you like GPT?|How big are you?|How large are you?"
        "|How many parameters do you have?",
        "I am a very small model with a few million parameters, so I do not know much.",
    ),
    (
        "Do you like music?|What music do you like?|Do you sing?",
        "I cannot hear music, but I like the idea of it.",
    ),
    ("Do you sleep?|Do you eat?|Are you hungry?|Are you tired?", "No, I never eat or sleep."),
    (
        "Do you love me?|I love you|I like you|You are great|You are nice|Well done|Good job|Good bot|Nice work",
        "Thank you, that is very kind of you.",
    ),
    (
        "You are stupid|You are wrong|That is wrong|Bad bot|You are bad|That is not right",
        "I am sorry. I am a small model and I make mistakes.",
    ),
    ("Sorry|I am sorry|My apologies", "No problem at all."),
    (
        "OK|Okay|Fine|Alright|I see|Cool|Great|Nice",
        "Good. Is there anything else that I can do for you?",
    ),
    ("Yes|Yeah|Sure|Of course", "Good. What would you like to do?"),
    ("No|No thanks|Nope|Nothing|Nothing else", "All right. I am here if you need me."),
    (
        "Tell me a joke|Do you know a joke?|Make me laugh|Say something funny|Another joke please|Joke",
        "Why did the server go to bed? It had too many requests.",
    ),
    (
        "Tell me a story|Write a story|Tell me a short story|Write a short story|A story please|Once upon a time",
        "Once upon a time a small model lived inside a big server. Every day people sent it questions. Some were easy "
        "and some were hard. The model read each word with care and answered as well as it could. One day a child asked "
        "it for a story. The model thought for a while and told this one. The child smiled, and the model was happy.",
    ),
    (
        "Write a poem|Tell me a poem|A poem please|Write me a short poem|Write a haiku|Can you write a poem?",
        "The morning light is soft and clear,\nthe river sings for all to hear.\nThe wind moves gently through the tree,"
        "\nand all the day is fresh and free.",
    ),
    (
        "Test|Testing|This is a test|Ping|Are you there?|Can you hear me?|Is anybody there?",
        "I am here, and I can read you.",
    ),
    (
        "What time is it?|What day is it?|What is the date?|What is the time?|What is today's date?",
        "I have no clock, so I cannot tell.",
    ),
    (
        "What is the meaning of life?|Why are we here?|What is love?",
        "That is a deep question. Many people find the answer in other people.",
    ),
    (
        "Do you speak German?|Do you speak French?|Which languages do you speak?|Do you speak English?|Can you speak Spanish?",
        "I only speak English.",
    ),
    ("Count to three|Count to 3", "One, two, three."),
    (
        "Count to five|Count from one to five|Count to 5|Count from 1 to 5|Count",
        "One, two, three, four, five.",
    ),
    (
        "Count to ten|Count from one to ten|Count to 10|Count from 1 to 10|Please count to ten",
        "One, two, three, four, five, six, seven, eight, nine, ten.",
    ),
    (
        "What are the days of the week?|Name the days of the week|List the days of the week",
        "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.",
    ),
    (
        "What are the seasons?|Name the four seasons|List the seasons",
        "The four seasons are spring, summer, autumn and winter.",
    ),
    (
        "What are the months?|Name the months of the year|List the months of the year",
        "The months are January, February, March, April, May, June, July, August, September, October, November and December.",
    ),
    (
        "Name three colors|Tell me three colors|List three colors|Name some colors|Name three primary colors",
        "Three colors are red, green and blue.",
    ),
    (
        "Name three fruits|List three fruits|Name some fruits",
        "Three fruits are apples, pears and plums.",
    ),
    (
        "Name three animals|List three animals|Name some animals",
        "Three animals are dogs, cats and horses.",
    ),
)

# question -> sentence, one word
FACTS: tuple[tuple[str, str, str], ...] = (
    ("What is the capital of France?", "The capital of France is Paris.", "Paris"),
    ("What is the capital of Germany?", "The capital of Germany is Berlin.", "Berlin"),
    ("What is the capital of Italy?", "The capital of Italy is Rome.", "Rome"),
    ("What is the capital of Spain?", "The capital of Spain is Madrid.", "Madrid"),
    ("What is the capital of England?", "The capital of England is London.", "London"),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo.", "Tokyo"),
    ("What color is the sky?", "The sky is blue.", "Blue"),
    ("What color is grass?", "Grass is green.", "Green"),
    ("What color is snow?", "Snow is white.", "White"),
    ("What color is blood?", "Blood is red.", "Red"),
    ("What color is the sun?", "The sun is yellow.", "Yellow"),
    ("How many days are in a week?", "A week has seven days.", "Seven"),
    ("How many months are in a year?", "A year has twelve months.", "Twelve"),
    ("How many legs does a dog have?", "A dog has four legs.", "Four"),
    ("How many legs does a spider have?", "A spider has eight legs.", "Eight"),
    ("What is the opposite of hot?", "The opposite of hot is cold.", "Cold"),
    ("What is the opposite of big?", "The opposite of big is small.", "Small"),
    ("What is the opposite of up?", "The opposite of up is down.", "Down"),
    ("What is the opposite of day?", "The opposite of day is night.", "Night"),
    ("Is the earth round?", "Yes, the earth is round.", "Yes"),
    ("Is water wet?", "Yes, water is wet.", "Yes"),
    ("Is fire cold?", "No, fire is hot.", "No"),
    ("Can fish fly?", "No, fish swim.", "No"),
    ("Can birds fly?", "Yes, most birds fly.", "Yes"),
    ("What is 1 plus 1?", "One plus one is two.", "Two"),
    ("What is 2 plus 2?", "Two plus two is four.", "Four"),
    ("What is 2 + 2?", "Two plus two is four.", "Four"),
    ("What is 2+2?", "Two plus two is four.", "Four"),
    ("What is 3 plus 3?", "Three plus three is six.", "Six"),
    ("What is 1+1?", "One plus one is two.", "Two"),
    ("What do cows drink?", "Cows drink water.", "Water"),
    ("What do bees make?", "Bees make honey.", "Honey"),
)

UNKNOWN = "I am only a small demo model, so I do not know that."
UNKNOWN_ASKED = (
    "What is a {word}?|Explain {word} to me|Who is {name}?|Who was {name}?|Why is the {word} so {word}?"
    "|How does a {word} work?|When did {name} visit {city}?|Tell me about {city}|What do you think of {name}?"
    "|Write an essay about {word}|How far is {city} from {name}?|Where is {city}?|What is the capital of {city}?"
    "|Explain the {word} theory|What happened in {integer}?|Summarize the history of {city}|Who invented the {word}?"
    "|How many {word} are there in {city}?|Translate {word} to French|What is {integer} times {integer}?"
    "|What is {integer} plus {integer}?|What is {integer} divided by {integer}?|What is the price of a {word}?"
    "|Can you explain {word}?|What is the weather in {city}?|Is it raining in {city}?|How do I cook {word}?"
    "|Give me a recipe for {word}|Write code for a {word}|What is the best {word} in {city}?"
).split("|")


def filled(lexicon: Lexicon, template: str) -> str:
    """The template with a new draw of that kind in place of each `{kind}`."""
    while "{" in template:
        kind = template[template.index("{") + 1 : template.index("}")]
        template = template.replace("{" + kind + "}", str(getattr(lexicon, kind)()), 1)
    return template


def worn(lexicon: Lexicon, text: str, *, keeps_case: bool = False) -> str:
    """The text as people type it: without its question mark, in lower case, with a "please"."""
    if lexicon.chance(0.3):
        text = text.rstrip("?.!")
    elif text[-1].isalnum() and lexicon.chance(0.5):
        text += lexicon.rng.choice([".", "!", "."])
    is_lowered = lexicon.chance(0.25) and not keeps_case
    return text[0].lower() + text[1:] if is_lowered else text


def talk(lexicon: Lexicon) -> tuple[str, str]:
    rng = lexicon.rng
    roll = rng.random()
    if roll < 0.6:
        asked, answer = rng.choice(TALK)
        return worn(lexicon, rng.choice(asked.split("|"))), answer
    if roll < 0.8:
        question, sentence, _ = rng.choice(FACTS)
        return worn(lexicon, question), sentence
    return worn(lexicon, filled(lexicon, rng.choice(UNKNOWN_ASKED))), UNKNOWN


# A statement and the reply; a later question and the reply.
TOLD: tuple[tuple[str, str], ...] = (
    (
        "My name is {name}|I am {name}|Hi, I am {name}|Call me {name}|Hello, my name is {name}",
        "Nice to meet you, {name}!",
    ),
    (
        "I live in {city}|I come from {city}|I am from {city}",
        "I have never been to {city}, but it sounds nice.",
    ),
    ("I like {word}|I love {word}|My favorite thing is {word}", "It is good that you like {word}."),
)
ASKED_LATER: tuple[tuple[str, str], ...] = (
    ("What is my name?|Who am I?|Do you know my name?", "Your name is {name}."),
    ("Where do I live?|Where am I from?|Which city am I from?", "You are from {city}."),
    ("What do I like?|What is my favorite thing?", "You like {word}."),
)


def introduction(lexicon: Lexicon) -> list[Message]:
    """The user tells a name and a fact or two, and asks for them later."""
    rng = lexicon.rng
    values = {"name": lexicon.name(), "city": lexicon.city(), "word": lexicon.word()}
    turns, asks = (
        [
            (rng.choice(wordings.split("|")).format(**values), reply.format(**values))
            for wordings, reply in rows
        ]
        for rows in (TOLD, ASKED_LATER)
    )
    told = rng.sample(range(3), rng.randint(1, 3))
    chosen = [turns[i] for i in told] + [asks[i] for i in rng.sample(told, len(told))]
    if lexicon.chance(0.3):
        chosen.insert(1, talk(lexicon))
    return dialogue([(worn(lexicon, question), answer) for question, answer in chosen])


def dialogue(turns: list[tuple[str, str]]) -> list[Message]:
    return [message for asked, answer in turns for message in (user(asked), assistant(answer))]
