"""Every command of the README is run by .ci/run, the long ones with the small profile."""

import re
from pathlib import Path

import yaml

from flows.text2sql import Text2Sql

ROOT = Path(__file__).parents[1]
SMALL = (
    "posttrain run text2sql",
    "posttrain plan text2sql",
    "posttrain evaluate rl",
    "python -m benchmarks.estimators",
    "python -m benchmarks.stale_sampler",
)


def commands_of_the_readme() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def as_in_ci(command: str) -> str:
    if command.startswith("pip install"):
        command = command.replace("pip install", "pip install -q")
    return f"{command} --profile ci" if command in SMALL else command


def test_ci_runs_every_command_of_the_readme() -> None:
    run = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    commands = commands_of_the_readme()
    assert len(commands) >= 15
    assert [command for command in commands if as_in_ci(command) not in run] == []


def test_small_commands_are_in_the_readme() -> None:
    assert set(SMALL) <= set(commands_of_the_readme())


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    text = (ROOT / "README.md").read_text()
    assert "<!--" not in text and "TODO" not in text
    assert "test-compositions:" in text  # the table that the run prints


def test_every_recipe_of_the_readme_is_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        Text2Sql.model_validate(yaml.safe_load(block))
