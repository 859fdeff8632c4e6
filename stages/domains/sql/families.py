"""The grid of question families: an operation times a filter path. A cell is a family of one or two readings.

Held-out families put known parts together in a new way: an operation with a filter that it was never trained
with, or an operation with another column or table ("total size" and "average length" give "total length").
The first kind is easy for a base model, the second is where it has room.
"""

from dataclasses import dataclass

from stages.domains.sql.idioms import Hop, Path, Reading

ALBUM = Hop("album", "al", "t.album_id", "al.id")
ARTIST = Hop("artist", "ar", "al.artist_id", "ar.id")
CUSTOMER = Hop("customer", "c", "i.customer_id", "c.id")
FILE_TRACK = Hop("track", "t", "tf.track_id", "t.id")
SAME_CUSTOMER = Hop("customer", "x", "c.id", "x.id")
SIZE_ALBUM = Hop("album", "al", "s.album_id", "al.id")
CONTACT_CUSTOMER = Hop("customer", "c", "k.customer_id", "c.id")
TOTAL_CUSTOMER = Hop("customer", "c", "s.customer_id", "c.id")

TRACK_ARTIST = Path("track", "t", (ALBUM, ARTIST), "ar.name", unique=True)
TRACK_ALBUM = Path("track", "t", (ALBUM,), "al.title", unique=True)
TRACK_COMPOSER = Path("track", "t", (Hop("track", "x", "t.id", "x.id"),), "x.composer", direct="t.composer")
TRACK_GENRE = Path("track", "t", (Hop("genre", "g", "t.genre_id", "g.id"),), "g.name", unique=True)
TRACK_STYLE = Path("track", "t", (Hop("style", "s", "t.style_id", "s.id"),), "s.name", unique=True)
TRACK_INVOICE = Path("track", "t", (Hop("invoice_line", "il", "t.id", "il.track_id"),), "il.invoice_id")
FILE_COMPOSER = Path("track_file", "tf", (FILE_TRACK,), "t.composer")
FILE_ALBUM = Path("track_file", "tf", (FILE_TRACK, ALBUM), "al.title", unique=True)
FILE_INVOICE = Path(
    "track_file", "tf", (Hop("invoice_line", "il", "tf.track_id", "il.track_id"),), "il.invoice_id"
)
ALBUM_ARTIST = Path("album", "al", (ARTIST,), "ar.name", unique=True)
SIZE_OF_ALBUM = Path("album_size", "s", (SIZE_ALBUM,), "al.title", unique=True)
SIZE_OF_ARTIST = Path("album_size", "s", (SIZE_ALBUM, ARTIST), "ar.name", unique=True)
CUSTOMER_COUNTRY = Path("customer", "c", (SAME_CUSTOMER,), "x.country", direct="c.country")
CUSTOMER_REGION = Path("customer", "c", (SAME_CUSTOMER,), "x.region", direct="c.region")
CUSTOMER_CITY = Path("customer", "c", (SAME_CUSTOMER,), "x.city", direct="c.city")
CUSTOMER_NAME = Path("customer", "c", (SAME_CUSTOMER,), "x.last_name", direct="c.last_name")
CONTACT_CITY = Path("customer_contact", "k", (CONTACT_CUSTOMER,), "c.city")
CONTACT_NAME = Path("customer_contact", "k", (CONTACT_CUSTOMER,), "c.last_name", unique=True)
INVOICE_COUNTRY = Path("invoice", "i", (CUSTOMER,), "c.country")
INVOICE_REGION = Path("invoice", "i", (CUSTOMER,), "c.region")
INVOICE_CITY = Path("invoice", "i", (CUSTOMER,), "c.city", direct="i.billing_city")
INVOICE_CUSTOMER = Path("invoice", "i", (CUSTOMER,), "c.last_name", unique=True)
TOTAL_CITY = Path("customer_total", "s", (TOTAL_CUSTOMER,), "c.city")
TOTAL_OF_CUSTOMER = Path("customer_total", "s", (TOTAL_CUSTOMER,), "c.last_name", unique=True)

