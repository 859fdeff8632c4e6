"""Routes of genuine tiny mixtures of experts with random weights."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    FlexOlmoConfig,
    FlexOlmoForCausalLM,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from stages.engines.routes import (
    KNOWN_ROUTERS,
    NOT_RECORDED,
    is_mixture_of_experts,
    record_routes,
    replay_routes,
)
from stages.errors import GuardError

VOCABULARY, EXPERTS, LAYERS, ROWS, TOKENS = 24, 4, 2, 3, 7
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.5,
}
QWEN = {"num_experts": EXPERTS, "moe_intermediate_size": 24, "decoder_sparse_step": 1}


def mixture(family: str, top_k: int, layers: int = LAYERS, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    shape = {**SHAPE, "num_hidden_layers": layers, "num_experts_per_tok": top_k}
    headless = {name: value for name, value in shape.items() if name != "head_dim"}
    if family == "Mixtral":
        model: Any = MixtralForCausalLM(MixtralConfig(**shape, num_local_experts=EXPERTS))
    elif family == "Qwen2Moe":
        own = {"shared_expert_intermediate_size": 24, "norm_topk_prob": False}
        model = Qwen2MoeForCausalLM(Qwen2MoeConfig(**headless, **QWEN, **own))
    elif family == "Qwen3Moe":
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **QWEN, norm_topk_prob=True))
    elif family == "Qwen3Next":
        own = {"shared_expert_intermediate_size": 24, "layer_types": ["full_attention"] * layers}
        model = Qwen3NextForCausalLM(Qwen3NextConfig(**shape, **QWEN, **own))
    elif family == "Olmoe":
        model = OlmoeForCausalLM(OlmoeConfig(**headless, num_experts=EXPERTS))
    else:
        model = FlexOlmoForCausalLM(FlexOlmoConfig(**headless, num_experts=EXPERTS))
    with torch.no_grad():
        for router in routers(model):
            torch.nn.init.normal_(router.weight, std=0.5)
    return model.eval()


def routers(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__ in KNOWN_ROUTERS]


def tokens_BT(seed: int = 1) -> Tensor:
    return torch.randint(VOCABULARY, (ROWS, TOKENS), generator=torch.Generator().manual_seed(seed))


def logits_of(model: Any, input_BT: Tensor) -> Tensor:
    logits: Tensor = model(input_BT, use_cache=False).logits
    return logits


@torch.no_grad()
def routes_of(model: Any, input_BT: Tensor) -> Tensor:
    with record_routes(model) as recording:
        logits_of(model, input_BT)
    return recording.routes_BTLK


@torch.no_grad()
def noised(model: Any, part: str, seed: int = 5, size: float = 1.0) -> Any:
    """A copy with noise on its routers, or on the attention of all its layers."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    changed = [router.weight for router in routers(other)]
    if part == "attention":
        changed = [weight for name, weight in other.named_parameters() if "o_proj" in name]
    for weight in changed:
        weight += size * torch.randn(weight.shape, generator=generator)
    return other


