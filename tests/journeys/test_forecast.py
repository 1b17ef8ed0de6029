"""The forecast of a training: what its probe measures is what the job takes, and nothing of the probe is left."""

from __future__ import annotations

import json
import os
import shlex
import socket
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
import torch
from sqlalchemy import func, select
from starlette.testclient import TestClient

from engine.events import Event, Progress, Requirements
from engine.files import folder_size
from engine.methods.registry import methods
from engine.text.blocks import Tokens
from engine.text.tokenizer import load_tokenizer
from engine.training.distributed import Layout
from jobs.garbage_collection import sweep
from jobs.plans.clusterings import forecast_training
from jobs.probe import forecast as runs
from jobs.probe import measuring
from jobs.probe.child import measure
from jobs.probe.forecast import forecast, several
from jobs.probe.probe_run import PROBE, End, FreeBytes, folder_for_a_probe, probes_folder
from jobs.probe.processes import Places, place_on_machines, places_of, with_processes
from jobs.queue.submit import run_now
from tests.journeys.conftest import BRANCHES, SHAPE, TRAINING, Do, done
from tests.journeys.test_chat_data import seed_folder, write_chats
from ui.api.app import create_app
from ui.cli.app import main
from ui.present.forms.job_forecast import nearest_options_text, rows_of
from workbench.answers.cards import DeviceCard
from workbench.answers.forecasts import Forecast, Measured, MemoryParts, TimeParts
from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.job_records.devices import SLOT_NAME
from workbench.kinds.kind import known_kinds, parse_as, parse_spec
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import reading
from workbench.registry.seeds import seed_row
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, Expert, SeedModel
from workbench.settings import get_settings
from workbench.specs.requests import TrainClusters
from workbench.store.storage import get_storage

JOINT = {"kind": "train-joint", "seed_model": "seed", "domains": ["court", "sea"], "training": TRAINING}
MODE = {"kind": "train-mode", "seed_model": "seed", "shape": {"num_blocks": 2, "expert_layers": 1}}
OTHERS = ("anchored", "dense", "dense-balanced", "domain-token", "lora-mixed", "moe")
SPECS: dict[str, dict[str, Any]] = {
    "joint": {**JOINT, "name": "joint"},
    "lora": {**JOINT, "name": "lora", "domains": ["court"], "method": "lora", "lora": {"rank": 4}},
    **{name: {**JOINT, "name": name, "domains": ["court"], "method": name} for name in OTHERS},
    "expert": {"kind": "train-expert", "name": "e", "domain": "sea", "mixture": "small", "training": TRAINING},
    "mode": {**MODE, "name": "law", "domains": ["sea"], "training": {**TRAINING, "patience": 2}},
    "seed": {"kind": "make-seed", "name": "other", "domains": ["sea"], "vocab_size": 320, "shape": SHAPE},
    "average": {"kind": "average-experts", "name": "mean", "experts": ["small/court", "small/kitchen"]},
}
REPORTED: list[Measured] = []  # by probes, after each update
PLENTY = FreeBytes(memory_bytes=1 << 42, disk_bytes=1 << 42)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes run in this process, where torch is loaded; their memory is this process's."""

    def probe(spec: Any, settings: Any, _limits: Any, _until: float) -> Generator[str, None, End]:
        yield "starting"
        with folder_for_a_probe(settings) as place:
            return End(measured=measure(spec, place, report=REPORTED.append))

    monkeypatch.setattr(runs, "run_probe", probe)


def measured(spec: dict[str, Any], limits: FreeBytes = PLENTY) -> Forecast:
    return ended(forecast(parse_spec(spec), limits=limits))


def ended(stages: Generator[str, None, Forecast]) -> Forecast:
    while True:
        try:
            next(stages)
        except StopIteration as end:
            return end.value


def holdings() -> tuple[Any, ...]:
    """All that a probe could leave behind: rows, artifacts, folders."""
    settings = get_settings()
    with reading() as session:
        rows = [session.scalar(select(func.count()).select_from(table)) for table in (Artifact, Expert, Job, SeedModel)]
    return rows, get_storage().ids(), list(probes_folder(settings).glob("*"))