ASKED = {
    "track.list": "list tracks",
    "track.count": "how many tracks",
    "track.longest": "longest track",
    "track.top": "three longest tracks",
    "track.average": "average length of tracks",
    "track.size": "total size of tracks",
    "track.length": "total length of tracks",
    "track.largest": "largest track",
    "track.top-size": "three largest tracks",
    "album.list": "list albums",
    "album.count": "how many albums",
    "customer.list": "list customers",
    "customer.count": "how many customers",
    "customer.email": "list emails",
    "invoice.top": "three largest invoices",
    "invoice.count": "how many invoices",
    "invoice.total": "total of invoices",
    "invoice.largest": "largest invoice",
    "invoice.average": "average invoice",
}
"""What a question asks for. An ambiguous word names neither of the two things that it may mean."""

# "kind" is genre or style, "area" is country or region
NARROWED = {
    "artist": "by artist",
    "album": "on album",
    "composer": "by composer",
    "kind": "of kind",
    "invoice": "on invoice",
    "area": "from area",
    "city": "from city",
    "customer": "of customer",
}

NUMERIC = frozenset({"invoice"})


@dataclass(frozen=True)
class Family:
    """`ambiguity` is the letter of AmbiQT's kind (C, T, J, P), or empty when there is one reading."""

    asks: str
    slot: str
    readings: tuple[Reading, ...]
    ambiguity: str = ""
    held_out: bool = False

    @property
    def name(self) -> str:
        return f"{self.asks}/{self.slot}"

    def question(self, value: str) -> str:
        return f"{ASKED[self.asks]} {NARROWED[self.slot]} {literal(self.slot, value)}"

    def strategies(self, value: str) -> dict[str, list[str]]:
        """Reading ("a", "b") -> correct queries."""
        quoted = literal(self.slot, value)
        return {name: reading.strategies(quoted) for name, reading in zip("ab", self.readings, strict=False)}


def literal(slot: str, value: str) -> str:
    return value if slot in NUMERIC else f"'{value}'"


def _track(operation: str, *paths: Path) -> tuple[Reading, ...]:
    column = {"count": "", "average": "t.milliseconds"}.get(operation, "t.name")
    return tuple(Reading(operation, path, column, "t.milliseconds") for path in paths)


def _size(track: Path, file: Path) -> tuple[Reading, ...]:
    return Reading("sum", track, "t.bytes"), Reading("sum", file, "tf.bytes")


def _invoice(operation: str, *paths: Path) -> tuple[Reading, ...]:
    return tuple(Reading(operation, path, "i.total") for path in paths)


def _kind(operation: str, column: str, measure: str) -> tuple[Reading, ...]:
    return tuple(Reading(operation, path, column, measure) for path in (TRACK_GENRE, TRACK_STYLE))


def _names(path: Path, column: str) -> Reading:
    return Reading("list", path, column, distinct_rows=True)


COUNTED_ALBUM = (Reading("count", TRACK_ALBUM), Reading("list", SIZE_OF_ALBUM, "s.tracks"))
COUNTED_ARTIST = (Reading("count", TRACK_ARTIST), Reading("sum", SIZE_OF_ARTIST, "s.tracks"))
TOTAL_CUSTOMERS = (Reading("sum", INVOICE_CUSTOMER, "i.total"), Reading("list", TOTAL_OF_CUSTOMER, "s.total"))
TOTAL_CITIES = (Reading("sum", INVOICE_CITY, "i.total"), Reading("sum", TOTAL_CITY, "s.total"))

