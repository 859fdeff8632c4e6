"""Token rows: the shift, the mask, and the cut into micro-batches."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/engines/test_batch.py"
FILE = "stages/engines/batch.py"
ALIGNED = (
    "    aligned_BT[batch.mask_BT] = torch.tensor([value for row in values for value in row], device=device)"
)

MUTANTS = [
    Mutant(
        name="off by one at the shift: a token predicts itself",
        file=FILE,
        old="target_BT=padded_BT[:, 1:],",
        new="target_BT=padded_BT[:, :-1],",
    ),
    Mutant(
        name="off by one at the shift: the mask is the input's",
        file=FILE,
        old="mask_BT=mask_BT[:, 1:],",
        new="mask_BT=mask_BT[:, :-1],",
    ),
    Mutant(
        name="off by one at the shift: the attention is the input's",
        file=FILE,
        old="attention_BT=attention_BT[:, 1:],",
        new="attention_BT=attention_BT[:, :-1],",
    ),
    Mutant(
        name="EOS masked when PAD = EOS",
        file=FILE,
        old="        mask_BT=mask_BT[:, 1:],",
        new="        mask_BT=mask_BT[:, 1:] & (padded_BT[:, 1:] != pad_id),",
    ),
    Mutant(
        name="EOS unseen when PAD = EOS: attention by token id",
        file=FILE,
        old="        attention_BT=attention_BT[:, 1:],",
        new="        attention_BT=attention_BT[:, 1:] * (padded_BT[:, 1:] != pad_id),",
    ),
    Mutant(
        name="padding trained on as if it were an EOS",
        file=FILE,
        old="mask_BT[row, : len(ids)] = torch.tensor(mask, dtype=torch.bool)",
        new="mask_BT[row, : len(ids)], mask_BT[row, len(ids) :] = torch.tensor(mask, dtype=torch.bool), True",
    ),
    Mutant(
        name="tool tokens trained on: everything after the first trained token",
        file=FILE,
        old="torch.tensor(mask, dtype=torch.bool)\n",
        new="torch.tensor(mask, dtype=torch.bool).cummax(0).values\n",
    ),
    Mutant(
        name="prompt tokens trained on",
        file=FILE,
        old="[0] * len(prompt) + [1] * len(completion)",
        new="[1] * len(prompt) + [1] * len(completion)",
    ),
    Mutant(
        name="the last token of a completion not trained on",
        file=FILE,
        old="[0] * len(prompt) + [1] * len(completion)",
        new="[0] * len(prompt) + [1] * (len(completion) - 1) + [0]",
    ),
    Mutant(
        name="values aligned to the row's end, holes ignored",
        file=FILE,
        old=ALIGNED,
        new=(
            "    for at, row in enumerate(values):\n"
            "        end = int(batch.attention_BT[at].sum())\n"
            "        aligned_BT[at, end - len(row) : end] = torch.tensor(row, device=device)"
        ),
    ),
    Mutant(
        name="values aligned from the first target on, holes ignored",
        file=FILE,
        old=ALIGNED,
        new=(
            "    for at, row in enumerate(values):\n"
            "        first = int(batch.mask_BT[at].int().argmax())\n"
            "        aligned_BT[at, first : first + len(row)] = torch.tensor(row, device=device)"
        ),
    ),
    Mutant(
        name="values of the rows in another order",
        file=FILE,
        old="[value for row in values for value in row]",
        new="[value for row in reversed(values) for value in row]",
    ),
    Mutant(
        name="micro-batch cut to its shortest row",
        file=FILE,
        old="int(lengths_B[part_B].max())",
        new="int(lengths_B[part_B].min())",
    ),
    Mutant(
        name="micro-batch cut by one target",
        file=FILE,
        old="target_BT=self.target_BT[part_B, :width],",
        new="target_BT=self.target_BT[part_B, : width - 1],",
    ),
    Mutant(
        name="micro-batch width counts trained tokens only",
        file=FILE,
        old="lengths_B = self.attention_BT.sum(1)",
        new="lengths_B = self.mask_BT.sum(1)",
    ),
    Mutant(
        name="rows of all lengths in one micro-batch",
        file=FILE,
        old="order_B = torch.argsort(lengths_B, stable=True)",
        new="order_B = torch.arange(len(lengths_B))",
    ),
    Mutant(
        name="the last rows left out",
        file=FILE,
        old="for part_B in order_B.split(rows):",
        new="for part_B in order_B[: max(rows, len(order_B) // rows * rows)].split(rows):",
    ),
    Mutant(
        name="micro-batch numbers its rows from 0",
        file=FILE,
        old="rows_B=self.rows_B[part_B],",
        new="rows_B=torch.arange(len(part_B)),",
    ),
    Mutant(
        name="take: the first rows instead of its own",
        file=FILE,
        old="return values_B[self.rows_B.to(values_B.device)].to(self.rows_B.device)",
        new="return values_B[: len(self.rows_B)].to(self.rows_B.device)",
    ),
    Mutant(
        name="take: the last columns instead of the first",
        file=FILE,
        old="return self.take_rows(values_BT)[:, : self.mask_BT.shape[1]]",
        new="return self.take_rows(values_BT)[:, -self.mask_BT.shape[1] :]",
    ),
    Mutant(
        name="a mask of another length accepted",
        file=FILE,
        old="if len(ids) != len(mask):",
        new="if len(ids) < len(mask) - 9:",
    ),
]
