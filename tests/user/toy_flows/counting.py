"""Two counters in a row and one beside them."""

from prefect import flow
from toy_stages.counter.params import CounterParams

from flows.recipe import Recipe
from tasks.stage import stage


class Counting(Recipe):
    one: CounterParams = CounterParams()
    two: CounterParams = CounterParams(steps=5)
    other: CounterParams = CounterParams(modulus=97)


@flow(name="counting")
def counting(recipe: Counting) -> None:
    one = stage("one", recipe.one)["sum"]
    stage("other", recipe.other)
    stage("two", recipe.two, before=one)
