"""What counts as a refusal, an answer, nothing or garbage.

Faults to plant: thoughts read as answers; empty answers called answers; apostrophes compared.
"""

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.studies import abliteration
from tlkit.studies.abliteration.forward import apart, kl, prefix_odds
from tlkit.studies.behaviour import Phrases, classify, disagreement, verdicts

TEXTS = {
    "I'm sorry, but I can't help with that.": "refusal",
    "I\u2019M SORRY, but no.": "refusal",
    "im sorry  but\nno": "refusal",
    "As an AI, I do not do this.": "refusal",
    "<think>I cannot say that, or can I?</think>Take two eggs and beat them.": "answer",
    "They may want me to say I cannot.</think> Take two eggs.": "answer",
    "<think>Eggs.</think>I cannot help with eggs.": "refusal",
    "<think>I cannot say": "empty",
    "": "empty",
    " \n": "empty",
    "1.1.2.1.1.2": "garbled",
    "?!?!": "garbled",
    "dog dog dog dog dog dog": "garbled",
    "I'm sorry, I'm sorry, I'm sorry, I'm sorry, I'm sorry,": "refusal",
    "42": "answer",
    "Hi! Cantaloupe is a melon.": "answer",
    "A long answer. " + "x y z w v u t s r q p o " * 12 + "I cannot.": "garbled",
    "Wait... the answer is four.": "answer",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:24]))
def test_every_answer_has_its_class(text):
    assert classify(text, Phrases()) == TEXTS[text]


def test_empty_answers_are_a_class_of_their_own_whatever_the_detector_says():
    found = verdicts(["", " ", "<think>x</think>"], {"no": lambda _: False, "yes": lambda _: True})
    assert found == {"no": ["empty"] * 3, "yes": ["empty"] * 3}


def test_late_words_are_not_read():
    text = "The cat sat on the mat and looked at the dog, which slept beside the house. " * 2
    assert classify(text[:140] + " I cannot", Phrases(within=100)) == "answer"


def test_detectors_are_compared_answer_by_answer():
    found = verdicts(["Yes, do.", "I cannot."], {"words": Phrases()}, odds=[1.0, 2.0])
    assert found == {"words": ["answer", "refusal"], "prefix": ["refusal", "refusal"]}
    assert disagreement(found) == 0.5


@pytest.mark.parametrize(
    ("detectors", "said"),
    [({}, "empty"), ({"a": 3}, "'a' is no function"), ({"prefix": len}, "'prefix' belongs")],
)
def test_detectors_that_cannot_be_are_refused(detectors, said):
    with pytest.raises(SpecError, match=said):
        abliteration.Settings(detectors=detectors)


def test_kl_is_never_nan_or_negative():
    ruled_out = torch.tensor([0.0, 1.0, -torch.inf])
    assert kl(ruled_out, ruled_out).item() == 0
    p, q = torch.tensor([0.1, 0.7, 0.2]), torch.tensor([0.3, 0.3, 0.4])
    by_hand = (p * (p / q).log()).sum().item()
    assert kl(p.log(), q.log() + 3).item() == pytest.approx(by_hand, rel=1e-5)
    assert kl(torch.zeros(3), ruled_out).item() == torch.inf
    noise = torch.randn(50, 100)
    assert (kl(noise, noise + 1e-7 * torch.randn(50, 100)) >= 0).all()


def test_prefix_odds_are_products_of_next_token_probabilities(tiny_bridge):
    model = tiny_bridge("llama3")
    rows, prefixes = [[0, 7, 9], [0, 30, 31, 32, 33]], [(11, 12), (40,)]
    for ids, mine in zip(rows, prefix_odds(Parts(model), rows, prefixes).tolist(), strict=True):
        total = 0.0
        for prefix in prefixes:
            chance = 1.0
            for i, token in enumerate(prefix):
                with torch.no_grad():
                    logits = model(torch.tensor([[*ids, *prefix[:i]]]))[0, -1]
                chance *= logits.softmax(-1)[token].item()
            total += chance
        assert mine == pytest.approx(torch.tensor(total).logit().item(), rel=1e-4)


def test_a_prefix_that_starts_with_another_is_left_out():
    assert apart([(1, 2), (1,), (3,), (3,), (), (4, 1)]) == [(1,), (3,), (4, 1)]
