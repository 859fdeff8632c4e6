"""The music store's tables, and what was added to them so that questions have two readings.

Added, after the four kinds of AmbiQT: `customer.region` beside `country` (C, synonymous columns), `style`
beside `genre` (T, synonymous tables), `track_file` and `customer_contact` split off (J), `album_size` and
`customer_total` (P, precomputed aggregates). Their values differ from what they stand beside.
"""


def _texts(*names: str) -> tuple[str, ...]:
    return tuple(f"{name} text" for name in names)


# table -> column definitions; foreign keys are indexed
REAL: dict[str, tuple[str, ...]] = {
    "artist": ("id integer primary key", "name text"),
    "album": ("id integer primary key", "title text", "artist_id integer references artist(id)"),
    "genre": ("id integer primary key", "name text"),
    "media_type": ("id integer primary key", "name text"),
    "track": (
        "id integer primary key",
        "name text",
        "album_id integer references album(id)",
        "media_type_id integer references media_type(id)",
        "genre_id integer references genre(id)",
        "composer text",
        "milliseconds integer",
        "bytes integer",
        "unit_price real",
    ),
    "playlist": ("id integer primary key", "name text"),
    "playlist_track": (
        "id integer primary key",
        "playlist_id integer references playlist(id)",
        "track_id integer references track(id)",
    ),
    "employee": (
        "id integer primary key",
        *_texts(
            "last_name",
            "first_name",
            "title",
            "birth_date",
            "hire_date",
            "address",
            "city",
            "state",
            "country",
            "postal_code",
            "phone",
            "fax",
        ),
        "email text",
        "reports_to integer references employee(id)",
    ),
    "customer": (
        "id integer primary key",
        *_texts(
            "first_name",
            "last_name",
            "company",
            "address",
            "city",
            "state",
            "country",
            "postal_code",
            "phone",
            "fax",
            "email",
        ),
        "support_rep_id integer references employee(id)",
    ),
    "invoice": (
        "id integer primary key",
        "customer_id integer references customer(id)",
        *_texts(
            "invoice_date",
            "billing_address",
            "billing_city",
            "billing_state",
            "billing_country",
            "billing_postal_code",
        ),
        "total real",
    ),
    "invoice_line": (
        "id integer primary key",
        "invoice_id integer references invoice(id)",
        "track_id integer references track(id)",
        "unit_price real",
        "quantity integer",
    ),
}

ADDED_COLUMNS: dict[str, tuple[str, ...]] = {
    "customer": ("region text",),
    "track": ("style_id integer references style(id)",),
}

ADDED_TABLES: dict[str, tuple[str, ...]] = {
    "style": ("id integer primary key", "name text"),
    "track_file": ("track_id integer references track(id)", "bytes integer"),
    "customer_contact": ("customer_id integer references customer(id)", "email text"),
    "album_size": ("album_id integer references album(id)", "tracks integer"),
    "customer_total": ("customer_id integer references customer(id)", "total real"),
}

# names that questions filter by: a scan for each verdict would cost more than the rest of it
INDEXED_TEXT = {
    "artist": ("name",),
    "album": ("title",),
    "genre": ("name",),
    "style": ("name",),
    "track": ("composer",),
    "customer": ("last_name", "city", "country", "region"),
    "invoice": ("billing_city",),
}


def columns(table: str) -> tuple[str, ...]:
    """Names of the columns of a table, added ones last."""
    return tuple(definition.split()[0] for definition in _definitions(table))


def _definitions(table: str) -> tuple[str, ...]:
    return REAL.get(table, ADDED_TABLES.get(table, ())) + ADDED_COLUMNS.get(table, ())


TABLES: dict[str, tuple[str, ...]] = {table: columns(table) for table in (*REAL, *ADDED_TABLES)}


def create_statements() -> list[str]:
    """CREATE TABLE and CREATE INDEX statements of the whole database, in a fixed order."""
    statements = []
    for table in TABLES:
        definitions = _definitions(table)
        statements.append(f"create table {table} ( {' , '.join(definitions)} )")
        keys = [d.split()[0] for d in definitions if " references " in d]
        for column in (*keys, *INDEXED_TEXT.get(table, ())):
            statements.append(f"create index ix_{table}_{column} on {table} ( {column} )")
    return statements


def schema_text() -> str:
    """The tables as a model is told about them: CREATE TABLE statements without indexes."""
    return "\n".join(s + ";" for s in create_statements() if s.startswith("create table"))
