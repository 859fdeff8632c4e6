"""Wrong versions of functions of logits a block at a time."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_blockwise.py"
FILE = "stages/estimators/blockwise.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten",
        file=FILE,
        old="scaled_NV = scaled(logits_NV, scale, places_N)",
        new="scaled_NV = logits_NV",
    ),
    Mutant(
        name="temperature multiplied",
        file=FILE,
        old="return logits_NV if temperature == 1.0 else logits_NV / temperature",
        new="return logits_NV if temperature == 1.0 else logits_NV * temperature",
    ),
    Mutant(
        name="rows' temperatures by block instead of by place",
        file=FILE,
        old="return logits_NV / temperature[places_N].unsqueeze(1)",
        new="return logits_NV / temperature[: len(places_N)].unsqueeze(1)",
    ),
    Mutant(
        name="rows' temperatures spread over the wrong axis",
        file=FILE,
        old=".unsqueeze(1).expand(mask_BT.shape).reshape(-1)",
        new=".unsqueeze(0).expand(mask_BT.shape[::-1]).reshape(-1)",
    ),
    Mutant(
        name="targets by block instead of by place",
        file=FILE,
        old="return (picked_logprob_N(scaled_NV, targets[places_N]),)",
        new="return (picked_logprob_N(scaled_NV, targets[: len(places_N)].clamp(min=0)),)",
    ),
    Mutant(
        name="normaliser forgotten",
        file=FILE,
        old=".squeeze(-1) - logits_NV.logsumexp(-1)",
        new=".squeeze(-1)",
    ),
    Mutant(
        name="mask ignored",
        file=FILE,
        old="places_N = mask_BT.reshape(-1).nonzero().squeeze(1)",
        new="places_N = torch.arange(mask_BT.numel())",
    ),
    Mutant(
        name="values in the logits' own precision",
        file=FILE,
        old="precise = torch.promote_types(logits_MV.dtype, torch.float32)",
        new="precise = logits_MV.dtype",
    ),
    Mutant(
        name="slopes by block instead of by place",
        file=FILE,
        old="[slopes[place][places] for place in moving]",
        new="[slopes[place][: len(places)] for place in moving]",
    ),
    Mutant(
        name="slope of the first value for all",
        file=FILE,
        old="[slopes[place][places] for place in moving]",
        new="[slopes[0][places] for place in moving]",
    ),
    Mutant(
        name="only the first value differentiated",
        file=FILE,
        old="moving = [place for place, value in enumerate(values) if value.requires_grad]",
        new="moving = [place for place, value in enumerate(values[:1]) if value.requires_grad]",
    ),
    Mutant(
        name="a constant function breaks the backward pass",
        file=FILE,
        old="            if moving:\n",
        new="            if True:\n",
    ),
    Mutant(
        name="gradient of the last block only",
        file=FILE,
        old="                gradient_MV[places] = block_NV.to(gradient_MV.dtype)",
        new="                gradient_MV = torch.zeros_like(logits_MV)\n"
        "                gradient_MV[places] = block_NV.to(gradient_MV.dtype)",
    ),
    Mutant(
        name="all positions in one block",
        file=FILE,
        old="yield from places_N.split(max(1, BLOCK_ELEMENTS // width))",
        new="yield from places_N.split(max(1, len(places_N)))",
    ),
    Mutant(
        name="a block of no position where the vocabulary exceeds it",
        file=FILE,
        old="yield from places_N.split(max(1, BLOCK_ELEMENTS // width))",
        new="yield from places_N.split(BLOCK_ELEMENTS // width)",
    ),
    Mutant(
        name="logits promoted before they are cut into blocks",
        file=FILE,
        old="        for places in blocks(places_N, logits_MV.shape[1]):\n"
        "            parts.append(function(logits_MV[places].to(precise), places))",
        new="        precise_MV = logits_MV.to(precise) + 0\n"
        "        for places in blocks(places_N, logits_MV.shape[1]):\n"
        "            parts.append(function(precise_MV[places], places))",
    ),
]
