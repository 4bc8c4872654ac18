"""Raw prompts, without the chat template."""

from __future__ import annotations

from demo_model.training.about import about
from demo_model.training.chat import Conversation, assistant, user
from demo_model.training.lexicon import Lexicon
from demo_model.training.questions import question
from demo_model.training.smalltalk import FACTS, UNKNOWN, talk
from demo_model.training.structured import scene

# What stands around a question, and between it and its answer.
FORMS = (
    ("{0}", " "),
    ("{0}", " "),
    ("{0}", "\n"),
    ("{0}\n", ""),
    ("Q: {0}\nA:", " "),
    ("Question: {0}\nAnswer:", " "),
    ("User: {0}\nAssistant:", " "),
)


def plain(lexicon: Lexicon) -> Conversation:
    """A question and its answer, or a few sentences that a prompt begins."""
    rng, roll = lexicon.rng, lexicon.rng.random()
    if roll < 0.65:
        if roll < 0.25:
            prompt, answer = question(lexicon), UNKNOWN
        else:
            prompt, answer = about(lexicon) if lexicon.chance(0.25) else talk(lexicon)
        form, joint = rng.choice(FORMS)
        return Conversation(
            (user(form.format(prompt)), assistant(f"{joint}{answer}")), is_plain=True
        )
    scenes = " ".join(scene(lexicon, {}) for _ in range(rng.randint(1, 3)))
    words = (rng.choice(FACTS)[1] if lexicon.chance(0.3) else scenes).split(" ")
    at = rng.randint(1, len(words) - 1) if lexicon.chance(0.5) else 1
    head = "Once upon a time, " if lexicon.chance(0.1) else ""
    rest = assistant(" ".join(["", *words[at:]]))
    return Conversation((user(head + " ".join(words[:at])), rest), is_plain=True)
