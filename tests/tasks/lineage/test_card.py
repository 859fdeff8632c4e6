"""MODEL_CARD.md says what a checkpoint is and how to trace it, from its manifest alone."""

from tasks.lineage.card import model_card


def test_a_card_names_the_checkpoint_and_all_that_it_was_made_from(pipeline):
    rl = pipeline.made["rl"]
    card = model_card(rl, "checkpoint")
    digest = rl.outputs["checkpoint"].digest
    assert card.startswith("# rl\n") and f"`{digest}`" in card and f"`{rl.key}`" in card
    for name, record in rl.inputs.items():
        assert f"- {name}: `{record.stage}/{record.output}` `{record.digest}`" in card
    for name, value in rl.params.items():
        assert f"- {name}: `{value}`" in card
    assert f"posttrain lineage audit {digest} --verify" in card


def test_what_was_not_recorded_is_said_so(pipeline):
    base = pipeline.made["base"]
    unknown = base.provenance.model_copy(update={"git_commit": None, "git_dirty": True, "recipe_digest": ""})
    card = model_card(base.model_copy(update={"provenance": unknown, "inputs": {}}), "checkpoint")
    assert "| recipe | `not recorded` |" in card
    assert "| git commit | `not recorded` with uncommitted changes |" in card
    assert "## Made from\n\nnothing\n" in card
