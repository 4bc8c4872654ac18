"""OpenAI's own Python SDK against the whole stack: the parameters, one by one."""

from __future__ import annotations

MESSAGES = [{"role": "user", "content": "Hello!"}]
ABC = {"model": "endless", "prompt": "abc", "max_tokens": 12}


def chat(client, **fields):
    return client.chat.completions.create(model="demo", messages=MESSAGES, **fields)


def test_choices_differ_by_seed_and_can_be_had_again(client):
    def texts(**fields) -> list[str]:
        answer = client.completions.create(**ABC, temperature=1, **fields)
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        assert answer.usage.completion_tokens == 12 * len(answer.choices)
        return [choice.text for choice in answer.choices]

    three = texts(n=3, seed=5)
    assert len(set(three)) == 3
    assert texts(n=3, seed=5) == three
    assert [texts(seed=seed)[0] for seed in (5, 6, 7)] == three


def test_streamed_choices_come_interleaved_and_add_up_to_the_whole(client):
    """On a busy machine a choice may be over before the next one begins: then longer ones."""
    order: list[int] = []
    for length in (300, 1_000, 3_000):
        fields = {**ABC, "temperature": 1, "seed": 3, "n": 3, "max_tokens": length}
        whole = client.completions.create(**fields)
        texts, order = {0: "", 1: "", 2: ""}, []
        for chunk in client.completions.create(**fields, stream=True):
            (choice,) = chunk.choices
            order.append(choice.index)
            texts[choice.index] += choice.text
        assert texts == {choice.index: choice.text for choice in whole.choices}
        if order != sorted(order):
            break
    assert order != sorted(order)
    prompt_tokens = client.completions.create(**ABC).usage.prompt_tokens
    assert whole.usage.prompt_tokens == prompt_tokens


def test_the_best_of_several_is_the_likeliest(client):
    fields = {**ABC, "temperature": 1, "seed": 1}
    candidates = client.completions.create(**fields, n=4, logprobs=0).choices
    means = [sum(one.logprobs.token_logprobs) for one in candidates]
    best = client.completions.create(**fields, best_of=4)
    assert best.choices[0].text == candidates[means.index(max(means))].text
    assert best.choices[0].logprobs is None
    assert best.usage.completion_tokens == 48


def test_a_bias_forces_a_token_and_forbids_one(client):
    forced = client.completions.create(
        **ABC, temperature=0, logit_bias={"70": 100}, extra_body={"return_token_ids": True}
    )
    assert set(forced.choices[0].token_ids) == {70}
    allowed = {"allowed_token_ids": [71, 72], "return_token_ids": True}
    limited = client.completions.create(**ABC, temperature=1, extra_body=allowed)
    assert set(limited.choices[0].token_ids) <= {71, 72}


def test_bad_words_are_not_said(client):
    said = chat(client, temperature=0, max_tokens=12).choices[0].message.content
    words = {"bad_words": ["help", "Hello"]}
    other = chat(client, temperature=0, max_tokens=12, extra_body=words).choices[0].message.content
    assert "Hello" in said
    assert "Hello" not in other
    assert "help" not in other


def test_a_stop_token_ends_the_answer_and_shows_only_when_asked(client):
    body = {"stop_token_ids": [70], "return_token_ids": True}
    fields = {**ABC, "temperature": 0, "logit_bias": {"70": 100}}
    hidden = client.completions.create(**fields, extra_body=body)
    shown = client.completions.create(
        **fields, extra_body={**body, "include_stop_str_in_output": True}
    )
    assert hidden.choices[0].finish_reason == shown.choices[0].finish_reason == "stop"
    assert hidden.choices[0].token_ids == shown.choices[0].token_ids == [70]
    assert hidden.choices[0].text == ""
    assert shown.choices[0].text != ""


def test_echo_and_continued_messages(client):
    echoed = client.completions.create(**ABC, temperature=0, echo=True).choices[0].text
    plain = client.completions.create(**ABC, temperature=0).choices[0].text
    assert echoed == "abc" + plain
    begun = [*MESSAGES, {"role": "assistant", "content": "I am"}]
    continued = client.chat.completions.create(
        model="demo", messages=begun, extra_body={"continue_final_message": True}
    )
    assert continued.choices[0].message.content.startswith(" ")
