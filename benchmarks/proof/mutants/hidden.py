"""A model's distributions from its hidden states."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/engines/test_hidden.py"
FILE = "stages/engines/hidden.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten",
        file=FILE,
        old="model.get_output_embeddings(), temperature)",
        new="model.get_output_embeddings(), 1.0)",
    ),
    Mutant(
        name="distributions of the token before",
        file=FILE,
        old="batch.input_BT, attention_mask",
        new="batch.target_BT, attention_mask",
    ),
    Mutant(
        name="the embedding in place of the last hidden states",
        file=FILE,
        old=(
            "    hidden_BTH = model.base_model(\n"
            "        batch.input_BT, attention_mask=batch.attention_BT, use_cache=False\n"
            "    ).last_hidden_state\n"
        ),
        new="    hidden_BTH = model.get_input_embeddings()(batch.input_BT)\n",
    ),
    Mutant(
        name="hidden states keep their graph",
        file=FILE,
        old="@torch.no_grad()\ndef distribution_of",
        new="def distribution_of",
    ),
    Mutant(
        name="a model with scaled logits is taken",
        file=FILE,
        old="if not torch.allclose(",
        new="if False and torch.allclose(",
    ),
    Mutant(
        name="the tolerance is the logits themselves",
        file=FILE,
        old="TOLERANCE = 1e-3",
        new="TOLERANCE = 1.0",
    ),
    Mutant(
        name="the tolerance does not grow with the logits",
        file=FILE,
        old="TOLERANCE * float(logits.abs().max())",
        new="TOLERANCE**3",
    ),
    Mutant(
        name="a plain model is refused",
        file=FILE,
        old="if not torch.allclose(",
        new="if torch.allclose(",
    ),
]