def disk_of(spec: dict[str, Any]) -> tuple[int, int, list[Requirements]]:
    """Bytes of the artifacts that the job makes, the most bytes of its folder meanwhile, and what it said it takes."""
    settings, before, most, least = get_settings(), get_storage().ids(), 0, []
    job_id, events = run_now(spec)
    for event in events:
        most = max(most, folder_size(settings.jobs_folder / job_id / "work"))
        least += [event] if isinstance(event, Requirements) else []
    made = get_storage().ids() - before
    return sum(folder_size(get_storage().path(id)) for id in made), most, least


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", SPECS)
def test_the_disk_is_what_the_job_then_takes_and_the_probe_leaves_nothing(trained: Do, name: str) -> None:
    before = holdings()
    REPORTED.clear()
    outcome = measured(SPECS[name])
    assert holdings() == before
    assert (outcome.fits, outcome.problem) == (True, "")
    result = outcome.measured
    assert result is not None
    artifacts, checkpoints, least = disk_of(SPECS[name])
    assert result.artifact_bytes == pytest.approx(artifacts, rel=0.05)
    assert result.checkpoint_bytes == pytest.approx(checkpoints, rel=0.2, abs=200)  # small notes beside them
    memory = result.memory
    # little models may fit into what the process has already
    assert memory.process <= result.peak_bytes <= sum(memory.model_dump().values())
    assert memory.process > 50e6
    if "training" in SPECS[name]:
        assert (memory.gradients, memory.optimizer >= 2 * memory.gradients) == (4 * result.num_trained, True)
        domains = len(SPECS[name].get("domains", ["sea"]))
        assert result.num_tokens == 30 * 32 * 2 * domains
        assert result.num_flops > 0
        assert result.time.steps > 0
        (least_needs,) = least  # a lower bound: by shapes alone, before the first update
        assert 0 < least_needs.memory_bytes <= memory.weights + memory.gradients + memory.optimizer + memory.gradients
        assert least_needs.memory_bytes <= result.peak_bytes
        assert 0 < least_needs.checkpoints_bytes <= min(checkpoints, result.checkpoint_bytes)
        assert 0 < least_needs.result_bytes <= artifacts
        assert len(result.first_batch) == 2 * domains
        first = REPORTED[0]  # after one update: the rest follows from the shapes
        assert (len(REPORTED), first.not_measured) == (4, ["checkpoints", "storing the result"])
        assert (first.memory.optimizer, first.num_tokens) == (memory.optimizer, result.num_tokens)
        assert 0 < first.checkpoint_bytes <= result.checkpoint_bytes
        assert first.update is not None
        assert first.update.num_measured == 1


def test_a_probe_searches_the_parent_on_a_part_of_the_text(
    trained: Do, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measuring.ProbeWork, "most_blocks", 2)
    events: list[Event] = []
    measure(parse_spec(SPECS["expert"]), tmp_path, events.append)
    loaded, *scored = [event.share for event in events if isinstance(event, Progress) and event.unit == "experts"]
    num_blocks = trained(SPECS["expert"]).result["parent_blocks"]
    assert num_blocks > 2
    assert (loaded, scored) == (1.0, [2 / num_blocks] * 2)


@pytest.mark.usefixtures("here")
def test_the_first_batch_is_what_the_model_reads(trained: Do) -> None:
    assert trained
    spec = {**SPECS["lora"], "name": "again"}
    outcome = measured(spec)
    assert outcome.measured is not None
    row = outcome.measured.first_batch[0]
    trained(spec)
    with reading() as session:
        seed = get_storage().kept(seed_row(session, "seed").artifact).folder
        ids = session.scalars(select(Artifact.id).where(Artifact.kind == "tokens")).all()
    tokenizer = load_tokenizer(seed)
    texts = [Tokens.open(get_storage().path(id), "train") for id in ids]
    blocks = [text.block(number, 32) for text in texts for number in range(text.num_blocks(32))]
    assert (row.domain, row.num_tokens, row.num_in_loss) == ("court", 33, 32)
    assert [token.in_loss for token in row.tokens] == [False] + [True] * 32
    special = {tokenizer.written(id) for id in tokenizer.special_ids}
    shown = "".join(token.text for token in row.tokens if token.text not in special)
    assert any(shown in tokenizer.decode([*inputs[:1], *targets]) for inputs, targets in blocks)


