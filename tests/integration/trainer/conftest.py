from collections.abc import Iterator

import pytest

from tests.integration.trainer.job import Zygote


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/trainer" in str(item.path):
            item.add_marker(pytest.mark.trainer)


@pytest.fixture(scope="session", autouse=True)
def zygote() -> Iterator[None]:
    yield
    Zygote.end()