def random_routes(top_k: int, seed: int, layers: int = LAYERS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(ROWS, TOKENS, layers, EXPERTS, generator=generator).argsort(-1)
    return order[..., :top_k].to(torch.int32)


def logprob_gap_BT(logits_BTV: Tensor, other_BTV: Tensor, input_BT: Tensor) -> Tensor:
    target_BT = input_BT[:, 1:].unsqueeze(-1)
    both = [x[:, :-1].log_softmax(-1).gather(2, target_BT).squeeze(-1) for x in (logits_BTV, other_BTV)]
    return (both[0] - both[1]).abs()


FAMILIES = sorted(name.removesuffix("TopKRouter") for name in KNOWN_ROUTERS)
family_and_k = [(family, top_k) for family in FAMILIES for top_k in (1, 2)]


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize(("family", "top_k"), family_and_k)
def test_own_routes_replayed_are_the_same_logits_and_gradients_bit_for_bit(family, top_k):
    model, input_BT = mixture(family, top_k), tokens_BT()
    routes = routes_of(model, input_BT)
    assert routes.dtype == torch.int32
    assert routes.shape == (ROWS, TOKENS, LAYERS, top_k)
    assert len(routes.unique()) == EXPERTS  # the case is not a trivial one
    free = logits_of(model, input_BT)
    free.square().sum().backward()
    gradients = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    with replay_routes(model, routes):
        replayed = logits_of(model, input_BT)
    replayed.square().sum().backward()  # after the replay: nothing of it is needed
    assert torch.equal(free, replayed)
    # the gradient of a gathered probability and that of a top-k are added in the same order
    assert all(
        torch.equal(own, weight.grad) for own, weight in zip(gradients, model.parameters(), strict=True)
    )


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_own_routes_replayed_are_the_same_logits_in_half_precision(family, dtype):
    model, input_BT = mixture(family, 2).to(dtype), tokens_BT()
    routes = routes_of(model, input_BT)
    with torch.no_grad(), replay_routes(model, routes):
        replayed = logits_of(model, input_BT)
    with torch.no_grad():
        assert torch.equal(replayed, logits_of(model, input_BT))


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize(("family", "top_k"), family_and_k)
def test_the_recorded_experts_are_used_where_free_routing_would_choose_others(family, top_k):
    sampler, input_BT = mixture(family, top_k), tokens_BT()
    routes = routes_of(sampler, input_BT)
    trainer = noised(sampler, "routers")
    assert not torch.equal(routes_of(trainer, input_BT), routes)
    used: list[Tensor] = []
    handles = [
        module.register_forward_pre_hook(lambda _module, args: used.append(args[1]))
        for name, module in trainer.named_modules()
        if name.endswith(".experts")
    ]
    with replay_routes(trainer, routes):
        assert torch.equal(routes_of(trainer, input_BT), routes)
    for handle in handles:
        handle.remove()
    # what the experts themselves were given
    assert torch.equal(torch.stack(used, 1), routes.flatten(0, 1).long())


@pytest.mark.oracle("9.10")
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**31), top_k=st.integers(1, 3), normalised=st.booleans())
def test_any_routes_give_the_mixture_written_out(seed, top_k, normalised):
    """A block alone against its formula: sum over the given experts of softmax weight x expert."""
    model = mixture("Qwen3Moe", top_k, layers=1, seed=seed % 100)
    block = model.model.layers[0].mlp
    block.gate.norm_topk_prob = normalised
    routes = random_routes(top_k, seed, layers=1)
    hidden = torch.randn(ROWS, TOKENS, 16, generator=torch.Generator().manual_seed(seed))
    with replay_routes(model, routes):
        out = block(hidden)
    probability = (hidden @ block.gate.weight.T).softmax(-1)
    weight = probability.gather(2, routes[:, :, 0].long())
    if normalised:
        weight = weight / weight.sum(-1, keepdim=True)
    expected = torch.zeros_like(hidden)
    for row in range(ROWS):
        for place in range(TOKENS):
            for k, expert in enumerate(routes[row, place, 0].tolist()):
                gate, up = (block.experts.gate_up_proj[expert] @ hidden[row, place]).chunk(2)
                value = block.experts.down_proj[expert] @ (torch.nn.functional.silu(gate) * up)
                expected[row, place] += weight[row, place, k] * value
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5 * float(expected.detach().abs().max()))
    # the gradient of the router, likewise
    ours = torch.autograd.grad(out.square().sum(), block.gate.weight)[0]
    theirs = torch.autograd.grad(expected.square().sum(), block.gate.weight)[0]
    # float32 sums of terms of this size, which cancel where a weight is always 1
    rounding = 1e-5 * float(expected.detach().square().sum() * hidden.abs().max())
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=rounding)
    assert (top_k == 1 and normalised) or ours.abs().max() > 10 * rounding


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize(("family", "top_k"), [("Mixtral", 2), ("Qwen3Moe", 2), ("Qwen2Moe", 1)])
def test_the_gradient_reaches_every_router_through_foreign_routes(family, top_k):
    model, input_BT = mixture(family, top_k), tokens_BT()
    with replay_routes(model, random_routes(top_k, seed=3)):
        logits_of(model, input_BT).square().sum().backward()
    assert all(router.weight.grad.abs().sum() > 0 for router in routers(model))


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize("family", ["Mixtral", "Qwen3Moe"])
def test_replay_takes_the_routing_part_out_of_the_gap_and_leaves_the_rest(family):
    """One expert a token with weight 1: noise on the routers acts through the choice alone."""
    trainer, input_BT = mixture(family, 1), tokens_BT()
    noisy_router = noised(trainer, "routers")
    noisy_rest = noised(trainer, "attention", size=0.05)
    noisy_both = noised(noisy_rest, "routers")
    with torch.no_grad():
        free = logits_of(trainer, input_BT)
        sampled = logits_of(noisy_router, input_BT)
        assert logprob_gap_BT(free, sampled, input_BT).mean() > 0.1
        with replay_routes(trainer, routes_of(noisy_router, input_BT)):
            assert torch.equal(logits_of(trainer, input_BT), sampled)  # the gap is 0, bit for bit

        sampled, routes = logits_of(noisy_both, input_BT), routes_of(noisy_both, input_BT)
        with replay_routes(trainer, routes):
            rest = logprob_gap_BT(logits_of(trainer, input_BT), sampled, input_BT)
        with replay_routes(trainer, routes), replay_routes(noisy_rest, routes):
            alone = logprob_gap_BT(logits_of(trainer, input_BT), logits_of(noisy_rest, input_BT), input_BT)
    assert torch.equal(rest, alone)  # exactly the gap that the rest has by itself
    assert 0 < rest.mean() < logprob_gap_BT(free, sampled, input_BT).mean()


