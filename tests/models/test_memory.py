"""What a model takes is told before it is loaded, and compared with what there is."""

import psutil
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models import memory
from tlkit.models.tiny import FAMILIES, tiny


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_what_the_weights_take(family):
    model = tiny(family)
    taken = sum(weight.nbytes for weight in model.parameters())
    skeleton = memory.on_meta(model.config)
    assert all(weight.is_meta for weight in skeleton.parameters())
    assert memory.weight_bytes(skeleton, torch.float32) == taken
    assert memory.weight_bytes(skeleton, torch.bfloat16) == taken / 2


def test_a_container_may_have_less_than_the_machine(tmp_path, monkeypatch):
    for name, text in {
        "max": "5000000\n",
        "current": "4500000\n",
        "stat": "anon 1\ninactive_file 300000\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CGROUPS", ((tmp_path / "max", tmp_path / "current"),))
    monkeypatch.setattr(memory, "_STATISTICS", (tmp_path / "stat",))
    assert memory.available_memory() == 800_000
    (tmp_path / "max").write_text("max\n")
    available = memory.available_memory()
    assert available == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_machine_without_containers_has_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CGROUPS", ((tmp_path / "none", tmp_path / "none"),))
    monkeypatch.setattr(memory, "_STATISTICS", (tmp_path / "none",))
    available = memory.available_memory()
    assert available == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_model_that_just_fits_is_let_through(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 1.2e9)
    memory.check_memory("it", 1e9, torch.float32, "cpu")
    monkeypatch.setattr(memory, "available_memory", lambda _: 1.0e9)
    with pytest.raises(SpecError, match=r"it needs about 1\.1 GB in float32 and 1 GB are free"):
        memory.check_memory("it", 1e9, torch.float32, "cpu")
