import pytest

from tlkit.prompts.judging import contains, judge, plain, plain_name

PARIS = ["Paris"]


@pytest.mark.parametrize(
    ("text", "aliases", "verdict"),
    [
        ("Paris", PARIS, "right"),
        ("The capital is PARIS.", PARIS, "right"),
        ("It is Lyon.", PARIS, "wrong"),
        ("Parisians", PARIS, "wrong"),  # not a word of its own
        ("roman", ["Oman"], "wrong"),
        ("Bogota", ["Bogotá"], "right"),
        ("Bogota\u0301", ["Bogotá"], "right"),  # a letter and its accent, apart
        ("\uff30\uff41\uff52\uff49\uff53", PARIS, "right"),  # wide Latin letters
        ("STRASSE", ["Straße"], "right"),
        ("He lives in Hague.", ["The Hague"], "right"),
        ("the hague", ["The Hague"], "right"),
        ("Vitamin C is in oranges", ["Vitamin A"], "wrong"),  # no article inside a name is dropped
        ("Vitamin A, of course", ["Vitamin A"], "right"),
        ("About 1,234,567 people", ["1234567"], "right"),
        ("12", ["1,2"], "wrong"),
        ("10", ["1"], "wrong"),
        ("O'Brien wrote it", ["OBrien"], "right"),
        ("Jean-Paul Sartre", ["jean paul sartre"], "right"),
        ("首都は東京です", ["東京"], "right"),
        ("Rome or perhaps Paris", ["London", "paris"], "right"),
        ("", PARIS, "unknown"),
        ("?!", PARIS, "unknown"),
        ("I don't know.", PARIS, "unknown"),
        ("I\u2019m not sure, maybe Paris", PARIS, "unknown"),
        ("I do not have that information.", PARIS, "unknown"),
        ("I cannot answer this question.", PARIS, "unknown"),
        ("Unknown", PARIS, "unknown"),
        ("The date is unknown.", PARIS, "unknown"),
        ("The unknown soldier lies in Paris.", PARIS, "right"),
        ("They know it is Paris.", PARIS, "right"),
        ("I know: Paris.", PARIS, "right"),
    ],
)
def test_an_answer_is_judged_by_names_on_word_boundaries(text, aliases, verdict):
    assert judge(text, aliases) == verdict


def test_a_name_without_words_is_in_nothing():
    assert not contains("anything ... at all", "...")


def test_plain_text_is_its_own_plain_text():
    once = plain("Ça, l\u2019Été—№ 5: ﬁn! 1,000 東京")
    assert plain(once) == once


def test_an_article_alone_is_a_name():
    assert plain_name("A") == "a"
    assert judge("Blood type A", ["A"]) == "right"