@pytest.mark.oracle("9.10")
@pytest.mark.parametrize("family", ["Mixtral", "Qwen3Moe"])
def test_with_two_experts_a_token_the_gap_of_their_weights_stays_and_is_smooth(family):
    """What noise does to the weights of the same experts is proportional to it: no token jumps."""
    trainer, input_BT = mixture(family, 2), tokens_BT()

    @torch.no_grad()
    def gaps(seed: int, size: float) -> tuple[float, float]:
        sampler = noised(trainer, "routers", seed, size)
        sampled = logits_of(sampler, input_BT)
        free = logprob_gap_BT(logits_of(trainer, input_BT), sampled, input_BT)
        with replay_routes(trainer, routes_of(sampler, input_BT)):
            replayed = logprob_gap_BT(logits_of(trainer, input_BT), sampled, input_BT)
        return float(free.mean()), float(replayed.mean())

    pairs = [gaps(seed, size=0.05) for seed in range(8)]
    assert 0 < sum(replayed for _, replayed in pairs) < 0.9 * sum(free for free, _ in pairs)
    with torch.no_grad(), replay_routes(trainer, random_routes(2, seed=3)):
        exact = logits_of(trainer, input_BT)
    smooth = []
    for size in (1e-3, 2e-3):
        sampler = noised(trainer, "routers", size=size)
        with torch.no_grad(), replay_routes(sampler, random_routes(2, seed=3)):
            smooth.append(float(logprob_gap_BT(exact, logits_of(sampler, input_BT), input_BT).mean()))
    assert smooth[1] == pytest.approx(2 * smooth[0], rel=0.1)


def test_routes_recorded_while_decoding_with_a_cache_are_those_of_one_forward():
    model, prompt = mixture("Mixtral", 2), tokens_BT()[:, :3]
    with record_routes(model) as recording:
        everything = torch.ones_like(prompt)
        row = model.generate(prompt, attention_mask=everything, max_new_tokens=4, do_sample=False)
    assert recording.routes_BTLK.shape[:2] == (ROWS, 6)  # the last token was not fed
    assert torch.equal(recording.routes_BTLK, routes_of(model, row[:, :-1]))


def test_tokens_without_a_record_route_freely():
    sampler, input_BT = mixture("Qwen2Moe", 2), tokens_BT()
    routes = routes_of(sampler, input_BT)
    trainer = noised(sampler, "routers")
    routes[:, -2:] = NOT_RECORDED
    with replay_routes(trainer, routes):
        used = routes_of(trainer, input_BT)
    assert torch.equal(used[:, :-2], routes[:, :-2])
    nothing = torch.full_like(routes, NOT_RECORDED)
    with torch.no_grad(), replay_routes(trainer, nothing):
        assert torch.equal(logits_of(trainer, input_BT), logits_of(copy.deepcopy(trainer), input_BT))


