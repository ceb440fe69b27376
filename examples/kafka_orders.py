"""Sends orders and payments to two Kafka topics: the streams of examples/kafka_to_delta.toml and kafka_to_kafka.toml.

    python examples/kafka_orders.py localhost:9092

Every order is paid once, within ten minutes of its own time, but for one in ten. Run it again for an hour more.
The topic `paid` is made for the results of the latter.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta, timezone
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS = 2000


def main(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    missing = {"orders", "payments", "paid"} - set(admin.list_topics(timeout=10).topics)
    for made in admin.create_topics([NewTopic(name, 4) for name in missing]).values() if missing else ():
        made.result()
    random, producer = Random(1), Producer({"bootstrap.servers": servers})
    first, begun = int(time.time()) * 10_000, datetime.now(timezone.utc) - timedelta(hours=2)
    n_paid = 0
    for number in range(first, first + ORDERS):
        at = begun + timedelta(seconds=random.uniform(0, 3600))
        amount = round(random.uniform(1, 500), 2)
        send(producer, "orders", {"id": number, "customer": random.randint(1, 50), "amount": amount, "at": at})
        if random.random() < 0.9:
            n_paid += 1
            send(
                producer,
                "payments",
                {"id": number, "paid": amount, "at": at + timedelta(minutes=random.uniform(0, 10))},
            )
    producer.flush()
    print(f"{ORDERS} orders, {n_paid} paid")


def send(producer: Producer, topic: str, value: dict[str, object]) -> None:
    """As JSON, keyed by the order."""
    text = json.dumps({**value, "at": value["at"].isoformat(timespec="milliseconds")})  # type: ignore[attr-defined]
    producer.produce(topic, text, key=str(value["id"]))
    producer.poll(0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
