"""Text put into prompts, as a condition to compare with the prompts as they are."""

from dataclasses import dataclass

from tlkit.errors import SpecError

_PLACES = ("start", "end", "before_question")


@dataclass(frozen=True)
class Insert:
    """Text that is put into every prompt, such as meaningless tokens: ``Insert("/ " * 55)``.

    Args:
        text: What is put in, spaces included; it is tokenised on its own.
        at: ``"start"`` or ``"end"`` of the user's text (inside the chat template, if there is
            one); ``"before_question"``: where the span ``"question"`` begins, or at the start of
            the text of a prompt that has none; or a character offset in the user's text.
        label: What results and figures call it.

    Raises:
        SpecError: The text is empty, or there is no such place.
    """

    text: str
    at: int | str = "before_question"
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text:
            raise SpecError(f"Insert needs a text that is not empty, not {self.text!r}.")
        offset = isinstance(self.at, int) and not isinstance(self.at, bool) and self.at >= 0
        if not offset and self.at not in _PLACES:
            raise SpecError(
                f"Insert(at={self.at!r}) is no place; use {', '.join(map(repr, _PLACES))} "
                "or a character offset from 0."
            )
