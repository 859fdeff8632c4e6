"""One process's training step, its scores, and its resume."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/engines/test_torch_trainer.py"
FILE = "stages/engines/torch_trainer.py"

MUTANTS = [
    Mutant(
        name="the critic's loss moves the model",
        file=FILE,
        old="outputs.hidden_states[-1].detach()",
        new="outputs.hidden_states[-1]",
    ),
    Mutant(
        name="the critic reads the embedding",
        file=FILE,
        old="outputs.hidden_states[-1]",
        new="outputs.hidden_states[0]",
    ),
    Mutant(
        name="model and critic clipped by one norm",
        file=FILE,
        old=(
            '            torch.nn.utils.clip_grad_norm_(group["params"], self.params.clip_norm)\n'
            "            for group in self.optimizer.param_groups\n"
        ),
        new=(
            "            torch.nn.utils.clip_grad_norm_(\n"
            "                [p for group in self.optimizer.param_groups for p in "
            'group["params"]], self.params.clip_norm\n'
            "            )\n"
        ),
    ),
    Mutant(
        name="the gradient is not clipped",
        file=FILE,
        old='(group["params"], self.params.clip_norm)',
        new='(group["params"], float("inf"))',
    ),
    Mutant(
        name="the critic's norm returned",
        file=FILE,
        old="return float(norms[0])",
        new="return float(norms[-1])",
    ),
    Mutant(
        name="a step by a gradient that is not finite",
        file=FILE,
        old="if not all(torch.isfinite(norm) for norm in norms):",
        new="if False:",
    ),
    Mutant(
        name="a critic's gradient that is not finite",
        file=FILE,
        old="torch.isfinite(norm) for norm in norms)",
        new="torch.isfinite(norm) for norm in norms[:1])",
    ),
    Mutant(
        name="the gradient of the last step is still there",
        file=FILE,
        old="        self.optimizer.zero_grad(set_to_none=True)\n",
        new="",
    ),
    Mutant(
        name="only the first term is trained on",
        file=FILE,
        old="for batch, loss in terms:",
        new="for batch, loss in terms[:1]:",
    ),
    Mutant(
        name="the last micro-batch only",
        file=FILE,
        old="loss(self.forward(micro), micro).backward()",
        new="self.optimizer.zero_grad()\n                loss(self.forward(micro), micro).backward()",
    ),
    Mutant(
        name="the learning rate never moves",
        file=FILE,
        old="        self.scheduler.step()\n",
        new="",
    ),
    Mutant(
        name="moments are not restored",
        file=FILE,
        old='        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})\n',
        new="",
    ),
    Mutant(
        name="weights are not restored",
        file=FILE,
        old="                parameters[name].copy_(tensor)\n",
        new="                parameters[name].copy_(parameters[name])\n",
    ),
    Mutant(
        name="the value head is not restored",
        file=FILE,
        old='            self.value_head.load_state_dict(load_file(folder / "value_head.safetensors"))\n',
        new="            pass\n",
    ),
    Mutant(
        name="the value head is not saved",
        file=FILE,
        old='save_file(self.value_head.state_dict(), folder / "value_head.safetensors")',
        new="pass",
    ),
    Mutant(
        name="the schedule starts afresh",
        file=FILE,
        old='"last_epoch": steps})',
        new='"last_epoch": 0})',
    ),
    Mutant(
        name="one learning rate for every group after a resume",
        file=FILE,
        old="[base * self.scheduler",
        new="[self.scheduler.base_lrs[0] * self.scheduler",
    ),
    Mutant(
        name="the learning rate of the schedule's start after a resume",
        file=FILE,
        old="lr_lambdas[0](steps)",
        new="lr_lambdas[0](0)",
    ),
    Mutant(
        name="the learning rate is not restored",
        file=FILE,
        old='            group["lr"] = lr\n',
        new="            pass\n",
    ),
    Mutant(
        name="one learning rate for model and critic",
        file=FILE,
        old='"lr": critic.learning_rate',
        new='"lr": optimizer.learning_rate',
    ),
    Mutant(
        name="temperature forgotten in the score",
        file=FILE,
        old="micro.target_BT, micro.mask_BT, temperature",
        new="micro.target_BT, micro.mask_BT",
    ),
    Mutant(
        name="scores in the order of the micro-batches",
        file=FILE,
        old="logprobs_BT[micro.rows_B, :width]",
        new="logprobs_BT[: len(micro.rows_B), :width]",
    ),
    Mutant(
        name="values of masked positions in the score",
        file=FILE,
        old="forward.values_BT.where(micro.mask_BT, 0.0)",
        new="forward.values_BT",
    ),
    Mutant(
        name="the model is left in training mode",
        file=FILE,
        old="model.to(device()).eval()",
        new="model.to(device())",
    ),
    Mutant(
        name="warm-up from nothing",
        file=FILE,
        old="return (step + 1) / params.warmup_steps",
        new="return step / params.warmup_steps",
    ),
    Mutant(
        name="the cosine ends at nothing",
        file=FILE,
        old="0.1 + 0.45 * (1",
        new="0.5 * (1",
    ),
    Mutant(
        name="the cosine begins before the warm-up's end",
        file=FILE,
        old="share = (step - params.warmup_steps)",
        new="share = step",
    ),
    Mutant(
        name="the critic starts with random values",
        file=FILE,
        old="    torch.nn.init.zeros_(head.weight)\n",
        new="",
    ),
]
