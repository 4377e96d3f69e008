"""A user's text inside a chat template: the text as the model reads it, and where it stands."""

from typing import Any, NamedTuple

from tlkit.errors import SpecError
from tlkit.models.text import render_chat
from tlkit.prompts.spans import short


class Rendered(NamedTuple):
    """A text as the model reads it, with the place of the user's own words in it."""

    text: str
    """What is tokenised."""
    body: str
    """The user's text as the template kept it; many strip white space at its ends."""
    start: int
    """The character of `text` at which `body` begins."""
    skipped: int
    """How many characters of the user's text were stripped before `body`."""


def _user(tokenizer: Any, content: str, variables: dict[str, Any]) -> str:
    """Render one user message, up to where the model's answer begins."""
    message = {"role": "user", "content": content}
    return render_chat(tokenizer, [message], generation_prompt=True, **variables)


def _marker(text: str) -> str:
    """Return a word that does not occur in `text`."""
    word = "Zqj"
    while word in text:
        word += "qj"
    return word


def render_user(tokenizer: Any, text: str, **variables: Any) -> Rendered:
    """Render a user's text through the chat template, with the generation prompt at the end.

    The template is rendered a second time around a marker; what stands around the marker must
    stand around the text, so that the text is found even where the template or the text itself
    holds the same words twice.

    Args:
        tokenizer: Whose template it is.
        text: The user's message.
        **variables: Handed to the template (see `render_chat`).

    Raises:
        SpecError: The template changes the text beyond stripping white space at its ends.
    """
    around = _user(tokenizer, _marker(text), variables).split(_marker(text))
    whole = _user(tokenizer, text, variables)
    for body in (text, text.strip(), text.lstrip(), text.rstrip()):
        if len(around) > 1 and body.join(around) == whole:
            start = len(whole) - len(around[-1]) - len(body)
            return Rendered(whole, body, start, text.index(body))
    raise SpecError(
        f"The chat template changes the text {short(text)} into {short(whole, 200)}, so its words "
        "cannot be located; write the template's text yourself and use chat=False."
    )
