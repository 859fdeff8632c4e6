"""The policy's term of an RL step: what a recipe's choices are wired to."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/rl/wiring"
TERM = "stages/rl/policy_term.py"
EXPERIENCE = "stages/rl/experience.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten in the log-probs",
        file=TERM,
        old=("micro.target_BT, micro.mask_BT, temperature)\n\n    def _centred"),
        new=("micro.target_BT, micro.mask_BT)\n\n    def _centred"),
    ),
    Mutant(
        name="temperature forgotten in centering",
        file=TERM,
        old="sampler, ratio.regulariser, temperature",
        new="sampler, ratio.regulariser",
    ),
    Mutant(
        name="temperature forgotten in the engine's distribution",
        file=TERM,
        old="self.engine.distribution(micro, self.params.sampling.temperature)",
        new="self.engine.distribution(micro, 1.0)",
    ),
    Mutant(
        name="temperature forgotten in the entropy",
        file=TERM,
        old="entropy_BT(forward.logits_BTV, mask_BT, temperature)",
        new="entropy_BT(forward.logits_BTV, mask_BT)",
    ),
    Mutant(
        name="temperature forgotten in the KL's reference",
        file=EXPERIENCE,
        old="target_logprobs_BT(taken.batch, temperature)",
        new="target_logprobs_BT(taken.batch, 1.0)",
    ),
    Mutant(
        name="temperature forgotten in the proximal score",
        file=EXPERIENCE,
        old="policy.trainer.score(taken.batch, temperature)",
        new="policy.trainer.score(taken.batch, 1.0)",
    ),
    Mutant(
        name="the temperature that is recorded is the recipe's",
        file=EXPERIENCE,
        old="temperature=drew.temperature",
        new="temperature=params.sampling.temperature",
    ),
    Mutant(
        name="a record of another temperature accepted",
        file=EXPERIENCE,
        old="    require_same_distribution(taken.behaviour, temperature)\n",
        new="",
    ),
    Mutant(
        name="rescored log-probs accepted",
        file=EXPERIENCE,
        old="    require_drawn(taken.behaviour, version)\n",
        new="",
    ),
    Mutant(
        name="the version that drew a token is the one that scored it",
        file=EXPERIENCE,
        old="[sample.rollout.weight_version for sample in kept]",
        new="[sample.rollout.scored_version for sample in kept]",
    ),
    Mutant(
        name="denominator of the micro-batch",
        file=TERM,
        old="params, counts = self.params, self.taken.counts",
        new="params, counts = self.params, type(self.taken.counts).of(micro.mask_BT)",
    ),
    Mutant(
        name="dropped groups' samples missing from the denominators",
        file=EXPERIENCE,
        old="scorable = [sample for group in groups for sample in group if sample.scorable]",
        new="scorable = kept",
    ),
    Mutant(
        name="unscorable samples in the denominators",
        file=EXPERIENCE,
        old="scorable = [sample for group in groups for sample in group if sample.scorable]",
        new="scorable = [sample for group in groups for sample in group]",
    ),
    Mutant(
        name="unscorable samples kept",
        file=EXPERIENCE,
        old="if sample.scorable and (worth",
        new="if (worth",
    ),
    Mutant(
        name="groups without variance left out of the penalty",
        file=EXPERIENCE,
        old=" or params.kl is not None)",
        new=")",
    ),
    Mutant(
        name="the advantage of the sample's neighbour",
        file=EXPERIENCE,
        old="torch.tensor([s.sample for s in kept])",
        new="torch.tensor([s.sample for s in kept]).roll(1)",
    ),
    Mutant(
        name="GAE's discount and trace exchanged",
        file=EXPERIENCE,
        old="mask_BT, discount, trace)",
        new="mask_BT, trace, discount)",
    ),
    Mutant(
        name="GAE's trace ignored",
        file=EXPERIENCE,
        old="mask_BT, discount, trace)",
        new="mask_BT, discount, 1.0)",
    ),
    Mutant(
        name="a critic's returns are its advantages",
        file=EXPERIENCE,
        old="advantages_BT=advantages_BT, returns_BT=returns_BT",
        new="advantages_BT=advantages_BT, returns_BT=advantages_BT",
    ),
    Mutant(
        name="no proximal policy for later updates",
        file=EXPERIENCE,
        old="if params.updates_per_batch == 1 and not isinstance(params.advantage, Gae):",
        new="if not isinstance(params.advantage, Gae):",
    ),
    Mutant(
        name="the proximal policy is always this forward's",
        file=TERM,
        old="if not self.first_update and self.taken.proximal_BT is not None:",
        new="if False:",
    ),
    Mutant(
        name="a policy gradient's weight is the proximal policy's",
        file=TERM,
        old="proximal_BT if isinstance(params.loss, PpoClip | Gspo) else logprobs_BT.detach()",
        new="proximal_BT",
    ),
    Mutant(
        name="a surrogate's correction is this forward's",
        file=TERM,
        old="proximal_BT if isinstance(params.loss, PpoClip | Gspo) else logprobs_BT.detach()",
        new="logprobs_BT.detach()",
    ),
    Mutant(
        name="a surrogate's correction ignored",
        file=TERM,
        old="return weights.values_BT * surrogate_BT",
        new="return surrogate_BT",
    ),
    Mutant(
        name="detach forgotten in a surrogate's correction",
        file=TERM,
        old="return weights.values_BT * surrogate_BT",
        new="return (weights.values_BT.log() + logprobs_BT - logprobs_BT.detach()).exp() * surrogate_BT",
    ),
    Mutant(
        name="the loss's ratio ignored",
        file=TERM,
        old="weight_of(params.loss) or NO_RATIO",
        new="NO_RATIO",
    ),
    Mutant(
        name="centering not subtracted",
        file=TERM,
        old=("if centred is not None:\n            return centred_policy"),
        new=("if False:\n            return centred_policy"),
    ),
    Mutant(
        name="centering by another regulariser",
        file=TERM,
        old="sampler, ratio.regulariser, temperature",
        new="sampler, NO_RATIO.regulariser, temperature",
    ),
    Mutant(
        name="the recorded head ignored",
        file=TERM,
        old="if isinstance(self.params.centering, FullVocabulary):",
        new="if True:",
    ),
    Mutant(
        name="the head of other rows",
        file=TERM,
        old="TopHead(micro.take(head.ids_BTK),",
        new="TopHead(head.ids_BTK[: len(micro.rows_B), : micro.mask_BT.shape[1]],",
    ),
    Mutant(
        name="the head's log-probs of other rows",
        file=TERM,
        old="micro.take(head.logprobs_BTK))",
        new="head.logprobs_BTK[: len(micro.rows_B), : micro.mask_BT.shape[1]])",
    ),
    Mutant(
        name="behaviour of other rows",
        file=TERM,
        old=("behaviour_BT = micro.take(self.taken.behaviour.logprobs_BT)\n        sampler"),
        new=(
            "behaviour_BT = self.taken.behaviour.logprobs_BT[: len(micro.rows_B), : micro.mask_BT.shape[1]]\n"
            "        sampler"
        ),
    ),
    Mutant(
        name="clip bounds exchanged",
        file=TERM,
        old="return level, loss.clip_low, loss.clip_high",
        new="return level, loss.clip_high, loss.clip_low",
    ),
    Mutant(
        name="upper clip bound taken on both sides",
        file=TERM,
        old="return level, loss.clip_low, loss.clip_high",
        new="return level, loss.clip_high, loss.clip_high",
    ),
    Mutant(
        name="gspo clipped at token level",
        file=TERM,
        old="isinstance(loss, PpoClip) else Level.GEOMETRIC",
        new="isinstance(loss, PpoClip | Gspo) else Level.GEOMETRIC",
    ),
    Mutant(
        name="ppo clipped at geometric level",
        file=TERM,
        old="level = Level.TOKEN if isinstance(loss, PpoClip)",
        new="level = Level.TOKEN if isinstance(loss, type(None))",
    ),
    Mutant(
        name="aggregation ignored",
        file=TERM,
        old="aggregate(loss_BT, micro.mask_BT, params.aggregation, counts)",
        new="aggregate(loss_BT, micro.mask_BT, TokenMean(), counts)",
    ),
    Mutant(
        name="KL weight forgotten",
        file=TERM,
        old="params.kl.coefficient * exact.values_BT * kl_BT",
        new="params.kl.coefficient * kl_BT",
    ),
    Mutant(
        name="KL coefficient forgotten",
        file=TERM,
        old="params.kl.coefficient * exact.values_BT * kl_BT",
        new="exact.values_BT * kl_BT",
    ),
    Mutant(
        name="detach forgotten in the KL's weight",
        file=TERM,
        old="params.kl.coefficient * exact.values_BT * kl_BT",
        new="params.kl.coefficient * (logprobs_BT - behaviour_BT).exp() * kl_BT",
    ),
    Mutant(
        name="KL kind ignored",
        file=TERM,
        old="params.kl.kind, logprobs_BT",
        new='"reverse_kl", logprobs_BT',
    ),
    Mutant(
        name="KL's weight is the loss's",
        file=TERM,
        old="micro.mask_BT, EXACT_TOKEN_RATIO)",
        new="micro.mask_BT, NO_RATIO)",
    ),
    Mutant(
        name="a KL told without its weight",
        file=TERM,
        old="masked_sum(exact.values_BT * k1, micro.mask_BT)",
        new="masked_sum(k1, micro.mask_BT)",
    ),
    Mutant(
        name="value loss leaking into the policy",
        file=TERM,
        old="value_loss_BT(forward.values_BT, micro",
        new="value_loss_BT(forward.values_BT + logprobs_BT - logprobs_BT.detach(), micro",
    ),
    Mutant(
        name="value loss aggregated as the policy's",
        file=TERM,
        old="micro.mask_BT, TokenMean(), counts)",
        new="micro.mask_BT, params.aggregation, counts)",
    ),
    Mutant(
        name="value loss told and not learnt",
        file=TERM,
        old="share = share + value_share",
        new="share = share + 0 * value_share",
    ),
    Mutant(
        name="the engine compared after it was left behind",
        file=TERM,
        old="if self.first_update:  # the policy is",
        new="if True:  # the policy is",
    ),
    Mutant(
        name="the engine compared on stale samples",
        file=TERM,
        old="mask_BT & (age_BT == 0)",
        new="mask_BT",
    ),
    Mutant(
        name="the sampler not compared with its record",
        file=TERM,
        old="self.sampler_agreement.add(recomputed_logprobs_BT(sampler, micro), recorded_BT, micro.mask_BT)",
        new="pass",
    ),
]
