"""text2sql: a base model becomes a better and still wide text-to-SQL model.

1. Build the domain: questions, database, tokenizer.
2. Pre-train (or adopt) the base, and the teacher that OPD will ask.
3. Archive what the frozen base can reach: one answer per question and strategy.
4. SFT on one reference answer per question.
5. OPD from the teacher until its validation stops rising.
6. RL (GRPO) with replay of the archive.
7. Measure after base, SFT, OPD and RL; promote only if width was kept.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from prefect import flow
from pydantic import Discriminator, Tag

from flows.adoption import Brought, adopted
from flows.recipe import Recipe
from stages.archive.params import ArchiveParams
from stages.base.params import BaseParams
from stages.evaluate.params import EvaluateParams
from stages.opd.params import OpdParams
from stages.promote.params import PromoteParams
from stages.prompts.params import PromptsParams
from stages.rl.params import RlParams
from stages.sft.params import SftParams
from stages.teacher.params import TeacherParams
from tasks.stage import stage


def _teacher_is(given: Any) -> str:
    if isinstance(given, str):
        return "source"
    brought = isinstance(given, Brought) or (isinstance(given, Mapping) and "source" in given)
    return "brought" if brought else "trained"


Teacher = Annotated[
    Annotated[TeacherParams, Tag("trained")]
    | Annotated[Brought, Tag("brought")]
    | Annotated[str, Tag("source")],
    Discriminator(_teacher_is),
]


class Text2Sql(Recipe):
    """What the flow can be told.

    `model` and `teacher` also take a local Hugging Face folder or a hub id, or a mapping with that as its
    `source` and the model's `rl_steps`.
    """

    model: str | Brought | None = None
    prompts: PromptsParams = PromptsParams()
    base: BaseParams = BaseParams()
    teacher: Teacher = TeacherParams()
    archive: ArchiveParams = ArchiveParams()
    sft: SftParams = SftParams()
    opd: OpdParams = OpdParams()
    rl: RlParams = RlParams()
    evaluate: EvaluateParams = EvaluateParams()
    promote: PromoteParams = PromoteParams()


@flow(name="text2sql")
def text2sql(recipe: Text2Sql) -> None:
    made = stage("prompts", recipe.prompts)
    domain = {"prompts": made["prompts"], "domain": made["domain"]}
    corpus = {**domain, "tokenizer": made["tokenizer"]}

    if recipe.model is None:
        base = stage("base", recipe.base, **corpus)["checkpoint"]
    else:
        base = stage("base", adopted(recipe.model))["checkpoint"]
    if isinstance(recipe.teacher, TeacherParams):
        teacher = stage("teacher", recipe.teacher, **corpus)["checkpoint"]
    else:
        teacher = stage("teacher", adopted(recipe.teacher))["checkpoint"]
    of_base = stage("evaluate.base", recipe.evaluate, policy=base, **domain)["evaluation"]

    archive = stage("archive", recipe.archive, base=base, **domain)["archive"]

    sft = stage("sft", recipe.sft, policy=base, **domain)["checkpoint"]
    of_sft = stage("evaluate.sft", recipe.evaluate, policy=sft, **domain)["evaluation"]

    opd = stage("opd", recipe.opd, policy=sft, teacher=teacher, **domain)["checkpoint"]
    of_opd = stage("evaluate.opd", recipe.evaluate, policy=opd, **domain)["evaluation"]

    rl = stage("rl", recipe.rl, policy=opd, archive=archive, **domain)["checkpoint"]
    of_rl = stage("evaluate.rl", recipe.evaluate, policy=rl, **domain)["evaluation"]

    stage("promote", recipe.promote, policy=rl, before=of_base, sft=of_sft, opd=of_opd, after=of_rl)
