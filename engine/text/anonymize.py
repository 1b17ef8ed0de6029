"""Replaces what identifies a user with dummy tokens, after DEMix §A.2, table 8.

The paper prints the dummy tokens and links to its regular expressions; the expressions here are our own. They must
not match dates, decimals, versions, ISBNs or decorators. The paper only names two of its seven categories; we read
them as:

- DART: Facebook's cookie `datr`, 24 characters that identify a browser, written `datr` or `dart`.
- FB User ID: the number of a Facebook account, marked by a URL or a name, or bare in its form since 2009.

Names of persons, street addresses, local phone numbers without area code, and “bob at example dot com” stay:
this reduces the risk and does not remove it. The time is linear in the length of the text. Anonymising is
idempotent: no match begins or ends next to a dummy token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

TOKENS = {
    "email": "<EMAIL>",
    "dart": "<DART>",
    "fb_user_id": "<FB_USERID>",
    "credit_card_number": "<CREDIT_CARD_NUMBER>",
    "ssn": "<SSN>",
    "phone_number": "<PHONE_NUMBER>",
    "user": "<USER>",
}
Match = re.Match[str]


def anonymize(text: str) -> tuple[str, dict[str, int]]:
    """The text with dummy tokens, and the number of replacements by category (only categories that occur)."""
    counts = Counter[str]()
    for pattern in _PATTERNS:
        text, num_replaced = pattern.replace(text)
        if num_replaced:
            counts[pattern.category] += num_replaced
    return text, counts


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A regular expression, a literal that every match contains, and a check of each match."""

    category: str
    shape: re.Pattern[str]
    literal: str = ""
    is_real: Callable[[Match], bool] = lambda _: True

    def replace(self, text: str) -> tuple[str, int]:
        """The text with the group `id` of each match replaced, and the number of replacements."""
        pieces: list[str] = []
        copied_to = at = 0
        if self.literal not in text:
            return text, 0
        while match := self.shape.search(text, at):
            at = match.start() + 1  # a false match may overlap a true one
            if self.is_real(match):
                start, at = match.span("id")
                pieces += text[copied_to:start], TOKENS[self.category]
                copied_to = at
        return "".join(pieces) + text[copied_to:], len(pieces) // 2


def _begins(first: str, not_after: str) -> str:
    """The character class `first`, not directly after a character of `not_after` or a dummy token."""
    behind = "".join(f"(?<!{token}{first})" for token in TOKENS.values())
    return f"{first}(?<!{not_after}{first}){behind}"


def _begins_number(first: str) -> str:
    """The character class `first`, not inside a word, an amount or a longer number."""
    behind = "".join(f"(?<!{token}[-.]{first})" for token in TOKENS.values())
    return rf"{_begins(first, _WORD_OR_SUM)}(?<![0-9][-.]{first}){behind}"


_WORD_OR_SUM = r"[\w$€£]"
_TOKEN = f"(?:{'|'.join(TOKENS.values())})"
_NUMBER_ENDS = rf"(?!\w|[-.]?[0-9]|[-.]?{_TOKEN})"

# --- e-mail: Latin letters, so that an address inside Chinese or Japanese text ends where it ends
_LATIN = "A-Za-z0-9À-ɏ"
_HOST = rf"(?:[{_LATIN}-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}(?![{_LATIN}]|{_TOKEN})"
_LOCAL = rf"[{_LATIN}._%+-]"
_LOCAL_OR_AT = rf"[{_LATIN}._%+@-]"
_EMAIL = rf"(?P<id>{_begins(_LOCAL, _LOCAL_OR_AT)}{_LOCAL}*+@{_HOST})"
_FILES = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "html"})  # icon@2x.png

