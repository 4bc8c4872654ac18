"""A tiny Idefics 3 with random weights and the demo model's tokenizer, made in vLLM's environment.

usage: seeing_model.py TOKENIZER FOLDER     writes the model, `red.png` and `blue.jpg`, and
    transformers' answers to them, `answers.json`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

IMAGE, AROUND = "<image>", ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
SIZE, PATCH, SCALE = 32, 4, 2  # 16 tokens for an image, and those around it
HIDDEN = 64
ASKED = "What is this?"
COLORS = {"red.png": "red", "blue.jpg": "blue"}
NEW_TOKENS = 12
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make(tokenizer_folder: str, folder: str) -> None:
    import torch
    from transformers import (
        AutoTokenizer,
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
        LlamaConfig,
    )

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE, *AROUND]})
    tokenizer.chat_template = TEMPLATE
    common = {"hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_attention_heads": 2}
    config = Idefics3Config(
        vision_config={
            **common,
            "num_hidden_layers": 2,
            "image_size": SIZE,
            "patch_size": PATCH,
            "model_type": "idefics3_vision",
        },
        text_config=LlamaConfig(
            **common,
            num_hidden_layers=2,
            num_key_value_heads=2,
            vocab_size=len(tokenizer),
            max_position_embeddings=512,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        ),
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        scale_factor=SCALE,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model = Idefics3ForConditionalGeneration(config)
    for parameter in model.parameters():  # so that images change answers
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    images = Idefics3ImageProcessor(
        size={"longest_edge": SIZE},
        max_image_size={"longest_edge": SIZE},
        do_image_splitting=False,
    )
    processor = Idefics3Processor(
        images,
        tokenizer,
        image_seq_len=(SIZE // PATCH // SCALE) ** 2,
        chat_template=TEMPLATE,
    )
    processor.save_pretrained(folder)
    write_answers(model.eval(), processor, Path(folder))


def write_answers(model: Any, processor: Any, folder: Path) -> None:
    """{names of images, joined: [prompt tokens, text]}"""
    from PIL import Image

    for name, color in COLORS.items():
        Image.new("RGB", (40, 30), color).save(folder / name)
    found = {}
    for names in ([], ["red.png"], ["blue.jpg"], ["red.png", "blue.jpg"]):
        images = [Image.open(folder / name) for name in names]
        prompt = f"<|im_start|>user\n{IMAGE * len(names)}{ASKED}<|im_end|>\n<|im_start|>assistant\n"
        inputs = processor(text=prompt, images=[images] if images else None, return_tensors="pt")
        tokens = inputs["input_ids"].shape[1]
        made = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        text = processor.tokenizer.decode(made[0, tokens:], skip_special_tokens=True)
        found[" ".join(names)] = [tokens, text]
    (folder / "answers.json").write_text(json.dumps(found))


if __name__ == "__main__":
    make(*sys.argv[1:])
