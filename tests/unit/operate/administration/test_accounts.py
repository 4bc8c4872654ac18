"""tenants, keys, usage, audit: commands do what /admin/v1 does, and print tables or its JSON."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engines.deployments import early_sunsets
from build_engines.models_file import unpriced
from proxy.cli import main
from proxy.domain.errors import LaunchError
from proxy.domain.key_records import KEY_FIELDS, TENANT_CHANGES, TENANT_FIELDS
from proxy.operate import start
from proxy.operate import store as key_store
from proxy.settings import Settings
from tests.fixtures.account_samples import sample
from tests.unit.operate.conftest import Words

PEPPER = "a-pepper-for-tests-that-is-long-enough"
Answer = Callable[..., Any]
NO_LONGER = "2020-01-01T12:00:00Z"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's file; the environment has a pepper, and a data folder of the test's own."""
    monkeypatch.setenv("KEY_PEPPER", PEPPER)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "triton-openai" / "store.db"


@pytest.fixture
def answer(succeeds: Words) -> Answer:
    """answer(*arguments) -> the JSON that a successful command prints."""
    return lambda *arguments: json.loads(succeeds(*arguments, "--json"))


def test_a_tenant_and_its_keys_from_creation_to_the_end(answer, run, place):
    limits = ("--limit", "requests_per_minute=60", "--limit", "monthly_budget=9.5")
    tenant = answer("tenants", "create", "acme", *limits, "--model-limit", "a:b:burst=2")
    assert tenant["limits"] == {"requests_per_minute": 60, "monthly_budget": 9.5}
    assert tenant["of_models"] == {"a:b": {"burst": 2}}
    changes = ("--limit", "monthly_budget=none", "--model-limit", "a:b:none", "--inactive")
    tenant = answer("tenants", "update", "acme", *changes)
    assert tenant["limits"] == {"requests_per_minute": 60}
    assert (tenant["of_models"], tenant["is_active"]) == ({}, False)
    assert answer("tenants", "show", "acme") == tenant
    assert answer("tenants", "list") == [tenant]
    key = answer("keys", "create", "--tenant", "acme", "--name", "ci", "--model", "llama-*")
    assert key["key"].startswith(f"sk-{key['id']}-")
    assert key["scopes"] == ["chat", "completions", "embeddings", "models", "tokens"]
    options = ("--scope", "admin", "--all-models", "--expires", "30d", "--limit", "burst=3")
    changed = answer("keys", "update", key["id"], *options)
    assert (changed["scopes"], changed["models"]) == (["admin"], [])
    assert (changed["limits"], changed["expires_at"] is None) == ({"burst": 3}, False)
    assert answer("keys", "update", key["id"], "--expires", "never")["expires_at"] is None
    rotated = answer("keys", "rotate", key["id"], "--overlap-s", "60")
    assert rotated["key"] != key["key"]
    assert rotated["overlap_until"] is not None
    _, revoked, _ = run("keys", "revoke", key["id"], "--json")  # which warns: it administers
    assert json.loads(revoked)["revoked_at"] is not None
    assert [each["id"] for each in answer("keys", "list", "--tenant", "acme")] == [key["id"]]
    assert answer("keys", "show", key["id"])["revoked_at"] is not None
    assert answer("tenants", "delete", "acme")["name"] == "acme"
    assert answer("tenants", "list") == []
    assert place.stat().st_mode & 0o777 == 0o600


def test_each_option_of_the_table_is_the_field_of_the_routes(answer):
    tenant = ("tenants", "create", "acme")
    answer(*tenant)
    key = answer("keys", "create", "--tenant", "acme", "--name", "ci")["id"]
    new_key = ("keys", "create", "--tenant", "acme", "--name", "ci")
    failures, number = [], 0
    for form, fields, command in (
        ("create", TENANT_FIELDS, ("tenants", "create", "t{}")),
        ("change", TENANT_CHANGES, ("tenants", "update", "acme")),
        ("create", KEY_FIELDS, new_key),
        ("change", KEY_FIELDS, ("keys", "update", key)),
    ):
        for one in fields:
            if getattr(one.shown, form) is None or one.shown.flag is None:
                continue
            number += 1
            value, words = sample(one)
            made = answer(*(each.format(number) for each in command), *words)
            if made[one.name] != value:
                failures.append((form, one.name, made[one.name]))
    assert (failures, number > 15) == ([], True)


def lines(table: str) -> list[list[str]]:
    """The cells of each line below the headings."""
    return [re.split(r"  +", line.strip()) for line in table.splitlines()[1:]]


