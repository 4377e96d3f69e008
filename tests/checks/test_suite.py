"""`tlkit check` holds on right models, and fails on models and engines that are wrong."""

import copy

import pytest
import torch

from tlkit import checks
from tlkit.checks import generation, precision, sites, twins
from tlkit.checks.equality import against_hugging_face, padded_batch
from tlkit.checks.generation import cached_generation
from tlkit.checks.samples import sample_layers, sample_pairs, tolerance
from tlkit.checks.suite import STAGES, left_as_found, state_of
from tlkit.checks.tokens import start_tokens
from tlkit.engine import hooked
from tlkit.engine.packed_edits import Editor
from tlkit.engine.record import Recorder
from tlkit.engine.route import Route, route_of
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny
from tlkit.prompts import tokens

REFUSED = {
    "llama3": set(),
    "gptj": {"site resid_mid", "site attn_scores", "resid_pre + attn_out = resid_mid"},
    "mixtral": {"site mlp_pre", "site mlp_post"},
    "bloom": {"route", "a padded batch equals its rows",
              "packed engine equals the reference engine"},
}  # fmt: skip


def pairs(model):
    return sample_pairs(Parts(model), seed=0)


def by_name(found):
    return {check.name: check for check in found}


@pytest.mark.parametrize("family", REFUSED)
def test_nothing_fails_on_a_right_model_and_what_does_not_apply_says_so(tiny_bridge, family):
    told = []
    found = checks.run(tiny_bridge(family), progress=lambda done, total: told.append((done, total)))
    assert {check.name for check in found if check.passed is False} == set()
    assert {check.name for check in found if check.passed is None} == REFUSED[family]
    assert all(check.detail for check in found)
    assert told == [(i + 1, STAGES) for i in range(STAGES)]


@pytest.mark.slow
def test_the_embedded_model(embedded):
    found = by_name(checks.run(embedded))
    assert {name for name, check in found.items() if check.passed is False} == set()
    assert found["logits equal Hugging Face's"].measured.startswith("0 of")
    # SmolLM2's tokenizer puts no start token, though its chat begins with one of that name.
    assert found["one start token"].passed is None
    assert found["one start token in a chat"].measured.startswith("<|im_start|>|system|")


def test_changed_weights_under_the_hooks_are_noticed(tiny_bridge):
    """The hooked model and the model's own modules no longer say the same."""
    model = HookedTransformer.from_pretrained(
        tiny("llama3"), tokenizer=tiny_bridge("llama3").tokenizer
    )
    parts, rows = Parts(model), sample_pairs(Parts(model), 0).clean
    assert against_hugging_face(parts, rows).passed
    model.blocks[1].hook_attn_out.add_hook(lambda value, hook: value * 1.001)
    check = against_hugging_face(parts, rows)
    assert check.passed is False
    gap = float(check.measured.split()[0])
    with torch.no_grad():
        ours = model(torch.tensor([rows[0]]))
    theirs = tiny("llama3")(torch.tensor([rows[0]])).logits
    assert gap >= float((ours - theirs).abs().max()) * 0.9


def test_padding_that_leaks_is_noticed(tiny_bridge, monkeypatch):
    parts = Parts(tiny_bridge("bloom")), Parts(tiny_bridge("llama3"))
    rows = sample_pairs(parts[1], 0).clean
    assert padded_batch(parts[0], rows, Route(False, "why")).passed is None
    assert padded_batch(parts[1], rows, Route(True)).passed
    attend = Recorder.attend

    def unmasked(self, layer, q, k, v, mask, scale, softcap):
        return attend(self, layer, q, k, v, torch.zeros_like(mask), scale, softcap)

    monkeypatch.setattr(Recorder, "attend", unmasked)
    assert padded_batch(parts[1], rows, Route(True)).passed is False


def test_a_write_that_does_not_land_is_noticed(tiny_bridge, monkeypatch):
    model = tiny_bridge("gptj")
    # Pretending that GPT-J's patterns can be written, where the write is discarded.
    monkeypatch.setattr(Parts, "writable_patterns", property(lambda self: True))
    with pytest.warns(UserWarning, match="The edit is discarded"):
        found = by_name(sites.site_contract(model, Parts(model), pairs(model)[:1], (0, 1), 1.0))
    assert found["site pattern"].passed is False
    assert found["site pattern"].measured == "moves logits by 0"
    assert found["site z"].passed


def test_a_hook_that_never_fires_is_told_by_its_site(tiny_bridge, monkeypatch):
    name_of = hooked.hook_name

    def misspelt(component, layer):
        return "blocks.0.attn.hook_rot_q" if component == "v" else name_of(component, layer)

    model = tiny_bridge("neox")  # TransformerLens does not fire hook_rot_q there
    monkeypatch.setattr(hooked, "hook_name", misspelt)
    found = by_name(sites.site_contract(model, Parts(model), pairs(model)[:1], (0,), 1.0))
    assert found["site v"].passed is False
    assert "never fired" in found["site v"].detail
    assert found["site q"].passed


def test_a_stream_that_does_not_add_up_is_noticed(tiny_bridge):
    model = tiny_bridge("qwen2")
    parts, one = Parts(model), pairs(model)[:1]
    middle, end = sites.stream_adds_up(parts, one, (0, 1, 2))
    assert middle.passed and end.passed
    try:
        point = model.blocks[1].hook_resid_post
        point.add_hook(lambda value, hook: value + 0.01)
        middle, end = sites.stream_adds_up(parts, one, (0, 1, 2))
        assert middle.passed and end.passed is False
        assert float(end.measured) == pytest.approx(0.01, rel=0.1)
    finally:
        model.reset_hooks()


