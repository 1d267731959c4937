"""What holds for every test: no test touches the user's own swarms."""

import os
from pathlib import Path

import pytest

# Small models, many processes: threads that spin while they wait take the machine from all of them.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's swarms are kept, also by the commands it starts."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("WAGGLE_HOME", str(folder))
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures that tests record are printed, whether anybody writes an XML of them or not."""
    reports = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    figures = [(report.nodeid, name, figure) for report in reports for name, figure in report.user_properties]
    if figures:
        terminalreporter.section("figures")
    for test, name, figure in figures:
        terminalreporter.line(f"{test}: {name}: {figure}")
