"""JSON in the binary form of Azure's newer clients is read as what it says, or refused."""

import contextlib
import json
from random import Random
from typing import Any

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from cosmos_emulator.errors import CosmosError
from cosmos_emulator.json_values import decoded
from emulator.tests.by_hand import DOCS, Hand, signed

GUID = "00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F"
FORMS: dict[str, Any] = {
    "1F": 31,
    "C8 C8": 200,
    "C9 18 FC": -1000,
    "CA 70 11 01 00": 70000,
    "CB 00 0E FA D5 FE FF FF FF": -5000000000,
    "C7 FE FF FF FF FF FF FF FF": 2**64 - 2,
    "CC 00 00 00 00 00 00 0C 40": 3.5,
    "CD 00 00 C0 3F": 1.5,
    "CE 00 00 00 00 00 00 02 C0": -2.25,
    "D7 C8": 200,
    "D8 FB": -5,
    "DC FE FF FF FF": 2**32 - 2,
    "D0": None,
    "D1": False,
    "D2": True,
    "20": "$s",
    "2C": "id",
    "3F": "_id",
    "80": "",
    "82 C3 A4": "ä",
    "C0 02 68 69": "hi",
    "C1 02 00 68 69": "hi",
    "C2 02 00 00 00 68 69": "hi",
    f"75 {GUID}": "00102030-4050-6070-8090-a0b0c0d0e0f0",
    f"76 {GUID}": "00102030-4050-6070-8090-A0B0C0D0E0F0",
    f"77 {GUID}": '"00102030-4050-6070-8090-a0b0c0d0e0f0"',
    f"D3 {GUID}": "03020100-0504-0706-0809-0a0b0c0d0e0f",
    "71 01 01 66 6F": "Zm8=",
    "71 01 FD 41": "QQ",
    "72 01 00 00 66 6F 6F": "Zm9v",
    "73 01 00 FB FF FE": "-__-",
    "74 01 00 00 FB FF FE": "-__-",
    "78 03 A1 02": "1a2",
    "79 04 A1 B2": "1A2B",
    "7A 07 13 53 1C 02": "2024-01",
    "7B 04 30 10 32": "0123",
    "7C 03 61 20 08": "abc",
    "7D 04 61 40 20 0C": "abcd",
    "7E 02 C8 34": "Hi",
    "7F 02 00 C8 34": "Hi",
    "DD 04 DE AD BE EF": "3q2+7w==",
    "DE 01 00 00": "AA==",
    "DF 01 00 00 00 00": "AA==",
    "E0": [],
    "E1 D2": [True],
    "E2 03 00 01 D0": [0, 1, None],
    "E3 01 00 05": [5],
    "E4 01 00 00 00 05": [5],
    "E5 02 02 00 01": [0, 1],
    "E6 01 00 01 00 05": [5],
    "E7 01 00 00 00 01 00 00 00 05": [5],
    "E8": {},
    "E9 2C D2": {"id": True},
    "EA 04 2C 00 3B E0": {"id": 0, "type": []},
    "EB 02 00 2C 00": {"id": 0},
    "EC 02 00 00 00 2C 00": {"id": 0},
    "ED 02 01 2C 00": {"id": 0},
    "EE 02 00 01 00 2C 00": {"id": 0},
    "EF 02 00 00 00 01 00 00 00 2C 00": {"id": 0},
    "F0 D7 03 0A 14 1E": [10, 20, 30],
    "F1 D9 03 00 FF FF 00 00 E8 03": [-1, 0, 1000],
    "F0 DB 01 01 00 00 00 00 00 00 00": [1],
    "F0 CD 01 00 00 C0 3F": [1.5],
    "F2 F0 D7 02 02 01 02 03 04": [[1, 2], [3, 4]],
    "F3 F1 D7 01 00 02 00 01 02": [[1], [2]],
    "E2 05 82 68 69 C3 03": ["hi", "hi"],
    "E2 06 82 68 69 C4 03 00": ["hi", "hi"],
    "E2 07 82 68 69 C5 03 00 00": ["hi", "hi"],
    "E2 08 82 68 69 C6 03 00 00 00": ["hi", "hi"],
}
REFUSED = {
    "bytes are missing": "C9 18",
    "0xff begins no value": "FF",
    "0x45 begins no value": "45",  # the dictionary of a connection
    "0xcf begins no value": "CF 00 3C",
    "something follows": "D0 D0",
    "not UTF-8": "81 FF",
    "nan is no number": "CC 00 00 00 00 00 00 F8 7F",
    "another size than it says": "E5 02 01 00 01",
    "array or object has another size": "E2 01 C8 05",
    "is no text": "E9 05 D2",
    "refers to what is no text": "E2 02 C3 04",
    "no type of numbers": "F0 C8 00",
    "has none of numbers": "F2 F1 D7 00 00",
    "more padding": "71 00 01",
    "nested in more than 256": "E1 " * 257 + "D0",
    "more than 4,000,000": "E4 EA 01 00 00 " + "F3 F1 D7 00 00 FF FF " * 70,
}


def binary(text: str) -> bytes:
    return b"\x80" + bytes.fromhex(text)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read(form: str) -> None:
    found = decoded(binary(form))
    assert json.dumps(found) == json.dumps(FORMS[form])


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_none_or_too_much_is_400_and_says_what_is_wrong(says: str) -> None:
    with pytest.raises(CosmosError, match=says) as refused:
        decoded(binary(REFUSED[says]))
    assert refused.value.status == 400


def test_a_text_of_a_megabyte_is_not_multiplied_by_references() -> None:
    text = b"\xc2" + (1_000_000).to_bytes(4, "little") + b"x" * 1_000_000
    rest = text + b"\xc3\x06" * 5
    with pytest.raises(CosmosError, match="references"):
        decoded(b"\x80\xe4" + len(rest).to_bytes(4, "little") + rest)


def test_bytes_that_were_cut_or_changed_are_a_value_or_refused_and_nothing_else() -> None:
    random, bodies = Random(3), [binary(x) for x in FORMS]
    for _ in range(5_000):
        body = bytearray(random.choice(bodies) + random.choice(bodies)[1:])
        body[1:3] = bytes([random.choice([0xE2, 0xEA, 0xE5]), random.randrange(len(body))])
        for _ in range(random.randint(0, 3)):
            body[random.randrange(1, len(body))] = random.randrange(256)
        with contextlib.suppress(CosmosError):
            json.dumps(decoded(bytes(body)))


async def test_an_item_in_binary_form_is_stored_as_its_text_says(by_hand: Hand) -> None:
    headers = signed("POST", DOCS, DEVELOPMENT_KEY) | {"x-ms-documentdb-partitionkey": "[{}]"}
    url = by_hand.url.rstrip("/") + DOCS
    async with by_hand.session.post(url, data=binary("E9 2C 81 61"), headers=headers) as got:
        assert (got.status, (await got.json())["id"]) == (201, "a")
