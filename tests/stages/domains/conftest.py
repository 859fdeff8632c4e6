from pathlib import Path

import pytest

from stages.domains.registry import build_domain
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.params import SqlParams


@pytest.fixture(scope="session")
def sql_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql-domain")
    build_domain("sql", folder, SqlParams())
    return folder


@pytest.fixture(scope="session")
def domain(sql_folder: Path) -> SqlDomain:
    return SqlDomain(sql_folder)
