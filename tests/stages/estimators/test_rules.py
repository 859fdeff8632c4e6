"""Choices that cannot be meant together: each is refused with a sentence that says what to do."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from stages.engines.params import EngineParams, Sampling
from stages.estimators.params import (
    Clip,
    EstimatorParams,
    FullVocabulary,
    Gae,
    Grpo,
    Head,
    Mask,
    PpoClip,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.rules import impossible
from stages.rl.params import RlParams

TRUNCATE = {"kind": "truncate"}
TIS = {"kind": "policy_gradient", "ratio": {"regulariser": TRUNCATE}}
CENTRED = {"loss": TIS, "centering": {}, "advantage": {"kind": "rloo"}}


def sequence(level="sequence", kind="truncate"):
    return {"kind": "policy_gradient", "ratio": {"level": level, "regulariser": {"kind": kind}}}


REFUSED = {
    # methods.md 3(c), the decision table
    "centering, sequence level": (
        {"loss": sequence(), "centering": {}},
        r"score centering at sequence level changes nothing.*set centering to null, or take the ratio at",
    ),
    "centering, geometric level": (
        {"loss": sequence("geometric"), "centering": {}},
        r"score centering at geometric level changes nothing",
    ),
    "centering, gspo": (
        {"loss": {"kind": "gspo"}, "aggregation": {"kind": "sequence_mean"}, "centering": {"kind": "head"}},
        r"score centering at geometric level changes nothing",
    ),
    "centering, ppo clip": (
        {"centering": {}},
        r"not defined under ppo_clip, whose weight depends on the advantage's sign: set loss.kind to policy_",
    ),
    "centering, veto": (
        {"loss": {**TIS, "ratio": {"regulariser": TRUNCATE, "veto_below": 1e-4}}, "centering": {}},
        r"a sequence veto looks ahead: set loss.ratio.veto_below or centering to null",
    ),
    **{
        f"token level without centering, {kind}": (
            {"loss": sequence("token", kind)},
            rf"token ratio \({kind}\) pulls the policy towards its sampler.*"
            r"set centering.kind to full_vocabulary or head, or acknowledge_prefix_bias to true",
        )
        for kind in ("uncorrected", "truncate", "clip", "mask")
    },
    "token level without centering, cispo": (
        {"loss": {"kind": "cispo"}},
        r"token ratio \(clip\) pulls the policy towards its sampler",
    ),
    "a regularised correction of ppo": (
        {"loss": {"kind": "ppo_clip", "correction": {"regulariser": TRUNCATE}}},
        r"set loss.kind to policy_gradient and centering.kind to full_vocabulary or head, or acknowledge",
    ),
    "ppo on a stale sampler": (
        {"sampler_lag": 4},
        r"ppo_clip takes no ratio to a sampler that is 4 steps old: set loss.correction, or",
    ),
    "gspo on a stale sampler": (
        {"loss": {"kind": "gspo"}, "aggregation": {"kind": "sequence_mean"}, "sampler_lag": 1},
        r"gspo takes no ratio to a sampler that is 1 steps old",
    ),
    "uncorrected at sequence level": (
        {"loss": sequence("sequence", "uncorrected")},
        r"an uncorrected weight is 1 at every level: set the ratio's level to token",
    ),
    # the baseline that centering and sequence levels need
    "centering, reinforce++": (
        {**CENTRED, "advantage": {"kind": "reinforce_pp"}},
        r"minus its group's mean and nothing else, and reinforce_pp is not: set advantage.kind to rloo",
    ),
    "centering, critic": (
        {**CENTRED, "advantage": {"kind": "gae"}},
        r"minus its group's mean and nothing else, and gae is not",
    ),
    **{
        f"centering, {kind}": (
            {**CENTRED, "advantage": {"kind": kind}},
            rf"minus its group's mean and nothing else, and {kind} is not: set advantage.kind to rloo",
        )
        for kind in ("grpo", "reinforce_pp_baseline")
    },
    "centering, signbalance": (
        {**CENTRED, "advantage": {"kind": "signbalance"}, "aggregation": {"kind": "sequence_mean"}},
        r"minus its group's mean and nothing else, and signbalance is not",
    ),
    "centering, sequence mean": (
        {**CENTRED, "aggregation": {"kind": "sequence_mean"}},
        r"sequence_mean divides by a length that is not: set aggregation.kind to token_mean or fixed_length",
    ),
    **{
        f"{level} level that is not exact, {name}": (
            {"loss": {"kind": "policy_gradient", "ratio": ratio}, "advantage": advantage, **more},
            rf"a {level} ratio that is not exact drifts.*{advantage['kind']} does not centre groups",
        )
        for level, name, ratio, advantage, more in (
            ("geometric", "none", {"level": "geometric"}, {"kind": "reinforce_pp"}, {}),
            ("sequence", "veto", {"level": "sequence", "veto_below": 0.1}, {"kind": "gae"}, {}),
            (
                "sequence",
                "clamped signbalance",
                {"level": "sequence", "regulariser": TRUNCATE},
                {"kind": "signbalance", "rho_max": 2.0},
                {"aggregation": {"kind": "sequence_mean"}},
            ),
            (
                "sequence",
                "the paper's signbalance",
                {"level": "sequence", "regulariser": TRUNCATE},
                {"kind": "signbalance", "all_correct": "paper"},
                {"aggregation": {"kind": "sequence_mean"}},
            ),
            (
                "sequence",
                "signbalance over the batch",
                {"level": "sequence", "regulariser": TRUNCATE},
                {"kind": "signbalance", "scope": "batch"},
                {"aggregation": {"kind": "sequence_mean"}},
            ),
        )
    },
    "a veto on the exact token ratio": (
        {"loss": {"kind": "policy_gradient", "ratio": {"veto_below": 1e-4}}},
        r"token ratio \(a sequence veto\) pulls the policy.*set loss.ratio.veto_below to null, or",
    ),
    "gspo, critic": (
        {"loss": {"kind": "gspo"}, "aggregation": {"kind": "sequence_mean"}, "advantage": {"kind": "gae"}},
        r"a critic's advantage of each token would be averaged away: set loss.kind to ppo_clip",
    ),
    "dynamic sampling, signbalance over the batch": (
        {
            "advantage": {"kind": "signbalance", "scope": "batch"},
            "aggregation": {"kind": "sequence_mean"},
            "dynamic_sampling": {},
        },
        r"dynamic sampling drops the groups that signbalance would learn from",
    ),
    "a regularised sequence ratio without a centred group": (
        {"loss": sequence("geometric", "clip"), "advantage": {"kind": "gae"}},
        r"a geometric ratio that is not exact drifts.*set advantage.kind to rloo or dr_grpo",
    ),
    # methods.md 4(c)
    "signbalance, token mean": (
        {"advantage": {"kind": "signbalance"}},
        r"signbalance balances rollouts, and token_mean weighs them by their lengths: set aggregation.kind",
    ),
    "signbalance, fixed length": (
        {"advantage": {"kind": "signbalance"}, "aggregation": {"kind": "fixed_length", "length": 9}},
        r"signbalance balances rollouts, and fixed_length weighs",
    ),
    "signbalance, overlong": (
        {
            "advantage": {"kind": "signbalance"},
            "aggregation": {"kind": "sequence_mean"},
            "overlong": {"cache": 4},
        },
        r"signbalance is defined for exactly two rewards, and overlong adds others: set overlong to null",
    ),
    "signbalance, the paper's rule for groups over a batch": (
        {
            "advantage": {"kind": "signbalance", "scope": "batch", "all_correct": "paper"},
            "aggregation": {"kind": "sequence_mean"},
        },
        r"all_correct=paper is a rule for groups, and scope=batch counts no groups",
    ),
    "gspo, token mean": (
        {"loss": {"kind": "gspo"}},
        r"gspo has one ratio a sequence, and token_mean weighs sequences by length: set aggregation.kind",
    ),
    **{
        f"dynamic sampling, {kind}": (
            {"advantage": {"kind": kind}, "dynamic_sampling": {}},
            rf"dynamic sampling drops the groups that {kind} would learn from.*set dynamic_sampling to null",
        )
        for kind in ("gae", "reinforce_pp")
    },
    # KL by the gradient that it has
    "k1": (
        {"kl": {"kind": "k1", "coefficient": 0.1}},
        r"k1 .* has expected gradient 0 as a loss: it teaches nothing; set kind to reverse_kl",
    ),
    "k2": ({"kl": {"kind": "k2", "coefficient": 0.1}}, r"k2 is named by its gradient here; set kind to"),
    "k3": (
        {"kl": {"kind": "k3", "coefficient": 0.1}},
        r"k3 has the gradient of the forward KL as a loss, not of the reverse one; set kind to reverse_kl",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_sentence_that_says_what_to_do(name):
    choices, sentence = REFUSED[name]
    with pytest.raises(ValidationError, match=sentence):
        EstimatorParams(**choices)


ALLOWED = {
    "defaults": {},
    "dapo": {"dynamic_sampling": {}, "overlong": {"cache": 8}, "loss": {"clip_high": 0.28}},
    "dr grpo": {"advantage": {"kind": "dr_grpo"}, "aggregation": {"kind": "fixed_length", "length": 96}},
    "signbalance": {"advantage": {"kind": "signbalance"}, "aggregation": {"kind": "sequence_mean"}},
    "the paper's signbalance": {
        "advantage": {"kind": "signbalance", "all_correct": "paper"},
        "aggregation": {"kind": "sequence_mean"},
    },
    "centred tis": CENTRED,
    "centred tis, dr grpo": {**CENTRED, "advantage": {"kind": "dr_grpo"}},
    "centred icepop": {
        **CENTRED,
        "loss": sequence("token", "mask"),
        "centering": {"kind": "head", "k": 64},
    },
    "centred cispo": {
        **CENTRED,
        "loss": {"kind": "cispo"},
        "aggregation": {"kind": "fixed_length", "length": 9},
    },
    "geometric ratio, group baseline": {"loss": sequence("geometric", "none")},
    "exact token ratio, centred although the mean is zero": {
        **CENTRED,
        "loss": sequence("token", "none"),
    },
    "acknowledged": {"loss": TIS, "acknowledge_prefix_bias": True, "sampler_lag": 4},
    "exact ratio of a stale sampler": {"loss": sequence("token", "none"), "sampler_lag": 4},
    "exact sequence ratio, any baseline": {
        "loss": sequence("sequence", "none"),
        "advantage": {"kind": "reinforce_pp"},
    },
    **{
        f"truncated sequence ratio, {kind}": {"loss": sequence(), "advantage": {"kind": kind}}
        for kind in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
    },
    "truncated sequence ratio, signbalance": {
        "loss": sequence(),
        "advantage": {"kind": "signbalance"},
        "aggregation": {"kind": "sequence_mean"},
    },
    "stale ppo, corrected exactly": {"loss": {"correction": {"level": "token"}}, "sampler_lag": 2},
    "critic": {"advantage": {"kind": "gae"}, "updates_per_batch": 4},
    "gspo": {"loss": {"kind": "gspo"}, "aggregation": {"kind": "sequence_mean"}},
    "penalty": {"kl": {"kind": "forward_kl", "coefficient": 0.01}},
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_and_the_same_after_a_round_trip_through_json(name):
    params = EstimatorParams(**ALLOWED[name])
    assert list(impossible(params)) == []
    assert EstimatorParams.model_validate(params.model_dump(mode="json")) == params


def test_a_part_without_a_kind_is_the_default_one_with_other_numbers():
    assert EstimatorParams(loss={"clip_high": 0.4}).loss == PpoClip(clip_high=0.4)
    assert EstimatorParams(advantage={"acknowledge_guessing": True}).advantage == Grpo(
        acknowledge_guessing=True
    )
    assert EstimatorParams(**CENTRED).centering == FullVocabulary()
    with pytest.raises(ValidationError, match="no such kind; it is one of grpo, dr_grpo, rloo"):
        EstimatorParams(advantage={"kind": "nothing"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        EstimatorParams(centering={"k": 4})  # k belongs to a head
    assert Head(k=4).k == 4


@pytest.mark.parametrize("regulariser", [Truncate(), Clip(), Mask(), Unregularised(), Uncorrected()])
def test_every_regulariser_leaves_a_ratio_of_one_alone(regulariser):
    """f(1) = 1 is what makes centering vanish on-policy; bounds that exclude 1 are refused."""
    low, high = getattr(regulariser, "low", 1.0), getattr(regulariser, "high", 1.0)
    assert low <= 1.0 <= high
    for bound, wrong in (("low", 1.1), ("high", 0.9)):
        if hasattr(regulariser, bound):
            with pytest.raises(ValidationError, match=bound):
                type(regulariser)(**{bound: wrong})


# what only the whole stage can tell


def test_a_cache_longer_than_a_completion_is_refused():
    with pytest.raises(
        ValidationError, match=r"overlong.cache is 97.*max_new_tokens=96: set a smaller cache"
    ):
        RlParams(overlong={"cache": 97})


def test_a_sampler_of_another_precision_needs_a_ratio():
    bfloat16 = EngineParams(dtype="bfloat16")
    with pytest.raises(
        ValidationError, match=r"ppo_clip takes no ratio to a sampler that computes in bfloat16"
    ):
        RlParams(engine=bfloat16)
    assert RlParams(engine=bfloat16, acknowledge_prefix_bias=True).engine == bfloat16
    assert RlParams(engine=bfloat16, **CENTRED).engine == bfloat16


@pytest.mark.parametrize("filters", [{"top_p": 0.9}, {"top_k": 50}])
def test_a_filtered_sampler_is_refused(filters):
    with pytest.raises(ValidationError, match=r"set sampling.top_p to 1 and sampling.top_k to 0"):
        RlParams(sampling=Sampling(**filters))


def test_a_group_of_one_is_refused():
    with pytest.raises(ValidationError, match="group_size"):
        RlParams(group_size=1, advantage=Gae())


def test_choices_and_rules_do_not_import_torch():
    imports = "import sys, stages.estimators.rules, stages.rl.params, stages.opd.params"
    code = f"{imports}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
