"""Labels of a form's questions: each field brings its own title, whatever other specs call theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, make_dataclass

import pytest
from pydantic import Field

from engine.config import Checked, knob
from engine.methods.mode.config import ModeConfig
from ui.present.forms.job_forecast import describe_missing_forecast
from ui.present.forms.questions import QuestionForm, config_questions, questions_of
from workbench.errors import BadSpecError, Complaint
from workbench.kinds.analysis import CertifyRemoval
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import known_kinds
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.base import Spec


@dataclass(frozen=True)
class SolverConfig(Checked):
    """A config whose fields are named like those of the workbench's own."""

    num_blocks: int = knob(3, "Blocks of the solver.", title="Solver blocks")
    patience: int = knob(3, "Rounds to wait.")


class PluginSpec(Spec):
    """A spec whose fields are named like those of the workbench's own."""

    path: str = Field("", description="File to read.")
    parent: str = Field("", title="Parent process", description="Process to report to.")
    solver: SolverConfig = Field(default_factory=SolverConfig, title="Solver", description="How to solve.")
    lora: SolverConfig = Field(default_factory=SolverConfig, description="How to adapt.")


def labels(questions: Iterable[QuestionForm]) -> dict[str, str]:
    return {".".join(question.path): question.label for question in questions}


def titles_by_name() -> Iterator[tuple[str, str]]:
    """The title of every field of the workbench's kinds, by the field's bare name."""
    for kind in known_kinds().values():
        for question in questions_of(kind.spec, {}):
            if question.title:
                yield question.path[-1], question.title


def test_a_label_is_the_field_s_own_title_or_its_name_in_words() -> None:
    assert labels(questions_of(PluginSpec, {})) == {
        "path": "Path",
        "parent": "Parent process",
        "solver.num_blocks": "Solver blocks",
        "solver.patience": "Patience",
        "lora.num_blocks": "Solver blocks",
        "lora.patience": "Patience",
    }


def test_no_title_of_the_workbench_s_kinds_labels_a_field_of_the_same_name_elsewhere() -> None:
    titles: dict[str, set[str]] = defaultdict(set)
    for name, title in titles_by_name():
        titles[name].add(title)
    assert titles.keys() >= {"num_blocks", "path", "parent", "patience", "num_clusters"}
    for name, taken in titles.items():
        untitled = make_dataclass("Untitled", [(name, int, knob(1, "Another thing."))])
        [question] = config_questions("group", untitled())
        assert question.label not in taken


def test_blocks_of_a_removal_are_not_those_of_a_backbone() -> None:
    assert labels(questions_of(CertifyRemoval, {}))["num_blocks"] == "Blocks for each cached prior"
    assert labels(questions_of(TrainMode, {}))["shape.num_blocks"] == "Blocks of the backbone"
    assert labels(config_questions("shape", ModeConfig()))["shape.num_blocks"] == "Blocks of the backbone"
    assert labels(questions_of(ImportCorpus, {}))["path"] == "File or folder"


@pytest.mark.parametrize(
    ("spec", "titles"),
    [
        (PluginSpec, {"solver": "Solver", "lora": ""}),
        (TrainJoint, {"training": "Training details", "lora": "Adapters", "moe": "Mixture of experts"}),
        (
            TrainMode,
            {"training": "Training details", "shape": "Shape of the expert: blocks, layers, how it starts"},
        ),
    ],
)
def test_a_group_has_the_title_of_the_spec_s_field(spec: type[Spec], titles: dict[str, str]) -> None:
    questions = questions_of(spec, {})
    assert {question.group: question.group_title for question in questions if question.group} == titles


def test_a_complaint_about_all_fields_is_a_sentence_and_one_of_a_field_names_it() -> None:
    assert (
        describe_missing_forecast(BadSpecError([Complaint("a share is of one GPU.")]))
        == "Not measured yet. A share is of one GPU."
    )
    assert describe_missing_forecast(BadSpecError(["name: is missing."])) == "Not measured yet. Name: is missing."
