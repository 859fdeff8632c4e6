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
        name="a differentiable weight or advantage is taken",
        file=FILE,
        old="    require_constant(weights_BT, advantages_BT)\n",
        new="",
    ),
    Mutant(
        name="weight of a masked position multiplied before it is masked",
        file=FILE,
        old="    weights_BT = torch.where(mask_BT, weights_BT, zero)\n",
        new="",
    ),
    Mutant(
        name="advantage of a masked position not masked",
        file=FILE,
        old="    advantages_BT = torch.where(mask_BT, advantages_BT, zero)\n",
        new="",
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
        old="return _weighted_sum_N(mass_NV, logp_NV), drift",
        new="mass_NV = weighted_mass_NV(logp_NV, logp_NV.detach(), regulariser)\n"
        "    return _weighted_sum_N(mass_NV, logp_NV), drift",
    ),
    Mutant(
        name="correction of the sampler's own score",
        file=FILE,
        old="return _weighted_sum_N(mass_NV, logp_NV), drift",
        new="return _weighted_sum_N(logq_NV.exp(), logp_NV), drift",
    ),
    Mutant(
        name="mean of the score over the vocabulary, not under the sampler",
        file=FILE,
        old="return _weighted_sum_N(mass_NV, logp_NV), drift",
        new="return logp_NV.mean(-1), drift",
    ),
    Mutant(
        name="mass of the correction differentiated",
        file=FILE,
        old="return _weighted_sum_N(mass_NV, logp_NV), drift",
        new="return _weighted_sum_N(mass_NV * logp_NV.exp() / logp_NV.detach().exp(), logp_NV), drift",
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
        old="return logprob_N, correction_N, moved_N, torch.ones_like",
        new="return logprob_N, logprob_N, moved_N, torch.ones_like",
    ),
    Mutant(
        name="drift of the mass, not of its score",
        file=FILE,
        old="torch.addcmul(mass_NV, p_NV, total_N1, value=-1)",
        new="(mass_NV - p_NV)",
    ),
    Mutant(
        name="drift that cancels over the vocabulary",
        file=FILE,
        old="value=-1).abs_().sum(-1) / 2",
        new="value=-1).sum(-1).abs() / 2",
    ),
    Mutant(
        name="drift without its half",
        file=FILE,
        old=".abs_().sum(-1) / 2",
        new=".abs_().sum(-1)",
    ),
    Mutant(
        name="drift of the unregularised mass",
        file=FILE,
        old="drift_N(mass_NV, logp_NV.detach().exp())",
        new="drift_N(logq_NV.exp(), logp_NV.detach().exp())",
    ),
    Mutant(
        name="drift of a head without its tail",
        file=FILE,
        old="torch.cat([mass_NK, torch.zeros_like(tail_N1)], -1), torch.cat([p_NK, tail_N1], -1)",
        new="mass_NK, p_NK",
    ),
    Mutant(
        name="drift and head mass exchanged",
        file=FILE,
        old="correction_N, moved_N, head_mass_N(logq_NK), floored_N",
        new="correction_N, head_mass_N(logq_NK), moved_N, floored_N",
    ),
]
