"""calibration_text: which texts are read, what is refused, and what changes the step's key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu.quantization.calibration_text import (
    FILE,
    SHIPPED,
    CalibrationText,
    as_data_set,
    read,
)


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_paragraphs_of_a_text_file_are_texts(tmp_path):
    content = "\nOne line,\nand another.\n\n\n  \nDie zweite: Äpfel.\n"
    assert read(written(tmp_path / "a.txt", content), 10) == (
        "One line,\nand another.",
        "Die zweite: Äpfel.",
    )


def test_a_text_of_json_lines_keeps_its_blank_lines(tmp_path):
    text = "def f():\n\n    return 1"
    content = json.dumps({"text": text, "source": "ours"}) + "\n\n" + json.dumps({"text": "b"})
    assert read(written(tmp_path / "a.jsonl", content), 10) == (text, "b")


def test_only_the_first_samples_are_read(tmp_path):
    lines = ['{"text": "a"}', '{"text": "b"}', "not JSON"]
    assert read(written(tmp_path / "a.jsonl", "\n".join(lines)), 2) == ("a", "b")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "\n \n", r"a\.txt has no texts"),
        ("a.jsonl", "", r"a\.jsonl has no texts"),
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": 3}',
            r'a\.jsonl:2: a line must be an object with a "t',
        ),
        ("a.jsonl", '["a"]', r'a\.jsonl:1: a line must be an object with a "text"'),
        ("a.jsonl", '{"text": "  "}', r'a\.jsonl:1: a line must be an object with a "text"'),
        ("a.jsonl", '{"text": "a"', r"a\.jsonl:1: .*: a line must be a JSON object"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_line(tmp_path, name, content, said):
    with pytest.raises(BuildError, match=said):
        read(written(tmp_path / name, content), 10)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(BuildError, match=r"calibration\.file .*none\.txt cannot be read"):
        read(tmp_path / "none.txt", 10)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BuildError, match=r"a\.txt cannot be read"):
        read(tmp_path / "a.txt", 10)


def test_the_shipped_texts_are_many_and_of_many_scripts():
    texts = read(SHIPPED, 512)
    assert len(texts) == len(set(texts)) >= 48
    first = "".join(texts[:32])  # what AWQ measures
    for mark in ("def ", "SELECT", '"order_id"', "Bahnhof", "今", "の", "ж", "كل"):
        assert mark in first
    assert "한" in "".join(texts)


def test_the_key_depends_on_the_texts_and_not_on_their_place(tmp_path):
    one, same = (written(tmp_path / name, "a\n\nb\n") for name in ("one.txt", "same.txt"))
    other = written(tmp_path / "other.txt", "a\n\nc\n")
    keys = [CalibrationText(tmp_path, path, 2).key for path in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]
    assert CalibrationText(tmp_path, one, 1).key != keys[0]
    assert CalibrationText(tmp_path, None, 2).key == CalibrationText(tmp_path, SHIPPED, 2).key


def test_the_step_writes_the_split_that_upstream_reads(tmp_path):
    step = CalibrationText(tmp_path, written(tmp_path / "a.txt", "Größe\n\n“b”\n"), 8)
    step.run(print)
    lines = (step.folder / FILE).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "Größe"}, {"text": "“b”"}]
    assert as_data_set(step.folder) == str(step.folder)


@pytest.mark.parametrize("name", ["cnn_dailymail", "My-ScienceQA", "science_qa"])
def test_a_path_with_the_name_of_a_data_set_of_the_hub_is_refused(tmp_path, name):
    with pytest.raises(BuildError, match="choose another ARTIFACTS_DIR"):
        as_data_set(tmp_path / name / "calibration")
