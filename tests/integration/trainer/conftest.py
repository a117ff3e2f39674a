import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/trainer" in str(item.path):
            item.add_marker(pytest.mark.trainer)
