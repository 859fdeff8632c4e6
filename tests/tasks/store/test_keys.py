"""Keys: one hash of everything that a result depends on, and of nothing else."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from toy_stages.counter.params import STAGE, CounterParams

from stages.declaration import StageParams
from tasks.store.keys import UnstableValue, canonical, leaves, params_of, stage_key

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


class Part(BaseModel):
    size: int = 1


class BigPart(Part):
    weight: float = 2.5


class Whole(StageParams):
    part: Part = Part()
    colours: tuple[Colour, ...] = (Colour.RED,)
    anything: object = None


def test_a_key_is_the_hash_that_the_rule_says():
    params = CounterParams(steps=4, seed=7)
    digests = {"before": "sha256:" + "0" * 64}
    text = json.dumps(
        {
            "code": {},
            "inputs": digests,
            "params": {"modulus": 1000003, "seed": 7, "steps": 4},
            "schema": 2,
            "stage": "toy_stages.counter",
            "version": 1,
        },
        separators=(",", ":"),
    )
    assert stage_key(STAGE, params, digests) == hashlib.sha256(text.encode()).hexdigest()


def test_version_parameters_and_inputs_change_a_key():
    digests = {"before": "sha256:00"}
    keys = [
        stage_key(STAGE, CounterParams(), digests),
        stage_key(replace(STAGE, version=2), CounterParams(), digests),
        stage_key(STAGE, CounterParams(steps=7), digests),
        stage_key(STAGE, CounterParams(seed=1), digests),
        stage_key(STAGE, CounterParams(), {"before": "sha256:01"}),
        stage_key(STAGE, CounterParams(), {}),
    ]
    assert len(set(keys)) == len(keys)


@given(st.dictionaries(st.text(), json_values, max_size=6), st.randoms())
def test_the_order_of_fields_does_not_matter(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert canonical(dict(items)) == canonical(value)


@given(json_values)
def test_canonical_json_is_json_and_stable(value):
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused_where_it_is(bad):
    with pytest.raises(UnstableValue, match=r"params\.anything\.rates\[1\] is (nan|inf|-inf)"):
        params_of(Whole(anything={"rates": [0.5, bad]}))


@pytest.mark.parametrize("bad", [{1, 2}, b"bytes", datetime.now(UTC), object(), {1: "a"}, 1 + 2j])
def test_a_value_without_a_canonical_form_is_refused(bad):
    with pytest.raises(UnstableValue, match="value"):
        canonical(bad)


def test_a_subclass_of_a_field_keeps_its_own_fields():
    assert params_of(Whole(part=BigPart()))["part"] == {"size": 1, "weight": 2.5}
    assert params_of(Whole())["colours"] == ["red"]


@pytest.mark.parametrize("attribute", ["version", "signature_version"])
def test_the_key_of_prompts_holds_the_versions_of_its_domain(attribute, monkeypatch):
    from stages.domains.sql.domain import SqlDomain
    from stages.prompts.params import STAGE, PromptsParams

    before = stage_key(STAGE, PromptsParams(), {})
    monkeypatch.setattr(SqlDomain, attribute, "another")
    assert stage_key(STAGE, PromptsParams(), {}) != before


def test_a_users_domain_is_watched_and_an_unknown_one_refused(monkeypatch):
    from stages.errors import UsageError
    from stages.prompts.params import STAGE, PromptsParams

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "stages" / "letters"))
    assert STAGE.foreign_code(PromptsParams(domain="letters_domain:Letters")).modules == ("letters_domain",)
    with pytest.raises(UsageError, match="there is no domain 'sqll'"):
        stage_key(STAGE, PromptsParams(domain="sqll"), {})


def test_lists_and_empty_mappings_are_leaves():
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": {}}
    assert dict(leaves(nested)) == {"a.b": 1, "a.c.d": [1, 2], "e": {}}
