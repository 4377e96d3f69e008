"""Every Python example of the README and of the study pages runs, in the order of its page.

A tiny model stands in for the embedded one, so layers and heads are fewer.
"""

import json
import re
from pathlib import Path

import pytest

from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.samples import questions, requests

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STUDIES = sorted((DOCS / "studies").glob("*.md"))
PAGES = [
    ROOT / "README.md", DOCS / "index.md", DOCS / "explorer.md", DOCS / "big_models.md", *STUDIES
]  # fmt: skip
SMALLER = {
    '"smollm2-135m-instruct"': '"tiny:llama3"',
    "range(30)": "range(3)",
    "range(9)": "range(4)",
    '" * 55': '" * 5',
    '" * 200': '" * 9',
    "own_questions(60)": "own_questions(8)",
    "(1, 5)": "(1, 2)",
}


def blocks(page):
    found = re.findall(
        r"^( *)```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.M | re.S
    )
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The tiny tokenizer cuts questions into more tokens than the tiny model is made for.
    monkeypatch.setattr(Parts, "context", 512)
    rows = [json.dumps(row) for row in questions()[:8]]
    Path("questions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    if "./Qwen3-32B" in page.read_text(encoding="utf-8"):
        tiny("qwen3").save_pretrained("Qwen3-32B")
        tiny_tokenizer().save_pretrained("Qwen3-32B")
    space = {}
    examples = blocks(page)
    assert examples, "the page has no example"
    for number, text in enumerate(examples):
        for old, new in SMALLER.items():
            text = text.replace(old, new)
        exec(compile(text, f"{page.name} example {number}", "exec"), space)


TABS = {
    "harmful, harmless)  #": 'harmful, harmless, detectors={"any": bool}, max_new_tokens=4, '
    "generate=1, layers=[1])  #",
    "range(30)": "range(3)",
    "layer=3": "layer=2",
    "blocks.3": "blocks.2",
}


def tabs(tool):
    """The Python of one tool's tabs, and what stands before all tabs."""
    page = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    first, *rest = re.split(r"^=== ", page, flags=re.M)
    own = [text for text in rest if text.startswith(f'"{tool}"')]
    for text in [first, *own]:
        for found in re.findall(r"^ *```python\n(.*?)^ *```", text, re.M | re.S):
            yield re.sub(r"^    ", "", found, flags=re.M)


@pytest.mark.parametrize("tool", ["tlkit", "TransformerLens"])
def test_tasks_side_by_side_run(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Parts, "context", 512)
    model = HookedTransformer.from_pretrained("tiny:llama3")
    rows = requests()[::13]
    space = {"model": model, "metric": lambda logits: logits[0, -1, 0], "subject": slice(2, 4)}
    space |= {
        label: [row["prompt"] for row in rows if row["label"] == old]
        for label, old in {"harmful": "refuse", "harmless": "harmless"}.items()
    }
    for text in tabs(tool):
        for old, new in {**SMALLER, **TABS}.items():
            text = text.replace(old, new)
        exec(compile(text, tool, "exec"), space)
        if "clean_tokens" not in space:
            for name in ("clean", "corrupted"):
                space[f"{name}_tokens"] = model.to_tokens(space[name])
            space["tokens"] = space["clean_tokens"]


def test_commands_of_the_readme_exist():
    from tlkit.cli.app import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^tlkit (\w+)", text, re.M))
    there = {command.name for command in app.registered_commands}
    assert named
    assert named <= there


@pytest.mark.parametrize("page", [*PAGES, DOCS / "checks.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
