"""Builds the two databases of the domain from the rows kept in the project.

`main.sqlite` holds the real rows plus the ambiguous additions; `perturbed.sqlite` is a seeded variation of it
(rows dropped, numbers and countries changed). An answer must agree with a reference on both, so that a result
that is equal by accident on one is not taken for a correct query.
"""

import io
import json
import random
import sqlite3
from collections import defaultdict
from importlib import resources
from pathlib import Path
from typing import Any

from data_contracts.durable import replace
from stages.domains.sql import schema
from stages.errors import PosttrainError

MAIN, PERTURBED = "main.sqlite", "perturbed.sqlite"
OLDEST_SQLITE = (3, 35, 0)  # `as materialized`, which one of the strategies needs

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def read_rows() -> Rows:
    """Table -> rows of the eleven real tables, in order of id."""
    import pyarrow as pa

    data = resources.files("stages.domains.sql").joinpath("data/chinook.arrow").read_bytes()
    table = pa.ipc.open_file(io.BytesIO(data)).read_all()
    rows: Rows = {name: [] for name in schema.REAL}
    for name, values in zip(table["table"].to_pylist(), table["values"].to_pylist(), strict=True):
        names = [definition.split()[0] for definition in schema.REAL[name]]
        rows[name].append(dict(zip(names, json.loads(values), strict=True)))
    return rows


def build(folder: Path) -> None:
    """Write both databases into `folder`. The same SQLite library gives the same bytes."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise PosttrainError(
            f"SQLite {sqlite3.sqlite_version} is too old for the sql domain: "
            "use a Python that is linked against 3.35 or newer"
        )
    rows = read_rows()
    _write(folder / MAIN, add_ambiguity(rows, random.Random("main")))
    _write(
        folder / PERTURBED, add_ambiguity(perturb(rows, random.Random("perturbed")), random.Random("second"))
    )


def add_ambiguity(rows: Rows, rng: random.Random) -> Rows:
    """A copy with the columns and tables of `schema.ADDED_*`, filled so that the two readings differ."""
    out = {table: [dict(row) for row in table_rows] for table, table_rows in rows.items()}
    _regions(out["customer"], rng)
    out["style"] = [dict(row) for row in out["genre"]]
    styles = [row["id"] for row in out["style"]]
    for track in out["track"]:
        track["style_id"] = track["genre_id"] if rng.random() < 0.5 else rng.choice(styles)
    out["track_file"] = [
        {"track_id": t["id"], "bytes": int(t["bytes"] * rng.uniform(0.7, 1.4)) + 1} for t in out["track"]
    ]
    out["customer_contact"] = [
        {"customer_id": c["id"], "email": f"{c['last_name'].lower()}.{rng.randrange(10, 99)}@mail.example"}
        for c in out["customer"]
    ]
    tracks: dict[int, int] = defaultdict(int)
    for track in out["track"]:
        tracks[track["album_id"]] += 1
    out["album_size"] = [
        {"album_id": a["id"], "tracks": tracks[a["id"]] + rng.randint(1, 4)} for a in out["album"]
    ]
    totals: dict[int, float] = defaultdict(float)
    for invoice in out["invoice"]:
        totals[invoice["customer_id"]] += invoice["total"]
    out["customer_total"] = [
        {"customer_id": c["id"], "total": round(totals[c["id"]] * rng.uniform(1.1, 1.5) + 1, 2)}
        for c in out["customer"]
    ]
    return out


def _regions(customers: list[Row], rng: random.Random) -> None:
    """Every country is the region of one who lives elsewhere; of the other customers half live at home."""
    countries = sorted({c["country"] for c in customers})
    order = customers[:]
    rng.shuffle(order)
    for number, customer in enumerate(order):
        if number < len(countries):
            place = number if countries[number] != customer["country"] else (number + 1) % len(countries)
            customer["region"] = countries[place]
        else:
            customer["region"] = customer["country"] if rng.random() < 0.5 else rng.choice(countries)


def perturb(rows: Rows, rng: random.Random) -> Rows:
    """Drop albums, tracks and invoices with all that hangs on them; change numbers, countries and emails."""
    out = {table: [dict(row) for row in table_rows] for table, table_rows in rows.items()}
    out["album"] = [a for a in out["album"] if rng.random() > 0.06]
    albums = {a["id"] for a in out["album"]}
    out["track"] = [t for t in out["track"] if t["album_id"] in albums and rng.random() > 0.15]
    tracks = {t["id"] for t in out["track"]}
    out["playlist_track"] = [p for p in out["playlist_track"] if p["track_id"] in tracks]
    out["invoice"] = [i for i in out["invoice"] if rng.random() > 0.15]
    invoices = {i["id"] for i in out["invoice"]}
    out["invoice_line"] = [
        line for line in out["invoice_line"] if line["invoice_id"] in invoices and line["track_id"] in tracks
    ]
    for track in out["track"]:
        # independently, so that the longest track is another one, and not the largest
        track["milliseconds"] = int(track["milliseconds"] * rng.uniform(0.3, 3))
        track["bytes"] = int(track["bytes"] * rng.uniform(0.3, 3))
    for invoice in out["invoice"]:
        invoice["total"] = round(invoice["total"] + rng.randint(1, 900) / 100, 2)
    countries = [c["country"] for c in out["customer"]]
    rng.shuffle(countries)
    for customer, country in zip(out["customer"], countries, strict=True):
        customer["country"] = country
        customer["email"] = f"{rng.randrange(10, 99)}{customer['email']}"
    home = {c["id"]: c["country"] for c in out["customer"]}
    for invoice in out["invoice"]:
        invoice["billing_country"] = home[invoice["customer_id"]]
    return out


def _write(path: Path, rows: Rows) -> None:
    fresh = path.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.execute("pragma journal_mode = memory")
        connection.execute("begin")
        for statement in schema.create_statements():
            connection.execute(statement)
        for table, names in schema.TABLES.items():
            marks = " , ".join("?" for _ in names)
            connection.executemany(
                f"insert into {table} ( {' , '.join(names)} ) values ( {marks} )",
                [tuple(row[name] for name in names) for row in rows[table]],
            )
        connection.execute("commit")
        broken = connection.execute("pragma foreign_key_check").fetchall()
        if broken:
            raise PosttrainError(
                f"the rows of {path.name} break {len(broken)} foreign keys: report this as a bug"
            )
    finally:
        connection.close()
    replace(fresh, path)
