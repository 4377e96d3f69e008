"""Provenance says how to run it again, in values that a store can hold."""

import json
from datetime import datetime
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from tlkit.results import files
from tlkit.results.provenance import provenance
from tlkit.results.schema import build


@pytest.fixture
def about(monkeypatch):
    from tlkit.models import info

    about = SimpleNamespace(
        source="tiny:llama",
        revision=None,
        family="LlamaForCausalLM",
        dtype="float32",
        bos=True,
        weight_hash="ab12",
        tokenizer_hash="cd34",
    )
    monkeypatch.setattr(info, "info", lambda model: about)
    return about


class OnePrompt:
    def hash(self):
        return "ef56"

    def __len__(self):
        return 1


def test_everything_needed_is_said_and_survives_a_store(about, tmp_path):
    attrs = provenance(
        object(), OnePrompt(), spec={"b": [1], "a": None}, seed=3, engine="packed", seconds=1.5
    )
    assert attrs["model"] == "tiny:llama"
    assert attrs["revision"] == ""
    assert (attrs["prompt_hash"], attrs["prompts"], attrs["seed"]) == ("ef56", 1, 3)
    assert attrs["spec"] == '{"a": null, "b": [1]}'
    assert json.loads(attrs["packages"])["numpy"] == version("numpy")
    assert datetime.fromisoformat(attrs["created"]).tzinfo is not None
    ds = build({"kl": (("layer",), [0.5])}, attrs=attrs)
    assert files.open(files.save(ds, tmp_path / "x.zarr")).attrs == {"schema_version": 1, **attrs}


def test_what_was_not_used_is_not_said():
    attrs = provenance(None, study="detectors")
    assert not {"model", "seed", "prompt_hash", "spec"} & attrs.keys()
    assert attrs["study"] == "detectors"
