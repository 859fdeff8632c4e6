"""Where models live: the GPU if torch sees one, else the CPU. The only place that decides."""

import torch


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
