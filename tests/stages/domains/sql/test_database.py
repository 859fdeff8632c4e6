import sqlite3
from pathlib import Path

import pytest

from stages.domains.sql import database, schema
from stages.domains.sql.domain import SqlDomain
from stages.errors import UsageError

# of the published music store
ROWS = {
    "artist": 275,
    "album": 347,
    "genre": 25,
    "media_type": 5,
    "track": 3503,
    "playlist": 18,
    "playlist_track": 8715,
    "employee": 8,
    "customer": 59,
    "invoice": 412,
    "invoice_line": 2240,
}


def count(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute(f"select count(*) from {table}").fetchone()[0]
    connection.close()
    return found


def test_the_real_rows_are_all_there(sql_folder: Path) -> None:
    assert {table: count(sql_folder / "main.sqlite", table) for table in ROWS} == ROWS
    assert sum(ROWS.values()) == 15_607
    assert set(schema.REAL) == set(ROWS)


def test_the_perturbed_database_is_a_smaller_one_of_the_same_schema(sql_folder: Path) -> None:
    for table in ("album", "track", "invoice", "invoice_line"):
        assert 0.5 * ROWS[table] < count(sql_folder / "perturbed.sqlite", table) < ROWS[table]
    assert {
        table: count(sql_folder / "perturbed.sqlite", table) > 0 for table in schema.TABLES
    } == dict.fromkeys(schema.TABLES, True)


def test_building_again_gives_the_same_bytes(sql_folder: Path, tmp_path: Path) -> None:
    database.build(tmp_path)
    for name in ("main.sqlite", "perturbed.sqlite"):
        assert (tmp_path / name).read_bytes() == (sql_folder / name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["main.sqlite", "perturbed.sqlite"]


def test_a_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a folder of the sql domain"):
        SqlDomain(tmp_path)
