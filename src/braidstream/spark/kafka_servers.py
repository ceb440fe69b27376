"""Whether brokers of Kafka answer: asked by a connection, without Spark; then by the client of its connector.

Clients of Kafka try for minutes, in case that a broker comes back; at a start that is a misspelt address, and known
within seconds.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from braidstream.errors import InputError
from braidstream.spark.causes import one_line

__all__ = ["SERVERS", "given", "known_topics", "refuse_unreached", "silence_of"]

SERVERS = "kafka.bootstrap.servers"
"""The option of Spark's connector that names brokers."""
_ANSWER_S, _CONNECT_S = 6.0, 3.0


def silence_of(servers: str, within_s: float) -> str | None:
    """Why none of these brokers (`host:port,...`) can be reached; None where one can be."""
    last, deadline = "there is none", time.monotonic() + within_s
    for server in filter(None, (one.strip() for one in servers.split(","))):
        host, _, port = server.rpartition("://")[2].rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), min(_CONNECT_S, deadline - time.monotonic())):
                return None
        except (OSError, ValueError) as error:
            last = str(error) if host else f"{server} has no port"
        if time.monotonic() > deadline - 0.1:
            break
    return last


def refuse_unreached(what: str, options: Mapping[str, str], kind: type[InputError]) -> None:
    """Refuse options of Spark's connector with brokers of which none can be reached."""
    servers = given(options, SERVERS)
    reason = silence_of(servers, _ANSWER_S)
    if reason is not None:
        raise _silent(what, servers, reason, kind)


def known_topics(spark: SparkSession, what: str, options: Mapping[str, str], kind: type[InputError]) -> list[str]:
    """The topics that brokers have, by the client that the connector brings along; refused where they do not answer."""
    refuse_unreached(what, options, kind)
    jvm = spark._jvm
    settings = jvm.java.util.HashMap()
    own = {key[len("kafka.") :]: value for key, value in options.items() if key.lower().startswith("kafka.")}
    limits = {"request.timeout.ms": "4000", "default.api.timeout.ms": str(int(_ANSWER_S * 1000))}
    for key, value in {**own, **limits}.items():
        settings.put(key, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            return list(admin.listTopics().names().get())
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(1))
    except Py4JJavaError as error:
        raise _silent(what, given(options, SERVERS), one_line(error), kind) from None


def _silent(what: str, servers: str, reason: str, kind: type[InputError]) -> InputError:
    return kind(
        f"{what}: Kafka at {servers} does not answer: {reason}",
        "brokers that can be reached from here",
        f'check "{SERVERS}", and the brokers\' advertised.listeners',
    )


def given(options: Mapping[str, str], name: str) -> str:
    """An option, whose name Spark takes in any case."""
    return next((value for key, value in options.items() if re.fullmatch(re.escape(name), key, re.IGNORECASE)), "")
