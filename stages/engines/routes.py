"""Which experts a mixture of experts used, recorded token by token and used again: R3, routing replay.

Two engines with the same weights may round a router's logits differently, choose other experts, and disagree
about a token's log-prob by far more than rounding. Recorded routes take this part out of the gap; the rest of
the gap stays (Miles, "Rollout Routing Replay"; arXiv 2510.11370).

Suffixes: B rows, T tokens that were fed (one position each, so a sampled row's last token has none), L layers
that route, in the model's order, K experts of a token, E experts of a layer, N = B*T.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from stages.errors import GuardError

NOT_RECORDED = -1
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
# all return (logits_NE, weights_NK, ids_NK) with the weights of `expert_weights_NK`
KNOWN_ROUTERS = frozenset(
    f"{family}TopKRouter" for family in ("FlexOlmo", "Mixtral", "Olmoe", "Qwen2Moe", "Qwen3Moe", "Qwen3Next")
)

Routing = tuple[Tensor, Tensor, Tensor]
OnRouting = Callable[[int, nn.Module, torch.Size, Routing], Routing | None]


def is_mixture_of_experts(config: Any) -> bool:
    """Whether a model of this Hugging Face configuration, or of a part of it, chooses among experts."""
    return _counts_experts(config.to_dict())


def refuse_mixture_of_experts(folder: Path) -> None:
    """Raises GuardError: rollouts carry no routes yet, and engine and trainer would each choose experts."""
    config = AutoConfig.from_pretrained(folder)
    if is_mixture_of_experts(config):
        raise GuardError(
            f"the policy is a mixture of experts ({config.model_type}) and rollouts do not carry the routes "
            "that the trainer would have to replay: train a dense model"
        )


def _counts_experts(config: Mapping[str, Any]) -> bool:
    if config.get("is_moe") is False:
        return False
    parts = [value for value in config.values() if isinstance(value, dict)]
    counts = [config.get(name) or 0 for name in EXPERT_COUNTS]
    largest = max(max(count) if isinstance(count, list) else count for count in counts)
    return largest > 1 or any(_counts_experts(part) for part in parts)


def expert_weights_NK(router: nn.Module, logits_NE: Tensor, ids_NK: Tensor) -> Tensor:
    """Softmax over all experts, of which the chosen ones are taken, and share 1 where the router says so."""
    weights_NK = logits_NE.float().softmax(-1).gather(1, ids_NK)
    if getattr(router, "norm_topk_prob", True):
        weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
    return weights_NK


@dataclass
class Recording:
    """Grows with every forward; the forwards are pieces of the same rows, as when decoding with a cache."""

    pieces_LBTK: list[list[Tensor]] = field(default_factory=list)

    @property
    def routes_BTLK(self) -> Tensor:
        """The experts so far, int32, largest weight first. Raises GuardError if some layer has told none."""
        pieces = self.pieces_LBTK
        if any(len(layer) != len(pieces[0]) for layer in pieces) or not pieces[0]:
            raise GuardError(
                "a layer's router was not called in a recorded forward: use the model's own experts, "
                "without a fused kernel, and read the routes after the forward"
            )
        if len({piece.shape[0] for piece in pieces[0]}) > 1:
            raise GuardError("forwards with different rows were recorded as one: record each batch by itself")
        return torch.stack([torch.cat(layer, dim=1) for layer in pieces], dim=2)


@contextmanager
def record_routes(model: Any) -> Iterator[Recording]:
    """Records the experts of every forward inside. Inside a replay, these are the replayed ones.

    Raises GuardError for a model without experts, or with a router that is not known.
    """
    layers = _routed_layers(model)
    recording = Recording([[] for _ in layers])

    def record(layer: int, _router: nn.Module, shape_BT: torch.Size, routing: Routing) -> None:
        ids_NK = routing[2].detach().to(torch.int32)
        recording.pieces_LBTK[layer].append(ids_NK.view(*shape_BT, -1))

    with _on_routing(layers, record):
        yield recording


@contextmanager
def replay_routes(model: Any, routes_BTLK: Tensor) -> Iterator[None]:
    """Every forward inside, of [B, T] tokens, uses exactly these experts.

    Their weights are computed from the forward's own logits, so the gradient reaches the router. A token
    whose entries are all NOT_RECORDED (padding, the last token of a sampled row) routes freely.

    Raises GuardError for a model that `record_routes` refuses, routes that cannot be of this model or of this
    forward, gradient checkpointing (a backward after the replay would route freely), and at the end if a
    router was never asked.
    """
    layers = _routed_layers(model)
    if model.is_gradient_checkpointing:
        raise GuardError("routes cannot be replayed with gradient checkpointing: turn it off for this model")
    _require_routes_of(layers, routes_BTLK)
    replayed = [0 for _ in layers]

    def replay(layer: int, router: nn.Module, shape_BT: torch.Size, routing: Routing) -> Routing:
        if shape_BT != routes_BTLK.shape[:2]:
            raise GuardError(
                f"routes of {list(routes_BTLK.shape[:2])} rows and tokens met a forward of {list(shape_BT)}: "
                "take the routes of the same rows, one entry for each token that is fed"
            )
        logits_NE, weights_NK, own_NK = routing
        recorded_NK = routes_BTLK[:, :, layer].flatten(0, 1).to(own_NK)
        ids_NK = torch.where(recorded_NK == NOT_RECORDED, own_NK, recorded_NK)
        replayed[layer] += 1
        return logits_NE, expert_weights_NK(router, logits_NE, ids_NK).to(weights_NK.dtype), ids_NK

    with _on_routing(layers, replay):
        yield
    if not all(replayed):
        raise GuardError(
            "a layer's router was not called, so its routes were not replayed: run a forward inside the "
            "replay, with the model's own experts and without a fused kernel"
        )


def _routed_layers(model: Any) -> list[tuple[nn.Module, nn.Module]]:
    """(block, router) of each layer that routes. A block sees [B, T, hidden], its router [N, hidden]."""
    if not is_mixture_of_experts(model.config):
        raise GuardError(f"{type(model).__name__} has no experts to route to: leave its routes alone")
    layers = [
        (model.get_submodule(name.rpartition(".")[0]), module)
        for name, module in model.named_modules()
        if type(module).__name__ in KNOWN_ROUTERS
    ]
    if not layers:
        raise GuardError(
            f"the routing of {type(model).__name__} is not known, so its routes can be neither recorded nor "
            f"replayed: take a model with one of {', '.join(sorted(KNOWN_ROUTERS))}"
        )
    return layers


def _require_routes_of(layers: list[tuple[nn.Module, nn.Module]], routes_BTLK: Tensor) -> None:
    router: Any = layers[0][1]
    if routes_BTLK.dtype != torch.int32 or routes_BTLK.shape[2:] != (len(layers), router.top_k):
        raise GuardError(
            f"routes are {routes_BTLK.dtype} {list(routes_BTLK.shape)} and must be torch.int32 "
            f"[rows, tokens, {len(layers)}, {router.top_k}] for this model: record them with a copy of it"
        )
    missing_BTLK = routes_BTLK == NOT_RECORDED
    missing_BT = missing_BTLK.any(-1).any(-1)
    known_BTLK = missing_BTLK | ((routes_BTLK >= 0) & (routes_BTLK < router.num_experts))
    repeated_BT = (routes_BTLK.sort(-1).values.diff(dim=-1) == 0).any(-1).any(-1) & ~missing_BT
    if not known_BTLK.all() or repeated_BT.any() or not missing_BTLK[missing_BT].all():
        raise GuardError(
            f"a token's routes must be {router.top_k} different experts of {router.num_experts} in every "
            f"layer, or {NOT_RECORDED} in all of them where nothing was recorded: record them with a copy of "
            "the model"
        )


@contextmanager
def _on_routing(layers: list[tuple[nn.Module, nn.Module]], on_routing: OnRouting) -> Iterator[None]:
    """Calls `on_routing` after each router; what it returns, unless None, takes the router's place."""
    shapes_BT = [torch.Size() for _ in layers]

    def before(layer: int) -> Callable[..., None]:
        def remember(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden_BTH: Tensor = args[0] if args else kwargs["hidden_states"]
            shapes_BT[layer] = hidden_BTH.shape[:2]

        return remember

    def after(layer: int) -> Callable[..., Routing | None]:
        return lambda router, _args, routing: on_routing(layer, router, shapes_BT[layer], routing)

    with ExitStack() as hooks:
        for layer, (block, router) in enumerate(layers):
            # a handle is a context manager that removes its hook
            hooks.enter_context(block.register_forward_pre_hook(before(layer), with_kwargs=True))
            hooks.enter_context(router.register_forward_hook(after(layer)))
        yield
