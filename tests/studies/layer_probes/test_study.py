"""The study on a model built by hand: where a class is planted, and that nothing is run twice.

Faults to plant: the wrong site read; a shorter model's layers filled with 0; activations that are
read again although they are there; padding behind the prompt.
"""

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.prompts import Prompts
from tlkit.studies import layer_probes
from tlkit.studies.layer_probes import activations as streaming
from tlkit.studies.layer_probes.activations import Activations

WIDTH, BIT, SEEN = 32, 0, 1
ROWS = [
    {"prompt": f"{'cat' if i % 2 else 'dog'} {i // 2} is it", "label": "cat" if i % 2 else "dog"}
    for i in range(40)
]
FAST = {"features": "last", "folds": 4}
BOTH = {"positive": "cat", **FAST}


@pytest.fixture(scope="module")
def planted():
    """Tokens carry a class bit; block 1's attention copies their mean to every later token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=2, num_key_value_heads=2, intermediate_size=8,
        num_hidden_layers=3, vocab_size=512, attn_implementation="eager",
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.fill_(1.0 if parameter.ndim == 1 else 0.0)
    tokenizer = tiny_tokenizer()
    ids = [set(tokenizer(word)["input_ids"]) for word in ("cat", "dog")]
    table = torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(0))
    table[:, [BIT, SEEN]] = 0
    for sign, own, other in ((1, ids[0], ids[1]), (-1, ids[1], ids[0])):
        table[sorted(own - other), BIT] = 5.0 * sign
    model.model.embed_tokens.weight.copy_(table)
    model.model.layers[1].self_attn.v_proj.weight[0, BIT] = 1.0
    model.model.layers[1].self_attn.o_proj.weight[SEEN, 0] = 5.0
    return HookedTransformer.from_pretrained(model, tokenizer=tokenizer, device="cpu")


@pytest.fixture
def passes(monkeypatch):
    """How often activations were read from a model."""
    calls = []
    real = streaming.states
    monkeypatch.setattr(
        streaming, "states", lambda *a, **k: calls.append(len(a[1].prompts)) or real(*a, **k)
    )
    return calls


def test_a_class_shows_from_the_block_that_brings_it(planted):
    ds = layer_probes.run({"m": planted}, ROWS, **BOTH)
    f1 = ds["f1"].sel(model="m").mean("fold")
    accuracy = ds["balanced_accuracy"].sel(model="m").mean("fold")
    np.testing.assert_allclose(f1.sel(site="resid_post"), [f1[0, 0], 1, 1])
    np.testing.assert_allclose(accuracy.sel(site="resid_post"), [0.5, 1, 1])
    np.testing.assert_allclose(accuracy.sel(site="attn_out"), [0.5, 1, 0.5])
    assert f1[0, 0] <= 2 / 3 + 1e-9
    assert ds["f1"].dims == ("model", "site", "layer", "fold")
    assert ds["f1_control"].dims == ("control", "model", "site", "layer", "fold")
    words = ds["f1_control"].sel(control="words")
    np.testing.assert_allclose(words, 1.0)  # the words alone say it all


@pytest.mark.parametrize("mode", [True, False])
def test_cp_factors_show_it_too(planted, mode):
    ds = layer_probes.run(
        planted, ROWS, positive="cat", rank=6, last_tokens=4, folds=4, seeds=(0, 1), inductive=mode
    )
    accuracy = ds["balanced_accuracy"].isel(model=0).sel(site="attn_out").mean("fold").values
    assert accuracy[1] > 0.95
    np.testing.assert_allclose(accuracy[[0, 2]], 0.5)
    assert ds.attrs["mode"] == ("inductive" if mode else "transductive")
    assert ds.attrs["mode"] in layer_probes.figure(ds).layout.title.text


def test_models_of_unequal_depth_leave_blank_cells(planted):
    def short():
        two = tiny("gpt2", layers=2)
        return HookedTransformer.from_pretrained(two, tokenizer=tiny_tokenizer(), device="cpu")

    ds = layer_probes.run({"deep": planted, "short": short}, ROWS, **BOTH)
    missing = np.isnan(ds["f1"].values)
    assert missing[1, :, 2].all()
    assert not missing[0].any()
    assert not missing[1, :, :2].any()
    assert np.isnan(ds["f1_control"].sel(model="short", layer=2)).all()
    figure = layer_probes.figure(ds)
    assert [note.text for note in figure.layout.annotations] == [
        "Layer output",
        "Attention output",
    ]
    assert np.isnan(figure.data[0].z[1, 2])
    assert figure.layout.plot_bgcolor == "white"  # what shows through is blank
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.5, 1.0)
    assert figure.data[0].z[0, 2] == pytest.approx(1.0)
    assert "grey" not in figure.layout.title.text


def test_activations_are_those_of_the_model(tiny_bridge, tmp_path):
    model = tiny_bridge("llama3")
    texts = ["The cat sat on the mat.", "Who?", "Count to five, please, and then stop."]
    prompts = Prompts.from_texts(model, texts)
    for features, last in (("cp", 5), ("last", 5), ("mean", 5)):
        kept = Activations(
            tmp_path / features, model, prompts, ["resid_post", "attn_out"], features, last
        )
        kept.fill()
        for i, ids in enumerate(prompts.clean):
            _, cache = model.run_with_cache(torch.tensor([list(ids)]))
            for site in ("resid_post", "attn_out"):
                whole = cache[f"blocks.1.hook_{site}"][0].numpy()
                wanted = {
                    "cp": np.pad(whole[-5:], ((max(0, 5 - len(whole)), 0), (0, 0))),
                    "last": whole[-1:], "mean": whole.mean(0, keepdims=True),
                }[features]  # fmt: skip
                np.testing.assert_allclose(kept.layer(site, 1)[i], wanted, atol=1e-5)


def test_a_store_is_gone_on_with_and_nothing_is_read_twice(planted, tmp_path, passes, monkeypatch):
    monkeypatch.setattr(streaming, "BATCH", 8)
    store = tmp_path / "store"

    def stop(done, total):
        if done >= 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layer_probes.run({"m": planted}, ROWS, store=store, progress=stop, **BOTH)
    assert passes == [8, 8]
    first = layer_probes.run({"m": planted}, ROWS, store=store, **BOTH)
    assert passes == [8] * 5
    with monkeypatch.context() as patched:
        patched.setattr(planted.original_model, "forward", None)
        again = layer_probes.run({"m": planted}, ROWS, store=store, **BOTH)
    assert passes == [8] * 5
    np.testing.assert_array_equal(first["auc"], again["auc"])
    whole = layer_probes.run({"m": planted}, ROWS, **BOTH)
    np.testing.assert_array_equal(first["auc"], whole["auc"])


def test_a_store_of_something_else_is_refused(planted, tiny_bridge, tmp_path):
    store = tmp_path / "store"
    layer_probes.run({"m": planted}, ROWS, store=store, **BOTH)
    other = [dict(row, prompt=row["prompt"] + "!") for row in ROWS]
    with pytest.raises(SpecError, match="was made with another prompts"):
        layer_probes.run({"m": planted}, other, store=store, **BOTH)
    with pytest.raises(SpecError, match=r"another features \(last, not mean\)"):
        layer_probes.run({"m": planted}, ROWS, store=store, **{**BOTH, "features": "mean"})
    with pytest.raises(SpecError, match="another model and"):
        layer_probes.run({"m": tiny_bridge("gpt2")}, other, store=store, **BOTH)
    strange = tmp_path / "strange"
    streaming.folder_of(strange, "m").mkdir(parents=True)
    (streaming.folder_of(strange, "m") / "notes.txt").write_text("mine")
    with pytest.raises(SpecError, match="holds other files"):
        layer_probes.run({"m": planted}, ROWS, store=strange, **BOTH)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"positive": "bird"}, "No prompt is labelled 'bird'"),
        ({"folds": 30}, "fewer than the 30 folds"),
        ({"features": "sum"}, "no features 'sum'; there are cp, last, mean"),
        ({"classifier": "tree"}, "no classifier 'tree'"),
        ({"controls": ("luck",)}, "no control 'luck'"),
        ({"features": "cp", "rank": 9, "last_tokens": 2, "compress": 4}, "rank is 9"),
        ({"features": "cp", "rank": 0}, "rank is 0"),
        ({"seeds": ()}, "seeds is empty"),
        ({"sites": ()}, "sites are different components"),
    ],
)
def test_bad_requests_are_refused_before_any_model(asked, message):
    def never():
        raise AssertionError("a model was loaded")

    with pytest.raises(SpecError, match=message):
        layer_probes.run({"m": never}, ROWS, **{**BOTH, **asked})


def test_what_only_a_model_decides_is_refused_too(planted):
    with pytest.raises(SpecError, match="none was given"):
        layer_probes.run({}, ROWS, **BOTH)
    # 10 tokens at most x 2 directions: the settings alone would allow 64 x 2.
    with pytest.raises(SpecError, match=r"rank is 24, but \d+ tokens x 2 dimensions x 30"):
        layer_probes.run(planted, ROWS, positive="cat", rank=24, compress=2, folds=4)


def test_a_plan_counts_what_a_run_does(planted):
    cost = layer_probes.plan({"m": planted}, ROWS, positive="cat", folds=4, last_tokens=4)["m"]
    prompts = Prompts.from_texts(planted, [row["prompt"] for row in ROWS])
    assert cost["tokens"] == sum(map(len, prompts.clean))
    assert cost["bytes"] == 4 * 3 * 2 * 40 * 4 * WIDTH
    assert (cost["decompositions"], cost["fits"]) == (3 * 2 * 3 * 4, 2 * 3 * 2 * 3 * 4)


def test_the_table_names_the_best_layer(planted):
    rows = layer_probes.table(layer_probes.run({"m": planted}, ROWS, **BOTH), "balanced_accuracy")
    assert [(row["site"], row["layer"]) for row in rows] == [("resid_post", 1), ("attn_out", 1)]
    assert rows[0]["balanced_accuracy"] == rows[0]["low"] == 1.0
    assert rows[0]["positive"] == 0.5
    with pytest.raises(SpecError, match="no score 'kappa'"):
        layer_probes.table(tk.layer_probes.run({"m": planted}, ROWS, **BOTH), "kappa")
