"""ARM, activations and accuracy, against loops and cases one can count by hand.

Faults to plant: change the largest instead of the smallest; flip a sign; leave the hook behind;
count inserted tokens; pair problems with others.
"""

import sys

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.insertions import Insert
from tlkit.studies import conditions
from tlkit.studies.conditions.accuracy import last_number
from tlkit.studies.conditions.activations import gini, token_class
from tlkit.studies.conditions.arm import activation_module

TEXTS = ["3 + 4 = 7 cats", "The dog sat."]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def by_the_papers_code(act, c, percentile, least, most, drawn):
    """What Shi et al.'s code does to a whole tensor, element by element."""
    flat = [float(x) for x in act.flatten()]
    size = sorted(abs(x) for x in flat)
    middle = size[(len(size) - 1) // 2]
    mad = max(sorted(abs(abs(x) - middle) for x in flat)[(len(size) - 1) // 2], 1e-12)
    share = min(max(np.mean([abs(x) < 1.4826 * mad * c for x in flat]), least), most)
    order = sorted(range(len(flat)), key=lambda i: abs(flat[i]))[: int(share * len(flat))]
    high = float(np.percentile(flat, percentile))
    low = abs(min(*flat, 0.0))
    out = list(flat)
    for i, u in zip(order, drawn, strict=False):
        out[i] = u * high if flat[i] >= 0 else -u * low
    return out, set(order)


@pytest.mark.parametrize("c", [0.05, 0.3, 5.0])
def test_the_codes_variant_is_its_formula(c):
    act = torch.randn(2, 7, 40, generator=generator(1)) * 0.3
    drawn = torch.rand(act.numel(), generator=generator(3)).tolist()
    out = conditions.ARM(c=c).redistribute(act, generator(3))
    # The order among the smallest is the library's own; what becomes of each is fixed by its rank.
    expected, changed = by_the_papers_code(act, c, 99.5, 0.02, 0.25, drawn)
    moved = (out != act).flatten().nonzero().flatten().tolist()
    assert set(moved) == changed
    kept = [i for i in range(act.numel()) if i not in changed]
    assert torch.equal(out.flatten()[kept], act.flatten()[kept])
    limits = (min(expected[i] for i in changed), max(expected[i] for i in changed))
    new = out.flatten()[moved]
    assert float(new.max()) <= float(torch.quantile(act.flatten(), 0.995)) + 1e-6
    assert float(new.min()) >= float(act.min()) - 1e-6
    assert np.sign(limits[0]) == np.sign(float(new.min()))
    assert (torch.sign(new) == torch.sign(act.flatten()[moved])).all()


def test_the_papers_variant_adds():
    act = torch.randn(300, generator=generator(1))
    code, paper = (
        conditions.ARM(variant=name).redistribute(act, generator(2)) for name in ("code", "paper")
    )
    moved = (paper != act).nonzero().flatten()
    assert (paper[moved].abs() >= act[moved].abs()).all()
    assert not torch.equal(code, paper)


def test_the_share_is_bounded():
    assert conditions.ARM(c=1e-9).share(torch.randn(1000, generator=generator())) == 0.02
    assert conditions.ARM(c=100.0).share(torch.randn(1000, generator=generator())) == 0.25
    assert conditions.ARM(least=0.2).share(torch.randn(1000, generator=generator())) >= 0.2


@pytest.mark.parametrize(
    "family", ["gpt2", "gptj", "neox", "llama", "qwen3", "gemma3", "opt", "phi3"]
)
def test_it_lands_in_its_layer_and_is_gone_afterwards(tiny_bridge, family):
    model = tiny_bridge(family)
    parts = Parts(model)
    ids = torch.tensor([[5, 60, 61, 62, 9]])

    def logits():
        with torch.no_grad(), unbridged(model) as hf:
            return hf(ids).logits

    before, arm = logits(), conditions.ARM(layer=1)
    with conditions.redistributed(model, arm):
        changed = logits()
    assert (changed - before).abs().max() > 1e-4
    assert torch.equal(before, logits())
    with conditions.redistributed(model, arm):
        assert torch.equal(logits(), changed)  # the seed makes it the same again
    assert not activation_module(parts, 1)._forward_hooks


def test_the_model_is_as_before_after_an_error(tiny_bridge):
    model = tiny_bridge("llama")
    with pytest.raises(KeyError), conditions.redistributed(model, conditions.ARM()):
        raise KeyError
    assert not activation_module(Parts(model), 0)._forward_hooks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "both"}, "use 'code' or 'paper'"),
        ({"c": 0.0}, "c above 0"),
        ({"percentile": 101.0}, "percentile up to 100"),
        ({"least": 0.5, "most": 0.2}, "shares, the first not above"),
    ],
)
def test_settings_that_cannot_be(arguments, message):
    with pytest.raises(SpecError, match=message):
        conditions.ARM(**arguments)


