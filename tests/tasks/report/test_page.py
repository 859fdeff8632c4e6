"""The page as a reader gets it."""

import re
import statistics
from html.parser import HTMLParser

import pytest
from matplotlib._pylab_helpers import Gcf

from data_contracts.dataset import read
from stages.errors import UsageError
from tasks import runs
from tasks.report import page as page_module
from tasks.report import write

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Structure(HTMLParser):
    """Collects attributes and the text, and complains about tags that do not nest."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.tags, self.text = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        self.text.append(data)


def parsed(page):
    structure = Structure()
    structure.feed(page)
    structure.close()
    assert structure.open == []
    return structure


def text_of(page):
    return re.sub(r"\s+", " ", " ".join(parsed(page).text))


def test_the_page_is_self_contained(page):
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", page)
    structure = parsed(page)
    assert not structure.tags & {"script", "link", "img", "iframe"}
    for tag, name, value in structure.attributes:
        if name in ("href", "src", "xlink:href", "data", "action"):
            assert value.startswith("#"), (tag, name, value)
    ids = {value for _, name, value in structure.attributes if name == "id"}
    anchors = {value[1:] for tag, name, value in structure.attributes if (tag, name) == ("a", "href")}
    assert anchors and anchors <= ids


def test_the_tables_hold_the_numbers_of_the_evaluations(finished, page):
    text = text_of(page)
    for of in ("base", "sft", "opd", "rl"):
        made = finished.made[f"evaluate.{of}"]
        table = read(finished.store.path(made.refs()["evaluation"]), "evaluation/1").to_pylist()
        for split in ("test-values", "test-compositions"):
            shown = f" {of} "
            for metric, k in [("pass_at_k", 1), ("pass_at_k", 8), ("pass_at_k", 32), ("pass_at_k", 128),
                              ("distinct_at_k", 128)]:  # fmt: skip
                values = [row[metric] for row in table if (row["split"], row["k"]) == (split, k)]
                error = statistics.stdev(values) / len(values) ** 0.5
                shown += f"{statistics.fmean(values):.3f} ± {error:.3f} "
            assert shown in text


def test_every_part_is_there(page):
    text = text_of(page)
    assert "promoted" in text and "All 2 gates hold." in text
    charts = [value for tag, name, value in parsed(page).attributes if (tag, name) == ("svg", "aria-label")]
    assert charts == [
        "coverage on test-values", "coverage on test-compositions", "training curves of base",
        "training curves of sft", "training curves of opd", "training curves of rl", "growth of the archive",
    ]  # fmt: skip
    for words in ("switch at 100", "OPD validation (plateau)", "reward: share of right samples", "entropy",
                  "share of zero-variance groups", "distinct@k", "both@k", "base: 4 strategies",
                  "rl: 3 strategies", "evaluate.rl samples rollouts/1 3 none",
                  "ambiguous: synonymous-column", "not trained on"):  # fmt: skip
        assert words in text, words
    assert "posttrain lineage audit text2sql-a/rl --verify" in text  # MLflow has no alias of it


def test_what_a_model_wrote_is_shown_and_never_becomes_markup(page):
    assert "<nothing>" not in page and "Band 6 <& co>" not in page
    assert "<nothing>" in " ".join(parsed(page).text)


def test_charts_take_the_colours_of_the_page_and_no_figure_stays_open(page):
    assert "currentColor" in page and "var(--grid)" in page
    assert "#010203" not in page and "#040506" not in page
    assert Gcf.get_all_fig_managers() == []


def test_a_run_that_was_not_promoted_says_why(new_pipeline):
    run = new_pipeline.run(promoted=False)
    text = text_of(write(run.home, run.run_id).read_text())
    assert "not promoted" in text
    assert "1 of 2 gates do not hold: width: distinct@128 must stay at 2.0 or above." in text
    assert f"posttrain lineage audit {run.run_id}/rl --verify" in text


def test_a_run_that_stopped_half_way_says_what_is_missing(new_pipeline):
    half = new_pipeline.run(until="base")
    stopped = runs.NodeRecord(
        node="sft", stage="sft", key="5" * 64, state=runs.NodeState.STOPPED, step=3, total=9, attempts=1
    )
    half.ledger.write_node(stopped)
    work = half.store.work("sft", "5" * 64)
    work.mkdir(parents=True)
    (work / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 3, "lo')
    half.ledger.close(runs.RunState.STOPPED, "stopped by the user")
    page = write(half.home, half.run_id).read_text()
    text = text_of(page)
    assert "The run is stopped with 2 of 3 nodes done: stopped by the user" in text
    for words in ("No checkpoint of this run was evaluated yet", "no gate was judged",
                  "No archive was sampled", "No capability was measured", "Two evaluated checkpoints",
                  "step 3 of 9"):  # fmt: skip
        assert words in text, words
    assert "training curves of sft" in page


def test_a_run_of_which_nothing_happened_has_a_page(new_pipeline):
    text = text_of(write(new_pipeline.home, new_pipeline.run_id).read_text())
    assert "No stage has logged a step yet" in text and "has not laid down its nodes" in text


def test_an_unknown_run_is_a_usage_error(finished):
    with pytest.raises(UsageError, match="no run"):
        write(finished.home, "nothing")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "\N{EN DASH}"),
        (0.44, "0.4 s"),
        (75, "1 min 15 s"),
        (3599.7, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_durations(seconds, words):
    assert page_module.took(seconds) == words
