"""A domain's folder says which domain it is of."""

from pathlib import Path

import pytest

from stages.domains.registry import build_domain, domain_name, open_domain, write_name
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.params import SqlParams
from stages.errors import UsageError


def test_a_folder_is_opened_by_the_name_in_it(sql_folder: Path, tmp_path: Path) -> None:
    assert domain_name(sql_folder) == "sql"
    assert isinstance(open_domain(sql_folder), SqlDomain)
    for file in sql_folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "domain.json").unlink()
    write_name(tmp_path, "stages.domains.sql.domain:SqlDomain")
    assert isinstance(open_domain(tmp_path), SqlDomain)


@pytest.mark.parametrize("name", ["sqll", "no.such.package:Domain", "stages.domains.sql.domain:Nothing"])
def test_an_unknown_domain_is_one_clear_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="domain"):
        build_domain(name, tmp_path, SqlParams())
    write_name(tmp_path, name)
    with pytest.raises(UsageError, match="domain"):
        open_domain(tmp_path)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_folder_that_does_not_say_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "domain.json").write_text(content)
    with pytest.raises(UsageError, match="give the output `domain` of the stage `prompts`"):
        open_domain(tmp_path)
