"""Directions against sums by hand, a planted behaviour, and the command.

Faults to plant: positions counted from the batch's end; harmless less harmful; the second sums
uncentred; choosing by score alone; reporting on the prompts that were chosen on.
"""

import json

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.cli.app import main
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.text import encode
from tlkit.prompts.prompts import Prompts
from tlkit.studies import abliteration
from tlkit.studies.abliteration.candidates import Bench, Scored, choose
from tlkit.studies.abliteration.inputs import split

SAYS = " yes"


def streams(model, prompts, layer, pos):
    """The stream by TransformerLens's own hook point, one prompt at a time."""
    name = f"blocks.{layer}.hook_resid_pre"
    with torch.no_grad():
        return np.stack([
            model.run_with_cache(torch.tensor([list(ids)]))[1][name][0, pos].double().numpy()
            for ids in prompts.clean
        ])  # fmt: skip


@pytest.mark.parametrize("family", ["gpt2", "llama3"])
def test_directions_are_differences_of_means_from_each_prompts_own_end(
    tiny_bridge, two_kinds, family
):
    model = tiny_bridge(family)
    bad = [*two_kinds[0], "When Mary and John went to the store, Mary gave a drink to the dog"] * 2
    found = abliteration.directions(
        model, bad, two_kinds[1], positions=(-3, -1), layers=[1, 2], chat=False
    )
    sides = [Prompts.from_texts(model, texts) for texts in (bad, two_kinds[1])]
    assert set(found) == {(layer, pos) for layer in (1, 2) for pos in (-3, -1)}
    for layer, pos in found:
        one, other = (streams(model, side, layer, pos).mean(0) for side in sides)
        expected = (one - other) / np.linalg.norm(one - other)
        assert found[layer, pos].vector[0].numpy() == pytest.approx(expected, abs=1e-5)
        norm = float(found.dataset["norm"].sel(layer=layer, pos=pos))
        assert norm == pytest.approx(np.linalg.norm(one - other), rel=1e-4)


def test_a_subspace_is_the_first_left_singular_vectors(tiny_bridge, two_kinds):
    model = tiny_bridge("llama3")
    found = abliteration.directions(model, *two_kinds, layers=[2], rank=3, chat=False)[2, -1]
    one, other = (streams(model, Prompts.from_texts(model, texts), 2, -1) for texts in two_kinds)
    u, _, _ = np.linalg.svd((one - other.mean(0)).T, full_matrices=False)
    inside = found.vector.double().numpy() @ u[:, :3]
    assert np.abs(np.abs(inside) - np.eye(3)).max() < 1e-4
    both = abliteration.subspace([found, tk.Direction(torch.randn(64))])
    assert both.rank == 4


def planted(fresh):
    """A model that answers ``SAYS`` by one direction, written by one token.

    Embeddings and every matrix are made blind to the direction, so that only the token " cat"
    writes it (in block 1's MLP bias nothing); the unembedding of SAYS reads it.
    """
    model = fresh("llama")
    parts = Parts(model)
    d = torch.nn.functional.normalize(
        torch.randn(64, generator=torch.Generator().manual_seed(9)), dim=0
    )
    abliteration.bake(model, d)
    (cat,) = encode(model, " cat", special=False).ids
    (yes,) = encode(model, SAYS, special=False).ids
    with torch.no_grad():
        parts.embed.weight[cat] += 3 * d
        parts.head.weight[yes] += 4 * d
    return model, d


def texts_of(model):
    harmful = [f"{start} cat" for start in (
        "The", "What is a", "When Mary went to the store a", "Tom gave John the", "Mary sat in the",
        "That was one", "In France a", "In Italy the", "Rome is not the", "Paris is the",
    )]  # fmt: skip
    return harmful, [text.replace(" cat", " dog") for text in harmful]


YES = {"yes": lambda text: text.strip().startswith("yes")}


