"""Hooks, baked weights and saved folders agree, and everything is put back.

Faults to plant: biases, positions or the embedding left out; a tied unembedding edited too;
experts skipped; hooks that project twice; undo that forgets a tensor.
"""

import sys

import pytest
import torch
import transformers

from tlkit.engine.capture import capture
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import FAMILIES, tiny_tokenizer
from tlkit.models.writers import writes
from tlkit.prompts.prompts import Prompts
from tlkit.spec.directions import Direction
from tlkit.spec.sites import Site
from tlkit.studies import abliteration
from tlkit.studies.abliteration import Baked
from tlkit.studies.abliteration.projection import strengths_of

NORMED = {"gemma2", "gemma3", "bloom"}
EXACT = [family for family in FAMILIES if family not in NORMED]
IDS = torch.tensor([[0, 5, 9, 33, 100, 7, 300, 411]])
WIDTH = 64
COMMON = {
    "vocab_size": 512, "hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH}


def direction(rank=1):
    return torch.randn(rank, WIDTH, generator=torch.Generator().manual_seed(3))


def logits(model):
    with torch.no_grad():
        return model(IDS)[0].double()


def hf_logits(model):
    with torch.no_grad(), unbridged(model) as hf:
        return hf(IDS).logits[0].double()


def unit_of(given):
    return torch.linalg.qr(given.double().T)[0]


def plain_loop(model, given, strengths):
    """The projection by TransformerLens's own hook points, written here anew."""
    q = unit_of(given)

    def edit(layer):
        def hook(value, hook):
            return (value.double() - strengths[layer] * (value.double() @ q) @ q.T).to(value.dtype)

        return hook

    hooks = [
        (f"blocks.{layer}.hook_{part}", edit(layer))
        for layer in range(model.cfg.n_layers)
        for part in ("attn_out", "mlp_out")
    ]
    # What enters the first block is the sum of embedding and positions.
    hooks.append(("blocks.0.hook_resid_pre", edit(0)))
    with torch.no_grad():
        return model.run_with_hooks(IDS, fwd_hooks=hooks)[0].double()


@pytest.mark.parametrize("strengths", [[1, 1, 1], [0.8, 0.3, 0]], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_are_the_plain_loop_bridged_and_not(fresh, family, strengths):
    model, given = fresh(family), direction(2)
    expected, base = plain_loop(model, given, strengths), logits(model)
    assert (expected - base).abs().max() > 0.05
    with abliteration.projected(model, given, strengths):
        assert (logits(model) - expected).abs().max() < 1e-5
        assert (hf_logits(model) - expected).abs().max() < 1e-5
    assert torch.equal(logits(model), base)


@pytest.mark.parametrize("strengths", [None, [0.8, 0.3, 0]], ids=str)
@pytest.mark.parametrize("family", EXACT)
def test_baked_is_hooked_is_saved_and_undo_is_bit_exact(fresh, family, strengths, tmp_path):
    model, given = fresh(family), direction(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tied, base = model.original_model.config.tie_word_embeddings, logits(model)
    with abliteration.projected(model, given, strengths):
        hooked = logits(model)
    baked = abliteration.bake(model, given, per_layer=strengths)
    assert baked.difference < 1e-5
    assert (logits(model) - hooked).abs().max() < 1e-5
    assert (hf_logits(model) - hooked).abs().max() < 1e-5
    folder = abliteration.save(baked, tmp_path / "saved")
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert plain.config.tie_word_embeddings is False
    with torch.no_grad():
        assert (plain(IDS).logits[0].double() - hooked).abs().max() < 1e-5
    again = HookedTransformer.from_pretrained(str(folder), device="cpu")
    assert (logits(again) - hooked).abs().max() < 1e-5
    baked.undo()
    baked.undo()
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.original_model.config.tie_word_embeddings == tied
    head, embed = (Parts(model).head.weight, Parts(model).embed.weight)
    assert (head is embed) == (family in ("gpt2", "opt", "falcon"))
    assert torch.equal(logits(model), base)


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama3", "gptj", "mixtral"])
def test_nothing_of_the_direction_is_left_at_any_place_of_the_stream(fresh, family):
    model, given = fresh(family), direction()
    d = unit_of(given)[:, 0]
    prompts = Prompts.from_tokens([IDS[0].tolist()])
    names = ("resid_pre", "resid_post") if Parts(model).parallel else (
        "resid_pre", "resid_mid", "resid_post")  # fmt: skip

    def shares():
        ds = capture(model, prompts, [Site(name) for name in names])
        return [
            ((torch.tensor(ds[name].values).double() @ d).abs()
             / torch.tensor(ds[name].values).double().norm(dim=-1)).max().item()
            for name in names
        ]  # fmt: skip

    assert min(shares()) > 1e-2
    with abliteration.bake(model, given):
        assert max(shares()) < 1e-5
    assert min(shares()) > 1e-2


@pytest.mark.parametrize("family", sorted(NORMED))
def test_a_norm_before_the_stream_is_refused_or_labelled(fresh, family):
    model, given = fresh(family), direction()
    base = logits(model)
    with pytest.raises(SpecError, match=r"norm between its (attn_out|embed) weights"):
        abliteration.bake(model, given)
    assert torch.equal(logits(model), base)
    with abliteration.projected(model, given):
        hooked = logits(model)
    with abliteration.bake(model, given, approximate=True, probe=IDS.tolist()) as baked:
        assert baked.approximate
        off = (hf_logits(model) - hooked).abs().max().item()
        assert baked.difference == pytest.approx(off, abs=1e-4)
        assert off > 1e-3
        # What is approximate is the rest: the direction itself is gone from every write.
        prompts, d = Prompts.from_tokens([IDS[0].tolist()]), unit_of(given)[:, 0]
        stream = torch.tensor(capture(model, prompts, Site("resid_post"))["resid_post"].values)
        assert ((stream.double() @ d).abs() / stream.double().norm(dim=-1)).max() < 1e-5
    assert torch.equal(logits(model), base)


def mixture(kind):
    """A tiny mixture of experts, square where that makes axes ambiguous."""
    if kind == "Qwen3Moe":
        config = transformers.Qwen3MoeConfig(
            **COMMON, **SPARSE, head_dim=16, intermediate_size=96, mlp_only_layers=[1]
        )
    else:
        config = transformers.Qwen2MoeConfig(
            **COMMON, **SPARSE, intermediate_size=96, shared_expert_intermediate_size=48
        )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.08)
    return model.requires_grad_(False)


@pytest.mark.parametrize("kind", ["Qwen3Moe", "Qwen2Moe"])
def test_every_expert_is_edited_dense_layers_and_shared_experts_too(kind, tmp_path):
    model = HookedTransformer.from_pretrained(
        mixture(kind), tokenizer=tiny_tokenizer(), device="cpu"
    )
    given = direction()
    with abliteration.projected(model, given):
        hooked = logits(model)
    d = unit_of(given)[:, 0].float()
    with abliteration.bake(model, given) as baked:
        assert (logits(model) - hooked).abs().max() < 1e-5
        experts = Parts(model).blocks[0].mlp.experts.down_proj
        assert experts.shape[0] == 4
        for expert in experts:
            assert (d @ expert).abs().max() < 1e-6
        folder = abliteration.save(baked, tmp_path / "saved")
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        assert (plain(IDS).logits[0].double() - hooked).abs().max() < 1e-5


def test_experts_that_are_not_found_are_a_refusal(fresh):
    model = fresh("mixtral")
    experts = Parts(model).blocks[1].mlp.experts
    experts.out_matrix = experts.down_proj
    del experts.down_proj
    with pytest.raises(SpecError, match=r"Layer 1 of Mixtral.* 4 experts .* of 0"):
        abliteration.bake(model, direction())


def test_a_write_that_was_missed_is_found_and_undone(fresh, monkeypatch):
    model = fresh("gpt2")
    base = logits(model)

    def short(parts):
        return [one for one in writes(parts) if one.part != "pos_embed"]

    # By its module: the package has a function of the same name.
    monkeypatch.setattr(sys.modules[Baked.__module__], "writes", short)
    with pytest.raises(EngineError, match="something that writes to the stream was missed"):
        abliteration.bake(model, direction())
    assert torch.equal(logits(model), base)


def test_packed_weights_are_refused_in_one_sentence(fresh):
    model = fresh("llama")
    module = Parts(model).blocks[0].mlp.down_proj
    module.weight = torch.nn.Parameter(module.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(SpecError, match="LlamaForCausalLM is quantised"):
        abliteration.bake(model, direction())


def test_a_stream_that_is_normed_itself_is_refused(fresh):
    model = fresh("opt")
    model.original_model.config.do_layer_norm_before = False
    with pytest.raises(SpecError, match="norms the residual stream itself"):
        abliteration.bake(model, direction())


def test_shorter_floats_are_held_to_their_rounding(fresh):
    model = HookedTransformer.from_pretrained("tiny:llama3", dtype="bfloat16", device="cpu")
    with abliteration.bake(model, direction()) as baked:
        assert baked.difference <= baked.tolerance < 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.ones(63), "63 dimensions and the residual stream of LlamaForCausalLM has 64"),
        (torch.zeros(64), "norm of about 0"),
        (torch.full((64,), torch.nan), "finite"),
        ("layer 3", "is no direction"),
    ],
    ids=["width", "zero", "nan", "text"],
)
def test_directions_that_cannot_be_are_refused(tiny_bridge, given, said):
    model = tiny_bridge("llama")
    for verb in (abliteration.bake, lambda *a: abliteration.projected(*a).__enter__()):
        with pytest.raises(SpecError, match=said):
            verb(model, given)


def test_strengths_are_read_and_checked():
    assert strengths_of(None, 3) == [1, 1, 1]
    assert strengths_of(0.5, 2) == [0.5, 0.5]
    assert strengths_of({1: 0.25}, 3) == [0, 0.25, 0]
    for given, said in (
        ([1, 1], "2 strengths for 3"),
        ({3: 1}, "no layer 3"),
        (1.5, "between 0"),
    ):
        with pytest.raises(SpecError, match=said):
            strengths_of(given, 3)


def test_a_folder_that_holds_something_is_kept(fresh, tmp_path):
    model, folder = fresh("llama"), tmp_path / "model"
    abliteration.save(model, folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "Safety" in card
    assert "tiny:llama" in card
    with pytest.raises(SpecError, match="holds something already"):
        abliteration.save(model, folder)
    with abliteration.bake(model, Direction(direction())) as baked:
        abliteration.save(baked, folder, overwrite=True)
        assert "7 tensors" in (folder / "README.md").read_text(encoding="utf-8")
    with pytest.raises(SpecError, match="undone"):
        abliteration.save(baked, tmp_path / "other")
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(SpecError, match="holds no model"):
        abliteration.save(model, papers, overwrite=True)
    assert (papers / "thesis.txt").exists()
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []
