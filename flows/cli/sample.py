"""`posttrain sample`: ask a model one question."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import options
from flows.cli.console import out, print_json

if TYPE_CHECKING:
    from stages.sampling.ask import Sample


def sample(
    model: options.Model,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many answers.")] = 8,
    temperature: Annotated[float, typer.Option("--temperature", min=0.01, help="Of the sampling.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sampling.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Print what a model answers, what the queries return, and the verdicts if the question is a known one.

    Equal answers are shown once with their count.
    """
    from tasks.ask import ask
    from tasks.store.home import Home

    found = ask(Home.from_environment(), model, question, n, temperature, seed)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    if found.prompt_id:
        correct = sum(answer.reward == 1.0 for answer in found.samples)
        out().print(f"prompt {found.prompt_id}: {correct} of {n} correct", markup=False)
    else:
        out().print("not a question of the domain: answers have no verdict", markup=False)
    answers: dict[str, list[Sample]] = {}
    for answer in found.samples:
        answers.setdefault(answer.text, []).append(answer)
    for text, same in sorted(answers.items(), key=lambda item: -len(item[1])):
        out().print(f"\n{len(same)}x  {verdict(same[0])}", style="bold", markup=False)
        out().print(text, markup=False)
        for line in returned(same[0]):
            out().print(f"    {line}", style="dim", markup=False)


def verdict(answer: "Sample") -> str:
    """correct (reading name), wrong, unscorable (reason); empty without a verdict."""
    if answer.unscorable:
        return f"unscorable ({answer.unscorable})"
    if answer.reward is None:
        return ""
    if answer.reward == 1.0:
        return f"correct ({answer.reading})" if answer.reading else "correct"
    return "wrong" if answer.stop_reason == "eos" else "wrong (cut off)"


def returned(answer: "Sample") -> list[str]:
    """The first rows of the result, or why there is none."""
    if answer.refused:
        return [f"no result: {answer.refused}"]
    return [", ".join(str(value) for value in row) for row in answer.rows]
