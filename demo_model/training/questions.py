"""Any question, which the model mostly cannot answer."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.lexicon import Lexicon
from demo_model.training.smalltalk import filled, worn

TOPICS = (
    "deep learning|the French Revolution|photosynthesis|inflation|black holes|climate change|a database|the Roman Empire|democracy"
    "|evolution|electricity|a compiler|the moon|chess|jazz|renewable energy|the stock market|statistics|a neural network|gravity|vaccines"
    "|Shakespeare|the internet|a good night's sleep|yoga|the immune system|a linked list|baking bread|public speaking|time management"
    "|probability|the Cold War|DNA|recursion|an operating system|a volcano|marketing|philosophy|dinosaurs|the water cycle|Buddhism"
    "|open source software|a hash table|learning a language|the ocean|space travel|bees|coffee|remote work|the brain|supply and demand"
).split("|")
DOCUMENTS = "paper article report book meeting chapter document email letter lecture story video contract page".split()
TEXTS = "poem story song essay haiku letter speech email tweet slogan paragraph headline limerick dialogue".split()
LANGUAGES = "German French Spanish Italian Japanese Latin Polish".split()
ASKED = (
    "What is {topic}?|What is {topic}?|What are the basics of {topic}?|Explain {topic}|Explain {topic} to a child|Explain {topic} in simple words|Define {topic}"
    "|How does {topic} work?|Why is {topic} important?|Who invented {topic}?|What do you know about {topic}?|Tell me something about {topic}|Teach me {topic}"
    "|Summarize the {document} in {few} bullet points|Summarize the {document}|Summarize this {document} in {few} sentences|What are the main points of the {document}?"
    "|Give me a summary of the {document}|Shorten the {document}|Write a {text} about {topic}|Write a short {text}|Write me a {text} for {name}|Write {few} lines about {topic}"
    "|Give me {few} ideas for {topic}|List {few} facts about {topic}|Name {few} books about {topic}|What is the difference between {topic} and {topic}?"
    "|Compare {topic} and {topic}|Is {topic} better than {topic}?|What are the pros and cons of {topic}?|What is the history of {topic}?|When did {topic} begin?"
    '|Translate "{sentence}" to {language}|How do you say {word} in {language}?|Rewrite this sentence: {sentence}|Correct this sentence: {sentence}'
    "|Solve {integer}x + {integer} = {integer}|What is the square root of {integer}?|How many people live in {city}?|How tall is {name}?|How old is {name}?|Who is {name}?"
    "|Who was {full_name}?|Who wrote {title}?|Which {word} is the best?|Should I buy a {word}?|How do I learn {topic}?|How do I fix my {word}?|How do I become a {word}?"
    "|What does {word} mean?|What would you do with a {word}?|What happens if I mix {word} with {word}?|Write a function that sorts a list|Find the bug in this code"
    "|Give me an example of {topic}|Describe {topic} in one sentence|Continue this story: {sentence}|Imagine a world without {topic}|Pretend to be {name}"
    "|Can you help me with {topic}?|I want to understand {topic}|I have a question about {topic}|Let us talk about {topic}|Prove that {integer} is odd|Think step by step: {topic}"
).split("|")
# Parts of the names of tools that some question fits.
FITTING = (
    "search find look read write define mean word explain translat language summar poem story joke song book paper article news wiki"
    " question answer fact quote calc math comput solve root add sum convert compar code run text spell rewrite correct grammar note"
    " idea recipe learn course lesson teach list sort example describe person contact people buy price fix repair mix age height popul"
).split()


def question(lexicon: Lexicon) -> str:
    text = lexicon.rng.choice(ASKED)
    for mark, values in (
        ("topic", TOPICS),
        ("document", DOCUMENTS),
        ("text", TEXTS),
        ("language", LANGUAGES),
        ("few", "2 3 3 4 5 10 two three four five".split()),
    ):
        while f"{{{mark}}}" in text:
            is_invented = mark == "topic" and lexicon.chance(0.5)
            drawn = lexicon.phrase() if is_invented else lexicon.rng.choice(values)
            text = text.replace(f"{{{mark}}}", drawn, 1)
    return worn(lexicon, filled(lexicon, text))
