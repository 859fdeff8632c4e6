"""The loss of a distillation step: which form, at which temperature, by which denominator."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/opd/test_loss.py"
FILE = "stages/opd/loss.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten on the teacher",
        file=FILE,
        old="self.teacher.distribution(micro, self.temperature)",
        new="self.teacher.distribution(micro, 1.0)",
    ),
    Mutant(
        name="temperature forgotten on the student",
        file=FILE,
        old=("micro.target_BT, micro.mask_BT, self.temperature\n        match"),
        new=("micro.target_BT, micro.mask_BT, 1.0\n        match"),
    ),
    Mutant(
        name="temperature forgotten in what is compared with the record",
        file=FILE,
        old="forward.logits_BTV, micro.target_BT, micro.mask_BT, self.temperature\n",
        new="forward.logits_BTV, micro.target_BT, micro.mask_BT\n",
    ),
    Mutant(
        name="temperature forgotten in the reverse KL",
        file=FILE,
        old="return reverse_kl_BT(logits_BTV, mask_BT, teacher, temperature)",
        new="return reverse_kl_BT(logits_BTV, mask_BT, teacher)",
    ),
    Mutant(
        name="temperature forgotten in the top-k KL",
        file=FILE,
        old="teacher, k, temperature)",
        new="teacher, k)",
    ),
    Mutant(
        name="temperature forgotten in the forward KL",
        file=FILE,
        old="return forward_kl_BT(logits_BTV, mask_BT, teacher, temperature)",
        new="return forward_kl_BT(logits_BTV, mask_BT, teacher)",
    ),
    Mutant(
        name="temperature forgotten in the sampled form",
        file=FILE,
        old="terms = sampled_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
        new="terms = sampled_terms(logits_BTV, target_BT, mask_BT, teacher)",
    ),
    Mutant(
        name="temperature forgotten in the variance-reduced form",
        file=FILE,
        old="terms = variance_reduced_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
        new="terms = variance_reduced_terms(logits_BTV, target_BT, mask_BT, teacher)",
    ),
    Mutant(
        name="k ignored",
        file=FILE,
        old="teacher, k, temperature)",
        new="teacher, 2, temperature)",
    ),
    Mutant(
        name="full_vocabulary: the forward KL",
        file=FILE,
        old="return reverse_kl_BT(logits_BTV,",
        new="return forward_kl_BT(logits_BTV,",
    ),
    Mutant(
        name="forward_kl: the reverse one",
        file=FILE,
        old="return forward_kl_BT(logits_BTV,",
        new="return reverse_kl_BT(logits_BTV,",
    ),
    Mutant(
        name="sampled: the variance-reduced form",
        file=FILE,
        old="terms = sampled_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
        new="terms = variance_reduced_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
    ),
    Mutant(
        name="variance_reduced: the sampled form",
        file=FILE,
        old="terms = variance_reduced_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
        new="terms = sampled_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)",
    ),
    Mutant(
        name="the teacher pushed away",
        file=FILE,
        old="terms.advantages_BT, mask_BT)",
        new="-terms.advantages_BT, mask_BT)",
    ),
    Mutant(
        name="denominator of the micro-batch",
        file=FILE,
        old="BatchCounts.of(self.batch.mask_BT)",
        new="BatchCounts.of(micro.mask_BT)",
    ),
    Mutant(
        name="a mean over sequences",
        file=FILE,
        old="aggregate(loss_BT, micro.mask_BT, TokenMean(), counts)",
        new="(loss_BT.where(micro.mask_BT, 0.0).sum(1) / micro.mask_BT.sum(1)).sum() / counts.sequences",
    ),
    Mutant(
        name="the forward KL told as the reverse one",
        file=FILE,
        old="isinstance(self.estimator, FullVocabularyKl | TopKKl)",
        new="isinstance(self.estimator, FullVocabularyKl | TopKKl | ForwardKl)",
    ),
    Mutant(
        name="the sampled KL of teacher to student told",
        file=FILE,
        old="kl_BT = sampled_BT - recomputed_logprobs_BT(teacher, micro)",
        new="kl_BT = recomputed_logprobs_BT(teacher, micro) - sampled_BT",
    ),
    Mutant(
        name="the KL of the last micro-batch told",
        file=FILE,
        old="self.reverse_kl += float(",
        new="self.reverse_kl = float(",
    ),
    Mutant(
        name="compared with the record of other rows",
        file=FILE,
        old="micro.take(self.recorded_BT)",
        new="self.recorded_BT[: len(micro.rows_B), : micro.mask_BT.shape[1]]",
    ),
]
