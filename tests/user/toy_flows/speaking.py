"""A model that learns to say words, with stages of ours on a domain of the user's."""

from prefect import flow

from flows.recipe import Recipe
from stages.base.params import BaseParams
from stages.evaluate.params import EvaluateParams
from stages.prompts.params import PromptsParams
from tasks.stage import stage


class Speaking(Recipe):
    prompts: PromptsParams = PromptsParams(domain="toy_domain:Words")
    base: BaseParams = BaseParams()
    evaluate: EvaluateParams = EvaluateParams()


@flow(name="speaking")
def speaking(recipe: Speaking) -> None:
    made = stage("prompts", recipe.prompts)
    domain = {"prompts": made["prompts"], "domain": made["domain"]}
    stage("base", recipe.base, **domain, tokenizer=made["tokenizer"])
