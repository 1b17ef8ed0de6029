from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.anonymize import TOKENS, anonymize

TAKEN = {
    "email": [
        "bob@example.com",
        "bob.o+news@mail.example.co.uk",
        "x_y%z@a-b.museum",
        "jörg@müller.de",
        "BOB@EXAMPLE.COM",
    ],
    "dart": ["abcdefghijklmnopqrstuvwx", "A-9_efghijklmnopqrstuvw0"],
    "fb_user_id": ["100004123456789", "100087654321001"],
    "credit_card_number": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5555-5555-5555-4444",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "3056 930902 5904",
        "6011111111111117",
        "3530111333300000",
        "6200000000000005",
    ],
    "ssn": ["078-05-1120", "899-99-9999", "665-01-0001"],
    "phone_number": [
        "202-555-1234",
        "(202) 555-1234",
        "(202)555-1234",
        "1-800-555-1234",
        "+1 202 555 1234",
        "202.555.1234",
        "202/555-1234",
        "202-555-1234 ext. 12",
        "202-555-1234x12",
        "+12025551234",
        "+44 20 7946 0958",
        "+442079460958",
        "+49 (0)30 123456-78",
        "+33 1 23 45 67 89",
        "+81-75-321-9019",
        "+971 4 701 4236",
    ],
    "user": [
        "@bob",
        "@50cent",
        "@sydney-runkle",
        "@john.doe",
        "@bob_",
        "@bob@mastodon.social",
        "u/spez",
        "/u/some_one",
    ],
}
LEFT = {
    "email": ["bob @ example.com", "bob@localhost", "a@b.c", "x @ y", "bob@", "1@2.3", "icon@2x.png", "bob at ex.com"],
    "dart": ["datr=short", "the dart: it flew", "dart=abcdefghijklmnopqrstuvwxyz", "update=abcdefghijklmnopqrstuvwx"],
    "fb_user_id": ["100000000000000", "1000", "1000041234567890", "200004123456789", "1.100004123456789"],
    "credit_card_number": [
        "4111111111111112",
        "1234567812345670",
        "41111111111111111111",
        "4111 11111111 1111",
        "4111-1111 1111 1111",
        "0.4111111111111111",
        "4111111111111111e",
        "978-3-16-148410-0",
        "2001 2002 2003 2004",
        "20240131120000",
    ],
    "ssn": ["000-12-3456", "666-12-3456", "912-34-5678", "123-00-4567", "123-45-0000", "123-45-67890", "123-45-6789-0"],
    "phone_number": [
        "2024-01-31",
        "31.12.2024",
        "3.14159265358979",
        "+3.1415926535",
        "978-0-306-40615-7",
        "0-306-40615-2",
        "192.168.100.1000",
        "127.0.0.1",
        "1.22.333-4444",
        "12:30:45",
        "555-1234",
        "2025551234",
        "100 200 3000",
        "+1000000000",
        "+1 2 3 4 5 6 7 8 9 10",
        "+1.75 226.34 150.4",
        "$202-555-1234",
        "x202-555-1234",
        "+0200",
        "ISO 8601",
        "10.1016/0140-6736",
        "+1.28)2(22.21)2",
    ],
    "user": [
        "@",
        "@ home",
        "@3pm",
        "@2x",
        "@100",
        "all@once",
        "@example.com",
        "@angular/core",
        "@article{key",
        "@cache(8)",
        "`@property`",
        "@@rowcount",
        "u/day",
        "U/S",
        "you/me",
        "a/u/bob",
        "/home/u/bob",
    ],
}
FRAME = {"dart": "datr={}"}  # what must stand around an example for it to be one
TAKEN_CASES = [(category, example) for category, examples in TAKEN.items() for example in examples]
LEFT_CASES = [(category, example) for category, examples in LEFT.items() for example in examples]


@pytest.mark.parametrize(("category", "example"), TAKEN_CASES)
@pytest.mark.parametrize("around", ["{}", "Ask {}, or not.", "({})", "<td>{}</td>", "a;{};b", "«{}»", "Ask {}.\nThen"])
def test_what_identifies_a_user_becomes_a_dummy_token(category: str, example: str, around: str) -> None:
    framed = around.format(FRAME.get(category, "{}"))
    assert anonymize(framed.format(example)) == (framed.format(TOKENS[category]), {category: 1})