def test_without_json_people_get_tables_the_newest_first(answer, succeeds, run):
    limit = ("--limit", "requests_per_minute=60")
    no_note = ("--max-priority", "0")
    shown = succeeds("tenants", "create", "acme", *limit, "--model-limit", "demo:burst=2", *no_note)
    assert ["limits", "requests_per_minute=60"] in lines(shown)
    assert ["of_models", "demo: (burst=2)"] in lines(shown)
    succeeds("tenants", "create", "later", *no_note)
    assert [line[0] for line in lines(succeeds("tenants", "list"))] == ["later", "acme"]
    ids = [answer("keys", "create", "--tenant", "acme", "--name", f"k{n}")["id"] for n in range(3)]
    succeeds("keys", "revoke", ids[1])
    succeeds("keys", "update", ids[2], "--expires", "2020-01-01T12:00:00Z")
    found = lines(succeeds("keys", "list"))
    assert [line[0] for line in found] == ids[::-1]
    assert found[0][-2:] == ["2020-01-01 12:00:00", "-"]
    assert found[1][-2] == "-"
    assert found[1][-1].startswith("20")
    assert found[0][3].startswith("chat, completions")
    entries = lines(succeeds("audit", "list"))
    assert [int(line[0]) for line in entries] == [7, 6, 5, 4, 3, 2, 1]
    assert entries[0][-1] == "expires_at=2020-01-01 12:00:00"
    assert ["ok", "yes"] in lines(succeeds("audit", "verify"))
    assert succeeds("usage") == "nothing was used in these days\n"
    status, _, err = run("tenants", "delete", "acme")
    assert status == 1
    assert "has 2 keys not revoked" in err


def test_a_new_key_is_alone_on_stdout_also_with_quick(run, answer):
    status, out, err = run("keys", "create", "--quick")
    assert (status, re.fullmatch(r"sk-\w{12}-\S+\n", out) is not None) == (0, True)
    assert "OPENAI_API_KEY" in err
    assert out.strip() not in err
    status, again, _ = run("keys", "create", "--quick", "--scope", "models")
    keys = answer("keys", "list", "--tenant", "quick")
    assert keys[0]["scopes"] == ["models"]
    assert {each["id"] for each in keys} == {key.split("-")[1] for key in (out, again)}
    assert [each["name"] for each in answer("tenants", "list")] == ["quick"]
    status, out, _ = run("keys", "rotate", keys[0]["id"])
    assert (status, out.startswith(f"sk-{keys[0]['id']}-")) == (0, True)


def test_each_change_is_in_the_audit_log_under_the_users_name(answer, place):
    answer("tenants", "create", "acme")
    answer("tenants", "delete", "acme")
    entries = answer("audit", "list")
    assert [entry["action"] for entry in entries] == ["tenants.delete", "tenants.create"]
    assert {entry["actor"].partition(":")[0] for entry in entries} == {"cli"}
    assert answer("audit", "list", "--after", "1", "--limit", "5") == entries[:1]
    assert answer("audit", "list", "--limit", "1") == entries[:1]
    assert answer("audit", "verify")["ok"] is True


def test_a_log_that_was_changed_is_reported_and_the_command_fails(answer, place, capfd):
    answer("tenants", "create", "acme")
    with sqlite3.connect(place) as database:
        database.execute("UPDATE audit SET actor = 'nobody'")
    database.close()
    with pytest.raises(SystemExit) as ended:
        main(["audit", "verify", "--json"])
    found = json.loads(capfd.readouterr().out)
    assert (ended.value.code, found["ok"]) == (1, False)
    assert found["problems"][0].startswith("entry 1 is not what was written")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tenants", "create", "a/b"), "Invalid value for 'name'"),
        (("tenants", "create", "a", "--limit", "speed=3"), "'limits.speed' is not supported"),
        (
            ("tenants", "create", "a", "--limit", "requests_per_minut=3"),
            "did you mean 'requests_per_minute'?",
        ),
        (("tenants", "create", "a", "--limit", "burst"), "write NAME=VALUE"),
        (("tenants", "create", "a", "--limit", "burst=many"), "'many' is neither a number"),
        (("tenants", "create", "a", "--limit", "burst=0"), "Invalid value for 'limits.burst'"),
        (("tenants", "create", "a", "--model-limit", "x"), "write MODEL:NAME=VALUE"),
        (("tenants", "create", "a", "--weight", "nan"), "--weight nan: write a number"),
        (("tenants", "update", "a", "--max-priority", "high"), "write an integer"),
        (("tenants", "show", "none"), "There is no tenant 'none'"),
        (("keys", "update", "k", "--model", "a", "--all-models"), "contradict each other"),
        (
            ("keys", "update", "k", "--expires", "tomorrow"),
            "--expires tomorrow: write days or",
        ),
        (("keys", "update", "k", "--expires", "2027-01-31"), "2027-01-31T12:00:00Z, or `never`"),
        (("keys", "update", "k", "--expires", "2027-01-32T12:00:00Z"), "write a time such as"),
        (("keys", "create", "--name", "a"), "give the key's --tenant and --name, or --quick"),
        (("keys", "rotate", "k", "--overlap-s", "-1"), "Invalid value for 'overlap_s'"),
        (("usage", "--from", "yesterday"), "Invalid value for 'from': write a day such as"),
    ],
)
def test_what_is_wrong_is_one_line(fails, arguments, said):
    assert said in fails(*arguments)