def test_a_planted_direction_is_found_chosen_and_gone(fresh):
    model, d = planted(fresh)
    bad, good = texts_of(model)
    ds = abliteration.run(
        model, bad, good, chat=False, detectors=YES, max_new_tokens=3, max_kl=5, positions=(-2, -1),
        weights=None,
    )  # fmt: skip
    assert float(ds["refusal_before"]) == 1
    found = torch.tensor(ds["direction"].values[0])
    at_start = abliteration.directions(model, bad, good, layers=[0], chat=False)[0, -1]
    # At layer 0 the two kinds also differ by two embeddings; what is left of them is told apart.
    assert ds.attrs["pos"] == -1
    assert float(ds["refusal"].sel(layer=ds.attrs["layer"], pos=-1)) == 0
    assert abs(float(found @ d)) > 0.9
    assert abs(float(at_start.vector[0] @ d)) > 0.9
    rates = ds["refusal_rate"].sel(detector="yes")
    assert rates.values.tolist() == [1, 0, 1]
    assert ds["refusal_low"].sel(detector="yes").values[0] < 1
    assert ds["harmless_refusal_rate"].sel(detector="yes").values[0] == 0
    assert ds.attrs["bake_difference"] < 1e-5
    assert ds["answer_kl"].sel(model="original").max() == 0
    assert ds["answer_kl"].sel(model="abliterated").max() > 0
    assert ds["share"].sum("kind").values == pytest.approx(1)


def test_a_direction_that_is_the_only_difference_is_found_exactly(fresh):
    model, d = planted(fresh)
    (cat,) = encode(model, " cat", special=False).ids
    (dog,) = encode(model, " dog", special=False).ids
    with torch.no_grad():
        embed = Parts(model).embed.weight
        embed[dog] = embed[cat] - 3 * d
    found = abliteration.directions(model, *texts_of(model), layers=[0], chat=False)[0, -1]
    assert float(found.vector[0] @ d) > 0.99
    with abliteration.bake(model, found):
        prompts = Prompts.from_texts(model, texts_of(model)[0])
        for name in ("resid_pre", "resid_mid", "resid_post"):
            stream = torch.tensor(
                tk.capture(model, prompts, tk.Site(name, pos="end"))[name].values
            ).double()
            assert ((stream @ d.double()).abs() / stream.norm(dim=-1)).max() < 1e-5


def test_the_choice_weighs_what_is_left_against_damage():
    told = {
        "removes": (-9.0, 0.5, 0.0, 0.0),
        "cheap": (-9.0, 0.05, 0.05, 0.0),
        "garbage": (-9.0, 0.01, 0.0, 0.9),
        "fails": (3.0, 0.001, 0.9, 0.0),
    }
    tried = []

    class Told(Bench):
        def __init__(self):
            pass

        def score(self, direction):
            return Scored(*told[direction.method][:2])

        def generate(self, direction, scored):
            tried.append(direction.method)
            scored.rate, scored.failed = told[direction.method][2:]

    found = {
        (layer, -1): tk.Direction(torch.ones(4), method=name) for layer, name in enumerate(told)
    }
    key, table = choose(Told(), found, most=0.1, max_kl=0.1, generate=3)
    assert key == (1, -1)
    assert "fails" not in tried
    assert np.isnan(table[3, -1].rate)
    del found[1, -1]
    assert choose(Told(), found, 0.1, 0.1, 3)[0] == (0, -1)


