"""Wrong versions of the replay terms."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_replay.py"
FILE = "stages/estimators/replay.py"

MUTANTS = [
    Mutant(
        name="elites weighted by how often they are there, not by prompt",
        file=FILE,
        old="return [1.0 / (len(elites) * elites[prompt]) for prompt in prompt_ids]",
        new="return [1.0 / len(prompt_ids) for prompt in prompt_ids]",
    ),
    Mutant(
        name="prompts' number forgotten",
        file=FILE,
        old="return [1.0 / (len(elites) * elites[prompt]) for prompt in prompt_ids]",
        new="return [1.0 / elites[prompt] for prompt in prompt_ids]",
    ),
    Mutant(
        name="likelihood pushed down",
        file=FILE,
        old="return -_token_mean_B(logprobs_BT, mask_BT)",
        new="return _token_mean_B(logprobs_BT, mask_BT)",
    ),
    Mutant(
        name="long elites weigh more",
        file=FILE,
        old=".sum(-1) / tokens_B",
        new=".sum(-1)",
    ),
    Mutant(
        name="mask in the numerator only",
        file=FILE,
        old=".sum(-1) / tokens_B",
        new=".mean(-1)",
    ),
    Mutant(
        name="mask in the denominator only",
        file=FILE,
        old="return values_BT.where(inside_BT, values_BT.new_zeros(())).sum(-1) / tokens_B",
        new="return values_BT.sum(-1) / tokens_B",
    ),
    Mutant(
        name="mask by multiplication: 0 x NaN",
        file=FILE,
        old="return values_BT.where(inside_BT, values_BT.new_zeros(())).sum(-1) / tokens_B",
        new="return (values_BT * inside_BT).sum(-1) / tokens_B",
    ),
    Mutant(
        name="an elite without tokens taken silently",
        file=FILE,
        old="if not tokens_B.all():",
        new="if not tokens_B.any():",
    ),
    Mutant(
        name="JS: base over policy",
        file=FILE,
        old="(logprobs_BT - base_logprobs_BT.detach())",
        new="(base_logprobs_BT.detach() - logprobs_BT)",
    ),
    Mutant(
        name="JS: base differentiated",
        file=FILE,
        old="base_logprobs_BT.detach()",
        new="base_logprobs_BT",
    ),
    Mutant(
        name="JS: ratio detached",
        file=FILE,
        old="u_BT = log_u_BT.exp()",
        new="u_BT = log_u_BT.exp().detach()",
    ),
    Mutant(
        name="JS: ln 2 once",
        file=FILE,
        old="(u_BT + 1) * math.log(2)",
        new="math.log(2)",
    ),
    Mutant(
        name="JS: KL to the midpoint without the base's half",
        file=FILE,
        old="u_BT * logsigmoid(log_u_BT) + logsigmoid(-log_u_BT) + (u_BT + 1) * math.log(2)",
        new="u_BT * logsigmoid(log_u_BT) + u_BT * math.log(2)",
    ),
    Mutant(
        name="JS: masked after the ratio only",
        file=FILE,
        old="(logprobs_BT - base_logprobs_BT.detach()).where(inside_BT, zero)",
        new="logprobs_BT - base_logprobs_BT.detach()",
    ),
    Mutant(
        name="floor: elites above it replayed too",
        file=FILE,
        old=".where(log_fall_B > 0, weights_B.new_zeros(()))",
        new="",
    ),
    Mutant(
        name="floor: an elite exactly at it replayed",
        file=FILE,
        old=".where(log_fall_B > 0, weights_B.new_zeros(()))",
        new=".where(log_fall_B >= 0, weights_B.new_zeros(()))",
    ),
    Mutant(
        name="floor: weight not capped",
        file=FILE,
        old="weights_B.clamp(max=max_weight)",
        new="weights_B",
    ),
    Mutant(
        name="floor: everything below it counted as capped",
        file=FILE,
        old="capped = int((weights_B > max_weight).sum())",
        new="capped = int((weights_B > 1).sum())",
    ),
    Mutant(
        name="floor: probability of the whole elite",
        file=FILE,
        old="log_fall_B = math.log(floor) - _token_mean_B(logprobs_BT, mask_BT)",
        new="log_fall_B = math.log(floor) - _token_mean_B(logprobs_BT, mask_BT) * mask_BT.sum(-1)",
    ),
    Mutant(
        name="floor: weights differentiated",
        file=FILE,
        old="    with torch.no_grad():\n        log_fall_B",
        new="    with torch.enable_grad():\n        log_fall_B",
    ),
    Mutant(
        name="narrow: as many strategies count as fewer",
        file=FILE,
        old="len(seen) < len(archived.get(prompt, ()))",
        new="len(seen) <= len(archived.get(prompt, ()))",
    ),
    Mutant(
        name="narrow: other strategies count as fewer",
        file=FILE,
        old="len(seen) < len(archived.get(prompt, ()))",
        new="bool(set(archived.get(prompt, ())) - set(seen))",
    ),
    Mutant(
        name="narrow: prompts outside the step replayed",
        file=FILE,
        old="return {prompt for prompt, seen in found.items() if len(seen) < len(archived.get(prompt, ()))}",
        new="return {prompt for prompt, kept in archived.items() if len(found.get(prompt, ())) < len(kept)}",
    ),
]
