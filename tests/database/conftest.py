"""Fixtures of tests with a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Iterator[Cluster]:
    result = Cluster(tmp_path, database)
    yield result
    result.close()
