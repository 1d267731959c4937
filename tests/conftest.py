"""What holds for every test: no test touches the user's own swarms."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's swarms are kept, also by the commands it starts."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("WAGGLE_HOME", str(folder))
    return folder
