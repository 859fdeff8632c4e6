"""One store beside what MLflow has of it: runs for stage executions, external models for checkpoints.

A checkpoint goes as its digest and its path, never as bytes. A projection that was torn is completed: a call
is repeated with the same values and times, which MLflow keeps once, or made only where it is missing.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.declaration import Kind
from tasks import runs
from tasks.lineage import card, entities
from tasks.lineage.connection import Tracking
from tasks.store.home import Home
from tasks.store.manifest import InputRecord, Manifest
from tasks.store.objects import Store

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Run

BATCH = 1000  # MLflow's limit of metrics in one call
FINISHED = "FINISHED"
STATUS = {
    runs.RunState.COMPLETED: FINISHED,
    runs.RunState.STOPPED: "KILLED",
    runs.RunState.FAILED: "FAILED",
    runs.RunState.CRASHED: "FAILED",
}
DONE = {runs.NodeState.COMPLETED, runs.NodeState.REUSED}


class Projection:
    def __init__(self, home: Home, tracking: Tracking) -> None:
        self.home = home
        self.store = Store(home)
        self.tracking = tracking
        self.client = tracking.client
        self._experiments = {
            found.name: found.experiment_id for found in _pages(self.client.search_experiments)
        }
        self._executions: dict[tuple[str, str], Run] = {}
        self._pipelines: dict[str, Run] = {}
        self._models: dict[tuple[str, str], str] = {}
        ids = list(self._experiments.values())
        ours = "tags.`posttrain.run_id` LIKE '%'"
        for run in _pages(self.client.search_runs, experiment_ids=ids, filter_string=ours):
            tags = run.data.tags
            if "posttrain.key" in tags:
                self._executions[tags["posttrain.key"], tags["posttrain.execution"]] = run
            else:
                self._pipelines[tags["posttrain.run_id"]] = run

    def model_id(self, record: InputRecord) -> str | None:
        """The logged model of a checkpoint, once its producer was projected; None for anything else."""
        return self._models.get((record.key, record.output))

    # stage executions

    def project(self, manifest: Manifest) -> bool:
        """Returns whether anything had to be made."""
        run = self._executions.get((manifest.key, entities.execution(manifest)))
        if run is not None and run.info.status == FINISHED:
            self._recall_models(manifest, run)
            return False
        begun = self._begun_models(run) if run else {}
        run = run or self._create(manifest)
        self._log(manifest, run, begun)
        self.client.set_terminated(run.info.run_id, FINISHED, entities.milliseconds(manifest)[1])
        return True

    def _create(self, manifest: Manifest) -> "Run":
        provenance = manifest.provenance
        parent = self._pipeline(provenance.run_id, provenance.flow)
        return self.client.create_run(
            parent.info.experiment_id,
            start_time=entities.milliseconds(manifest)[0],
            tags={**entities.run_tags(manifest), "mlflow.parentRunId": parent.info.run_id},
            run_name=provenance.node,
        )

    def _log(self, manifest: Manifest, run: "Run", begun: dict[str, str]) -> None:
        from mlflow.entities import Param

        run_id = run.info.run_id
        folder = self.store.folder(manifest.stage, manifest.key)
        at = entities.milliseconds(manifest)[1]
        self.client.log_batch(run_id, params=[Param(k, v) for k, v in entities.params(manifest).items()])
        self._log_inputs(manifest, run)
        self._log_models(manifest, run, begun)
        self._log_metrics(run_id, entities.step_metrics(folder / "metrics.jsonl"), at)
        self._log_evaluation(manifest, run_id, at)
        self.client.log_artifact(run_id, str(folder / "manifest.json"))
        if (folder / "reports").is_dir():
            self.client.log_artifacts(run_id, str(folder / "reports"), "contracts")

    def _log_inputs(self, manifest: Manifest, run: "Run") -> None:
        from mlflow.entities import LoggedModelInput

        known = {item.model_id for item in run.inputs.model_inputs} if run.inputs else set()
        models = {self.model_id(record): None for record in manifest.inputs.values()}  # in order, each once
        fresh = [LoggedModelInput(found) for found in models if found and found not in known]
        data = [
            self._dataset(name, record)
            for name, record in manifest.inputs.items()
            if self.model_id(record) is None
        ]
        if data or fresh:
            self.client.log_inputs(run.info.run_id, datasets=data, models=fresh)

    def _dataset(self, name: str, record: InputRecord) -> "DatasetInput":
        from mlflow.entities import Dataset, DatasetInput, InputTag

        where = self._output_folder(record).as_uri()
        entity = Dataset(
            name=f"{record.stage}-{record.output}",
            digest=entities.short_digest(record.digest),
            source_type="local",
            source=json.dumps({"uri": where}),
        )
        tags = {"mlflow.data.context": name, "sha256": record.digest, "posttrain.key": record.key}
        return DatasetInput(entity, [InputTag(key, value) for key, value in tags.items()])

    def _log_models(self, manifest: Manifest, run: "Run", begun: dict[str, str]) -> None:
        from mlflow.entities import LoggedModelOutput

        run_id = run.info.run_id
        checkpoints = [name for name, output in manifest.outputs.items() if output.kind is Kind.CHECKPOINT]
        known = {item.model_id for item in run.outputs.model_outputs} if run.outputs else set()
        for name in checkpoints:
            model_id = begun.get(name) or self._create_model(manifest, name, run)
            self.client.finalize_logged_model(model_id, "READY")
            if model_id not in known:
                self.client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])
            self._models[manifest.key, name] = model_id
            self.client.set_tag(run_id, f"posttrain.model.{name}", model_id)
            self.client.log_text(run_id, card.model_card(manifest, name), "MODEL_CARD.md")

    def _create_model(self, manifest: Manifest, output: str, run: "Run") -> str:
        record = InputRecord(
            stage=manifest.stage, key=manifest.key, output=output, digest=manifest.outputs[output].digest
        )
        model = self.client.create_logged_model(
            run.info.experiment_id,
            name=entities.model_name(manifest.provenance.node),
            source_run_id=run.info.run_id,
            model_type="checkpoint",
            tags={
                "mlflow.model.isExternal": "true",
                "sha256": record.digest,
                "uri": self._output_folder(record).as_uri(),
                "posttrain.key": manifest.key,
                "posttrain.output": output,
                "posttrain.stage": manifest.stage,
            },
        )
        return model.model_id

    def _begun_models(self, run: "Run") -> dict[str, str]:
        """By output: the models that an earlier, torn projection of this run has made."""
        key = run.data.tags["posttrain.key"]
        found = self.client.search_logged_models(
            [run.info.experiment_id], filter_string=f"tags.`posttrain.key` = '{key}'"
        )
        mine = [model for model in found if model.source_run_id == run.info.run_id]
        return {model.tags["posttrain.output"]: model.model_id for model in mine}

    def _recall_models(self, manifest: Manifest, run: "Run") -> None:
        for name in manifest.outputs:
            if found := run.data.tags.get(f"posttrain.model.{name}"):
                self._models[manifest.key, name] = found

    def _log_evaluation(self, manifest: Manifest, run_id: str, at: int) -> None:
        """An evaluation's numbers belong to the model that was evaluated, on the prompts it was given."""
        file = self.store.output(manifest.stage, manifest.key, "summary") / "summary.json"
        if "policy" not in manifest.inputs or not file.is_file():
            return
        about: dict[str, Any] = {"model_id": self.model_id(manifest.inputs["policy"])}
        if prompts := manifest.inputs.get("prompts"):
            about["dataset_name"] = f"{prompts.stage}-{prompts.output}"
            about["dataset_digest"] = entities.short_digest(prompts.digest)
        self._log_metrics(run_id, entities.summary_metrics(file), at, **about)

    def _log_metrics(self, run_id: str, rows: list[tuple[str, float, int]], at: int, **about: Any) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(name, value, at, step, **about) for name, value, step in rows]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(run_id, metrics=metrics[start : start + BATCH])

    def _output_folder(self, record: InputRecord) -> Path:
        return self.store.output(record.stage, record.key, record.output)

    # pipeline runs

    def close_pipeline(self, run: runs.Run) -> None:
        """Tell MLflow how a run of the ledger stands, with what each of its nodes came to."""
        record = run.record()
        parent = self._pipeline(run.id, record.flow)
        nodes = run.nodes()
        for node in nodes:
            tag, value = f"posttrain.node.{node.node}", f"{node.state} {node.key or ''}".strip()
            if parent.data.tags.get(tag) != value:
                self.client.set_tag(parent.info.run_id, tag, value)
        state = run.state()
        if state is runs.RunState.RUNNING and nodes and all(node.state in DONE for node in nodes):
            state = runs.RunState.COMPLETED  # the run is in its last lines, of which this sync is one
        if state in STATUS and parent.info.status != STATUS[state]:
            ended = int(record.ended.timestamp() * 1000) if record.ended else None
            self.client.set_terminated(parent.info.run_id, STATUS[state], ended)

    def _pipeline(self, run_id: str, flow: str) -> "Run":
        if run_id not in self._pipelines:
            self._pipelines[run_id] = self._create_pipeline(run_id, flow)
        return self._pipelines[run_id]

    def _create_pipeline(self, run_id: str, flow: str) -> "Run":
        tags, recipe, started = {"posttrain.run_id": run_id, "posttrain.flow": flow}, None, None
        if (self.home.runs / run_id / "run.json").exists():  # the ledger of a run may have been tidied away
            record = runs.Run(self.home, run_id).record()
            recipe, started = record.recipe, int(record.started.timestamp() * 1000)
            about = {
                "prefect.flow_run_id": record.flow_run_id,
                "posttrain.profile": record.profile,
                "mlflow.source.git.commit": record.git_commit,
            }
            tags |= {name: value for name, value in about.items() if value}
        made = self.client.create_run(self._experiment(flow), start_time=started, tags=tags, run_name=run_id)
        if recipe is None:  # nobody will say how it ended
            self.client.set_terminated(made.info.run_id, FINISHED)
        else:
            self.client.log_dict(made.info.run_id, recipe, "recipe.json")
        return made

    def _experiment(self, flow: str) -> str:
        name = flow or "posttrain"
        if name not in self._experiments:
            root = self.tracking.artifacts
            self._experiments[name] = self.client.create_experiment(
                name, artifact_location=f"{root}/{name}" if root else None
            )
        return self._experiments[name]


def _pages(search: Callable[..., Any], **query: Any) -> Iterator[Any]:
    """Every result of a paged search."""
    token = None
    while True:
        page = search(page_token=token, **query)
        yield from page
        token = page.token
        if not token:
            return
