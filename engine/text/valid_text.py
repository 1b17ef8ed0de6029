"""What every text must be to be stored and tokenized."""

from __future__ import annotations

from engine.errors import CorpusError


def valid_text(text: str) -> str:
    """The text itself; raises CorpusError when it holds NUL characters or cannot be written as UTF-8."""
    if "\0" in text:
        raise CorpusError("The text contains NUL characters.")
    require_encodable(text)
    return text


def require_encodable(text: str) -> None:
    """Raises CorpusError when the text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"\\u{ord(text[error.start]):04x}"
        raise CorpusError(f"The text is not valid Unicode: it contains an unpaired surrogate ({surrogate}).") from None
