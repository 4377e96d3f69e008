"""Labelled prompts and folds: what is refused, and that like prompts stay together."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.studies.layer_probes.rows import folds_of, labelled


def rows_of(count, **more):
    return [{"prompt": f"prompt {i}", "label": "ab"[i % 2], **more} for i in range(count)]


def test_equal_texts_are_one_group_and_groups_are_joined_by_them():
    rows = rows_of(8)
    rows[3]["prompt"] = "  PROMPT   0 "
    rows[3]["group"] = rows[6]["group"] = "g"
    group = labelled(rows, "a").group
    assert group[0] == group[3] == group[6]
    assert len(set(group.tolist())) == 6


def test_a_duplicate_is_never_in_training_and_test_at_once():
    rows = rows_of(40)
    for i in range(0, 40, 4):  # a pair of equal texts: the label could be looked up
        rows[i + 2] = dict(rows[i])
    read = labelled(rows, "a")
    for seed in range(5):
        for train, test in folds_of(read, 5, seed):
            assert not {read.texts[i] for i in train} & {read.texts[i] for i in test}


def test_folds_hold_every_prompt_once_and_classes_alike():
    read = labelled(rows_of(50), "a")
    tests = [test for _, test in folds_of(read, 5, 0)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(50))
    assert all(read.truth[test].sum() == 5 for test in tests)


@pytest.mark.parametrize(
    ("rows", "positive", "message"),
    [
        ([], "a", "There are no prompts"),
        (rows_of(4), "c", "No prompt is labelled 'c'; the labels are a, b"),
        ([{"prompt": "x", "label": "a"}] * 4, "a", "two classes are told apart"),
        ([{"prompt": "x"}], "a", "Row 0 has no 'label'"),
        (["x"], "a", "Row 0 is no mapping"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(rows, positive, message):
    with pytest.raises(SpecError, match=message):
        labelled(rows, positive)


def test_folds_that_cannot_be_made_are_refused():
    with pytest.raises(SpecError, match=r"4 prompts labelled 'a', fewer than the 5 folds"):
        folds_of(labelled(rows_of(8), "a"), 5, 0)
    grouped = labelled(rows_of(20), "a", ["x" if i % 2 else str(i) for i in range(20)])
    with pytest.raises(SpecError, match=r"10 prompts labelled 'b' are of 1 groups"):
        folds_of(grouped, 5, 0)
    with pytest.raises(SpecError, match="There are 3 groups for 20 prompts"):
        labelled(rows_of(20), "a", ["x"] * 3)
    with pytest.raises(SpecError, match="at least 2"):
        folds_of(labelled(rows_of(8), "a"), 1, 0)


def test_groups_that_leave_a_fold_with_one_class_are_refused():
    # Each class has three groups for three folds, but one group holds nearly everything.
    rows = [{"prompt": f"big {i}", "label": "ab"[i % 2], "group": "big"} for i in range(30)]
    rows += [{"prompt": name, "label": name[0]} for name in ("a1", "a2", "b1", "b2")]
    read = labelled(rows, "a")
    with pytest.raises(SpecError, match=r"leave fold \d with prompts of one class"):
        for seed in range(20):
            folds_of(read, 3, seed)
