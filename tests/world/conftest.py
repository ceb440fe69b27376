"""Servers that run for the tests of a run; nothing here is collected without `--world`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.world import servers


@pytest.fixture(scope="session")
def postgresql() -> Iterator[servers.Postgresql]:
    with servers.postgresql() as running:
        yield running


@pytest.fixture(scope="session")
def kafka() -> Iterator[servers.Kafka]:
    with servers.kafka() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[servers.S3]:
    if not servers.MINIO.exists():
        pytest.skip(servers.NO_MINIO)
    with servers.s3() as running:
        yield running