@pytest.mark.parametrize(("category", "example"), LEFT_CASES)
@pytest.mark.parametrize("around", ["{}", "It is {} here."])
def test_what_only_looks_like_it_stays(category: str, example: str, around: str) -> None:
    text = around.format(example)
    assert anonymize(text) == (text, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://www.facebook.com/profile.php?id=4", "https://www.facebook.com/profile.php?id=<FB_USERID>"),
        ("fb.com/profile.php?v=info&id=1234567&x", "fb.com/profile.php?v=info&id=<FB_USERID>&x"),
        ("facebook.com/people/Ann-Lee/7654321", "facebook.com/people/Ann-Lee/<FB_USERID>"),
        ("facebook.com/1234567/posts", "facebook.com/<FB_USERID>/posts"),
        ('"c_user": "1234567"', '"c_user": "<FB_USERID>"'),
        ("Facebook ID: 1234567", "Facebook ID: <FB_USERID>"),
        ("facebook.com/zuck and facebook.com/2024", "facebook.com/zuck and facebook.com/2024"),
    ],
)
def test_a_facebook_number_is_known_by_its_place(text: str, expected: str) -> None:
    assert anonymize(text)[0] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("medium.com/@bob/my-page", "medium.com/<USER>/my-page"),
        ("reddit.com/user/bob_1, reddit.com/u/ann", "reddit.com/user/<USER>, reddit.com/u/<USER>"),
        (".@bob and @ann's @carol:", ".<USER> and <USER>'s <USER>:"),
        ("[@bob](https://example.com)", "[<USER>](https://example.com)"),
        ("これは@bobです", "これは<USER>です"),
        ("@bob\n@ann\nwere here", "<USER>\n<USER>\nwere here"),
    ],
)
def test_handles_are_detected_in_addresses_lists_and_other_scripts(text: str, expected: str) -> None:
    assert anonymize(text)[0] == expected


@pytest.mark.parametrize(
    "code",
    [
        "@dataclass\nclass A: ...",
        "@app.route('/')\n@cached\n@other\nasync def show(): ...",
        "class A:\n    @property\n    def b(self): ...",
        ">>> @cached\n... def f(): ...",
        "/** @brief Makes it.\n * @param x how much\n */",
        "/// @note slow",
        "# @return the rest",
        "\t@Override\n\tpublic void run() {",
        "@media(print)",
    ],
)
def test_decorators_and_tags_of_documentation_are_no_handles(code: str) -> None:
    assert anonymize(code) == (code, {})


def test_an_address_is_one_thing_and_no_handle_besides() -> None:
    assert anonymize("bob@example.com, @bob") == ("<EMAIL>, <USER>", {"email": 1, "user": 1})


def test_the_digits_of_a_card_are_no_phone_number() -> None:
    assert anonymize("4111-1111-1111-1111")[1] == {"credit_card_number": 1}


def test_each_category_is_counted() -> None:
    text = "a@example.com b@example.com 078-05-1120 @bob u/spez /u/spez"
    assert anonymize(text)[1] == {"email": 2, "ssn": 1, "user": 3}


def test_there_is_an_example_of_every_category_of_table_8() -> None:
    tokens = "<EMAIL> <DART> <FB_USERID> <PHONE_NUMBER> <CREDIT_CARD_NUMBER> <SSN> <USER>"
    assert sorted(TOKENS.values()) == sorted(tokens.split())
    assert set(TAKEN) == set(LEFT) == set(TOKENS)


@given(st.text(st.characters(exclude_characters="@/0123456789=:")))
def test_text_without_patterns_stays_as_it_is(text: str) -> None:
    assert anonymize(text) == (text, {})


PIECES = [
    *(FRAME.get(category, "{}").format(example) for category, example in TAKEN_CASES + LEFT_CASES),
    *TOKENS.values(),
    *"@.-+/ ()\n0159ax:=`",
    "def ",
    "facebook.com/",
    "reddit.com/u/",
    "1-",
    "> ",
    "  ",
    "000",
    "u/",
]


@settings(max_examples=1500)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_anonymising_twice_changes_nothing_more(text: str) -> None:
    first_time, _ = anonymize(text)
    assert anonymize(first_time) == (first_time, {})


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_every_count_is_a_token_more(text: str) -> None:
    first_time, counts = anonymize(text)
    for category, token in TOKENS.items():
        assert first_time.count(token) - text.count(token) == counts.get(category, 0)


HOSTILE = [
    "@",
    "1",
    "a.",
    "a@",
    "@a",
    "@a@a.",
    "(",
    "+1",
    "+1 2 3 ",
    "4111 ",
    "@a\n",
    " " * 79 + "@a\n",
    "u/",
    "u/aa-",
    "202-",
    "x@aaaaaaaa.",
    "111-11-1111-",
    "facebook.com/profile.php?id=",
    "facebook.com/profile.php?a=1&",
    "fb.com/people/",
    "datr=",
    "datr=aaaaaaa",
    "<EMAIL>",
    "a",
    "bob@example.com",
    "@a@a.aa ",
    "/u/u",
    "@a\n(",
    "1000",
    "(202) 555-1234x",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_no_text_takes_more_than_its_share_of_time(unit: str) -> None:
    """Four times the text takes about four times as long; sixteen times would be a square."""
    short, long = (unit * (size // len(unit)) for size in (1 << 16, 1 << 18))
    assert min(_seconds(long) for _ in range(3)) < 9 * max(min(_seconds(short) for _ in range(3)), 1e-3)


def _seconds(text: str) -> float:
    start = time.process_time()
    anonymize(text)
    return time.process_time() - start