FAMILIES: tuple[Family, ...] = (
    Family("track.list", "artist", _track("list", TRACK_ARTIST)),
    Family("track.count", "artist", COUNTED_ARTIST, "P"),
    Family("track.longest", "artist", _track("longest", TRACK_ARTIST)),
    Family("track.top", "artist", _track("top", TRACK_ARTIST)),
    Family("album.list", "artist", (_names(ALBUM_ARTIST, "al.title"),)),
    Family("track.list", "album", _track("list", TRACK_ALBUM)),
    Family("track.count", "album", COUNTED_ALBUM, "P"),
    Family("track.longest", "album", _track("longest", TRACK_ALBUM)),
    Family("track.average", "album", _track("average", TRACK_ALBUM)),
    Family("track.count", "composer", _track("count", TRACK_COMPOSER)),
    Family("track.average", "composer", _track("average", TRACK_COMPOSER)),
    Family("track.size", "composer", _size(TRACK_COMPOSER, FILE_COMPOSER), "J"),
    Family("track.count", "kind", _track("count", TRACK_GENRE, TRACK_STYLE), "T"),
    Family("track.longest", "kind", _track("longest", TRACK_GENRE, TRACK_STYLE), "T"),
    Family("track.average", "kind", _track("average", TRACK_GENRE, TRACK_STYLE), "T"),
    Family("track.list", "invoice", _track("list", TRACK_INVOICE)),
    Family("track.longest", "invoice", _track("longest", TRACK_INVOICE)),
    Family("track.size", "invoice", _size(TRACK_INVOICE, FILE_INVOICE), "J"),
    Family(
        "customer.list",
        "area",
        (_names(CUSTOMER_COUNTRY, "c.last_name"), _names(CUSTOMER_REGION, "c.last_name")),
        "C",
    ),
    Family("invoice.count", "area", _invoice("count", INVOICE_COUNTRY, INVOICE_REGION), "C"),
    Family("invoice.average", "area", _invoice("average", INVOICE_COUNTRY, INVOICE_REGION), "C"),
    Family(
        "customer.email", "city", (_names(CUSTOMER_CITY, "c.email"), _names(CONTACT_CITY, "k.email")), "J"
    ),
    Family("invoice.count", "city", _invoice("count", INVOICE_CITY)),
    Family("invoice.total", "city", TOTAL_CITIES, "P"),
    Family("invoice.largest", "city", _invoice("maximum", INVOICE_CITY)),
    Family(
        "customer.email", "customer", (_names(CUSTOMER_NAME, "c.email"), _names(CONTACT_NAME, "k.email")), "J"
    ),
    Family("invoice.count", "customer", _invoice("count", INVOICE_CUSTOMER)),
    Family("invoice.total", "customer", TOTAL_CUSTOMERS, "P"),
    Family("invoice.average", "customer", _invoice("average", INVOICE_CUSTOMER)),
    # no stage trains on these
    Family("track.average", "artist", _track("average", TRACK_ARTIST), held_out=True),
    Family("track.longest", "composer", _track("longest", TRACK_COMPOSER), held_out=True),
    Family("track.size", "album", _size(TRACK_ALBUM, FILE_ALBUM), "J", held_out=True),
    Family("track.largest", "kind", _kind("longest", "t.name", "t.bytes"), "T", held_out=True),
    Family("track.length", "artist", (Reading("sum", TRACK_ARTIST, "t.milliseconds"),), held_out=True),
    Family(
        "track.largest", "artist", (Reading("longest", TRACK_ARTIST, "t.name", "t.bytes"),), held_out=True
    ),
    Family("track.top-size", "artist", (Reading("top", TRACK_ARTIST, "t.name", "t.bytes"),), held_out=True),
    Family("track.top-size", "album", (Reading("top", TRACK_ALBUM, "t.name", "t.bytes"),), held_out=True),
    Family("album.count", "artist", (Reading("count", ALBUM_ARTIST),), held_out=True),
    Family(
        "invoice.top", "customer", (Reading("top", INVOICE_CUSTOMER, "i.total", "i.total"),), held_out=True
    ),
    Family("customer.count", "city", (Reading("count", CUSTOMER_CITY),), held_out=True),
    Family(
        "customer.count",
        "area",
        (Reading("count", CUSTOMER_COUNTRY), Reading("count", CUSTOMER_REGION)),
        "C",
        held_out=True,
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}
