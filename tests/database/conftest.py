"""Fixtures of tests with a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path, database)
    yield made
    made.close()
