"""Which samples are taken, and what length costs."""

from pydantic import Field

from stages.estimators.params.choice import Choice


class DynamicSampling(Choice):
    """DAPO (arXiv 2503.14476): sample on until a step has its number of groups with reward variance."""

    max_rounds: int = Field(4, ge=2, description="rounds of prompts_per_step prompts; then what is there")


class Overlong(Choice):
    """DAPO's soft punishment: from 0 at max_new_tokens - cache down to -1 at max_new_tokens and beyond."""

    cache: int = Field(ge=1, description="tokens before max_new_tokens over which the punishment grows")
