"""Wrong versions of another policy's distribution."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_distribution.py"
FILE = "stages/estimators/distribution.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten",
        file=FILE,
        old="return scaled(precise_NV, temperature, places_N).log_softmax(-1)",
        new="return precise_NV.log_softmax(-1)",
    ),
    Mutant(
        name="logits instead of log-probs",
        file=FILE,
        old="return scaled(precise_NV, temperature, places_N).log_softmax(-1)",
        new="return scaled(precise_NV, temperature, places_N)",
    ),
    Mutant(
        name="log-softmax in the logits' own precision",
        file=FILE,
        old="precise_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))",
        new="precise_NV = logits_NV",
    ),
    Mutant(
        name="places shifted by one",
        file=FILE,
        old="return _logprobs_NV(self.logits_BTV.flatten(0, 1)[places_N], scale, places_N)",
        new="return _logprobs_NV(self.logits_BTV.flatten(0, 1)[places_N - 1], scale, places_N)",
    ),
    Mutant(
        name="gradient flows into the other policy",
        file=FILE,
        old="    @torch.no_grad()\n    def logprobs_NV(self, places_N: Tensor) -> Tensor:\n"
        "        scale = per_position(self.temperature, self.logits_BTV",
        new="    def logprobs_NV(self, places_N: Tensor) -> Tensor:\n"
        "        scale = per_position(self.temperature, self.logits_BTV",
    ),
    Mutant(
        name="gradient flows into the other policy's head",
        file=FILE,
        old="    @torch.no_grad()\n    def logprobs_NV(self, places_N: Tensor) -> Tensor:\n"
        "        scale = per_position(self.temperature, self.states_BTD",
        new="    def logprobs_NV(self, places_N: Tensor) -> Tensor:\n"
        "        scale = per_position(self.temperature, self.states_BTD",
    ),
    Mutant(
        name="output layer at every position",
        file=FILE,
        old="self.head(self.states_BTD.flatten(0, 1)[places_N])",
        new="self.head(self.states_BTD).flatten(0, 1)[places_N]",
    ),
    Mutant(
        name="ids without an entry handed out",
        file=FILE,
        old='return ids_NK.where(logprobs_NK > float("-inf"), ids_NK.new_zeros(())), logprobs_NK',
        new="return ids_NK, logprobs_NK",
    ),
    Mutant(
        name="ids of one place, log-probs of another",
        file=FILE,
        old="ids_NK = self.ids_BTK.flatten(0, 1)[places_N]",
        new="ids_NK = self.ids_BTK.flatten(0, 1)[: len(places_N)]",
    ),
    Mutant(
        name="a head of any type taken",
        file=FILE,
        old="if self.ids_BTK.dtype != torch.int64:",
        new="if self.ids_BTK.dtype.is_floating_point:",
    ),
    Mutant(
        name="a head of any rank taken",
        file=FILE,
        old=" or self.ids_BTK.ndim != 3:",
        new=":",
    ),
]
