"""Answers: how they are asked, where they end, what is kept, what is located."""

import copy
import dataclasses

import pytest

import tlkit.studies.answers as module
from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.qa import QA
from tlkit.studies.answer_store import AnswerStore, stop_tokens
from tlkit.studies.answers import answer, decoded, offsets

ROWS = [
    {"question": "What is the capital of Italy?", "answer": "Rome", "subject": "Italy"},
    {"question": "What is the capital of France?", "answer": "Paris", "subject": "France"},
    {"question": "Who was Mary?", "answer": "one"},
]
QUESTIONS = QA.from_rows(ROWS, "three")


@pytest.fixture
def model():
    return HookedTransformer.from_pretrained(tiny("llama"), tokenizer=tiny_tokenizer())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "answers"


def test_the_embedded_model_answers_and_its_tokens_are_located(embedded, cache):
    (one,) = answer(embedded, QUESTIONS[1:2])
    assert (one.text, one.verdict) == ("The capital of France is Paris.", "right")
    tokenizer = embedded.tokenizer
    assert decoded(tokenizer, one.ids[slice(*one.exact_question)]) == " France"
    assert decoded(tokenizer, one.ids[slice(*one.exact_answer)]) == " Paris"
    assert decoded(tokenizer, one.ids[slice(*one.asked)]) == one.question.question
    assert decoded(tokenizer, one.prompt_ids).endswith("<|im_start|>assistant\n")


def test_short_answers_come_from_examples(embedded):
    (one, _) = answer(embedded, QUESTIONS[:2], template="short")
    assert one.text == " Rome"
    assert decoded(embedded.tokenizer, one.prompt_ids).endswith("capital of Italy?\nA:")
    assert one.exact_answer.start == len(one.prompt_ids)


def test_answers_are_kept_and_looked_up(model, cache, monkeypatch):
    steps = []
    first = answer(model, QUESTIONS[:2], max_new_tokens=4)
    asked = []
    plain = module.greedy
    monkeypatch.setattr(
        module, "greedy", lambda m, ids, **how: asked.append(len(ids)) or plain(m, ids, **how)
    )
    again = answer(model, QUESTIONS, max_new_tokens=4, progress=lambda *step: steps.append(step))
    assert asked == [1]  # only the third question is new
    assert again.items[:2] == first.items
    assert steps[-1] == (3, 3)
    (file,) = cache.iterdir()
    file.write_text("not a line\n{}\n" + file.read_text(), encoding="utf-8")
    assert answer(model, QUESTIONS, max_new_tokens=4) == again
    answer(model, QUESTIONS, max_new_tokens=5)
    answer(model, QUESTIONS, max_new_tokens=4, cache=False)
    assert asked == [1, 0, 3, 3]


def test_other_weights_have_answers_of_their_own(model, cache):
    answer(model, QUESTIONS, max_new_tokens=4)
    model.original_model.lm_head.original_component.weight.data.neg_()
    changed = answer(model, QUESTIONS, max_new_tokens=4)
    assert len(list(cache.iterdir())) == 2
    assert changed == answer(model, QUESTIONS, max_new_tokens=4, cache=False)


def test_a_place_that_cannot_be_written_costs_nothing_but_the_keeping(model, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "file"))
    assert len(answer(model, QUESTIONS, max_new_tokens=2)) == 3


