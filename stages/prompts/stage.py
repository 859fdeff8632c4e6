"""Builds the domain's folder, writes its questions as prompts/1, and trains the tokenizer on its text.

The tokenizer sees the questions of the split pretrain only (of train, where a domain has no pretrain), with
random slot values, so that a value that is held back is cut into pieces as any other name is.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from data_contracts.dataset import DatasetWriter
from stages.context import StageContext
from stages.domains.demonstrated import DemonstratedDomain
from stages.domains.protocol import Domain, Prompt, Split
from stages.domains.registry import build_domain, open_domain
from stages.domains.selection import chosen
from stages.prompts.params import PromptsParams
from stages.prompts.tokenizer import save_tokenizer, train_tokenizer


def run(ctx: StageContext[PromptsParams]) -> None:
    params = ctx.params
    folder = ctx.output("domain")
    build_domain(params.domain, folder, params.sql)
    domain = open_domain(folder)
    prompts = [prompt for split in Split for prompt in limited(ctx, domain.prompts(split), split)]
    write_prompts(ctx.output("prompts"), domain, prompts)
    train = [p for p in prompts if p.split is Split.TRAIN]
    known = [p for p in prompts if p.split is Split.PRETRAIN] or train
    rng = random.Random(ctx.seed("tokenizer"))
    tokenizer = train_tokenizer(tokenizer_texts(domain, known, params.tokenizer_rows, rng), params.vocabulary)
    save_tokenizer(tokenizer, ctx.output("tokenizer"))
    questions = [len(tokenizer(p.text)["input_ids"]) for p in prompts]
    ambiguous = sum(len(domain.readings(p)) > 1 for p in prompts)
    ctx.log(
        1,
        prompts=len(prompts),
        families=len({p.capability for p in prompts}),
        ambiguous_share=ambiguous / len(prompts),
        question_tokens_mean=fmean(questions),
        question_tokens_max=max(questions),
        vocabulary=len(tokenizer),
        **{f"prompts.{split}": sum(p.split is split for p in prompts) for split in Split},
        **answer_tokens(domain, known, tokenizer),
    )


def limited(ctx: StageContext[PromptsParams], prompts: Sequence[Prompt], split: Split) -> list[Prompt]:
    limit = ctx.params.limits.get(split)
    return [prompts[place] for place in chosen([p.capability for p in prompts], limit, ctx.seed("limits"))]


def write_prompts(folder: Path, domain: Domain, prompts: Sequence[Prompt]) -> None:
    with DatasetWriter(
        folder, "prompts/1", {"posttrain.domain": f"{domain.name}/{domain.version}"}
    ) as writer:
        writer.write(
            [
                {
                    "id": prompt.id,
                    "domain": prompt.domain,
                    "capability": prompt.capability,
                    "text": prompt.text,
                    "messages": domain.messages(prompt),
                    "payload": json.dumps(prompt.payload, ensure_ascii=False),
                    "split": prompt.split.value,
                    "answer_class": prompt.answer_class,
                    "ambiguity": prompt.payload.get("ambiguity", ""),
                    "readings": len(domain.readings(prompt)),
                }
                for prompt in prompts
            ]
        )


def tokenizer_texts(domain: Domain, known: Sequence[Prompt], rows: int, rng: random.Random) -> Iterator[str]:
    """Questions, each with one answer per reading where the domain can show answers."""
    for _ in range(rows):
        prompt = rng.choice(known)
        if not isinstance(domain, DemonstratedDomain):
            yield prompt.text
            continue
        answers = [rng.choice(queries) for queries in domain.strategies(prompt).values()]
        text, answers = domain.randomise_slot(prompt, answers, rng)
        yield text
        yield from answers


def answer_tokens(domain: Domain, prompts: Sequence[Prompt], tokenizer: object) -> dict[str, float]:
    """Mean and maximal length of the answers that the domain can show."""
    if not isinstance(domain, DemonstratedDomain):
        return {}
    assert callable(tokenizer)
    answers = [q for p in prompts for queries in domain.strategies(p).values() for q in queries]
    lengths = [len(ids) for ids in tokenizer(answers)["input_ids"]]
    return {"answer_tokens_mean": fmean(lengths), "answer_tokens_max": max(lengths)}