def test_a_fault_in_the_packed_engine_is_noticed(tiny_bridge, monkeypatch):
    model = tiny_bridge("llama3")
    parts = Parts(model)
    check = twins.packed_equals_reference(model, parts, pairs(model), route_of(parts), 2.0, 0)
    assert check.passed
    edited = Editor.edited
    monkeypatch.setattr(Editor, "edited", lambda *args: edited(*args) * 1.01)
    check = twins.packed_equals_reference(model, parts, pairs(model), route_of(parts), 2.0, 0)
    assert check.passed is False


def test_generation_that_forgets_the_prompt_is_noticed(tiny_bridge, monkeypatch):
    """What transformers 5.24 made of TransformerLens 4.3: the cache is not passed on."""
    model = tiny_bridge("llama3")
    parts, rows = Parts(model), sample_pairs(Parts(model), 0).clean
    assert cached_generation(parts, rows).passed
    plain = type(model).forward

    def forgetful(self, *args, past_key_values=None, **kwargs):
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", forgetful)
    assert cached_generation(parts, rows).passed is False


@pytest.mark.parametrize("passed", [True, False])
def test_two_start_tokens_are_noticed(tiny_bridge, monkeypatch, passed):
    model = tiny_bridge("llama3")
    if not passed:
        plain = tokens.with_one_bos

        def doubled(tokenizer, text):
            ids, offsets = plain(tokenizer, text)
            return [ids[0], *ids], [(0, 0), *offsets]

        monkeypatch.setattr(tokens, "with_one_bos", doubled)
    text, chat = start_tokens(model)
    assert (text.passed, chat.passed) == (passed, passed)
    assert text.measured.startswith("<bos>|The|" if passed else "<bos>|<bos>|The|")


def test_a_model_without_chat_template_or_tokenizer(tiny_bridge):
    bridge = tiny_bridge("gpt2")
    model = type("Model", (), {})()
    model.tokenizer = copy.deepcopy(bridge.tokenizer)
    model.tokenizer.chat_template = None
    text, chat = start_tokens(model)
    assert text.passed
    assert chat.passed is None
    assert "has no chat template" in chat.detail
    model.tokenizer = None
    assert [check.passed for check in start_tokens(model)] == [None, None]


@pytest.mark.parametrize("family", ["llama3", "falcon", "gptj"])
def test_bfloat16_is_that_of_hugging_face(tiny_bridge, family):
    """The drift is what a Hugging Face model cast to bfloat16 shows, and the model stays fp32."""
    model = tiny_bridge(family)
    rows = sample_pairs(Parts(model), 0).clean
    check = precision.drift(Parts(model), rows)
    narrow = tiny(family)
    buffers = {name: buffer.clone() for name, buffer in narrow.named_buffers()}
    narrow = narrow.to(torch.bfloat16)
    for name, buffer in narrow.named_buffers():
        if "inv_freq" in name:
            buffer.data = buffers[name]  # as when loaded from a file
    wide = tiny(family)
    with torch.no_grad():
        gaps = [
            float((narrow(ids).logits.float() - wide(ids).logits).abs().max())
            for ids in (torch.tensor([row]) for row in rows)
        ]
    assert check.passed
    assert float(check.measured.split()[0]) == pytest.approx(max(gaps), rel=0.1)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_no_copy_is_made_where_memory_is_short(tiny_bridge, monkeypatch):
    monkeypatch.setattr(precision, "available_memory", lambda device: 1000)
    check = precision.drift(Parts(tiny_bridge("llama3")), [[1, 2]])
    assert (check.passed, check.measured) == (None, "")
    assert "which is not free" in check.detail


def test_a_model_in_bfloat16(tiny_bridge):
    model = HookedTransformer.from_pretrained("tiny:llama3", dtype="bfloat16", device="cpu")
    found = by_name(checks.run(model))
    assert {name for name, check in found.items() if check.passed is False} == set()
    assert found["drift of bfloat16"].passed


def test_a_changed_model_is_told(tiny_bridge):
    model = HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
    before = state_of(model)
    assert left_as_found(before, state_of(model), Parts(model)).passed
    next(model.parameters()).data.mul_(2)
    model.original_model.config._attn_implementation = "sdpa"
    check = left_as_found(before, state_of(model), Parts(model))
    assert (check.passed, check.measured) == (False, "weights, attention")


def test_a_check_that_raises_is_a_failed_check(tiny_bridge, monkeypatch):
    def broken(parts, rows):
        raise RuntimeError("the reason")

    monkeypatch.setattr(generation, "cached_generation", broken)
    found = by_name(checks.run(tiny_bridge("gpt2")))
    failed = found["a check ran to its end"]
    assert (failed.passed, failed.measured, failed.detail) == (False, "RuntimeError", "the reason")
    assert found["the model is as it was"].passed


def test_samples_are_the_same_for_a_seed_and_free_of_special_tokens(tiny_bridge):
    parts = Parts(tiny_bridge("llama3"))
    one, same, other = (sample_pairs(parts, seed) for seed in (1, 1, 2))
    assert one.hash() == same.hash() != other.hash()
    special = set(parts.bridge.tokenizer.all_special_ids)
    assert not special & {token for row in one.clean + one.corrupted for token in row}
    assert [one.differing(i)[0] for i in range(3)] == [3, 0, 7]
    assert sample_layers(2) == (0, 1)
    assert sample_layers(30) == (0, 15, 29)
    assert tolerance(torch.float32, 30.0) == pytest.approx(3e-4)
