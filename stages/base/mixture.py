"""The pre-training mixture: wide, with favourites, and wrong in a good part of its answers."""

import random
from dataclasses import dataclass

from stages.base.params import Mixture
from stages.domains.demonstrated import DemonstratedDomain
from stages.domains.protocol import Prompt


@dataclass(frozen=True)
class Demonstration:
    text: str
    answer: str


def draw(domain: DemonstratedDomain, prompt: Prompt, mixture: Mixture, rng: random.Random) -> Demonstration:
    """One row of the mixture for one prompt."""
    by_reading = list(domain.strategies(prompt).values())
    second = len(by_reading) > 1 and rng.random() < mixture.second_reading_share
    answers = by_reading[1 if second else 0]
    weights = [mixture.strategy_skew**rank for rank in range(len(answers))]
    answer = rng.choices(answers, weights)[0]
    text = prompt.text
    if rng.random() < mixture.random_slot_share:
        text, [answer] = domain.randomise_slot(prompt, [answer], rng)
    if rng.random() < mixture.wrong_share:
        answer = domain.corrupt(answer, rng)
    return Demonstration(text, answer)
