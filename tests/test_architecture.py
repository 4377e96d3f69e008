"""What holds in every file: import direction, sizes, what loads at start, forbidden calls."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tlkit"
FILES = sorted(PACKAGE.rglob("*.py"))

# Left to right: an import may only point to a folder of a lower number. Folders of one number
# may not import each other.
ORDER = {
    "errors": 0,
    "shapes": 0,
    "spec": 1,
    "models": 2,
    "prompts": 3,
    "results": 4,
    "engine": 5,
    "checks": 6,
    "studies": 6,
    "plots": 7,
    "app": 8,
    "cli": 9,
}
HEAVY = {"torch", "transformer_lens", "transformers", "plotly", "sklearn", "numpy", "xarray"}
MAX_FILE, MAX_FUNCTION = 260, 60
GLOBAL_STATE = {
    "torch.manual_seed",
    "torch.set_default_dtype",
    "torch.set_num_threads",
    "np.random.seed",
    "numpy.random.seed",
    "random.seed",
}
# Gives back to the process what importing other libraries changed.
RESTORES_GLOBAL_STATE = {"tlkit/models/quiet.py"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that the file imports, inside functions too, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def folder(module: str) -> str | None:
    """The folder (or file) under tlkit that a dotted name points to; None outside tlkit."""
    parts = module.split(".")
    return parts[1] if parts[0] == "tlkit" and len(parts) > 1 else None


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def wrong_imports(place: str, tree: ast.AST) -> list[str]:
    """Imports in a file of the folder `place` that point to the right or sideways."""
    wrong = []
    for line, module in imported_modules(tree):
        target = folder(module)
        if target in {None, place, "__version__"}:
            continue
        if target not in ORDER:
            wrong.append(f"line {line}: {module} is in no folder of ORDER")
        elif ORDER[target] >= ORDER[place] and not {place, target} <= {"errors", "shapes"}:
            wrong.append(f"line {line}: {place} must not import {module}")
    return wrong


def wrong_calls(tree: ast.AST, forbidden: set[str] = GLOBAL_STATE) -> list[str]:
    """Calls and imports that library code must not contain."""
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            keywords = {k.arg: k.value for k in node.keywords}
            if name == "print" or name in forbidden:
                wrong.append(f"line {node.lineno}: {name}()")
            if name == "torch.load" and not is_true(keywords.get("weights_only")):
                wrong.append(f"line {node.lineno}: torch.load without weights_only=True")
            if is_true(keywords.get("allow_pickle")):
                wrong.append(f"line {node.lineno}: allow_pickle=True")
    pickles = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for line, module in imported_modules(tree):
        if module.split(".")[0] in pickles:
            wrong.append(f"line {line}: {module}")
    return wrong


def is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", [f for f in FILES if f != PACKAGE / "__init__.py"], ids=relative)
def test_imports_point_to_the_left(path):
    place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert wrong_imports(place, tree_of(path)) == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= MAX_FILE
    long = {
        f.name: length
        for f in functions(ast.parse(text))
        if (length := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION
    }
    assert long == {}


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_print_no_pickle_no_global_state(path):
    forbidden = set() if relative(path) in RESTORES_GLOBAL_STATE else GLOBAL_STATE
    assert wrong_calls(tree_of(path), forbidden) == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_shapes_are_checked_at_run_time(path):
    """Postponed annotations would hide tensor shapes from the run-time checker."""
    modules = {module for _, module in imported_modules(tree_of(path))}
    jaxtyped = any(module.split(".")[0] == "jaxtyping" for module in modules)
    assert not (jaxtyped and "__future__.annotations" in modules)


def test_the_checks_above_see_what_they_forbid():
    source = (
        "from tlkit.plots.style import palette\n"
        "import tlkit.engine.run\n"
        "from tlkit import run\n"
        "from tlkit import __version__\n"
        "def f():\n"
        "    from tlkit.errors import SpecError\n"
        "    import pickle\n"
        "    print(1)\n"
        "    torch.load('x')\n"
        "    torch.load('x', weights_only=True)\n"
        "    np.load('x', allow_pickle=True)\n"
        "    torch.manual_seed(0)\n"
    )
    tree = ast.parse(source)
    assert [line.split(":")[0] for line in wrong_imports("results", tree)] == [
        "line 1",
        "line 2",
        "line 3",
    ]
    assert sorted(line.split(":")[0] for line in wrong_calls(tree)) == [
        "line 11",
        "line 12",
        "line 7",
        "line 8",
        "line 9",
    ]


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_tlkit_loads_nothing_heavy():
    assert modules_after("import tlkit; dir(tlkit)") & HEAVY == set()


def test_the_specification_loads_no_model_library():
    loaded = modules_after("import tlkit; tlkit.Site, tlkit.Sweep, tlkit.Patch, tlkit.KL")
    assert loaded & {"torch", "transformer_lens", "transformers", "plotly", "sklearn"} == set()


def test_every_public_name_resolves():
    tlkit = importlib.import_module("tlkit")
    for name in tlkit.__all__:
        assert getattr(tlkit, name) is not None
    assert set(tlkit.__all__) <= set(dir(tlkit))
    assert isinstance(tlkit.__version__, str)


def test_the_table_of_names_agrees_with_what_type_checkers_read():
    tlkit = importlib.import_module("tlkit")
    told = {
        alias.name: node.module
        for top in tree_of(PACKAGE / "__init__.py").body
        if isinstance(top, ast.If)
        for node in top.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == tlkit._MODULE
    assert set(tlkit.__all__) == set(told)


def test_an_unknown_name_is_an_attribute_error():
    tlkit = importlib.import_module("tlkit")
    with pytest.raises(AttributeError, match="module 'tlkit' has no attribute 'nonsense'"):
        _ = tlkit.nonsense
