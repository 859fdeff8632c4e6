"""text2sql: a base model becomes a better and still wide text-to-SQL model.

1. Build the domain: questions, database, tokenizer.
2. Pre-train (or adopt) the base, and the teacher that OPD will ask.
3. Archive what the frozen base can reach: one answer per question and strategy.
4. SFT on one reference answer per question.
5. OPD from the teacher until its validation stops rising.
6. RL (GRPO) with replay of the archive.
7. Measure after base, SFT, OPD and RL; promote only if width was kept.
"""

from prefect import flow

from flows.adoption import adopted
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
from tasks.session import stage


class Text2Sql(Recipe):
    """What the flow can be told. `model` and `teacher` also take a local Hugging Face folder or a hub id."""

    model: str | None = None
    prompts: PromptsParams = PromptsParams()
    base: BaseParams = BaseParams()
    teacher: TeacherParams | str = TeacherParams()
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
        base = stage("base", adopted(recipe.model, recipe.seed))["checkpoint"]
    if isinstance(recipe.teacher, str):
        teacher = stage("teacher", adopted(recipe.teacher, recipe.seed))["checkpoint"]
    else:
        teacher = stage("teacher", recipe.teacher, **corpus)["checkpoint"]
    of_base = stage("evaluate.base", recipe.evaluate, policy=base, **domain)["evaluation"]

    archive = stage("archive", recipe.archive, base=base, **domain)["archive"]

    sft = stage("sft", recipe.sft, policy=base, **domain)["checkpoint"]
    of_sft = stage("evaluate.sft", recipe.evaluate, policy=sft, **domain)["evaluation"]

    opd = stage("opd", recipe.opd, policy=sft, teacher=teacher, **domain)["checkpoint"]
    of_opd = stage("evaluate.opd", recipe.evaluate, policy=opd, **domain)["evaluation"]

    rl = stage("rl", recipe.rl, policy=opd, archive=archive, **domain)["checkpoint"]
    of_rl = stage("evaluate.rl", recipe.evaluate, policy=rl, **domain)["evaluation"]

    stage("promote", recipe.promote, policy=rl, before=of_base, sft=of_sft, opd=of_opd, after=of_rl)
