"""Wrong versions of score centering."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/centering"
FILE = "stages/estimators/centering.py"

MUTANTS = [
    Mutant(
        name="correction added instead of subtracted",
        file=FILE,
        old="logprobs_BT.where(mask_BT, zero) - corrections_BT",
        new="logprobs_BT.where(mask_BT, zero) + corrections_BT",
    ),
    Mutant(
        name="correction without the advantage",
        file=FILE,
        old="    centred_BT = weights_BT * logprobs_BT.where(mask_BT, zero)"
        " - corrections_BT.where(mask_BT, zero)\n"
        "    return -advantages_BT * centred_BT",
        new="    weighted_BT = weights_BT * logprobs_BT.where(mask_BT, zero)\n"
        "    return -advantages_BT * weighted_BT + corrections_BT.where(mask_BT, zero)",
    ),
    Mutant(
        name="weight differentiated",
        file=FILE,
        old="weights_BT.detach(), zero)",
        new="weights_BT, zero)",
    ),
    Mutant(
        name="advantage differentiated",
        file=FILE,
        old="advantages_BT.detach(), zero)",
        new="advantages_BT, zero)",
    ),
    Mutant(
        name="weight of a masked position multiplied before it is masked",
        file=FILE,
        old="weights_BT = torch.where(mask_BT, weights_BT.detach(), zero)",
        new="weights_BT = weights_BT.detach()",
    ),
    Mutant(
        name="advantage of a masked position not masked",
        file=FILE,
        old="advantages_BT = torch.where(mask_BT, advantages_BT.detach(), zero)",
        new="advantages_BT = advantages_BT.detach()",
    ),
    Mutant(
        name="correction of a masked position not masked",
        file=FILE,
        old="corrections_BT.where(mask_BT, zero)",
        new="corrections_BT",
    ),
    Mutant(
        name="correction weighted by the trainer instead of the sampler",
        file=FILE,
        old="return _weighted_sum_N(weighted_mass_NV(logp_NV, logq_NV, regulariser), logp_NV)",
        new="return _weighted_sum_N(weighted_mass_NV(logp_NV, logp_NV.detach(), regulariser), logp_NV)",
    ),
    Mutant(
        name="correction of the sampler's own score",
        file=FILE,
        old="return _weighted_sum_N(weighted_mass_NV(logp_NV, logq_NV, regulariser), logp_NV)",
        new="return _weighted_sum_N(logq_NV.exp(), logp_NV)",
    ),
    Mutant(
        name="mean of the score over the vocabulary, not under the sampler",
        file=FILE,
        old="return _weighted_sum_N(weighted_mass_NV(logp_NV, logq_NV, regulariser), logp_NV)",
        new="return logp_NV.mean(-1)",
    ),
    Mutant(
        name="mass of the correction differentiated",
        file=FILE,
        old="return _weighted_sum_N(weighted_mass_NV(logp_NV, logq_NV, regulariser), logp_NV)",
        new="return _weighted_sum_N(weighted_mass_NV(logp_NV, logq_NV, regulariser) * logp_NV.exp() "
        "/ logp_NV.detach().exp(), logp_NV)",
    ),
    Mutant(
        name="zero mass times infinite log-prob",
        file=FILE,
        old="return (mass_NV * logp_NV.where(mass_NV != 0, logp_NV.new_zeros(()))).sum(-1)",
        new="return (mass_NV * logp_NV).sum(-1)",
    ),
    Mutant(
        name="trainer's temperature forgotten, full vocabulary",
        file=FILE,
        old="logp_NV = scaled(logits_NV, scale, places_N).log_softmax(-1)",
        new="logp_NV = logits_NV.log_softmax(-1)",
    ),
    Mutant(
        name="trainer's temperature forgotten, head",
        file=FILE,
        old="scaled_NV = scaled(logits_NV, scale, places_N)\n            normaliser",
        new="scaled_NV = logits_NV\n            normaliser",
    ),
    Mutant(
        name="head normalised over itself",
        file=FILE,
        old="logp_NK = scaled_NV.gather(-1, ids_NK) - normaliser_N1",
        new="logp_NK = scaled_NV.gather(-1, ids_NK).log_softmax(-1)",
    ),
    Mutant(
        name="tail of the head left out",
        file=FILE,
        old=" - alpha_N1 * p_NK",
        new="",
    ),
    Mutant(
        name="tail ratio upside down",
        file=FILE,
        old="(tail_q_N.clamp(min=TAIL_FLOOR) / tail_p_N.clamp(min=TAIL_FLOOR))",
        new="(tail_p_N.clamp(min=TAIL_FLOOR) / tail_q_N.clamp(min=TAIL_FLOOR))",
    ),
    Mutant(
        name="tail weighted by rho whatever the regulariser",
        file=FILE,
        old="alpha_N1 = weighted_mass_NV(torch.zeros_like(log_rho_N1), log_rho_N1, regulariser)",
        new="alpha_N1 = log_rho_N1.exp()",
    ),
    Mutant(
        name="tail weighted by f(1 / rho) without rho",
        file=FILE,
        old="alpha_N1 = weighted_mass_NV(torch.zeros_like(log_rho_N1), log_rho_N1, regulariser)",
        new="rho_N1 = log_rho_N1.exp()\n        "
        "alpha_N1 = weighted_mass_NV(log_rho_N1 * 0, log_rho_N1, regulariser) / rho_N1",
    ),
    Mutant(
        name="absent entries counted into the trainer's head",
        file=FILE,
        old='p_NK = logp_NK.exp().where(logq_NK > float("-inf"), logp_NK.new_zeros(()))',
        new="p_NK = logp_NK.exp()",
    ),
    Mutant(
        name="sampler's tail not floored",
        file=FILE,
        old="tail_q_N.clamp(min=TAIL_FLOOR)",
        new="tail_q_N",
    ),
    Mutant(
        name="trainer's tail not floored",
        file=FILE,
        old="tail_p_N.clamp(min=TAIL_FLOOR)",
        new="tail_p_N",
    ),
    Mutant(
        name="floor of the trainer's tail not reported",
        file=FILE,
        old="(tail_p_N < TAIL_FLOOR) | (tail_q_N < TAIL_FLOOR)",
        new="tail_q_N < TAIL_FLOOR",
    ),
    Mutant(
        name="head's mass of the number of its entries",
        file=FILE,
        old="return logq_NK.exp().sum(-1)",
        new="return logq_NK.exp().mean(-1)",
    ),
    Mutant(
        name="correction of the sampled token only",
        file=FILE,
        old="return logprob_N, correction_N, torch.ones_like",
        new="return logprob_N, logprob_N, torch.ones_like",
    ),
]
