"""Which prompts are measured: all capabilities, the same ones each time, in their stored order."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Prompt, Split
from stages.domains.selection import choose


def row(i, capability):
    prompt = Prompt(f"p{i}", "d", capability, "?", {}, Split.TEST_VALUES, "open")
    return PromptRow(prompt, [], "", 1)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.integers(1, 40), st.integers(0, 9))
def test_capabilities_are_as_equal_as_their_prompts_allow(capabilities, limit, seed):
    rows = [row(i, capability) for i, capability in enumerate(capabilities)]
    chosen = choose(rows, limit, seed)
    assert len(chosen) == min(limit, len(rows))
    assert chosen == [r for r in rows if r in chosen]
    assert chosen == choose(rows, limit, seed)
    have, took = Counter(capabilities), Counter(r.prompt.capability for r in chosen)
    for a in have:
        for b in have:
            assert took[a] >= min(have[a], took[b] - 1)


def test_another_seed_takes_other_prompts():
    rows = [row(i, "a") for i in range(50)]
    assert choose(rows, 10, 0) != choose(rows, 10, 1)
    assert choose(rows, None, 0) == choose(rows, 50, 1) == rows
