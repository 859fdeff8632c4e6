"""The SQL in a model's answer: a fenced block if there is one, without the closing semicolon."""

import re

FENCE = re.compile(r"```(?:sql)?\s*\n?(.*?)```", re.DOTALL | re.IGNORECASE)


def extract_sql(text: str) -> str:
    found = FENCE.search(text)
    sql = (found.group(1) if found else text).strip()
    return sql.removesuffix(";").rstrip()
