"""The table of public names and the API pages are what the docstrings say, and none is bare."""

import importlib.util
import inspect
from pathlib import Path

import pytest

import tlkit

SCRIPT = Path(__file__).parents[1] / "scripts" / "names.py"
spec = importlib.util.spec_from_file_location("names", SCRIPT)
assert spec is not None and spec.loader is not None
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)

EVERY = [("tk", tlkit, sorted(tlkit.__all__))] + [
    (study, getattr(tlkit, study), sorted(names.public(getattr(tlkit, study))))
    for study in (*names.STUDIES, "plots")
]


def test_pages_are_up_to_date():
    assert names.names_page() == (names.DOCS / "names.md").read_text(encoding="utf-8")
    assert names.studies_page() == (names.DOCS / "api" / "studies.md").read_text(encoding="utf-8")


def described(value):
    text = inspect.getdoc(getattr(value, "func", value)) or ""
    return " ".join(text.split("Args:")[-1].split()) if "Args:" in text else ""


@pytest.mark.parametrize(
    ("place", "name"),
    [(place, name) for place, _, some in EVERY for name in some],
)
def test_every_name_says_what_it_is_and_every_argument_what_it_does(place, name):
    value = getattr(next(module for where, module, _ in EVERY if where == place), name)
    if inspect.ismodule(value) or not (inspect.isfunction(value) or inspect.isclass(value)):
        return
    assert names.first_sentence(value), f"{place}.{name} has no docstring"
    if place == "patching" and name.startswith(("get_act", "layer_", "make_", "generic")):
        return  # TransformerLens's own functions, described there
    text = inspect.getdoc(value) or ""
    if not inspect.isfunction(value) or "same arguments" in text or "arguments are those" in text:
        return
    told, arguments = described(value), inspect.signature(value).parameters
    if len(arguments) > 1:  # of one alone the summary says what it is
        for argument in arguments:
            assert f"{argument}:" in told, f"{place}.{name} does not describe {argument}"