def test_a_layer_that_is_not_there(tiny_bridge):
    with pytest.raises(SpecError, match="no layer 9; this model has 0 to 2"):
        activation_module(Parts(tiny_bridge("llama")), 9)


@pytest.mark.parametrize(
    ("label", "expected"),
    [("12", "digits"), ("·3.5".replace("·", " "), "digits"), ("+", "operators"), ("cat", "words"),
     (".", "other"), ("//", "operators"), ("", "other")],
)  # fmt: skip
def test_classes_of_tokens(label, expected):
    assert token_class(label) == expected


def test_ginis_coefficient():
    assert gini(np.ones(10)) == pytest.approx(0.0)
    assert gini(np.array([0, 0, 0, 0, 1.0])) == pytest.approx(0.8)
    assert gini(np.array([1.0, 3.0])) == pytest.approx(0.25)


def test_activations_are_those_of_the_original_tokens(tiny_bridge):
    model = tiny_bridge("llama3")
    parts = Parts(model)
    prompts = Prompts.from_texts(model, TEXTS)
    insert = Insert("/ / / ", at="start")
    ds = conditions.activations(model, prompts, {"Miess": insert}, layers=[0, 1])
    from tlkit.prompts.insertion import inserted

    put = inserted(model, prompts, insert)
    for layer in (0, 1):
        rows = []
        for ids, maps in zip(put.prompts.clean, put.maps, strict=True):
            kept = []
            handle = activation_module(parts, layer).register_forward_hook(
                lambda m, a, out, to=kept: to.append(out[0])
            )
            with torch.no_grad(), unbridged(model) as hf:
                hf(torch.tensor([ids]))
            handle.remove()
            rows.append(kept[0][list(maps)])
        size = torch.cat(rows).abs().numpy()
        mine = ds.sel(condition="Miess", layer=layer)
        assert float(mine["l1"]) == pytest.approx(size.mean(), rel=1e-5)
        assert float(mine["l2"]) == pytest.approx(np.sqrt((size**2).mean()), rel=1e-5)
        assert float(mine["gini"]) == pytest.approx(gini(size), rel=1e-5)
    assert ds.sel(condition="None")["sparsity"].values == pytest.approx(0.5, abs=0.01)
    np.testing.assert_allclose(ds["histogram"].sum("kind"), 1.0)


def test_arm_makes_small_activations_larger(tiny_bridge):
    model = tiny_bridge("llama3")
    prompts = Prompts.from_texts(model, TEXTS)
    ds = conditions.activations(model, prompts, {"ARM": conditions.ARM(c=3.0)})
    one, plain = ds.sel(condition="ARM", layer=0), ds.sel(condition="None", layer=0)
    assert float(one["sparsity"]) < float(plain["sparsity"])
    assert float(one["l2"]) > float(plain["l2"])


def test_the_last_number_counts():
    assert last_number("3 + 4 = 7.") == 7
    assert last_number("It costs $1,250.50, not -3") == -3
    assert last_number("none") is None


def test_right_answers_are_counted_per_condition(tiny_bridge, monkeypatch):
    model = tiny_bridge("llama3")
    problems = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
    said = {"plain": ["1", "2", "x", "4", "9", "6"], "put in": ["1", "2", "3", "4", "5", "6"]}
    seen = []

    def greedy(_model, ids, **_):
        seen.append([len(row) for row in ids])
        return list(said["plain" if len(seen) == 1 else "put in"])

    module = sys.modules["tlkit.studies.conditions.accuracy"]  # the package's name is the function
    monkeypatch.setattr(module, "greedy", greedy)
    monkeypatch.setattr(type(model.tokenizer), "decode", lambda self, ids, **_: str(ids))
    table = conditions.accuracy(model, problems, {"Miess": Insert("/ / ")}).set_index("condition")
    assert table.loc["None", "right"] == 4
    assert table.loc["Miess", "right"] == 6
    assert table.loc["None", "no_number"] == 1
    assert table.loc["Miess", "difference"] == pytest.approx(2 / 6)
    assert table.loc["None", "p_value"] == 1.0
    assert seen[1][0] > seen[0][0]  # the text was put in


def test_what_accuracy_refuses(tiny_bridge):
    model = tiny_bridge("llama3")
    with pytest.raises(SpecError, match="needs problems"):
        conditions.accuracy(model, [], {"x": Insert("/ ")})
    with pytest.raises(SpecError, match="Problem 0 has no number"):
        conditions.accuracy(model, [{"question": "?", "answer": "none"}], {"x": Insert("/ ")})
    with pytest.raises(SpecError, match="is an intervention"):
        problem = {"question": "What?", "answer": "1"}
        conditions.accuracy(
            model, [problem], {"x": Knockout(keys=(0,))}, max_new_tokens=1
        )  # fmt: skip