@pytest.mark.usefixtures("here")
def test_of_conversations_only_answers_count(do: Do, tmp_path: Path) -> None:
    done(do({"kind": "import-corpus", "name": "sea", "path": str(write_chats(tmp_path, "sea")), "format": "chat"}))
    folder = seed_folder(tmp_path / "seed")
    done(do({"kind": "make-seed", "name": "seed", "source": "folder", "location": str(folder)}))
    outcome = measured({**JOINT, "name": "m", "domains": ["sea"], "training": {**TRAINING, "block_size": 64}})
    assert outcome.measured is not None, outcome.problem
    row = outcome.measured.first_batch[0]
    counted = "".join(token.text for token in row.tokens if token.in_loss)
    others = "".join(token.text for token in row.tokens if not token.in_loss)
    assert 0 < row.num_in_loss < row.num_tokens
    assert "gull" in counted or "tide" in counted
    assert "gull" not in others
    assert "?" in others


def test_what_does_not_fit_names_the_nearest_that_does(trained: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of 100 MB and of 1 MB for each sequence; 30 sequences fit, and 64 and 32 do not.

    Activations that are computed again take 20 MB less.
    """
    assert trained
    probed: list[tuple[int, bool]] = []

    def probe(spec: Any, *_: Any) -> Generator[str, None, End]:
        yield "starting"
        sequences, computes_again = spec.training.sequences_per_domain, spec.training.activation_checkpointing
        probed.append((sequences, computes_again))
        return End(measured=imagined(sequences - 20 * computes_again))

    monkeypatch.setattr(runs, "run_probe", probe)
    spec = {**SPECS["lora"], "training": {**TRAINING, "sequences_per_domain": 64}}
    outcome = measured(spec, FreeBytes(130_000_000, 1 << 42))
    assert outcome.problem == "It takes 164 MB of memory, and 130 MB are free."
    assert (outcome.fits, outcome.nearest) == (False, {"sequences_per_domain": 16, "accumulate": 4})
    assert outcome.next_step == "It fits with sequences_per_domain 16, accumulate 4."
    # 32 sequences cannot fit, even if the rest were activations alone.
    assert probed == [(64, False), (64, True), (16, False)]
    assert measured(spec, FreeBytes(90_000_000, 1 << 42)).nearest == {}
    outcome = measured(spec, FreeBytes(150_000_000, 1 << 42))
    assert outcome.nearest == {"activation_checkpointing": True}  # which changes no number
    assert outcome.next_step == "It fits with activation_checkpointing."
    assert nearest_options_text(outcome, TrainJoint) == "It fits with --activation-checkpointing."


def test_a_model_that_cannot_compute_activations_again_is_offered_fewer_sequences(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(spec: Any, *_: Any) -> Generator[str, None, End]:
        yield "starting"
        if spec.training.activation_checkpointing:
            return End(problem="Layers cannot checkpoint activations.")
        return End(measured=imagined(spec.training.sequences_per_domain))

    assert trained
    monkeypatch.setattr(runs, "run_probe", probe)
    spec = {**SPECS["lora"], "training": {**TRAINING, "sequences_per_domain": 64}}
    assert measured(spec, FreeBytes(150_000_000, 1 << 42)).nearest == {"sequences_per_domain": 32, "accumulate": 2}


def imagined(num_sequences: int) -> Measured:
    memory = MemoryParts(process=90_000_000, weights=4_000_000, gradients=2_000_000, optimizer=4_000_000, rest=0)
    rest = num_sequences * 1_000_000
    return Measured(
        num_trained=1,
        memory=memory.model_copy(update={"rest": rest}),
        peak_bytes=100_000_000 + rest,
        artifact_bytes=1,
        checkpoint_bytes=1,
        time=TimeParts(start=1, steps=1, evaluations=1, checkpoints=1, end=1),
        tokens_per_second=1,
        num_tokens=1,
        num_flops=1,
        first_batch=[],
    )


@pytest.mark.usefixtures("here")
def test_a_disk_that_is_too_small_is_named(trained: Do) -> None:
    assert trained
    outcome = measured(SPECS["joint"], FreeBytes(1 << 42, 100_000))
    assert (outcome.fits, outcome.nearest) == (False, {})
    assert "disk" in outcome.problem
    assert "Free some space" in outcome.next_step


def test_a_probe_that_takes_more_than_there_is_ends_immediately(trained: Do) -> None:
    assert trained
    outcome = measured(SPECS["joint"], FreeBytes(50_000_000, 1 << 42))
    assert (outcome.fits, outcome.measured, outcome.nearest) == (False, None, {})
    assert outcome.problem == "It takes more memory than the 50 MB that are free."


def probes() -> list[int]:
    """The processes of probes that this one has started."""
    module = PROBE[-1]
    return [child.pid for child in psutil.Process().children() if module in child.cmdline()]


def test_a_probe_that_is_cancelled_leaves_neither_process_nor_folder(trained: Do) -> None:
    assert trained
    before = holdings()
    with closing(forecast(parse_spec(SPECS["joint"]))) as stages:
        assert next(stages) == "starting"
        assert len(probes()) == 1
    assert probes() == []
    assert holdings() == before


def test_a_probe_is_bounded_in_time(trained: Do) -> None:
    assert trained
    with pytest.raises(StopIteration) as end:
        next(forecast(parse_spec(SPECS["joint"]), max_seconds=0.0))
    outcome = end.value.value
    assert (outcome.fits, outcome.measured) == (None, None)
    assert "too long" in outcome.problem
    assert probes() == []


def test_what_would_fail_says_so_before_it_is_started(trained: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained
    too_long = {**SPECS["joint"], "training": {**TRAINING, "block_size": 128 * 100}}
    with pytest.raises(BadSpecError, match="at most 128, the context of"):
        measured(too_long)
    # A family whose config.json has another name for its context is refused by the work alone.
    monkeypatch.setattr("workbench.kinds.training.train_joint.too_long_blocks", lambda *_: [])
    outcome = measured(too_long)
    assert (outcome.fits, outcome.measured) == (None, None)
    assert outcome.problem
    assert outcome.next_step
    with pytest.raises(BadSpecError, match="no domain"):
        measured({**SPECS["joint"], "domains": ["nowhere"]})
    with pytest.raises(BadSpecError, match="has no forecast"):
        measured({"kind": "selfcheck"})


def test_every_method_that_trains_is_forecast_above() -> None:
    """Another method's forecast is compared with its job here, too, once it has a spec."""
    forecast_methods = {spec.get("method", "demix") for spec in SPECS.values() if spec["kind"] == "train-joint"}
    forecast_methods |= {"mode"} if SPECS["mode"]["kind"] == "train-mode" else set()
    assert forecast_methods == {name for name, method in methods().items() if method.is_trainable}


def test_every_kind_that_trains_has_a_probe() -> None:
    trainings = {name for name, kind in known_kinds().items() if "training" in kind.spec.model_fields}
    assert {name for name in trainings if known_kinds()[name].probe is None} == set()
    assert len(trainings) >= 4


@pytest.mark.usefixtures("here")
def test_models_of_clusters_take_what_each_takes(clustered: Do) -> None:
    assert clustered
    start = {"clustering": "topics", "name": "again", "seed_model": "seed", "training": {**BRANCHES, "num_steps": 90}}
    outcome = ended(forecast_training(parse_as(TrainClusters, start)))
    one = measured({**JOINT, "name": "one", "domains": ["topics/0"], "method": "dense", "training": BRANCHES})
    assert outcome.measured is not None
    assert one.measured is not None
    assert outcome.title == "3 trainings for again, 2 at a time"
    assert outcome.measured.num_tokens == 3 * one.measured.num_tokens
    assert outcome.measured.checkpoint_bytes == pytest.approx(2 * one.measured.checkpoint_bytes, rel=0.05)
    with pytest.raises(BadSpecError, match="Every model of “ensemble” exists"):
        ended(forecast_training(parse_as(TrainClusters, {**start, "name": "ensemble"})))


def test_jobs_that_fit_one_by_one_may_not_fit_together() -> None:
    one = Forecast(
        kind="train-joint",
        title="",
        measured=imagined(20),
        fits=True,
        memory_free_bytes=200_000_000,
        disk_free_bytes=1 << 40,
        probe_seconds=1.0,
    )
    together = several(one, 3, 2, "ensemble")
    assert (together.fits, together.problem) == (False, "It takes 240 MB of memory, and 200 MB are free.")
    assert "WORKBENCH_WORKER_SLOTS" in together.next_step
    single = several(one, 3, 1, "ensemble")
    assert (single.fits, single.measured.disk_bytes if single.measured else 0) == (True, 4)


def test_a_job_that_fits_into_memory_may_not_fit_into_that_of_the_gpu() -> None:
    on_gpu = imagined(20).model_copy(update={"gpu_peak_bytes": 9_000_000_000, "gpu_free_bytes": 8_000_000_000})
    known = {"kind": "train-joint", "title": "", "memory_free_bytes": 1 << 40, "disk_free_bytes": 1 << 40}
    together = several(Forecast(**known, measured=on_gpu, fits=None, probe_seconds=1.0), 3, 2, "ensemble")
    assert (together.fits, together.problem) == (
        False,
        "It takes 9,000 MB of the GPU's memory, and 8,000 MB are free.",
    )
    assert dict(rows_of(together))["GPU memory"] == "9.0 GB of 8.0 GB free"


@pytest.fixture
def pretended_gpu(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of 10 GB of which 8 are free and a training takes 6, while the CPU computes."""
    monkeypatch.setattr(measuring, "choose_device", lambda _: torch.device("cuda"))
    memory = {"mem_get_info": (8_000_000_000, 10_000_000_000), "max_memory_reserved": 6_000_000_000}
    for name, answer in {**memory, "empty_cache": None, "reset_peak_memory_stats": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)


@pytest.mark.usefixtures("pretended_gpu")
def test_a_job_that_fits_into_a_gpu_may_not_fit_into_its_share_of_it(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained
    training = {**TRAINING, "sequences_per_domain": 1, "block_size": 32, "activation_checkpointing": True}
    spec = {**SPECS["lora"], "training": training}
    full, large, half = (measured({**spec, "gpu_share": share}) for share in (1.0, 0.75, 0.5))
    assert (full.fits, large.fits, half.fits) == (True, True, False)
    assert half.problem == "It takes 6,000 MB of the GPU's memory, and its share of that is 5,000 MB."
    assert half.next_step == "Ask for a larger share of the GPU, or choose a smaller seed model."
    assert [dict(rows_of(one))["GPU memory"] for one in (full, large, half)] == [
        "6.0 GB of 8.0 GB free",
        "6.0 GB of its share of 7.5 GB",
        "6.0 GB of its share of 5.0 GB",
    ]


def test_a_job_with_a_share_of_a_gpu_is_one_process_whatever_the_settings_say() -> None:
    settings = get_settings().model_copy(update={"processes": 2})
    full, half = (parse_spec({**SPECS["joint"], "gpu_share": share}) for share in (1.0, 0.5))
    assert (with_processes(full, settings).num_gpus, with_processes(half, settings).num_gpus) == (2, 0)
    slots = settings.model_copy(update={"launcher": "ssh"})  # which are taken whole
    assert with_processes(half, slots).num_gpus == 2


def test_the_folder_of_a_probe_whose_server_was_killed_is_removed(home: Path) -> None:
    settings = get_settings()
    old, new = (probes_folder(settings) / uuid.uuid4().hex for _ in range(2))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    sweep(settings)
    assert home.is_dir()
    assert (old.exists(), new.exists()) == (False, True)


# from the command line and over HTTP ----------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_the_command_that_is_printed_gives_the_same_job(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    arguments = ["train", "expert", "it's new", "--domain", "sea", "--mixture", "small", "--block-size", "32"]
    assert main([*arguments, "--steps", "7", "--no-certificate", "--forecast", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["measured"]["num_tokens"] == 7 * 32 * 2
    assert shlex.split(answer["command"])[-1] == "--no-certificate"
    with reading() as session:
        assert jobs.list_jobs(session, kind="train-expert") == []
    main([*shlex.split(answer["command"])[1:], "--json"])
    with reading() as session:
        [card] = jobs.list_jobs(session, kind="train-expert")
    words = shlex.split(answer["request"])
    assert parse_spec(json.loads(words[words.index("-d") + 1])["spec"]) == parse_spec(card.spec)
    assert (card.spec["name"], card.spec["training"]["num_steps"]) == ("it's new", 7)


@pytest.mark.usefixtures("here")
def test_people_read_time_memory_disk_and_the_first_batch(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    assert main(["train", "mode", "m", "--seed-model", "seed", "--domains", "sea", "--blocks", "3", "--forecast"]) == 2
    quick = ["--blocks", "2", "--expert-layers", "1", "--steps", "9", "--block-size", "32"]
    assert main(["train", "mode", "m", "--seed-model", "seed", "--domains", "sea", *quick, "--forecast"]) == 0
    output = capsys.readouterr().out
    for word in ("Time", "Memory", "Disk", "FLOPs", "Sequence 1, of sea: 33 tokens", "The same job: workbench"):
        assert word in output
    assert "curl -X POST http://127.0.0.1:8000/v1/workbench/jobs" in output


def test_a_program_uses_http(trained: Do) -> None:
    assert trained
    app = create_app(get_settings(), playground=False)
    with TestClient(app, base_url="http://127.0.0.1:8000") as api:
        answer = api.post("/v1/workbench/jobs/forecast", json={"spec": SPECS["lora"]}).json()
        refused = api.post("/v1/workbench/jobs/forecast", json={"spec": {"kind": "selfcheck"}})
    assert (answer["fits"], answer["kind"]) == (True, "train-joint")
    assert answer["measured"]["tokens_per_second"] > 0
    assert refused.status_code == 422
    assert "has no forecast" in refused.json()["error"]["message"]


@pytest.mark.usefixtures("here")
def test_of_several_processes_the_one_with_the_most_is_measured_and_the_memory_is_that_of_all(trained: Do) -> None:
    assert trained
    one = measured({**JOINT, "name": "one"}).measured
    two = measured({**JOINT, "name": "two", "num_gpus": 2}).measured
    assert one is not None
    assert two is not None
    assert (one.num_processes, two.num_processes) == (1, 2)
    assert two.num_trained < one.num_trained  # one expert beside what all share
    assert {row.domain for row in two.first_batch} == {"court"}
    assert (two.num_tokens, two.num_flops) == (one.num_tokens, pytest.approx(one.num_flops, rel=0.01))
    assert two.model_bytes == pytest.approx(one.memory.weights, rel=0.01)
    assert two.memory.optimizer == pytest.approx(2 * 8 * two.num_trained, rel=0.01)  # two moments in float32


@pytest.mark.usefixtures("here")
def test_the_processes_of_the_settings_are_forecast_as_those_of_num_gpus(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained
    requested = measured({**JOINT, "name": "m", "num_gpus": 2}).measured
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    plain = measured({**JOINT, "name": "m"}).measured
    assert requested is not None
    assert plain is not None
    for name in ("num_processes", "num_trained", "artifact_bytes", "num_tokens", "num_flops", "first_batch"):
        assert getattr(plain, name) == getattr(requested, name)
    assert plain.memory.optimizer == requested.memory.optimizer
    retaining = {**JOINT, "name": "m", "domains": ["court"], "retain": ["sea"]}
    assert with_processes(parse_spec(retaining), get_settings()) == parse_spec(retaining)
    assert with_processes(parse_spec(SPECS["mode"]), get_settings()) == parse_spec(SPECS["mode"])


def probed_as(monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    def probe(*_: Any) -> Generator[str, None, End]:
        yield "starting"
        return end

    monkeypatch.setattr(runs, "run_probe", probe)


REFUSAL = End(problem="It takes at least 9 MB.", next_step="It may fit with optimizer adamw_8bit.", lacks="least")
SHARDED = {**JOINT, "name": "m", "training": {**TRAINING, "shard": True}}


def test_a_training_in_several_processes_is_not_advised_what_works_in_one_process(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained
    probed_as(monkeypatch, REFUSAL)
    one, two = measured({**JOINT, "name": "m"}), measured({**JOINT, "name": "m", "num_gpus": 2})
    assert (one.fits, one.next_step) == (False, REFUSAL.next_step)
    assert (two.fits, two.problem) == (False, REFUSAL.problem)
    assert two.next_step == "Choose a smaller seed model, or train on a machine with more memory."


@pytest.mark.parametrize("lacks", ["memory", "least"])
def test_a_bound_of_the_undivided_model_refuses_no_training_that_divides_it(
    trained: Do, monkeypatch: pytest.MonkeyPatch, lacks: Literal["memory", "least"]
) -> None:
    assert trained
    probed_as(monkeypatch, replace(REFUSAL, lacks=lacks))
    assert measured(SHARDED).fits is False  # in one process it changes nothing
    outcome = measured({**SHARDED, "num_gpus": 2})
    assert (outcome.fits, outcome.nearest) == (None, {})
    assert outcome.problem.startswith("It takes at least 9 MB. That is the whole model in one process:")
    assert "adamw_8bit" not in outcome.next_step
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    assert measured(SPECS["mode"]).fits is None  # its experts are in processes of their own


def test_what_the_undivided_model_takes_refuses_a_training_that_divides_it_only_for_its_disk(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained
    probed_as(monkeypatch, End(measured=imagined(20)))
    divided, small = {**SHARDED, "num_gpus": 2}, FreeBytes(110_000_000, 1 << 42)
    assert measured({**divided, "training": TRAINING}, small).fits is False
    outcome = measured(divided, small)
    assert (outcome.fits, outcome.nearest, outcome.measured is None) == (None, {}, False)
    assert outcome.problem.startswith("It takes 120 MB of memory, and 110 MB are free. That is the whole model")
    assert several(outcome, 3, 2, "ensemble").fits is None
    assert measured(divided).fits is True
    full = measured(divided, FreeBytes(110_000_000, 1))
    assert (full.fits, full.problem) == (False, "It takes 0.0 MB of disk, and 0.0 MB are free.")
    assert full.next_step.startswith("Free some space")


@pytest.fixture
def hostfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of the settings, with two machines of two GPUs."""
    file = tmp_path / "hosts"
    file.write_text("gpu1 slots=2\ngpu2 slots=2\n")
    monkeypatch.setenv("WORKBENCH_LAUNCHER", "ssh")
    monkeypatch.setenv("WORKBENCH_HOSTFILE", str(file))
    get_settings.cache_clear()
    return file


@pytest.mark.usefixtures("hostfile", "here")
def test_the_memory_of_other_machines_is_named_and_not_compared_with_that_of_this_one(trained: Do) -> None:
    assert trained
    wide = {**JOINT, "name": "m", "num_gpus": 4, "training": {**TRAINING, "sequences_per_domain": 4}}
    outcome = measured(wide, PLENTY)
    assert outcome.measured is not None
    assert (outcome.fits, outcome.problem, outcome.measured.num_on_node) == (None, "", 2)
    # Here is the job's own process alone; a node has two that train, each a little larger, and torchrun's.
    assert 2 * outcome.measured.peak_bytes < outcome.measured.node_bytes < 4 * outcome.measured.peak_bytes
    rows = dict(rows_of(outcome))
    assert rows["Each node"].endswith("of memory, for 2 processes")
    assert "on this machine" in rows["Memory"]
    small = FreeBytes((outcome.measured.peak_bytes + outcome.measured.node_bytes) // 2, 1 << 42)
    assert (measured(wide, small).fits, measured(wide, small).problem) == (None, "")
    lacking = measured(wide, FreeBytes(outcome.measured.peak_bytes // 2, 1 << 42))
    assert (lacking.fits, lacking.problem.startswith("It takes ")) == (False, True)


@pytest.mark.usefixtures("hostfile")
def test_a_probe_that_lacks_memory_here_refuses_nothing_of_other_machines(trained: Do) -> None:
    assert trained
    outcome = measured({**JOINT, "name": "m", "num_gpus": 2}, FreeBytes(50_000_000, 1 << 42))
    assert (outcome.fits, outcome.measured, outcome.nearest) == (None, None, {})
    assert outcome.problem.startswith("It takes more memory than the 50 MB that are free. Its nodes may have more")
    assert measured(JOINT | {"name": "m"}, FreeBytes(50_000_000, 1 << 42)).fits is False  # no other machine takes it


def test_the_processes_of_a_job_are_on_the_machines_of_its_launcher(hostfile: Path) -> None:
    def places(num_gpus: int, *devices: DeviceCard, **settings: object) -> tuple[int, int]:
        result = places_of(num_gpus, get_settings().model_copy(update={"launcher": "local", **settings}), devices)
        return result.here, result.elsewhere

    assert places(0, launcher="slurm") == (1, 0)
    assert places(6, launcher="slurm", processes_per_node=4) == (0, 4)
    assert places(3, launcher="ssh") == (0, 2)
    assert places(1, launcher="ssh") == (0, 1)
    hostfile.write_text(f"{socket.gethostname()} slots=3\ngpu2 slots=2\n")
    assert places(4, launcher="ssh") == (3, 2)
    own, slot = card("0", "H100"), card("gpu1/0", SLOT_NAME)
    assert places(2, own, slot, slot) == (0, 2)  # the registered slots of another worker
    assert places(2, own, own, slot, slot) == (2, 0)
    assert places(3, own, own, slot, slot) == (3, 0)  # no worker can take it


def card(number: str, name: str) -> DeviceCard:
    known = {"host": "ada", "uuid": number, "memory_bytes": 0, "is_there": True, "worker": name, "holders": []}
    return DeviceCard(number=number, name=name, tenants=[], **known)


def test_of_a_training_elsewhere_this_machine_has_the_process_of_the_job_and_its_model() -> None:
    memory = imagined(0).memory.model_copy(update={"process": 6 * 100})
    four = imagined(0).model_copy(
        update={"num_processes": 4, "memory": memory, "peak_bytes": 2 * 100 + 4 * 1000, "model_bytes": 700}
    )
    away, mixed = place_on_machines(four, Places(0, 2)), place_on_machines(four, Places(1, 3))
    assert place_on_machines(four, Places(4)) == four
    assert (away.peak_bytes, away.node_bytes, away.num_on_node) == (100 + 700, 2 * 1000 + 100, 2)
    assert (mixed.peak_bytes, mixed.node_bytes) == (100 + 1000 + 100, 3 * 1000 + 100)
    one = four.model_copy(update={"num_processes": 1, "peak_bytes": 6 * 100 + 1000})
    assert place_on_machines(one, Places(0, 1)).node_bytes == 6 * 100 + 1000 + 6 * 100


def test_the_share_of_a_process_is_that_of_the_layout() -> None:
    def shares(num_domains: int, num_gpus: int, sequences: int, method: str = "demix") -> tuple[int, int]:
        training = {**TRAINING, "sequences_per_domain": sequences}
        names = [f"d{number}" for number in range(num_domains)]
        spec = {**JOINT, "name": "x", "domains": names, "num_gpus": num_gpus, "training": training, "method": method}
        parsed = parse_spec(spec)
        probe = known_kinds()["train-joint"].probe
        assert probe is not None
        short: Any = probe(parsed).short
        layout = Layout(tuple(parsed.experts), num_gpus)
        rows = {key: sequences * num_domains // len(layout.keys) for key in layout.keys}
        largest = max(sum(len(layout.rows(key, rank, rows[key])) for key in layout.keys) for rank in range(num_gpus))
        assert len(short.domains) * short.training.sequences_per_domain >= largest
        return len(short.domains), short.training.sequences_per_domain

    assert shares(8, 8, 2) == (1, 2)
    assert shares(8, 3, 2) == (3, 2)
    assert shares(2, 6, 6) == (1, 2)
    assert shares(4, 8, 4, "dense") == (2, 1)
    assert shares(2, 3, 4, "dense") == (2, 2)
