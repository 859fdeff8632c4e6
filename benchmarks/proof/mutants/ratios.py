"""Importance ratios: levels, regularisers, veto, weighted mass, record, staleness, support, metrics."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/ratios"
LEVEL = "stages/estimators/ratios/level.py"
REGULARISE = "stages/estimators/ratios/regularise.py"
RECORD = "stages/estimators/ratios/record.py"
STALENESS = "stages/estimators/ratios/staleness.py"
SUPPORT = "stages/estimators/ratios/support.py"
METRICS = "stages/estimators/ratios/metrics.py"

MUTANTS = [
    Mutant(
        name="masked log-ratios enter the sequence's ratio",
        file=LEVEL,
        old="kept_BT = log_ratio_BT.where(mask_BT, log_ratio_BT.new_zeros(()))",
        new="kept_BT = log_ratio_BT",
    ),
    Mutant(
        name="geometric mean over all positions, masked ones among them",
        file=LEVEL,
        old="mask_BT.sum(1, keepdim=True).clamp(min=1)",
        new="mask_BT.shape[1]",
    ),
    Mutant(
        name="sequence ratio is the geometric one",
        file=LEVEL,
        old="if level is Level.GEOMETRIC:",
        new="if True:",
    ),
    Mutant(
        name="bounded before the level is taken",
        file=LEVEL,
        old="level_B1 = kept_BT.sum(1, keepdim=True)",
        new="level_B1 = kept_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).sum(1, keepdim=True)",
    ),
    Mutant(
        name="a sequence's ratio at masked positions too",
        file=LEVEL,
        old="bounded_BT.where(mask_BT, torch.zeros_like(bounded_BT))",
        new="bounded_BT",
    ),
    Mutant(
        name="a log-ratio that is not a number goes on",
        file=LEVEL,
        old="if level_BT.isnan().any():",
        new="if False:",
    ),
    Mutant(
        name="the regulariser's function not detached",
        file=REGULARISE,
        old="@torch.no_grad()\ndef weight(",
        new="def weight(",
    ),
    Mutant(
        name="weighted mass not detached",
        file=REGULARISE,
        old="@torch.no_grad()\ndef weighted_mass_NV",
        new="def weighted_mass_NV",
    ),
    Mutant(
        name="weights of the token level whatever the level",
        file=REGULARISE,
        old="level = ratio_log_BT(log_ratio_BT, mask_BT, ratio.level)",
        new="level = ratio_log_BT(log_ratio_BT, mask_BT, type(ratio.level).TOKEN)",
    ),
    Mutant(
        name="masked tokens keep a weight",
        file=REGULARISE,
        old="kept_BT = mask_BT & ~vetoed_B.unsqueeze(1)",
        new="kept_BT = ~vetoed_B.unsqueeze(1)",
    ),
    Mutant(
        name="a vetoed row keeps its weights",
        file=REGULARISE,
        old="kept_BT = mask_BT & ~vetoed_B.unsqueeze(1)",
        new="kept_BT = mask_BT",
    ),
    Mutant(
        name="veto by the weight's level instead of its tokens",
        file=REGULARISE,
        old="vetoed_B = vetoed_rows_B(log_ratio_BT, mask_BT, ratio.veto_below)",
        new="vetoed_B = vetoed_rows_B(level.values_BT, mask_BT, ratio.veto_below)",
    ),
    Mutant(
        name="veto by masked tokens",
        file=REGULARISE,
        old="((log_ratio_BT < math.log(veto_below)) & mask_BT.bool()).any(1)",
        new="(log_ratio_BT < math.log(veto_below)).any(1)",
    ),
    Mutant(
        name="veto compares a log-ratio with a ratio",
        file=REGULARISE,
        old="log_ratio_BT < math.log(veto_below)",
        new="log_ratio_BT < veto_below",
    ),
    Mutant(
        name="clip without its lower bound",
        file=REGULARISE,
        old="return ratio.clamp(low, high)",
        new="return ratio.clamp(max=high)",
    ),
    Mutant(
        name="IcePop clips instead of dropping",
        file=REGULARISE,
        old="return ratio.where(~touched(log_ratio, regulariser), torch.zeros_like(ratio))",
        new="return ratio.clamp(regulariser.low, regulariser.high)",
    ),
    Mutant(
        name="weighted mass by the ratio: overflow and 0 / 0",
        file=REGULARISE,
        old="return torch.minimum(p_NV, high * q_NV)",
        new="return q_NV * (p_NV / q_NV).clamp(max=high)",
    ),
    Mutant(
        name="exact mass where the sampler has none",
        file=REGULARISE,
        old="return p_NV.where(q_NV > 0, zero)",
        new="return p_NV",
    ),
    Mutant(
        name="mass of the clipped ratio without the lower bound",
        file=REGULARISE,
        old="torch.minimum(torch.maximum(p_NV, low * q_NV), high * q_NV)",
        new="torch.minimum(p_NV, high * q_NV)",
    ),
    Mutant(
        name="mass of the masked ratio keeps small ratios",
        file=REGULARISE,
        old="(p_NV >= low * q_NV) & (p_NV <= high * q_NV)",
        new="p_NV <= high * q_NV",
    ),
    Mutant(
        name="weights normalised by the micro-batch's mean",
        file=REGULARISE,
        old="return (values_BT / mean).where",
        new="return (values_BT / values_BT[mask_BT.bool()].mean()).where",
    ),
    Mutant(
        name="a batch without weight is divided by 0",
        file=REGULARISE,
        old="if not (mean > 0 and math.isfinite(mean)):",
        new="if False:",
    ),
    Mutant(
        name="temperature forgotten",
        file=RECORD,
        old="if behaviour.temperature != temperature:",
        new="if False:",
    ),
    Mutant(
        name="top-k forgotten",
        file=RECORD,
        old="if behaviour.top_p >= 1 and behaviour.top_k <= 0:",
        new="if behaviour.top_p >= 1:",
    ),
    Mutant(
        name="top-p forgotten",
        file=RECORD,
        old="if behaviour.top_p >= 1 and behaviour.top_k <= 0:",
        new="if behaviour.top_k <= 0:",
    ),
    Mutant(
        name="a recorded support is taken for a replayed one",
        file=RECORD,
        old="if behaviour.head is None or not on_support:",
        new="if behaviour.head is None:",
    ),
    Mutant(
        name="a head is taken for the whole support",
        file=RECORD,
        old="if not bool((mass_N.abs() <= SUPPORT_MASS_GAP).all()):",
        new="if False:",
    ),
    Mutant(
        name="rescored log-probs accepted",
        file=RECORD,
        old="    if rescored:",
        new="    if False:",
    ),
    Mutant(
        name="tokens of a version to come accepted",
        file=RECORD,
        old="if bool((version > policy_version).any()):",
        new="if False:",
    ),
    Mutant(
        name="a stale batch is its own proximal policy",
        file=RECORD,
        old="if bool((version < policy_version).any()):",
        new="if False:",
    ),
    Mutant(
        name="recomputed in an earlier step",
        file=RECORD,
        old="if recomputed.version != policy_version:",
        new="if False:",
    ),
    Mutant(
        name="recomputed at another temperature",
        file=RECORD,
        old="if recomputed.temperature != behaviour.temperature:",
        new="if False:",
    ),
    Mutant(
        name="a group's age is its youngest token's",
        file=STALENESS,
        old="policy_version - min(seen) <= max_staleness",
        new="policy_version - max(seen) <= max_staleness",
    ),
    Mutant(
        name="one update too stale",
        file=STALENESS,
        old="<= max_staleness",
        new="<= max_staleness + 1",
    ),
    Mutant(
        name="stale groups dropped from the list, so that places shift",
        file=STALENESS,
        old="        fresh.append(policy_version - min(seen) <= max_staleness)",
        new="        if policy_version - min(seen) <= max_staleness:\n            fresh.append(True)",
    ),
    Mutant(
        name="a filler's id belongs to the support",
        file=SUPPORT,
        old="support_logprobs_NK.isfinite().to(logits_NV.dtype)",
        new="torch.ones_like(support_logprobs_NK, dtype=logits_NV.dtype)",
    ),
    Mutant(
        name="a filler takes its id out of the support",
        file=SUPPORT,
        old=".scatter_add(",
        new=".scatter(",
    ),
    Mutant(
        name="k1 of the wrong sign",
        file=METRICS,
        old="k1=float(-log_ratio.sum())",
        new="k1=float(log_ratio.sum())",
    ),
    Mutant(
        name="k3 of the inverse ratio",
        file=METRICS,
        old="k3=float((log_ratio.expm1() - log_ratio).sum())",
        new="k3=float(((-log_ratio).expm1() + log_ratio).sum())",
    ),
    Mutant(
        name="chi2 without its 1",
        file=METRICS,
        old="self.ratio_squared / tokens - 1",
        new="self.ratio_squared / tokens",
    ),
    Mutant(
        name="masked tokens counted",
        file=METRICS,
        old="log_ratio = level.values_BT[mask_BT]",
        new="log_ratio = level.values_BT.flatten()",
    ),
    Mutant(
        name="rows without a trained token counted as sequences",
        file=METRICS,
        old="sequences=float(mask_BT.any(1).sum())",
        new="sequences=float(mask_BT.shape[0])",
    ),
    Mutant(
        name="the stalest token's age is added up",
        file=METRICS,
        old="stalest=max(self.stalest, other.stalest)",
        new="stalest=self.stalest + other.stalest",
    ),
]
