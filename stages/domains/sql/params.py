"""Parameters of the text-to-SQL domain; they are stored in the manifest of the domain's folder."""

from pydantic import BaseModel, ConfigDict, Field


class SqlParams(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_in_prompt: bool = False
    """Put the CREATE statements into the user message: for models that were not trained on this database."""
    vm_steps: int = Field(default=2_000_000, ge=10_000)
    """Budget of steps of SQLite's virtual machine for one execution: counted, so that a verdict repeats."""
    row_cap: int = Field(default=5_000, ge=1)
    """A reference with more rows is refused; an answer is read to one row past the references at most."""
    max_sql_chars: int = Field(default=2_000, ge=1)
    """A longer answer is wrong without being executed."""
