"""Every Python example of the README and of the study pages runs, in the order of its page.

A tiny model stands in for the embedded one, so layers and heads are fewer.
"""

import json
import re
from pathlib import Path

import pytest

from tlkit.models.bridge import Parts
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.samples import questions

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
