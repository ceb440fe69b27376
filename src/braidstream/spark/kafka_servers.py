"""Whether brokers of Kafka answer: asked by a connection, without Spark; then by the client of its connector.

Clients of Kafka try for minutes, in case that a broker comes back; at a start that is a misspelt address, and known
within seconds. All brokers are asked at once: one whose packets are dropped takes no time from the others.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from threading import Thread

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from braidstream.errors import InputError
from braidstream.spark.causes import one_line

__all__ = ["SERVERS", "given", "known_topics", "refuse_unreached", "silence_of"]

SERVERS = "kafka.bootstrap.servers"
"""The option of Spark's connector that names brokers."""
_ANSWER_S, _CONNECT_S = 6.0, 3.0
_LIMITS = {
    "request.timeout.ms": "4000",
    "default.api.timeout.ms": str(int(_ANSWER_S * 1000)),
    "socket.connection.setup.timeout.ms": "1500",  # so that it comes to another broker
    "socket.connection.setup.timeout.max.ms": "1500",
}


def silence_of(servers: str, within_s: float) -> str | None:
    """Why none of these brokers (`host:port,...`) can be reached; None where one can be."""
    named = [own for one in servers.split(",") if (own := one.strip())]
    found, deadline = SimpleQueue[str | None](), time.monotonic() + within_s
    for server in named:
        # daemons: a name that nobody resolves takes as long as it takes
        Thread(target=lambda own=server: found.put(_silence(own, min(_CONNECT_S, within_s))), daemon=True).start()
    reasons = ["there is none"] if not named else []
    for _ in named:
        try:
            reason = found.get(timeout=max(deadline - time.monotonic(), 0))
        except Empty:
            return [*reasons, "timed out"][0]
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[-1]


def _silence(server: str, within_s: float) -> str | None:
    """The same of one broker."""
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), within_s):
            return None
    except (OSError, ValueError) as error:
        return str(error) if host else f"{server} has no port"


def refuse_unreached(what: str, options: Mapping[str, str], kind: type[InputError]) -> None:
    """Refuse options of Spark's connector with brokers of which none can be reached."""
    servers = given(options, SERVERS)
    reason = silence_of(servers, _ANSWER_S)
    if reason is not None:
        raise _silent(what, servers, reason, kind)


def known_topics(
    spark: SparkSession, what: str, options: Mapping[str, str], kind: type[InputError]
) -> list[str] | None:
    """The topics that brokers have, by the client that the connector brings along; refused where they do not answer.

    None where it has that client under another name, as Databricks' does: then nobody is asked.
    """
    refuse_unreached(what, options, kind)
    jvm = spark._jvm
    client = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(client, JavaPackage):
        return None
    settings = jvm.java.util.HashMap()
    own = {key[len("kafka.") :]: value for key, value in options.items() if key.lower().startswith("kafka.")}
    for key, value in {**own, **_LIMITS}.items():
        settings.put(key, value)
    try:
        admin = client.create(settings)
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
