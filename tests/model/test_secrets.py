"""Secrets in options: told by their names and by how addresses are written, taken out of whatever is said and kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.errors import InputError, SinkFailed
from braidstream.hiding import HIDDEN, scrubbed
from braidstream.model.secrets import kept_options, refuse_hidden, resolved_options

PLAIN = st.text(st.characters(min_codepoint=48, max_codepoint=122, categories=["L", "N"]), min_size=6, max_size=20)


@given(secret=PLAIN.map(lambda text: f"hunter2{text}"))
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("password", "{}"),
        ("kafka.ssl.key.password", "{}"),
        ("fs.s3a.secret.key", "{}"),
        ("fs.s3a.access.key", "{}"),
        ("apiKey", "{}"),
        ("auth_token", "{}"),
        ("url", "postgresql://me:{}@db:5432/shop"),
        ("url", "jdbc:postgresql://db/shop?user=me&password={}&ssl=true"),
        ("url", "host=db user=me password={} dbname=shop"),
        ("kafka.sasl.jaas.config", 'org.apache.PlainLoginModule required username="me" password="{}";'),
    ],
)
def test_what_is_kept_and_said_has_no_secret(name: str, form: str, secret: str) -> None:
    options = {name: form.format(secret), "table": "out"}
    assert resolved_options(options) == options
    kept = kept_options(options)
    assert secret not in str(kept)
    assert kept["table"] == "out"
    assert secret not in scrubbed(f"could not connect to {options[name]} with {secret}")
    assert secret not in str(SinkFailed("q", 3, f"refused {secret} by {options[name]}"))
    with pytest.raises(InputError, match="secrets are not kept"):
        refuse_hidden(kept, "the sink")


@pytest.mark.parametrize(
    "options",
    [
        {"key": "R.k", "topic": "tokens-of-users", "servers": "a:9092,b:9092"},
        {"url": "postgresql://db/shop", "table": "passwords"},
        {"path": "s3://bucket/secret/out", "keys": "3"},
    ],
)
def test_what_is_no_secret_is_kept_as_it_is(options: dict[str, str]) -> None:
    assert kept_options(options) == options
    refuse_hidden(options, "the sink")


def test_a_value_from_the_environment_is_kept_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "postgresql://me:xyzzy-1@db/shop")
    options = {"url": "env:SHOP_URL", "table": "out"}
    assert resolved_options(options)["url"] == "postgresql://me:xyzzy-1@db/shop"
    assert kept_options(options) == options
    assert "xyzzy-1" not in scrubbed("no answer from postgresql://me:xyzzy-1@db/shop")
    monkeypatch.delenv("SHOP_URL")
    with pytest.raises(InputError, match="the environment has no SHOP_URL") as caught:
        resolved_options(options, "the sink of q")
    assert "export SHOP_URL=" in caught.value.fix


def test_a_hidden_value_is_one_that_can_be_told_from_other_words() -> None:
    resolved_options({"password": "a"})
    assert scrubbed("a word") == "a word"
    assert HIDDEN not in scrubbed("another")
