"""What the groups know: who is asked how, and the shares by hand."""

import numpy as np
import pytest
from scipy.stats import binomtest

import tlkit as tk
from tlkit.prompts.qa import QA
from tlkit.studies.pathways import knowledge
from tlkit.studies.pathways.examples import examples_of
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.task import Task


@pytest.fixture(scope="module")
def answers(tiny_bridge):
    rows = [
        {"question": f"What is {name}?", "answer": f"zz{i}", "subject": name, "relation": "x",
         "popularity": 10.0 * i}
        for i, name in enumerate(f"thing{a}{b}" for a in "abcdef" for b in "abcdef")
    ]  # fmt: skip
    return tk.pathways.given(tiny_bridge("llama"), QA.from_rows(rows))


def task_of(model, answers, **choices):
    settings = Settings(**{"folds": 2, "seeds": (0,), "min_examples": 4, **choices})
    return Task(model, answers, examples_of(answers, 0), Part.of(answers), settings)


def test_each_question_is_asked_once_more_with_leave_not_to_know(tiny_bridge, answers, monkeypatch):
    seen = {}

    def answer(model, qa, *, template, **how):
        seen.update(texts=[template.replace("{question}", q.question) for q in qa], how=how)
        return [
            type("A", (), {"question": q, "verdict": "unknown" if "a?" in q.question else "wrong"})
            for q in qa
        ]

    monkeypatch.setattr(knowledge, "answer", answer)
    task = task_of(tiny_bridge("llama"), answers)
    says = knowledge.unknowing(task)
    assert len(seen["texts"]) == len({one.question.question for one in answers})
    assert all(text.endswith('you do not know the answer, say "I don\'t know".')
               for text in seen["texts"])  # fmt: skip
    assert seen["how"]["max_new_tokens"] == 48
    assert {name for name, unknown in says.items() if unknown} == {
        name for name in says if "a?" in name
    }


def test_shares_are_counted_by_hand(tiny_bridge, answers, monkeypatch):
    model = tiny_bridge("llama")
    ds = tk.pathways.run(
        model, answers, parts=["boundary"], folds=2, seeds=(0,), min_examples=4, max_new_tokens=3
    )
    known = tk.pathways.boundary(ds, min_examples=1)
    one = ds.isel(dataset=0)
    for layer in range(3):
        for group, turned in (("Q-anchored", True), ("A-anchored", False)):
            inside = one["q_anchored"].values[layer] == turned
            inside &= one["p_wrong"].notnull().values[layer]
            cell = known.isel(dataset=0).sel(group=group, layer=layer)
            assert int(cell["group_size"]) == inside.sum()
            if not inside.any():
                assert np.isnan(float(cell["accuracy"]))
                continue
            right = one["verdict"].values[inside] == "right"
            assert float(cell["accuracy"]) == pytest.approx(right.mean())
            interval = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
            assert float(cell["accuracy_low"]) == pytest.approx(interval.low)
            assert float(cell["accuracy_high"]) == pytest.approx(interval.high)
            assert float(cell["popularity"]) == np.median(one["popularity"].values[inside])


def test_a_probe_tells_planted_groups_apart_and_not_shuffled_ones(
    planted, planted_examples, answers
):
    """The planted stream holds no marker, but the answer's own part differs in size."""
    from tlkit.studies.answers import Answers

    examples = planted_examples(160, lambda i: i % 2 == 0)
    task = Task(planted, Answers("x", ()), examples, Part(160),
                Settings(folds=4, seeds=(0, 1), c=1.0))  # fmt: skip
    marked = task.base.copy()
    marked[:, ::2, 5] += 3.0
    task.base = marked
    q_anchored = np.zeros((3, 160), dtype=bool)
    q_anchored[1:, ::2] = True
    task.part.add("q_anchored", ("layer", "example"), q_anchored, "true or false", examples)
    knowledge._awareness(task)
    found = task.part.variables["awareness_auc"][1]
    assert np.isnan(found[0]).all()  # nobody is Q-anchored at layer 0
    assert found[1:].min() > 0.95
    assert task.part.variables["awareness_auc_shuffled"][1][1:].mean() == pytest.approx(
        0.5, abs=0.15
    )
    assert "At 1 of 3 layers" in task.part.reasons[-1]
