"""The files under deploy/: every command in them is one of ours, and together they work."""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli_run import PATIENCE_S, environment, told, waggle, wait_until
from waggledance.cli.main import parser
from waggledance.config import read_config
from waggledance.events import Sampled

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
SCRIPTED = {
    "WAGGLE_POLICY_KIND": "scripted",
    "WAGGLE_LEARNER_KIND": "none",
    "WAGGLE_TASKS": "arithmetic",
    "WAGGLE_ROUNDS": "1000000",
}
EMPTY_NETWORK = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]
"""A network with nothing in it but a loopback interface, for as long as the command's input is open."""


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def exec_start(unit: Path) -> list[str]:
    [line] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart=").replace("%i", "alice"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_s_command_is_one_of_ours(unit: Path) -> None:
    program, *words = exec_start(unit)
    assert Path(program).name == "waggle"
    options, unknown = parser(words).parse_known_args(words)
    assert not unknown
    assert options.verb == unit.name.removeprefix("waggle-").split(".")[0].replace("node@", "up")


def test_three_nodes_and_a_router_are_composed_of_commands_of_ours() -> None:
    services = compose()["services"]
    assert sorted(services) == ["ant", "bee", "cicada", "router"]
    for name, service in services.items():
        options, unknown = parser(service["command"]).parse_known_args(service["command"])
        assert not unknown
        if name != "router":
            flags = {key: value for key, value in vars(options).items() if "." in key and value is not None}
            assert read_config(None, {}, flags | {"name": options.name}).name == name


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))),
    reason="the router has a fixed port, so it gets its own network: needs root, unshare, nsenter and ip",
)
def test_what_is_composed_works_together(tmp_path: Path) -> None:
    """The very commands and tickets of compose.yaml, as processes; scripted, so that it is quick."""
    endpoint = ("--router", "tls/localhost:7447")
    home = ("--home", str(tmp_path / "home"))
    tickets = {
        "ROUTER_TICKET": waggle(tmp_path, "invite", "three", *endpoint, "--for", "router", *home),
        "MEMBER_TICKET": waggle(tmp_path, "invite", "three", *home),
    }
    with ExitStack() as ends:
        network = subprocess.Popen(EMPTY_NETWORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ends.enter_context(network)
        assert network.stdout
        assert network.stdout.readline() == b"up\n"
        for name, service in _substituted(tickets).items():
            inside = ["nsenter", f"--net=/proc/{network.pid}/ns/net", *_command(service)]
            log = ends.enter_context((tmp_path / f"{name}.txt").open("wb"))
            process = subprocess.Popen(inside, cwd=tmp_path, env=environment() | SCRIPTED, stderr=log)
            ends.callback(process.wait, PATIENCE_S)
            ends.callback(process.terminate)
        journals = [tmp_path / "runs" / name / "journal.jsonl" for name in ("ant", "bee", "cicada")]
        wait_until(lambda: all(journal.exists() for journal in journals), "three journals")
        wait_until(
            lambda: all(len(_givers(journal)) == 2 for journal in journals),
            "each of the three takes from both others",
        )


def _substituted(tickets: dict[str, subprocess.CompletedProcess[str]]) -> dict[str, Any]:
    services = compose()["services"]
    for service in services.values():
        variable = service["environment"]["WAGGLE_SWARM_TICKET"].removeprefix("${").partition(":")[0]
        service["environment"] = {"WAGGLE_SWARM_TICKET": tickets[variable].stdout.split()[0]}
    return services


def _command(service: dict[str, Any]) -> list[str]:
    variables = [f"{name}={value}" for name, value in service["environment"].items()]
    return ["env", *variables, sys.executable, "-m", "waggledance", *service["command"]]


def _givers(journal: Path) -> set[str]:
    return {author for sampled in told(journal, Sampled) for author in sampled.by_author}
