"""`posttrain evaluate`: measure one model on the held-out questions."""

from flows.cli import options
from flows.cli.console import out, print_json, say


def evaluate(
    model: options.Model,
    flow: options.OfFlow = "text2sql",
    profile: options.Profile = None,
    recipe: options.RecipeFile = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model as the flow's recipe measures its checkpoints, and print the table.

    A model that a run made is measured on the prompts that it was made with; the result is stored, so that
    the same measurement is made once. A folder or a hub id from elsewhere is adopted first.
    """
    from flows.adoption import adopted
    from flows.catalogue import find
    from flows.cli.progress import display
    from flows.cli.results import tables
    from flows.recipe import load
    from stages.errors import UsageError
    from tasks.ask import checkpoint_folder, prompts_of
    from tasks.report.material import Material
    from tasks.run_session import RunSession, start
    from tasks.runs import RunKind
    from tasks.stage import stage
    from tasks.store.home import Home

    home = Home.from_environment()
    entry = find(flow)
    loaded = load(entry.recipe_class, entry.recipes, profile=profile, file=recipe, settings=settings or [])
    asked = getattr(loaded.recipe, "evaluate", None)
    if asked is None:
        raise UsageError(f"the flow {flow} has no stage `evaluate`")
    try:
        _, policy = checkpoint_folder(home, model)
    except UsageError:
        if "/" not in model:  # a hub id is OWNER/NAME
            raise
        policy = None
    made_with = prompts_of(home, policy).refs()
    run = start(
        home,
        "evaluate",
        kind=RunKind.MEASUREMENT,
        runtime=loaded.recipe.runtime,
        recipe={"model": model, "evaluate": asked.model_dump(mode="json")},
        sources=loaded.sources,
        profile=loaded.profile,
    )
    with display() as shown, RunSession(run, reporter=shown).active():
        if policy is None:
            policy = stage("adopt", adopted(model))["checkpoint"]
        stage("evaluate", asked, policy=policy, prompts=made_with["prompts"], domain=made_with["domain"])
    (summary,) = Material(home, run.id).summaries.values()
    if as_json:
        print_json({"run": run.id, **summary})
        return
    for table in tables({model: summary}):
        out().print(table)
        out().print()
    say(f"stored as run {run.id}")
