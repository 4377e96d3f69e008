"""Weights that stay on disk: the same numbers, each block read once a group, nothing kept."""

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.checks.samples import sample_pairs
from tlkit.engine.capture import capture
from tlkit.engine.cumulative import cumulative
from tlkit.engine.edits import Compiler
from tlkit.engine.route import route_of
from tlkit.engine.run import run
from tlkit.engine.sequences import Sequences
from tlkit.models.bridge import Parts
from tlkit.models.info import info
from tlkit.models.load import HookedTransformer
from tlkit.models.stored import Stored
from tlkit.models.streamed import layers_of
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import AnswerProb
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep
from tlkit.studies.layer_probes.activations import Activations

FAMILIES = ("llama3", "gpt2", "gemma2", "qwen3", "neox", "opt", "phi3")
LAYERS, BYTES = range(3), "100KB"  # of a shard, so that there are several


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A function from a family to the folder of its tiny model, in several shards."""
    made = {}

    def make(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            tiny(family).save_pretrained(made[family], max_shard_size=BYTES)
            tiny_tokenizer().save_pretrained(made[family])
        return made[family]

    return make


@pytest.fixture(scope="module")
def both(folder):
    """A function from a family to its model in memory and on disk, the latter tried out."""
    made = {}

    def load(family, dtype="float32"):
        key = family, dtype
        if key not in made:
            made[key] = [
                HookedTransformer.from_pretrained(
                    folder(family), device="cpu", dtype=dtype, stream=stream
                )
                for stream in (False, True)
            ]
            route_of(Parts(made[key][1]))
            assert info(made[key][0]).weight_hash == info(made[key][1]).weight_hash
        return made[key]

    return load


class Counted:
    """How often each block is read while this is open, and that nothing stays behind."""

    def __init__(self, model):
        self.layers = layers_of(model)

    def __enter__(self):
        self.before = list(self.layers.loads)
        return self

    def __exit__(self, *_):
        pairs = zip(self.before, self.layers.loads, strict=True)
        self.passes = [after - before for before, after in pairs]
        assert self.layers.in_memory == 0


def same(first, second, tolerance=1e-5):
    for name in first.data_vars:
        if first[name].dtype.kind == "f":
            np.testing.assert_allclose(
                first[name].values, second[name].values, 1e-5, tolerance, err_msg=str(name)
            )


SWEEPS = {
    "stream": Sweep(Patch(Site("resid_pre")), layer=LAYERS, pos=range(9)),
    "heads": Sweep(Patch(Site("z")), layer=LAYERS, head=range(4)),
    "inside": Sweep(Patch(Site("mlp_out")), layer=LAYERS, pos=range(9)),
    "knockout": Sweep(Knockout(keys=(1, 2)), layers=LAYERS, mode=("zero", "-inf")),
    "means": Sweep(Ablate(Site("attn_out"), value="mean"), layer=LAYERS),
}


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sweep_is_the_one_in_memory_and_reads_each_block_once(both, projection, family, sweep):
    here, there = both(family)
    pairs = sample_pairs(Parts(here), seed=0)
    wanted = run(here, pairs, SWEEPS[sweep], projection)
    with Counted(there) as counted:
        found = run(there, pairs, SWEEPS[sweep], projection)
    same(wanted, found)
    assert float(np.nanmax(np.abs(wanted["effect"].values))) > 1e-3
    assert counted.passes == [1, 1, 1]
    assert found.attrs["engine"] == "packed"


def test_groups_that_do_not_fit_the_budget_read_it_again(both, projection):
    here, there = both("llama3")
    pairs = sample_pairs(Parts(here), seed=0)
    with Counted(there) as counted:
        found = run(there, pairs, SWEEPS["stream"], projection, budget="300KB")
    same(run(here, pairs, SWEEPS["stream"], projection), found)
    assert counted.passes == [3, 3, 3]  # the examples one by one


CLEAN = [[0, 40, 41, 300, 17], [0, 290, 12, 33, 90, 91, 7], [0, 50, 60, 70, 80, 90]]
CORRUPTED = [[0, 44, 41, 300, 17], [0, 290, 99, 33, 90, 91, 7], [0, 50, 61, 70, 80, 90]]
ANSWERS = [[7, 8], [300], [12, 13, 14]]
SPANS = {"subject": [(1, 3), (2, 4), None], "verb": [(3, 4), (5, 6), (4, 5)]}


@pytest.fixture(scope="module")
def prompts():
    return tk.Prompts.from_tokens(CLEAN, CORRUPTED, answers=ANSWERS, spans=SPANS)


@pytest.mark.parametrize("condition", (None, Knockout(keys="subject"), Patch(Site("z", layer=1))))
@pytest.mark.parametrize("family", FAMILIES)
def test_captured_activations_are_those_in_memory(both, prompts, family, condition):
    here, there = both(family)
    sites = [Site(name, pos="verb") for name in ("resid_pre", "resid_mid", "q", "mlp_out")]
    if Parts(here).parallel:
        del sites[1]
    changed = None if condition is None else Condition("changed", (condition,))
    with Counted(there) as counted:
        found = capture(there, prompts, sites, changed)
    same(capture(here, prompts, sites, changed), found)
    assert counted.passes == [1, 1, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_cumulative_knockouts_are_those_in_memory(both, prompts, family):
    found = []
    here, there = both(family)
    for model in (here, there):
        parts, sequences = Parts(model), Sequences(prompts, "clean", forced=True)
        compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
        worked = [
            [compiler.work_out(Condition("cut", (Knockout(keys=span),)), i) for i in range(3)]
            for span in SPANS
        ]
        with Counted(there) as counted:
            found.append(cumulative(parts, sequences, AnswerProb(), worked, LAYERS))
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert counted.passes == [1, 1, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_variance_is_that_in_memory(both, family):
    here, there = both(family)
    texts = ["Mary and John went to the store, and Mary gave a drink to John. " * n for n in (1, 2)]
    with Counted(there) as counted:
        found = tk.variance.run(there, texts, window=4)
    same(tk.variance.run(here, texts, window=4), found)
    assert counted.passes == [1, 1, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_features_are_those_in_memory(both, family, tmp_path):
    here, there = both(family)
    prompts = tk.Prompts.from_texts(there, [f"Mary has {n} drinks" for n in range(40)])
    read = []
    for name, model in (("here", here), ("there", there)):
        kept = Activations(tmp_path / name, model, prompts, ["resid_post"], "cp", 3)
        with Counted(there) as counted:
            kept.fill()
        read.append([kept.layer("resid_post", layer) for layer in LAYERS])
    np.testing.assert_allclose(read[1], read[0], atol=1e-5)
    assert counted.passes == [1, 1, 1]


def test_bfloat16_is_read_from_float32_files(both, projection):
    here, there = both("llama3", "bfloat16")
    assert Parts(there).dtype == torch.bfloat16
    pairs = sample_pairs(Parts(here), seed=0)
    wanted, found = (run(model, pairs, SWEEPS["heads"], projection) for model in (here, there))
    same(wanted, found, tolerance=0.01 * float(np.ptp(wanted["value"].values)))


@pytest.mark.parametrize("family", ("llama3", "gpt2", "neox", "phi3", "falcon"))
def test_the_slow_twin_runs_from_disk_too(both, projection, family):
    here, there = both(family)
    pairs = sample_pairs(Parts(here), seed=0)
    sweep = Sweep(Patch(Site("z")), layer=LAYERS, head=(0, 3))
    wanted = run(here, pairs, sweep, projection, engine="reference")
    found = run(there, pairs, sweep, projection, engine="reference")
    same(wanted, found)
    assert layers_of(there).in_memory == 0


def test_no_table_is_read_whole(both, projection):
    _, there = both("llama3")
    files = layers_of(there).files
    pairs = sample_pairs(Parts(there), seed=0)
    table = Parts(there).embed.weight
    assert isinstance(table, Stored)
    before, blocks = files.bytes_read, layers_of(there).largest
    run(there, pairs, SWEEPS["heads"], tk.LogitDiff())
    assert 3 * blocks * 0.9 < files.bytes_read - before < 3 * blocks + table.numel() * 4 / 2