def spelled(monkeypatch, text):
    """Let the model say a text, token by token, whatever it is asked."""
    ids = tiny_tokenizer()(text, add_special_tokens=False)["input_ids"]

    def say(model, prompts, *, ended, finished, **_):
        rows = []
        for _ in prompts:
            row = []
            for token in ids:
                row.append(token)
                if ended(row):
                    break
            rows.append(row)
        finished(list(range(len(rows))), rows)

    monkeypatch.setattr(module, "greedy", say)


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        ("sentence", "Sure! It is Rome."),
        ("line", "Sure! It is Rome. Or not."),
        ("turn", "Sure! It is Rome. Or not.\nWho knows"),
    ],
)
def test_an_answer_ends_where_it_is_told_to(model, monkeypatch, stop, kept):
    spelled(monkeypatch, "Sure! It is Rome. Or not.\nWho knows")
    one = answer(model, QUESTIONS[:1], stop=stop, cache=False).items[0]
    assert one.text == kept
    assert one.verdict == "right"
    tokens = [decoded(model.tokenizer, [token]) for token in one.ids]
    assert "".join(tokens[slice(*one.exact_answer)]).strip() == "Rome"


def test_what_is_said_decides_the_verdict_and_not_the_place(model, monkeypatch):
    spelled(monkeypatch, "The capital is Milan.\n")
    wrong = answer(model, QUESTIONS[:1], cache=False).items[0]
    spelled(monkeypatch, "The capital is Rome.\n")
    right = answer(model, QUESTIONS[:1], cache=False).items[0]
    assert (wrong.verdict, right.verdict) == ("wrong", "right")
    assert wrong.exact_answer.start == right.exact_answer.start
    spelled(monkeypatch, "I do not know.\n")
    assert answer(model, QUESTIONS[:1], cache=False).counts()["unknown"] == 1


def test_the_characters_of_tokens_that_share_a_letter(model):
    tokenizer, text = model.tokenizer, "é Rome"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = offsets(tokenizer, ids, text)
    assert found[:3] == [(0, 1), (0, 1), (1, 2)] or found[:2] == [(0, 1), (0, 1)]
    assert found[-1][1] == len(text)


def test_a_chat_models_own_end_of_turn_is_known(embedded, model):
    assert embedded.tokenizer.convert_tokens_to_ids("<|im_end|>") in stop_tokens(
        embedded, chat=True
    )
    other = copy.copy(model.tokenizer)
    other.chat_template = "{% for m in messages %}{{ m['content'] }}<|system|>{% endfor %}"
    model._tokenizer = other
    assert other.convert_tokens_to_ids("<|system|>") in stop_tokens(model, chat=True)
    assert other.convert_tokens_to_ids("<|system|>") not in stop_tokens(model, chat=False)


def test_thinking_is_off(model):
    model.tokenizer.chat_template += "{% if enable_thinking is false %}(no thoughts){% endif %}"
    one = answer(model, QUESTIONS[:1], max_new_tokens=1, cache=False).items[0]
    assert decoded(model.tokenizer, one.prompt_ids).endswith("(no thoughts)")
    base = answer(model, QUESTIONS[:1], max_new_tokens=1, cache=False, chat=False).items[0]
    assert decoded(model.tokenizer, base.prompt_ids[1:]) == "Q: What is the capital of Italy?\nA:"


def test_some_answers_and_shares_by_relation(model):
    answers = answer(model, QUESTIONS, max_new_tokens=2, cache=False)
    assert answers[:2].items == answers.items[:2]
    related = dataclasses.replace(answers.items[0].question, relation="capital")
    one = dataclasses.replace(answers.items[0], question=related, verdict="right")
    shares = dataclasses.replace(answers, items=(one, *answers.items[1:])).share_right()
    assert shares["capital"] == (1.0, 1)
    assert shares[""][1] == 2


def test_a_template_without_a_place_for_the_question_is_refused(model):
    with pytest.raises(SpecError, match=r"must hold \{question\} once"):
        answer(model, QUESTIONS, template="Q?")
    with pytest.raises(SpecError, match="no stop 'soon'"):
        answer(model, QUESTIONS, stop="soon")


def test_a_store_in_memory_keeps_nothing(tmp_path):
    store = AnswerStore(None)
    store.add([[1, 2]], [[3]])
    assert store.get((1, 2)) == [3]
    assert AnswerStore(tmp_path / "none.jsonl").get((1, 2)) is None
