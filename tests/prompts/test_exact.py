import pytest

from tlkit.prompts.exact import exact_answer, exact_question
from tlkit.prompts.words import first_sentence, sentence_end

CAPITAL = "What is the capital of France?"


@pytest.mark.parametrize(
    ("question", "answer", "exact"),
    [
        (CAPITAL, "Paris", "Paris"),
        (CAPITAL, "The capital of France is Paris.", "Paris"),
        (CAPITAL, "Paris is the capital of France.", "Paris"),
        (CAPITAL, "Sure! The capital of France is Lyon.", "Lyon"),
        (CAPITAL, "\n\nThe capital is **Paris**.", "Paris"),
        ("Who wrote Emma?", "Emma was written by Jane Austen in 1815.", "Jane Austen"),
        ("Who wrote Emma?", "Jane Austen wrote Emma.", "Jane Austen"),
        ("When was Emma written?", "Jane Austen wrote Emma in 1815.", "1815"),
        ("Who painted it?", "It was painted by Leonardo da Vinci.", "Leonardo da Vinci"),
        ("Who wrote Dune?", "J. R. R. Tolkien wrote it. He was born", "J. R. R. Tolkien"),
        ("What is the capital of Mexico?", "Mexico City is its capital.", "Mexico City"),
        ("What color is the sky?", "The sky is typically blue.", "blue"),
        ("What is Ann's occupation?", "Ann is an American politician from Ohio.",
         "American politician"),
        ("In which country is Rome?", "Rome is in the European country of Italy.",
         "European country of Italy"),
        ("In which country is the Louvre?", "The Louvre is in Paris, France, of course.", "France"),
        ("On which continent is Kenya?", "Kenya is a country in East Africa.", "East Africa"),
        ("How many legs has a spider?", "A spider has 8 legs.", "8"),
        ("Is Rome in Italy?", "Yes, Rome is in Italy.", "Yes"),
        ("Which song is it?", 'They sang "Let It Be" in 1970.', "Let It Be"),
        ("What is the opposite of up?", "The opposite of up is down.", "down"),
        ("Who?", "the the", "the"),
    ],
)  # fmt: skip
def test_the_exact_answer_is_found_by_its_words(question, answer, exact):
    start, stop = exact_answer(question, answer)
    assert answer[start:stop] == exact


def test_an_answer_without_words_has_no_exact_answer():
    assert exact_answer(CAPITAL, " ... \n") is None
    assert exact_answer(CAPITAL, "") is None


def test_right_and_wrong_answers_of_one_form_are_located_alike():
    """The rule sees no gold answer: replacing the name by any other leaves the place."""
    for name in ("Paris", "Ulan Bator", "Z", "4711"):
        text = f"The capital of France is {name}."
        assert exact_answer(CAPITAL, text) == (25, 25 + len(name))


@pytest.mark.parametrize(
    ("question", "subject", "exact"),
    [
        ("Who wrote Pride and Prejudice?", "Pride and Prejudice", "Pride and Prejudice"),
        ("Who wrote Pride and Prejudice?", None, "Pride and Prejudice"),
        ("Who wrote Pride and Prejudice?", "Emma", "Pride and Prejudice"),
        ('Who sang "Take on Me" for A-ha?', None, "Take on Me"),
        ("Where is the Blue Nile?", None, "Blue Nile"),
        ("who plays zoey in i love you man", None, "zoey in i love you man"),
        ("who are you", None, None),
    ],
)
def test_the_exact_question_is_its_subject_or_what_stands_in_for_it(question, subject, exact):
    found = exact_question(question, subject)
    assert (None if found is None else question[slice(*found)]) == exact


def test_a_sentence_ends_where_more_follows_or_the_line_ends():
    assert sentence_end("He was born in Paris") is None
    assert sentence_end("He was born in Paris.") is None  # more may follow
    assert sentence_end("Born in Paris. He") == 14
    assert sentence_end("By J. K. Rowling and") is None
    assert sentence_end("\nParis\nmore") == 6
    assert first_sentence("Of course! It is Paris. He") == (10, 23)
