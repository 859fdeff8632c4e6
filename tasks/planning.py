"""A plan: for each node of a flow whether it is reused, resumed or run, and why. Nothing is started."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from stages.errors import UsageError
from tasks.changes import changes, missing_before
from tasks.execute import Request
from tasks.runs import Run
from tasks.session import Session
from tasks.store.keys import params_of
from tasks.store.manifest import Manifest, Outputs, Ref
from tasks.store.work import Work


class Action(StrEnum):
    REUSE = "reuse"
    RESUME = "resume"
    RUN = "run"


@dataclass(frozen=True)
class PlanLine:
    """`key` is None while an input is still to be made; `seconds` is what the node should take, if known."""

    node: str
    stage: str
    key: str | None
    action: Action
    step: int | None
    reason: str
    seconds: float | None
    warning: str = ""
    inputs: dict[str, str] = field(default_factory=dict)  # input name -> node.output that it comes from
    outputs: tuple[str, ...] = ()


class PlanningSession(Session):
    """`lines` fills as the flow is walked through."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines: list[PlanLine] = []
        self._running: set[str] = set()

    def answer(self, request: Request) -> Outputs:
        key = request.key if all(ref.known for ref in request.inputs.values()) else None
        found = self.store.lookup(request.stage, key) if key else None
        if found is not None and request.accepts(found):
            self._add(
                request, key, Action.REUSE, reason="", seconds=0.0, warning=_stale_source(request, found)
            )
            return found.refs()
        before = self._before(request)
        if self.selection.must_exist(request.node):
            raise UsageError(
                missing_before(self.selection.from_node or "", request.node, self._why(request, before))
            )
        step, why_not = self._resumable(request, key)
        if step is not None:
            self._add(request, key, Action.RESUME, step, seconds=self._remaining(request, before, key))
        else:
            reason = why_not or self._why(request, before)
            self._add(request, key, Action.RUN, reason=reason, seconds=_estimate(request, before))
        self._running.add(request.node)
        return {
            name: Ref(
                stage=request.stage,
                key=key or f"planned:{request.node}",
                output=name,
                digest="",
                kind=artefact.kind,
                contract=artefact.contract,
            )
            for name, artefact in request.declaration.outputs.items()
        }

    def _add(
        self,
        request: Request,
        key: str | None,
        action: Action,
        step: int | None = None,
        *,
        reason: str = "",
        seconds: float | None,
        warning: str = "",
    ) -> None:
        origins = self.origins(request.inputs)
        self.lines.append(
            PlanLine(
                node=request.node,
                stage=request.stage,
                key=key,
                action=action,
                step=step,
                reason=reason,
                seconds=seconds,
                warning=warning,
                inputs={name: f"{origins[name]}.{ref.output}" for name, ref in request.inputs.items()},
                outputs=tuple(request.declaration.outputs),
            )
        )

    # why

    @cached_property
    def _manifests(self) -> list[Manifest]:
        return sorted(self.store.manifests(), key=lambda found: found.ended)

    def _before(self, request: Request) -> list[Manifest]:
        """Earlier results of this stage at this node, oldest first."""
        return [
            found
            for found in self._manifests
            if found.stage == request.stage and found.provenance.node == request.node
        ]

    def _why(self, request: Request, before: list[Manifest]) -> str:
        if not before:
            reasons = ["never run before"]
        elif request.forced:
            reasons = ["forced"]
        else:
            reasons = changes(before[-1], request)
        origins = self.origins(request.inputs)
        waits_for = sorted({origins[name] for name, ref in request.inputs.items() if not ref.known})
        if waits_for:
            reasons.append(f"after {', '.join(waits_for)}")
        return "; ".join(reasons) or "its result is gone"

    def _resumable(self, request: Request, key: str | None) -> tuple[int | None, str]:
        """The step to go on from, or why the work that lies there is of no use ("" when there is none)."""
        if key is None:
            return None, ""
        work = Work(self.store.work(request.stage, key))
        last = work.last_attempt()
        if last is None:
            return None, ""
        why = work.restart_because(last, self.run_id, request.runtime, request.forced)
        if why:
            return None, f"starts over: {why}"
        step = work.saved_step()
        return step, "" if step is not None else f"its attempt {last.n} saved no step"

    # how long

    def _remaining(self, request: Request, before: list[Manifest], key: str | None) -> float | None:
        """The estimate, less the share that the unfinished attempt says it has done."""
        whole = _estimate(request, before)
        work = Work(self.store.work(request.stage, key or ""))
        last, step = work.last_attempt(), work.saved_step()
        record = Run(self.home, last.run_id).node(request.node) if last else None
        if whole is None or record is None or not record.total or step is None:
            return whole
        return whole * max(0.0, 1 - step / record.total)


def plan(session: PlanningSession, flow: Callable[[], object]) -> list[PlanLine]:
    """Walk through `flow` and say what would happen. Raises UsageError for a node that it does not have."""
    with session.answers():
        flow()
    session.selection.check()
    return session.lines


def _estimate(request: Request, before: list[Manifest]) -> float | None:
    """Seconds of an earlier result with these parameters, else of the latest or usual one, scaled by work."""
    params = request.params
    if same := [found for found in before if found.params == params_of(params)]:
        return same[-1].seconds
    if before:
        try:
            then = type(params).model_validate(before[-1].params).work()
        except ValidationError:  # of an older version
            return before[-1].seconds
        return before[-1].seconds * params.work() / then
    usual = type(params).expected_seconds
    return None if usual is None else usual * params.work() / type(params).model_construct().work()


def _stale_source(request: Request, found: Manifest) -> str:
    """A warning when what the stage runs from is no longer that which made this result."""
    then, now = found.provenance.sources, request.provenance.sources
    changed = [name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)]
    if not then or not changed:
        return ""
    return (
        f"{', '.join(changed)} changed since this result was made, under the same version: "
        "bump the version, or use --force, if results change"
    )
