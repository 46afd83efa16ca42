"""A server for the tests of this folder; without one they fail, they are never skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import postgres
import pytest

from llc.runtime.database import schema
from llc.runtime.database.connection import Address


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server | None]:
    """The server of this session; None where `LLC_TEST_DATABASE_URL` names one."""
    if os.environ.get("LLC_TEST_DATABASE_URL"):
        yield None
        return
    found = postgres.Server()
    yield found
    found.close()


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that the test may stop and restart."""
    found = postgres.Server()
    yield found
    found.close()


@pytest.fixture
def empty(server: postgres.Server | None) -> str:
    """The URL of an empty database."""
    if server is None:
        return postgres.new_database(os.environ["LLC_TEST_DATABASE_URL"])
    return server.database()


@pytest.fixture
def url(empty: str) -> str:
    """The URL of a database with our tables."""
    schema.initialise(Address.of(empty))
    return empty
