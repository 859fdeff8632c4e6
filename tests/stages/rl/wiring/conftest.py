"""Recipes for the tables beside this file."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from tables import SAMPLING  # found through the path above


@pytest.fixture
def recipe(rl_params):
    return lambda **changes: rl_params(**{"coefficient": 0.0, "sampling": SAMPLING, **changes})
