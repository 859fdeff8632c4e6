"""Slot values of questions: real ones from the database with their split, and random ones for pre-training.

A value is held out as a string, whatever slot it fills ("Audioslave" is an artist and an album), so that no
training row of any family shows it.
"""

import hashlib
import random
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Split
from stages.domains.sql.database import MAIN

MOST_WORDS, MOST_CHARS = 2, 14
PLAIN = re.compile(r"[\w./&-]+(?: [\w./&-]+)*")
# chosen so that a fair share of every slot is held out
SALT = "values-2467"
TEST_SHARE, VALIDATION_SHARE, PRETRAIN_SHARE = 0.13, 0.1, 0.45

SOURCES: dict[str, tuple[str, int]] = {
    "artist": (
        "select ar.name from artist ar join album al on al.artist_id = ar.id "
        "join track t on t.album_id = al.id group by ar.id having count(*) >= 5",
        70,
    ),
    "album": (
        "select al.title from album al join track t on t.album_id = al.id "
        "group by al.id having count(*) >= 5",
        65,
    ),
    "composer": ("select composer from track where composer is not null group by 1 having count(*) >= 4", 60),
    "kind": (
        "select g.name from genre g join track t on t.genre_id = g.id group by 1 having count(*) > 9",
        30,
    ),
    "invoice": ("select invoice_id from invoice_line group by 1 having count(*) >= 6", 60),
    "area": ("select distinct country from customer", 30),
    "city": ("select distinct city from customer", 60),
    "customer": ("select last_name from customer group by 1 having count(*) = 1", 60),
}
"""Slot -> (query on the main database, most values kept)."""

SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./&-"
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"


def _rank(text: str, salt: str = SALT) -> float:
    """A fixed pseudo-random number in [0, 1) for a string."""
    return int.from_bytes(hashlib.sha256(f"{salt}:{text.casefold()}".encode()).digest()[:8], "big") / 2**64


def split_of(value: str) -> Split:
    rank = _rank(value)
    if rank < TEST_SHARE:
        return Split.TEST_VALUES
    if rank < TEST_SHARE + VALIDATION_SHARE:
        return Split.VALIDATION
    return Split.PRETRAIN if rank < TEST_SHARE + VALIDATION_SHARE + PRETRAIN_SHARE else Split.TRAIN


def real_values(folder: Path) -> dict[str, list[str]]:
    """Slot -> short values without quotes, each named once in its column, in a fixed pseudo-random order."""
    connection = sqlite3.connect(f"file:{folder / MAIN}?mode=ro", uri=True)
    try:
        found = {slot: [row[0] for row in connection.execute(query)] for slot, (query, _) in SOURCES.items()}
    finally:
        connection.close()
    values = {}
    for slot, raw in found.items():
        once = sorted({str(v) for v in raw if raw.count(v) == 1 and _usable(str(v))}, key=_second_rank)
        values[slot] = once[: SOURCES[slot][1]]
    return values


def _second_rank(value: str) -> float:
    return _rank(value, "order")


def _usable(value: str) -> bool:
    return bool(PLAIN.fullmatch(value)) and len(value) <= MOST_CHARS and value.count(" ") < MOST_WORDS


class RandomSlots:
    """Strings that look like names but are none: they teach a small model to copy instead of to remember."""

    def __init__(self, known_values: Sequence[str]) -> None:
        words = {word for value in known_values for word in value.split() if word.isalpha() and len(word) > 3}
        self._words = sorted(words)

    def text(self, rng: random.Random) -> str:
        while True:
            text = " ".join(self._word(rng) for _ in range(rng.choice((1, 2))))
            if split_of(text) is Split.PRETRAIN:  # so it is no value that is held back
                return text

    def number(self, rng: random.Random) -> str:
        while True:
            number = str(rng.randint(1, 450))
            if split_of(number) is Split.PRETRAIN:
                return number

    def _word(self, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.35:  # two halves of different real words
            head, tail = rng.choice(self._words), rng.choice(self._words)
            return head[: rng.randint(2, len(head) - 1)] + tail[rng.randint(1, len(tail) - 2) :].lower()
        if kind < 0.65:
            return rng.choice(self._words)
        if kind < 0.9:
            syllables = (
                rng.choice(CONSONANTS) + rng.choice(VOWELS) + rng.choice(("", "", rng.choice(CONSONANTS)))
                for _ in range(rng.randint(1, 3))
            )
            return "".join(syllables).capitalize()
        letters = "".join(rng.choice(SYMBOLS) for _ in range(rng.randint(2, 4)))
        return letters.strip("./&-") or "X"