# --- Facebook: the cookie, then marked account numbers, then bare ones
_DART = rf"\b[Dd][Aa](?:[Tt][Rr]|[Rr][Tt])[\"']?\s?[:=]\s?[\"']?(?P<id>[A-Za-z0-9_-]{{24}})(?![\w-]|{_TOKEN})"
_FB_PLACES = (
    r"(?:facebook|fb)\.com/(?:profile\.php\?(?:[\w=&;-]{0,100}[&;])?id=|people/[^/\s?#]{1,80}/|(?=[0-9]{5}))",
    r"\bc_user[\"']?\s?[:=]\s?[\"']?",
    r"\b(?:fb|facebook)[ _-]?(?:user[ _-]?)?u?id[\"']?\s?[:=#]\s?[\"']?",
)
_FB_NAMED = rf"(?i:{'|'.join(_FB_PLACES)})(?P<id>[0-9]{{1,17}}){_NUMBER_ENDS}"
_FB_BARE = rf"(?P<id>{_begins_number('1')}000(?![0-9]{{5}}0{{6}})[0-9]{{11}}){_NUMBER_ENDS}"

# --- cards: the lengths and first digits of the networks, in one run or in the groups printed on the card
_CARD_RUNS = (
    r"[0-9]{13,18}",
    r"[0-9]{3}(?P<a>[ -])[0-9]{4}(?P=a)[0-9]{4}(?P=a)[0-9]{4}",
    r"[0-9]{3}(?P<b>[ -])[0-9]{6}(?P=b)[0-9]{4,5}",
)
_CARD = rf"(?P<id>{_begins_number('[2-6]')}(?:{'|'.join(_CARD_RUNS)})){_NUMBER_ENDS}"
_NETWORKS = re.compile(
    r"4[0-9]{15}(?:[0-9]{3})?"  # Visa
    r"|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"  # Mastercard
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}"  # Diners Club
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}"  # Discover
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12}"  # JCB
    r"|62[0-9]{14,17}"  # UnionPay
)


def _is_card(match: Match) -> bool:
    """Whether the digits have the checksum of ISO/IEC 7812: every second one from the right counts double, modulo 9."""
    digits = match["id"].replace(" ", "").replace("-", "")
    doubled = sum((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)[int(digit)] for digit in digits[-2::-2])
    return _NETWORKS.fullmatch(digits) is not None and (sum(map(int, digits[-1::-2])) + doubled) % 10 == 0


# --- social security numbers: the areas 000, 666 and 9xx are never given out
_SSN = rf"(?P<id>{_begins_number('[0-8]')}[0-9]{{2}}(?<!000)(?<!666)-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}}){_NUMBER_ENDS}"

# --- phones: dashes or an area code in brackets suffice; with dots and spaces the digits must be valid
_EXTENSION = r"(?:[ ,]{0,2}(?:[xX]|[eE]xt\.?)[ .:]{0,2}[0-9]{1,6})?"
_AMERICAN_SHAPES = (
    r"\([0-9]{3}\)[ .-]?[0-9]{3}[ .-][0-9]{4}",
    r"[0-9]{3}-[0-9]{3}-[0-9]{4}",
    r"[2-9][0-9]{2}(?P<gap>[ .])[2-9][0-9]{2}(?P=gap)[0-9]{4}",
    r"[2-9][0-9]{2}[ /][2-9][0-9]{2}-[0-9]{4}",
)
_AMERICAN = (
    rf"(?P<id>(?={_begins_number('[+(0-9]')})(?:\+?1[ .-]?)?(?:{'|'.join(_AMERICAN_SHAPES)}){_EXTENSION}){_NUMBER_ENDS}"
)
_WORLD = rf"(?P<id>{_begins_number('[+]')}[1-9](?:[ .()/-]{{0,2}}[0-9]){{8,14}}{_EXTENSION}){_NUMBER_ENDS}"
_NO_WORLD = re.compile(
    r"\+[0-9]+\.[0-9]+(?:[^.]*|.*[^0-9.].*)"  # a decimal with its sign, or several
    r"|\+1(?![2-9][0-9]{2}[2-9][0-9]{6}$)[0-9]+"  # of North America, with digits no number there has
    r"|\+[0-9]*0{6}"  # a round number
    r"|\+[0-9]+(?:[^0-9]+[0-9]+){7,}|\+(?:.*(?<![0-9])[0-9](?![0-9])){3}.*"  # a list
    r"|[^(]*\).*"  # a sum
)

