"""The record of upstream's sources: what the script takes from a file, and what is checked in."""

from __future__ import annotations

import ast
import json
import re

import pytest

from build_engines.upstream.recorded import RecordedClasses
from tests.upstream import record
from tests.upstream.arguments import arguments_of, plugin_arguments_of
from tests.upstream.classes import aliases_of, fields_of

TOOL = """
parser = argparse.ArgumentParser()
parser.add_argument('--size', '-s', type=int, default=4, help="of it")
group = parser.add_argument_group("more")
group.add_argument('--format', choices=["a", None], default=Config.format, nargs='?', const="a")
group.add_argument('--fast', action='store_true', required=False)
print(parser)
"""
PLUGINS = """
Dtype = Literal["auto", "float16", None]
class PluginConfig(BaseModel):
    gemm_plugin: Optional[Literal["auto", "fp8", None]] = Field(default=None, description="x")
    lora_plugin: Optional[Dtype] = Field(default=None)
    fusion: bool = Field(default=True)
    block: int = Field(default=32)
    hidden: bool = False
cli_plugin_args = ["gemm_plugin", "lora_plugin", "fusion", "block"]
"""
CLASSES = '''
Either: TypeAlias = Union[Base, int]
class Policy(StrEnum):
    FIRST = "FIRST"
class Base(Strict):
    """Prose."""
    size: Optional[int] = None
    kind: ClassVar[str] = "base"
    _hidden: bool = PrivateAttr(True)
    @classmethod
    def from_dict(cls, data):
        config_classes = {"A": Derived}
class Derived(Base):
    policy: Policy = Field(default=Policy.FIRST, description="x", status="beta")
    names: List[str] = field(default_factory=list, init=False)
    needed: str
    def __init__(self, first: int, second: str = "s", **rest):
        self.third = first
    async def generate_async(self, inputs, *, streaming=False): ...
'''


def test_arguments_are_flags_and_what_the_parser_does_with_them():
    assert arguments_of(ast.parse(TOOL)) == [
        {"flags": ["--size", "-s"], "type": "int", "default": 4},
        {
            "flags": ["--format"],
            "choices": ["a", None],
            "default": {"expression": "Config.format"},
            "nargs": "?",
            "const": "a",
        },
        {"flags": ["--fast"], "action": "store_true", "required": False},
    ]


def test_plugin_fields_become_arguments_as_upstreams_function_makes_them():
    rows = plugin_arguments_of(ast.parse(PLUGINS))
    assert {row["flags"][0]: (row.get("choices"), row["default"]) for row in rows} == {
        "--gemm_plugin": (["auto", "fp8", "disable"], None),
        "--lora_plugin": (["auto", "float16", "disable"], "disable"),
        "--fusion": (["enable", "disable"], "enable"),
        "--block": (None, 32),
    }


def test_classes_are_fields_members_and_parameters_without_prose():
    tree = ast.parse(CLASSES)
    found = fields_of(tree)
    assert aliases_of(tree) == {"Either": "Union[Base, int]"}
    assert found["Policy"]["members"] == {"FIRST": "FIRST"}
    assert found["Base"]["fields"] == {"size": {"type": "Optional[int]", "default": None}}
    assert found["Base"]["decoding_types"] == {"A": "Derived"}
    derived = found["Derived"]
    assert derived["fields"] == {
        "policy": {
            "type": "Policy",
            "default": {"expression": "Policy.FIRST"},
            "status": "beta",
        },
        "names": {"type": "List[str]", "default": {"expression": "list()"}, "is_init": False},
        "needed": {"type": "str"},
    }
    assert derived["methods"]["__init__"] == [
        {"name": "self"},
        {"name": "first", "type": "int"},
        {"name": "second", "type": "str", "default": "s"},
        {"name": "rest", "is_any": True},
    ]
    assert [row["name"] for row in derived["methods"]["generate_async"]] == [
        "self",
        "inputs",
        "streaming",
    ]
    assert derived["attributes"] == ["__init__", "generate_async", "third"]
    assert "Prose" not in json.dumps(found)


def sources() -> list[dict]:
    given = json.loads(record.SOURCES.read_text(encoding="utf-8"))
    files = [*given["classes"], *given["references"]]
    return files + [file for tool in given["tools"].values() for file in tool]


def test_every_source_is_a_file_at_a_commit_with_its_date():
    for source in sources():
        assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]), source
        assert source["extracted"] in {"script", "transcript"}
        assert all(source[key] for key in ("repository", "path", "dated", "marker")), source


@pytest.mark.parametrize("name", ["tools", "classes", "references"])
def test_what_is_checked_in_names_the_same_sources(name):
    given = json.loads(record.SOURCES.read_text(encoding="utf-8"))[name]
    found = json.loads((record.RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    if name == "classes":
        assert found["sources"] == given
    elif name == "tools":
        assert {tool: row["sources"] for tool, row in found.items()} == given
    else:
        assert [row["source"] for row in found.values()] == given


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        ("references_committed/sampling_params", "SamplingParams"),
        ("references/sampling_params", "SamplingParams"),
        ("references_committed/completion_output", "CompletionOutput"),
        ("references/completion_output", "CompletionOutput"),
        ("references_committed/llm", "TorchLlmArgs"),
        ("references/llm", "TorchLlmArgs"),
    ],
)
def test_upstreams_own_reference_and_the_classes_agree(reference, place):
    """Two records of the same names and plain defaults, from different files of upstream."""
    references = json.loads((record.RECORDS / "references.json").read_text(encoding="utf-8"))
    fields = RecordedClasses.read().fields(place)
    of_the_other_class = {"kwargs", "enable_tqdm", "build_config"}
    rows = references[reference]["methods"]["__init__"]["parameters"]
    for name in rows.keys() - of_the_other_class:
        assert name in fields, name
        recorded = fields[name].get("default")
        is_plain = not isinstance(recorded, (dict, list))
        if is_plain and rows[name]["default"] not in ("inspect._empty", "None"):
            assert recorded == rows[name]["default"], name


def test_generate_async_has_all_that_upstreams_reference_has():
    references = json.loads((record.RECORDS / "references.json").read_text(encoding="utf-8"))
    known = RecordedClasses.read().parameters("LLM.generate_async")
    for reference in ("references/llm", "references_committed/llm"):
        named = references[reference]["methods"]["generate_async"]["parameters"]
        assert set(named) <= known


def test_a_name_without_a_record_is_an_error():
    with pytest.raises(KeyError):
        RecordedClasses.read().parameters("LLM.fly")
    with pytest.raises(KeyError):
        RecordedClasses.read().fields("Nothing")
