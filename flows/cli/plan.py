"""`posttrain plan`: what a run would do, node by node, and why; nothing is started or written."""

import dataclasses
from typing import TYPE_CHECKING, Any

from flows.cli import options
from flows.cli.console import out, print_json
from flows.cli.words import seconds, short
from tasks.planning import Action, PlanLine

if TYPE_CHECKING:
    from rich.table import Table

    from flows.catalogue import FlowEntry
    from flows.recipe import Loaded
    from tasks.session import Selection
    from tasks.store.home import Home

COLOURS = {Action.REUSE: "blue", Action.RESUME: "yellow", Action.RUN: "green"}


def plan(
    flow: options.FlowName,
    profile: options.Profile = None,
    recipe: options.RecipeFile = None,
    settings: options.Settings = None,
    from_node: options.FromNode = None,
    force: options.ForceNode = None,
    as_json: options.Json = False,
) -> None:
    """Show what `posttrain run` would do with the same options.

    For each node: reuse, resume at a step, or run, why, how long it should take, and what flows in and out;
    then every value of the recipe that is not the default, with its source.
    """
    from flows.catalogue import find
    from flows.recipe import load
    from tasks.session import Selection
    from tasks.store.home import Home

    entry = find(flow)
    loaded = load(entry.recipe_class, entry.recipes, profile=profile, file=recipe, settings=settings or [])
    lines = make_plan(Home.from_environment(), entry, loaded, Selection(frozenset(force or []), from_node))
    if as_json:
        print_json(
            {
                "flow": flow,
                "profile": loaded.profile,
                "nodes": [dataclasses.asdict(line) for line in lines],
                "settings": [dataclasses.asdict(setting) for setting in loaded.settings()],
            }
        )
        return
    out().print(_table(lines))
    for warning in dict.fromkeys(line.warning for line in lines if line.warning):
        nodes = ", ".join(line.node for line in lines if line.warning == warning)
        out().print(f"warning: {nodes}: {warning}", style="yellow", markup=False)
    out().print(f"\nprofile {loaded.profile}; not the default:" if loaded.settings() else "")
    for setting in loaded.settings():
        out().print(f"  {setting.key} = {setting.value}   ({setting.source})", markup=False)
    out().print(f"\n{summary(lines)}", markup=False)


def make_plan(
    home: "Home", entry: "FlowEntry", loaded: "Loaded[Any]", selection: "Selection"
) -> list[PlanLine]:
    """Walk through the flow under a planning session."""
    from tasks.planning import PlanningSession
    from tasks.planning import plan as plan_of

    session = PlanningSession(
        home, runtime=loaded.recipe.runtime, flow=entry.name, run_id="", selection=selection
    )
    return plan_of(session, lambda: entry.flow.fn(loaded.recipe))


def summary(lines: list[PlanLine]) -> str:
    """3 to reuse, 1 to resume, 8 to run; about 11 min 20 s."""
    counts = {action: sum(line.action == action for line in lines) for action in Action}
    told = ", ".join(f"{count} to {action}" for action, count in counts.items() if count)
    work = [line.seconds for line in lines if line.action is not Action.REUSE]
    if not work:
        return f"{told}: nothing is left to do"
    unknown = sum(took is None for took in work)
    estimate = seconds(sum(took or 0.0 for took in work))
    return f"{told}; about {estimate}" + (f" and {unknown} of unknown length" if unknown else "")


def _why(line: PlanLine) -> str:
    """What follows from the column `from` is left out when there is another reason."""
    if line.action is Action.REUSE:
        return short(line.key)
    reasons = line.reason.split("; ")
    return "; ".join(reasons[:-1] if len(reasons) > 1 and reasons[-1].startswith("after ") else reasons)


def _table(lines: list[PlanLine]) -> "Table":
    from rich.table import Table

    table = Table("node", "action", "time", "from", "to", "why", box=None, pad_edge=False)
    for line in lines:
        at = f" at step {line.step}" if line.step is not None else ""
        table.add_row(
            line.node,
            f"[{COLOURS[line.action]}]{line.action}{at}[/]",
            seconds(line.seconds) if line.action is not Action.REUSE else "",
            ", ".join(dict.fromkeys(line.inputs.values())),
            ", ".join(line.outputs),
            _why(line),
        )
    return table
