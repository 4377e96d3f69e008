"""Write the table of public names, and the API pages of the studies, from the docstrings.

python scripts/names.py             # docs/names.md and docs/api/studies.md
python scripts/names.py --check     # says which of them is not up to date
"""

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import tlkit

DOCS = Path(__file__).parents[1] / "docs"
STUDIES = ("ablation", "abliteration", "conditions", "layer_probes", "lenses", "patching",
           "pathways", "variance")  # fmt: skip


def first_sentence(found: Any) -> str:
    """Of a docstring; what a constant is, by its type."""
    if not (inspect.isclass(found) or callable(found) or inspect.ismodule(found)):
        return f"a {type(found).__name__}"
    filled = getattr(found, "keywords", {})  # of a partial
    text = " ".join((inspect.getdoc(getattr(found, "func", found)) or "").split("\n\n")[0].split())
    told = f" Activation: `{filled['activation_name']}`." if "activation_name" in filled else ""
    return text.replace("|", "\\|") + told


def public(module: ModuleType) -> dict[str, Any]:
    """What a study's module offers: what it defines or takes in, modules and private names out."""
    listed = getattr(module, "__all__", None)
    found = {name: getattr(module, name) for name in listed or dir(module)}
    return {
        name: value
        for name, value in sorted(found.items())
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and (listed or str(getattr(value, "__module__", "tlkit")).startswith("tlkit"))
    }


def table(names: dict[str, Any], prefix: str) -> list[str]:
    """Rows of a Markdown table."""
    rows = [f"| `{prefix}{name}` | {first_sentence(value)} |" for name, value in names.items()]
    return ["| name | what it is |", "| --- | --- |", *rows, ""]


def names_page() -> str:
    """docs/names.md."""
    top = {name: getattr(tlkit, name) for name in sorted(tlkit.__all__, key=str.lower)}
    lines = ["# Public names", "", "Written from the docstrings; everything else may change.", ""]
    lines += table(top, "tk.")
    for study in (*STUDIES, "plots"):
        lines += [f"## `tk.{study}`", "", *table(public(getattr(tlkit, study)), f"tk.{study}.")]
    return "\n".join(lines)


def studies_page() -> str:
    """docs/api/studies.md."""
    lines = ["# Studies", ""]
    for study in STUDIES:
        lines += [f"## `tk.{study}`", ""]
        for name, value in public(getattr(tlkit, study)).items():
            home = getattr(value, "__module__", "")
            if home.startswith("tlkit") and getattr(value, "__qualname__", "") == name:
                lines.append(f"::: {home}.{name}")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write, or compare."""
    pages = {"names.md": names_page(), "api/studies.md": studies_page()}
    for name, text in pages.items():
        path = DOCS / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/{name} is not up to date: run python scripts/names.py")


if __name__ == "__main__":
    main()
