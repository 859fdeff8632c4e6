"""An archive that this policy must not replay is refused; one that it may is drawn by whole prompts."""

from dataclasses import replace

import pytest

from data_contracts.checkpoint import tensor_digest
from stages.domains.pool import VerifierPool
from stages.errors import GuardError
from stages.rl.elites import Elites, ReplayElite, open_elites


@pytest.fixture(scope="module")
def pool(world):
    with VerifierPool(world.domain, 1, 10.0) as pool:
        yield pool


@pytest.fixture
def opened(base, train_rows, pool):
    def open_(folder):
        return open_elites(folder, tensor_digest(base), "letters/1", train_rows, pool)

    return open_


def two_forms(rows):
    return [(row, form.format(row.prompt.payload["value"])) for row in rows for form in ("{}", "({})")]


def test_a_sound_archive_is_opened_and_single_elites_are_left_out(write_archive, train_rows, opened, world):
    alone = (train_rows[5], train_rows[5].prompt.payload["value"])
    replay = opened(write_archive("sound", [*two_forms(train_rows[:3]), alone]))
    assert list(replay.by_prompt) == [row.prompt.id for row in train_rows[:3]]
    assert replay.left_out == 1
    elite = replay.by_prompt[train_rows[0].prompt.id][1]
    assert world.tokenizer.decode([*elite.prompt_ids, *elite.completion_ids]) == (
        f"<|user|>{train_rows[0].prompt.text}<|assistant|>({train_rows[0].prompt.payload['value']})<|eos|>"
    )


def test_the_archive_of_the_stage_is_sound(archived, opened):
    replay = opened(archived.out("archive"))
    assert len(replay.by_prompt) >= 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_digest": "sha256:of another base"}, "build the archive from its own frozen base"),
        ({"rl_steps": 3}, r"\(3 RL steps\)"),
        ({"signature_version": "letters/0"}, "letters/0, here they are letters/1"),
        ({"signature": "angle/small"}, "does not verify any more"),
        ({"text": "something else"}, "does not verify any more"),
        ({"text": "mo?"}, "does not verify any more"),
    ],
)
def test_what_does_not_fit_is_refused(write_archive, train_rows, opened, changes, said):
    folder = write_archive("misfit", two_forms(train_rows[:1])[:1], **changes)
    with pytest.raises(GuardError, match=said):
        opened(folder)


def test_one_bad_elite_among_good_ones_is_enough(write_archive, train_rows, opened):
    wrong = (train_rows[2], "ka")
    folder = write_archive("one-bad", two_forms(train_rows[:2]))
    assert opened(folder).left_out == 0
    rows = [*two_forms(train_rows[:2]), wrong]
    with pytest.raises(GuardError, match=train_rows[2].prompt.id):
        opened(write_archive("one-bad", rows))


def test_a_prompt_that_is_not_trained_on_is_refused(write_archive, train_rows, opened):
    row = replace(train_rows[0], prompt=replace(train_rows[0].prompt, id="test-values/mo/"))
    with pytest.raises(GuardError, match="test-values/mo/"):
        opened(write_archive("leak", two_forms([row])))


def replay_of(sizes):
    return Elites(
        {
            f"p{i}": [ReplayElite(f"p{i}", f"s{k}", [2], [5 + k], [-1.0], 1.0) for k in range(n)]
            for i, n in enumerate(sizes)
        }
    )


def test_a_draw_has_all_elites_of_its_prompts_until_there_are_enough():
    replay = replay_of([2, 3, 1, 4, 2, 5])
    for seed in range(30):
        drawn = replay.draw(6, seed)
        prompts = {elite.prompt_id for elite in drawn}
        assert sorted(map(str, drawn)) == sorted(str(e) for p in prompts for e in replay.by_prompt[p])
        last = drawn[-1].prompt_id
        assert len(drawn) >= 6 > len(drawn) - len(replay.by_prompt[last])
        assert "p2" not in prompts
    assert len({tuple(map(str, replay.draw(6, seed))) for seed in range(30)}) > 5
    assert replay.draw(6, 1) == replay_of([2, 3, 1, 4, 2, 5]).draw(6, 1)


def test_a_draw_of_more_than_there_is_has_everything_once():
    assert len(replay_of([2, 3, 1]).draw(1000, 0)) == 5
    assert replay_of([1, 1]).draw(4, 0) == []
