"""`posttrain run`: carry out a flow."""

from flows.cli import options


def run(
    flow: options.FlowName,
    profile: options.Profile = None,
    recipe: options.RecipeFile = None,
    settings: options.Settings = None,
    from_node: options.FromNode = None,
    force: options.ForceNode = None,
    wait_s: options.WaitForBusy = 0.0,
    as_json: options.Json = False,
) -> None:
    """Run a flow: reuse what is stored, go on where an earlier run stopped, make the rest.

    Ctrl-C stops at the next step boundary; `posttrain resume` goes on from there. The flow reports to the
    Prefect server that PREFECT_API_URL names, else to that of `posttrain up`, else to a private one.
    """
    from flows.cli.job import Job, carry_out
    from tasks.store.home import Home

    def prepare() -> Job:
        from flows.catalogue import find
        from flows.recipe import load

        entry = find(flow)
        loaded = load(
            entry.recipe_class, entry.recipes, profile=profile, file=recipe, settings=settings or []
        )
        return Job(entry, loaded, frozenset(force or []), from_node, wait_s=wait_s)

    carry_out(Home.from_environment(), prepare, as_json=as_json)
