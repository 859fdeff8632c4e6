"""Routing replay: what is recorded, what the experts are given, what is refused."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/engines/test_routes.py"
FILE = "stages/engines/routes.py"

MUTANTS = [
    Mutant(
        name="the recorded experts are ignored",
        file=FILE,
        old="torch.where(recorded_NK == NOT_RECORDED, own_NK, recorded_NK)",
        new="own_NK",
    ),
    Mutant(
        name="a token without a record uses expert -1",
        file=FILE,
        old="torch.where(recorded_NK == NOT_RECORDED, own_NK, recorded_NK)",
        new="recorded_NK",
    ),
    Mutant(
        name="the weights stay those of the router's own choice",
        file=FILE,
        old="expert_weights_NK(router, logits_NE, ids_NK).to(weights_NK.dtype)",
        new="weights_NK",
    ),
    Mutant(
        name="no gradient reaches the router",
        file=FILE,
        old="logits_NE.float().softmax(-1)",
        new="logits_NE.detach().float().softmax(-1)",
    ),
    Mutant(
        name="the softmax is over the chosen experts",
        file=FILE,
        old="logits_NE.float().softmax(-1).gather(1, ids_NK)",
        new="logits_NE.float().gather(1, ids_NK).softmax(-1)",
    ),
    Mutant(
        name="the weights are normalised though the router does not",
        file=FILE,
        old='if getattr(router, "norm_topk_prob", True):',
        new="if True:",
    ),
    Mutant(
        name="the weights are not normalised where the router has no choice",
        file=FILE,
        old='"norm_topk_prob", True)',
        new='"norm_topk_prob", False)',
    ),
    Mutant(
        name="the weights stay float32 in a half-precision model",
        file=FILE,
        old=".to(weights_NK.dtype), ids_NK",
        new=", ids_NK",
    ),
    Mutant(
        name="every layer replays the first layer's experts",
        file=FILE,
        old="routes_BTLK[:, :, layer].flatten(0, 1)",
        new="routes_BTLK[:, :, 0].flatten(0, 1)",
    ),
    Mutant(
        name="tokens are replayed column by column",
        file=FILE,
        old="routes_BTLK[:, :, layer].flatten(0, 1)",
        new="routes_BTLK[:, :, layer].transpose(0, 1).flatten(0, 1)",
    ),
    Mutant(
        name="only the number of tokens of a forward is compared",
        file=FILE,
        old="if shape_BT != routes_BTLK.shape[:2]:",
        new="if shape_BT.numel() != routes_BTLK.shape[:2].numel():",
    ),
    Mutant(
        name="a router that was bypassed is not noticed",
        file=FILE,
        old="if not all(replayed):",
        new="if not any(replayed):",
    ),
    Mutant(
        name="an expert may be named twice",
        file=FILE,
        old="== 0).any(-1).any(-1) & ~missing_BT",
        new="== 0).any(-1).any(-1) & missing_BT",
    ),
    Mutant(
        name="an expert beyond the last passes",
        file=FILE,
        old="(routes_BTLK < router.num_experts)",
        new="(routes_BTLK <= router.num_experts)",
    ),
    Mutant(
        name="half a record passes",
        file=FILE,
        old=" or not missing_BTLK[missing_BT].all():",
        new=":",
    ),
    Mutant(
        name="the hook on a router outlives its context",
        file=FILE,
        old="hooks.enter_context(router.register_forward_hook(after(layer)))",
        new="router.register_forward_hook(after(layer))",
    ),
    Mutant(
        name="the hook on a block outlives its context",
        file=FILE,
        old="hooks.enter_context(block.register_forward_pre_hook(before(layer), with_kwargs=True))",
        new="block.register_forward_pre_hook(before(layer), with_kwargs=True)",
    ),
    Mutant(
        name="forwards with a cache are kept side by side by row",
        file=FILE,
        old="torch.cat(layer, dim=1) for layer in pieces], dim=2)",
        new="torch.cat(layer, dim=0) for layer in pieces], dim=2)",
    ),
    Mutant(
        name="a model of one expert counts as a mixture",
        file=FILE,
        old="return largest > 1 or",
        new="return largest > 0 or",
    ),
    Mutant(
        name="backward may recompute layers after the replay",
        file=FILE,
        old="if model.is_gradient_checkpointing:",
        new="if False:",
    ),
]