def test_without_a_pepper_the_command_says_how_to_make_one(fails, monkeypatch):
    monkeypatch.delenv("KEY_PEPPER")
    err = fails("keys", "create", "--tenant", "a", "--name", "b")
    assert "KEY_PEPPER is not set" in err
    assert "export KEY_PEPPER=$(python3 -c" in err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://user:secret@127.0.0.1:1/none", "the database cannot be reached"),
        ("sqlite:////proc/none/store.db", "the database cannot be reached"),
        ("mysql://host/name", "it must start with sqlite:/// or postgresql://"),
        ("sqlite://", "it names no file"),
        ("store.db", "it is no URL"),
    ],
)
def test_a_wrong_store_is_named_without_its_password(fails, monkeypatch, url, said):
    monkeypatch.setenv("STORE_URL", url)
    err = fails("keys", "list")
    assert "STORE_URL" in err
    assert said in err
    assert "secret" not in err


def test_the_store_is_in_the_data_folder_or_in_artifacts_dir_if_that_is_set(
    place, monkeypatch, tmp_path
):
    def url() -> str:
        return key_store.settled(Settings()).store_url.get_secret_value()

    assert url() == f"sqlite:///{place}"
    monkeypatch.setenv("ARTIFACTS_DIR", str(tmp_path / "built"))
    assert url() == f"sqlite:///{tmp_path}/built/store.db"
    monkeypatch.setenv("STORE_URL", "sqlite:///mine.db")
    assert url() == "sqlite:///mine.db"
    monkeypatch.delenv("STORE_URL")
    monkeypatch.delenv("KEY_PEPPER")
    assert key_store.settled(Settings()).store_url is None


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_the_first_admin_key_and_else_a_file_has_it(
    place, monkeypatch, is_terminal
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    said: list[str] = []
    settings = asyncio.run(key_store.prepared(Settings(), said.append))
    assert settings.store_url is not None
    asyncio.run(key_store.prepared(Settings(), said.append))
    line, _ = said
    file = place.with_suffix(".admin-key")
    if is_terminal:
        assert line.startswith("the first admin key, which is shown only now: sk-")
        assert not file.exists()
    else:
        assert line == f"the first admin key is in {file}, which only this user can read"
        assert file.stat().st_mode & 0o777 == 0o600
        assert re.fullmatch(r"sk-\w{12}-\S+\n", file.read_text())


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (lambda file: file.symlink_to("elsewhere"), "Too many levels of symbolic links"),
        (lambda file: file.symlink_to("/dev/full"), "Too many levels of symbolic links"),
        (Path.mkdir, "Is a directory"),
        (lambda file: os.mknod(file, 0o600 | stat.S_IFSOCK), "No such device or address"),
    ],
)
def test_a_first_admin_key_whose_file_cannot_be_written_is_not_made(place, obstacle, reason):
    place.parent.mkdir(parents=True)
    file, said = place.with_suffix(".admin-key"), list[str]()
    obstacle(file)
    with pytest.raises(LaunchError, match="was not made") as refused:
        asyncio.run(key_store.prepared(Settings(), said.append))
    assert f"{file} cannot be written: {reason}" in str(refused.value)
    assert said == []
    assert not (place.parent / "elsewhere").exists()
    file.rmdir() if file.is_dir() else file.unlink()
    asyncio.run(key_store.prepared(Settings(), said.append))
    assert file.read_text().startswith("sk-")


PRICED, FREE = "price: {input: 1, output: 2}", "aliases: [a]"
BUDGET = ("--limit", "monthly_budget=9.5")
OF_MODEL = ("--model-limit", "free:monthly_budget=3")


