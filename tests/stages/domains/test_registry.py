from pathlib import Path

import pytest

from stages.domains.registry import open_domain
from stages.domains.sql.domain import SqlDomain
from stages.errors import UsageError


def test_a_domain_is_opened_by_name_or_by_class(sql_folder: Path) -> None:
    assert isinstance(open_domain("sql", sql_folder), SqlDomain)
    assert isinstance(open_domain("stages.domains.sql.domain:SqlDomain", sql_folder), SqlDomain)


@pytest.mark.parametrize("name", ["sqll", "no.such.package:Domain", "stages.domains.sql.domain:Nothing"])
def test_an_unknown_domain_is_one_clear_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="domain"):
        open_domain(name, tmp_path)
