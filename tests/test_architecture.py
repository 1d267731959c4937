"""Imports point down, heavy libraries stay in their rooms, and nothing runs what it reads."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "waggledance"
FILES = sorted(PACKAGE.rglob("*.py"))

TORCH_ROOMS = (
    "model.py", "smollm2.py", "kernels.py", "prefix.py", "cache.py", "forward.py", "recompute.py",
    "checkpoint.py", "adapter.py",
    "policy/hf.py", "policy/growing.py", "policy/reader.py", "learner/", "bench/round.py",
    "cli/assemble.py", "cli/lab.py", "cli/minds.py", "lab/lexicon.py", "lab/llama.py",
    "lab/lot.py", "lab/sheet.py", "lab/stack.py", "lab/warmup.py",
)  # fmt: skip
ROOMS_OF = {
    "torch": TORCH_ROOMS,
    "transformers": TORCH_ROOMS,
    "safetensors": TORCH_ROOMS,
    "peft": ("adapter.py",),
    "zenoh": ("swarm/zenoh.py",),
    "reasoning_gym": ("tasks/generator.py",),
    "matplotlib": ("view/picture.py", "lab/figure.py", "lab/map.py"),
    "rich": ("view/", "cli/"),
    "multiprocessing": ("cli/processes.py", "cli/lab.py"),
    "starlette": ("view/routes.py",),
    "uvicorn": ("view/page.py",),
    "prometheus_client": ("view/metrics.py",),
    "subprocess": ("smollm2.py", "tasks/child.py", "verify/cage.py", "bench/"),
    "ctypes": ("verify/fence.py", "allocator.py"),
}

LAYERS = {
    "verify": set[str](),
    "tasks": {"verify"},
    "sharing": set[str](),
    "policy": set[str](),
    "learner": set[str](),
    "swarm": set[str](),
    "view": set[str](),
    "bench": {"verify", "tasks", "sharing", "policy", "learner", "swarm"},
    "lab": {"verify", "tasks", "sharing", "learner", "swarm", "view"},
    "cli": {"verify", "tasks", "sharing", "policy", "learner", "swarm", "view", "bench", "lab"},
}
"""Which rooms a room may import, besides the nouns; node.py, cli and, to measure them, bench put them
together."""
NODE_MAY_IMPORT = {"sharing"}
TORCH_NOUNS = {"model", "adapter", "smollm2", "kernels", "prefix", "cache", "forward", "checkpoint"}
MAY_TAKE_NODES = {"bench": {"node"}, "lab": {"node", "evaluate"}}
TOP = {"node", "evaluate", "__main__", "cli"}
"""What no room below may import."""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def own_imports(path: Path) -> set[str]:
    """The rooms and nouns of the package that a file imports."""
    names = (name.split(".") for name in imports(path))
    return {parts[1] for parts in names if parts[0] == "waggledance" and len(parts) > 1}


@pytest.mark.parametrize("path", FILES, ids=place)
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    for name in imports(path):
        rooms = ROOMS_OF.get(name.split(".")[0])
        assert rooms is None or place(path).startswith(rooms), f"{place(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=place)
def test_imports_point_down(path: Path) -> None:
    room, _, inside = place(path).partition("/")
    taken = own_imports(path)
    if inside:
        assert taken & LAYERS.keys() <= LAYERS[room] | {room}
        assert room == "cli" or not taken & (TOP - MAY_TAKE_NODES.get(room, set()))
    elif room == "node.py":
        assert taken & LAYERS.keys() <= NODE_MAY_IMPORT
    elif room != "__main__.py":
        assert not taken & LAYERS.keys()


@pytest.mark.parametrize("path", FILES, ids=place)
def test_only_the_torch_rooms_import_the_model(path: Path) -> None:
    tree = ast.parse(path.read_text())
    at_import_time = [
        node.module.split(".")[1]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("waggledance.")
    ]
    if TORCH_NOUNS & set(at_import_time):
        assert place(path).startswith(TORCH_ROOMS)


FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("path", FILES, ids=place)
def test_nothing_runs_what_it_reads(path: Path) -> None:
    assert not FORBIDDEN_MODULES & {name.split(".")[0] for name in imports(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"{place(path)}:{node.lineno}"
        if isinstance(node, ast.keyword):
            assert node.arg != "trust_remote_code" or ast.unparse(node.value) == "False"


def test_broad_excepts_stand_in_three_places_only() -> None:
    broad = {
        place(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    }
    assert broad <= {"swarm/wire.py", "cli/main.py", "verify/warden.py"}


def test_the_round_is_six_verbs() -> None:
    tree = ast.parse((PACKAGE / "node.py").read_text())
    [trunk] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "round"]
    verbs = [
        node.func.attr
        for node in ast.walk(trunk)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert verbs == ["draw", "generate", "verify", "share", "sample", "learn"]
    assert len(trunk.body) == 6


@pytest.mark.parametrize(
    "module",
    [
        "waggledance.cli.main",
        "waggledance.node",
        "waggledance.swarm.zenoh",
        "waggledance.view.terminal",
        "waggledance.view.page",
    ],
)
def test_works_without_torch(module: str) -> None:
    verbs = "from waggledance.cli.main import parser; parser(())" if module.endswith("main") else ""
    heavy = "{'torch', 'transformers', 'reasoning_gym'} & sys.modules.keys()"
    code = f"import sys, {module}\n{verbs}\nassert not {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