@pytest.mark.parametrize(
    ("limits", "entries", "is_warned"),
    [
        (BUDGET, {"free": FREE, "paid": PRICED}, True),
        (OF_MODEL, {"free": FREE, "paid": PRICED}, True),
        (BUDGET, {"paid": PRICED}, False),
        (("--limit", "monthly_tokens=9"), {"free": FREE}, False),
        (BUDGET, {}, False),
    ],
)
def test_a_budget_that_a_model_without_a_price_ignores_is_named_by_the_command_and_the_start(
    run, place, tmp_path, monkeypatch, limits, entries, is_warned
):
    monkeypatch.chdir(tmp_path)
    if entries:
        lines = [f"  {name}: {{weights: w, {rest}}}" for name, rest in entries.items()]
        Path("models.yaml").write_text("\n".join(("models:", *lines, "")))
    status, _, err = run("tenants", "create", "acme", *limits, "--max-priority", "0")
    note = "a monthly_budget does not limit the use of free:"
    assert (status, note in err) == (0, is_warned)
    assert (note in run("tenants", "update", "acme", *limits)[2]) is is_warned
    said: list[str] = []
    asyncio.run(key_store.prepared(Settings(), said.append, unpriced(start.entries(Settings()))))
    assert any(note in line for line in said) is is_warned


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        ("deprecated: 2027-01-01, sunset: 2027-01-30", 29),
        ("deprecated: 2027-01-01, sunset: 2027-01-01", 0),
        ("deprecated: 2027-01-01, sunset: 2027-01-31", None),
        ("deprecated: 2027-01-01", None),
        ("sunset: 2027-01-31", None),
    ],
)
def test_a_sunset_soon_after_the_deprecation_is_named(tmp_path, monkeypatch, dates, days):
    monkeypatch.chdir(tmp_path)
    Path("models.yaml").write_text(f"models:\n  old: {{weights: w, {dates}}}\n")
    said = f"old: sunset is {days} days after deprecated, under 30"
    assert list(early_sunsets(start.entries(Settings()))) == ([] if days is None else [said])


@pytest.mark.parametrize(("option", "is_said"), [((), True), (("--max-priority", "5"), False)])
def test_a_tenant_without_a_ceiling_is_told_that_its_priorities_are_capped(run, option, is_said):
    status, _, err = run("tenants", "create", "acme", *option)
    assert (status, "capped at 0" in err) == (0, is_said)


@pytest.mark.parametrize(
    "change", [("revoke",), ("update", "--scope", "chat"), ("update", "--expires", NO_LONGER)]
)
def test_the_loss_of_the_last_admin_key_is_a_warning(run, answer, change):
    ids = [
        answer("keys", "create", "--quick", "--scope", scope)["id"]
        for scope in ("admin", "admin", "chat")
    ]
    command, *options = change
    said = [
        "no key administers" in run("keys", command, each, *options)[2]
        for each in (*ids[:2], ids[2])
    ]
    assert said == [False, True, False]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "sqlite:///{place}"),
        ("sqlite:///{place}.other", "sqlite:///{place}.other"),
    ],
)
def test_a_new_key_is_said_to_be_in_its_store(run, place, monkeypatch, url, said):
    if url is not None:
        place.parent.mkdir(parents=True)
        monkeypatch.setenv("STORE_URL", url.format(place=place))
    _, _, err = run("keys", "create", "--quick")
    assert f"It is in the store {said.format(place=place)}," in err
    monkeypatch.setenv("STORE_URL", "postgresql://user:secret@host/name")
    assert key_store.name() == "postgresql://user:***@host/name"


@pytest.mark.parametrize(
    ("variables", "command", "needs"),
    [
        ({}, "triton-openai keys", "KEY_PEPPER"),
        ({"STORE_URL": "sqlite:///mine.db"}, "STORE_URL=sqlite:///{here}/mine.db ", "KEY_PEPPER"),
        ({"ARTIFACTS_DIR": "built"}, "STORE_URL=sqlite:///{here}/built/store.db ", "KEY_PEPPER"),
        (
            {"STORE_URL": "postgresql://user:secret@host/name"},
            "triton-openai keys",
            "KEY_PEPPER and STORE_URL",
        ),
    ],
)
def test_the_hint_for_a_key_is_a_whole_command_for_a_shell_with_the_pepper_alone(
    place, monkeypatch, tmp_path, variables, command, needs
):
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = key_store.settled(Settings())
    shown = key_store.quick_key_command(settings)
    assert command.format(here=tmp_path) in shown
    assert "secret" not in shown
    assert key_store.shell_needs(settings) == needs
