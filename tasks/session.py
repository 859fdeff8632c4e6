"""The session that answers a flow's calls of `stage`: one plans (`planning`), one runs (`run_session`).

It is found in a context variable, so that a flow reads as a story. A flow that runs without one, under a
Prefect worker, gets one made from the environment (`worker`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from stages.declaration import Declaration, StageParams, declaration_of
from stages.errors import UsageError
from stages.spec import Runtime
from tasks import provenance
from tasks.execute import Request
from tasks.store.home import Home
from tasks.store.manifest import Outputs, Provenance
from tasks.store.objects import Store

_answering: ContextVar["Session | None"] = ContextVar("posttrain_session", default=None)


def answering() -> "Session | None":
    """The session that `stage` asks in this context."""
    return _answering.get()


@dataclass
class Selection:
    """Which nodes are made anew although their results exist.

    `forced` nodes are. With `from_node`, so are that node and all that depends on it, while the nodes
    before it must have their results already. What follows a forced node is remade only if its bytes
    changed.
    """

    forced: frozenset[str] = frozenset()
    from_node: str | None = None
    _again: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def forces(self, node: str, upstream: set[str]) -> bool:
        """Call once per node, in the order of the flow."""
        self._seen.add(node)
        again = node == self.from_node or bool(upstream & self._again)
        if again:
            self._again.add(node)
        return again or node in self.forced

    def must_exist(self, node: str) -> bool:
        """Whether the node asked for last comes before `from_node` and is not made anew by itself."""
        before = self.from_node is not None and self.from_node not in self._seen
        return before and node not in self.forced

    def check(self) -> None:
        """After the flow: raises UsageError for a name that is none of its nodes."""
        named = self.forced | ({self.from_node} if self.from_node else frozenset())
        if unknown := sorted(named - self._seen):
            raise UsageError(
                f"no node {unknown[0]!r} in this flow; its nodes: {', '.join(sorted(self._seen))}"
            )


class Session(ABC):
    """One pass over a flow."""

    def __init__(
        self,
        home: Home,
        *,
        runtime: Runtime,
        flow: str,
        run_id: str,
        selection: Selection | None = None,
        recipe_digest: str = "",
        argv: list[str] | None = None,
    ) -> None:
        self.home = home
        self.store = Store(home)
        self.runtime = runtime
        self.flow = flow
        self.run_id = run_id
        self.selection = selection or Selection()
        self.flow_run_id: str | None = None
        self._recipe_digest = recipe_digest
        self._argv = argv or []
        self._nodes: set[str] = set()
        self._origins: dict[tuple[str, str], str] = {}  # node by (stage, key) of what it gave out

    @abstractmethod
    def answer(self, request: Request) -> Outputs: ...

    def stage(self, node: str, params: StageParams, inputs: Outputs) -> Outputs:
        if node in self._nodes:
            raise UsageError(f"the flow {self.flow} uses the node name {node!r} twice")
        self._nodes.add(node)
        upstream = set(self.origins(inputs).values())
        declared = declaration_of(params)
        request = Request(
            node=node,
            declaration=declared,
            params=params,
            inputs=inputs,
            runtime=self.runtime,
            provenance=self._provenance(node, declared, params),
            forced=self.selection.forces(node, upstream),
        )
        outputs = self.answer(request)
        for ref in outputs.values():
            self._origins[ref.stage, ref.key] = node
        return outputs

    def origins(self, inputs: Outputs) -> dict[str, str]:
        """The node that each input comes from."""
        return {name: self._origins.get((ref.stage, ref.key), ref.stage) for name, ref in inputs.items()}

    def begin_again(self) -> None:
        """The flow is walked through once more: its nodes will be asked for again."""
        self._nodes.clear()
        self.selection = Selection(self.selection.forced, self.selection.from_node)

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Within, `stage` asks this session."""
        token = _answering.set(self)
        try:
            yield
        finally:
            _answering.reset(token)

    def _provenance(self, node: str, declared: Declaration, params: StageParams) -> Provenance:
        git = provenance.git()
        sources = provenance.sources(declared.name, declared.foreign_code(params).modules)
        return Provenance(
            run_id=self.run_id,
            node=node,
            flow=self.flow,
            flow_run_id=self.flow_run_id,
            recipe_digest=self._recipe_digest,
            git_commit=git.commit,
            git_dirty=git.dirty,
            source_digest=provenance.combined(sources),
            sources=sources,
            environment_digest=provenance.environment_digest(),
            host=provenance.host(),
            python=provenance.python(),
            argv=self._argv,
        )