# --- handles: @name, @name@host as on Mastodon, u/name as on Reddit
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,38}[A-Za-z0-9_])?"
_HANDLE = rf"(?P<id>{_begins('@', '[A-Za-z0-9_@]')}(?P<name>{_NAME})(?:@{_HOST})?)(?![A-Za-z0-9_@]|{_TOKEN})"
_REDDITOR = rf"[A-Za-z0-9_-]{{3,20}}(?![\w/-]|{_TOKEN})"
_AT_REDDIT = rf"reddit\.com/u(?:ser)?/(?P<id>{_REDDITOR})"
_OF_REDDIT = rf"(?P<id>(?={_begins('[/u]', '[A-Za-z0-9_/]')})/?u/(?P<name>{_REDDITOR}))"
_UNITS = frozenset({"min", "day", "hour", "week", "month", "year", "dose", "sec", "mol"})  # 5 u/day
_NO_NAME = re.compile(r"[0-9_.-]+[A-Za-z]{0,2}|.*\.(?:com|org|net|edu|gov)", re.ASCII)  # @3pm, @2x, @example.com
_IN_CODE = re.compile(r"(?:[ \t]*(?:/\*+!?|//+!?|#+|;+|>>>|\.\.\.)|[ \t]+\*|[ \t]{2}|\t)[ \t]*")
_CODE_FOLLOWS = re.compile(
    rf"[ \t]{{0,8}}(?:\n@{_NAME}(?:\([^\n]*+)?[ \t]{{0,8}}){{0,8}}\n"
    r"(?:async |def |cdef |class |public |private |protected |static |final |abstract |export |function |fun |const )"
)


def _is_handle(match: Match) -> bool:
    """False for times, hosts, packages, and decorators and documentation tags (at the start of a line of code)."""
    text, start, end = match.string, match.start(), match.end()
    if _NO_NAME.fullmatch(match["name"]) or text.startswith(("(", "{"), end):
        return False  # @3pm, @example.com; @cache(…), @article{…}
    before = text[max(start - 1, 0) : start]
    if before == "`" or (before != "/" and text.startswith("/", end) and text[end + 1 : end + 2].isalnum()):
        return False  # `@property`; @scope/package, but not example.com/@name/page
    earliest = max(start - 80, 0)
    line = text[max(text.rfind("\n", earliest, start) + 1, earliest) : start]
    return not (_IN_CODE.fullmatch(line) or (not line and _CODE_FOLLOWS.match(text, end)))


_PATTERNS = (  # in this order: an e-mail address holds a handle, a card's digits may hold a phone number's
    _Pattern("email", re.compile(_EMAIL), "@", lambda match: match["id"].rpartition(".")[2].lower() not in _FILES),
    _Pattern("dart", re.compile(_DART)),
    _Pattern("fb_user_id", re.compile(_FB_NAMED)),
    _Pattern("fb_user_id", re.compile(_FB_BARE), "1000"),
    _Pattern("credit_card_number", re.compile(_CARD), "", _is_card),
    _Pattern("ssn", re.compile(_SSN), "-"),
    _Pattern("phone_number", re.compile(_AMERICAN)),
    _Pattern("phone_number", re.compile(_WORLD), "+", lambda match: not _NO_WORLD.fullmatch(match["id"])),
    _Pattern("user", re.compile(_AT_REDDIT), "reddit.com/u"),
    _Pattern("user", re.compile(_OF_REDDIT), "u/", lambda match: match["name"] not in _UNITS),
    _Pattern("user", re.compile(_HANDLE), "@", _is_handle),
)