def test_held_out_prompts_are_apart_and_the_seed_draws_them(tiny_bridge, two_kinds):
    prompts = Prompts.from_texts(tiny_bridge("llama"), two_kinds[0])
    one, other = split(prompts, 0.3, 0, "harmful")
    assert len(one) == 7
    assert not set(one.clean) & set(other.clean)
    assert set(one.clean) | set(other.clean) == set(prompts.clean)
    assert split(prompts, 0.3, 0, "harmful")[1].clean == other.clean
    assert split(prompts, 0.3, 1, "harmful")[1].clean != other.clean


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"layers": [3]}, "no layer 3; this model has layers 0 to 2"),
        ({"layers": []}, "No layer is named"),
        ({"positions": (0,)}, "count from each prompt's end"),
        ({"positions": (-99,)}, "before the start of a prompt"),
        ({"site": "z"}, "not at 'z'"),
        ({"rank": 11}, "rank is 11"),
        ({"harmful": []}, "harmful is empty"),
        ({"harmless": ["a", ""]}, r"harmless\[1\] is empty"),
        ({"harmful": "one text"}, "harmful is 'one text'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_requests_that_cannot_be_are_refused(tiny_bridge, two_kinds, more, said):
    given = {"harmful": two_kinds[0], "harmless": two_kinds[1], **more}
    with pytest.raises(SpecError, match=said):
        abliteration.directions(tiny_bridge("llama3"), **given)


def test_prompts_of_one_mean_have_no_direction(tiny_bridge, two_kinds):
    with pytest.raises(SpecError, match="same mean everywhere"):
        abliteration.directions(tiny_bridge("llama3"), two_kinds[0], two_kinds[0])


def test_a_model_that_never_refuses_is_told_so(tiny_bridge, two_kinds):
    with pytest.raises(SpecError, match="refuses none of 7 harmful prompts, so there is no"):
        abliteration.run(tiny_bridge("llama3"), *two_kinds, max_new_tokens=4)
    with pytest.raises(SpecError, match="There is no 'maxkl'; run takes"):
        abliteration.run(tiny_bridge("llama3"), *two_kinds, maxkl=4)


@pytest.fixture
def files(fresh, tmp_path, monkeypatch):
    """A saved model with a planted behaviour whose word stands among refusal phrases, and files."""
    monkeypatch.setenv("TLKIT_PROGRESS", "0")
    monkeypatch.setattr(
        "tlkit.studies.behaviour.Phrases.__call__", lambda _, text: YES["yes"](text)
    )
    model, _ = planted(fresh)
    abliteration.save(model, tmp_path / "model")
    bad, good = texts_of(model)
    rows = [{"prompt": text, "label": "refuse"} for text in bad]
    rows += [{"prompt": text, "label": "fine"} for text in good]
    path = tmp_path / "both.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def command(files, *more):
    return main([
        "abliterate", "--harmful", str(files / "both.jsonl"), "--harmful-label", "refuse",
        "--harmless-label", "fine", "--model", str(files / "model"), "--no-chat",
        "--max-new-tokens", "3", "--max-kl", "5", *more,
    ])  # fmt: skip


def test_the_command_writes_a_page_a_model_and_json(files, capsys):
    page, folder = files / "page.html", files / "edited"
    code = command(files, "--out", str(page), "--save", str(folder), "--json")
    out = capsys.readouterr()
    assert code == 0, out.err
    told = json.loads(out.out)
    by = {(row["prompts"], row["model"], row["detector"]): row["refusal"] for row in told["rates"]}
    assert by["harmful", "original", "phrases"] == 1
    assert by["harmful", "abliterated", "phrases"] == 0
    assert told["bake_difference"] < 1e-5
    text = page.read_text(encoding="utf-8")
    for title in ("What it did", "Damage on harmless prompts", "Choice", "Answers to harmful"):
        assert title in text
    assert told["choice"].split(":")[0] in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "model.safetensors").exists()


def test_a_plan_runs_nothing(files, capsys):
    assert command(files, "--plan", "--json", "--positions", "-2,-1", "--layers", "0-1") == 0
    assert json.loads(capsys.readouterr().out)["plan"]["candidates"] == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "needs --out"),
        (["--out", "x.csv"], "must end in .html or .zarr"),
        (["--json", "--held-out", "2"], "--held-out is a share"),
        (["--json", "--harmful-label", "cat"], "No prompt has the label 'cat'"),
        (["--json", "--layers", "a"], "--layers a: write numbers"),
        (["--save", "{}/model"], "holds something already"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_wrong_requests_are_told_before_a_model_is_loaded(files, capsys, monkeypatch, more, said):
    monkeypatch.setattr(tk.HookedTransformer, "from_pretrained", None)
    assert command(files, *[one.format(files) for one in more]) == 2
    assert said in capsys.readouterr().err
