"""Secrets in options: told by their names and by how addresses are written, taken out of whatever is said and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.cli.quiet_session import settings_of
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
        ("url", "https://store/x?sv=1&sig={}&se=2"),
        ("url", "https://bucket/x?X-Amz-Signature={}"),
        ("connection", "Endpoint=sb://x/;SharedAccessSignature={}"),
        ("headers", "Authorization: Bearer {}"),
        ("kafka.ssl.keystore.key", "{}"),
        ("ssl.key.pem", "{}"),
        ("private_key_pem", "{}"),
        ("fs.s3a.encryption.key", "{}"),
        ("schema.registry.basic.auth.user.info", "me:{}"),
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
        {"url": "postgresql://db:5432/shop?mail=a@b", "page": "http://h:80/p@q", "design": "basic"},
    ],
)
def test_what_is_no_secret_is_kept_as_it_is(options: dict[str, str]) -> None:
    assert kept_options(options) == options
    refuse_hidden(options, "the sink")


@pytest.mark.parametrize("form", [str, quote, lambda text: quote(text, safe=""), json.dumps, repr])
def test_a_secret_is_taken_out_in_whatever_form_it_is_said(form: Callable[[str], str]) -> None:
    secret = 'pä"ss\\w/ö@rd-7'
    resolved_options({"password": secret})
    assert scrubbed(f"refused: {form(secret)}").replace('"', "").replace("'", "") == f"refused: {HIDDEN}"


@pytest.mark.parametrize("password", ["p@xyzzy-2", "p/xyzzy-2", "p?xyzzy-2", "@xyzzy-2/@"])
def test_a_password_that_nobody_has_escaped_is_hidden_whole(password: str) -> None:
    url = f"postgresql://me:{password}@db:5432/shop"
    assert resolved_options({"url": url}) == {"url": url}
    assert kept_options({"url": url}) == {"url": f"postgresql://me:{HIDDEN}@db:5432/shop"}
    assert scrubbed(f"no {password} at {url}") == f"no {HIDDEN} at postgresql://me:{HIDDEN}@db:5432/shop"


def test_settings_of_spark_may_be_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_KEY", "xyzzy-of-the-store")
    found = settings_of({"spark.hadoop.fs.s3a.secret.key": "env:STORE_KEY", "spark.a": "1"}, ["spark.a=2"])
    assert found == {"spark.hadoop.fs.s3a.secret.key": "xyzzy-of-the-store", "spark.a": "2"}
    assert scrubbed("with xyzzy-of-the-store") == f"with {HIDDEN}"
    with pytest.raises(InputError, match="the environment has no NOBODY_SET_IT"):
        settings_of({"spark.a": "env:NOBODY_SET_IT"}, [])


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