def test_nothing_stays_on_the_model():
    model, input_BT = mixture("Mixtral", 2), tokens_BT()
    free = logits_of(model, input_BT)
    with pytest.raises(ZeroDivisionError), record_routes(model), replay_routes(model, random_routes(2, 3)):
        raise ZeroDivisionError
    assert torch.equal(logits_of(model, input_BT), free)
    modules = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert not modules


def test_a_layer_that_does_not_route_has_no_place_in_the_record():
    model = mixture("Qwen3Moe", 2)
    config = copy.deepcopy(model.config)
    config.mlp_only_layers = [0]
    sparse = Qwen3MoeForCausalLM(config).eval()
    assert routes_of(sparse, tokens_BT()).shape == (ROWS, TOKENS, 1, 2)


def test_which_configurations_are_mixtures():
    assert all(is_mixture_of_experts(mixture(family, 1).config) for family in FAMILIES)
    assert is_mixture_of_experts(DeepseekV3Config())
    assert is_mixture_of_experts(GptOssConfig())
    assert not is_mixture_of_experts(LlamaConfig())
    assert not is_mixture_of_experts(MixtralConfig(num_local_experts=1))


def deepseek() -> Any:
    heads = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = dict.fromkeys(heads, 8)
    groups = {"n_routed_experts": EXPERTS, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}
    moe = {"moe_intermediate_size": 24, "first_k_dense_replace": 0}
    headless = {name: value for name, value in SHAPE.items() if name != "head_dim"}
    return DeepseekV3ForCausalLM(DeepseekV3Config(**headless, **sizes, **groups, **moe))


def test_a_router_that_is_not_known_is_refused():
    model = deepseek()
    with pytest.raises(GuardError, match="DeepseekV3ForCausalLM is not known"), record_routes(model):
        pass
    with pytest.raises(GuardError, match="is not known"), replay_routes(model, random_routes(2, 0)):
        pass


def test_a_dense_model_is_refused():
    with pytest.raises(GuardError, match="no experts"), record_routes(LlamaForCausalLM(LlamaConfig(**SHAPE))):
        pass


def with_entry(value: int, *place: int) -> Tensor:
    routes = random_routes(2, 0)
    routes[place] = value
    return routes


@pytest.mark.parametrize(
    "routes",
    [
        random_routes(2, 0).long(),
        random_routes(1, 0),
        random_routes(2, 0, layers=3),
        random_routes(2, 0)[0],
        with_entry(EXPERTS, 0, 0, 0, 0),
        with_entry(-2, 0, 0, 0, 0),
        with_entry(NOT_RECORDED, 0, 0, 0, 0),
        with_entry(NOT_RECORDED, 0, 0, 1),
        with_entry(1, 2, 3, 1),
    ],
    ids=["int64", "top-1", "layers", "rank", "no such expert", "negative", "half a token", "half", "twice"],
)
def test_routes_that_cannot_be_the_models_are_refused(routes):
    with pytest.raises(GuardError, match="record them"), replay_routes(mixture("Mixtral", 2), routes):
        pass


def test_routes_of_other_tokens_are_refused():
    model = mixture("Mixtral", 2)
    with pytest.raises(GuardError, match="met a forward"), replay_routes(model, random_routes(2, 0)):
        logits_of(model, tokens_BT()[:, :-1])
    with pytest.raises(GuardError, match="met a forward"), replay_routes(model, random_routes(2, 0)):
        logits_of(model, tokens_BT().T)


def test_a_router_that_was_not_asked_is_noticed():
    model = mixture("Mixtral", 2)
    with pytest.raises(GuardError, match="not replayed"), replay_routes(model, random_routes(2, 0)):
        model.model.layers[0].mlp(torch.zeros(ROWS, TOKENS, 16))
    with record_routes(model) as recording:
        model.model.layers[1].mlp(torch.zeros(ROWS, TOKENS, 16))
    with pytest.raises(GuardError, match="was not called"):
        _ = recording.routes_BTLK
    with record_routes(model) as recording:
        logits_of(model, tokens_BT())
        logits_of(model, tokens_BT()[:1])
    with pytest.raises(GuardError, match="each batch by itself"):
        _ = recording.routes_BTLK


def test_gradient_checkpointing_is_refused():
    model = mixture("Mixtral", 2)
    model.gradient_checkpointing_enable()
    with pytest.raises(GuardError, match="turn it off"), replay_routes(model, random_routes(2, 0)):
        pass
