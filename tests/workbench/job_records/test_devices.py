"""GPUs are leased with the claim of a job and come free with its end, whatever that end is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.device import Gpu
from workbench.answers.cards import JobCard
from workbench.errors import DevicesBusyError
from workbench.job_records import devices, jobs, leases
from workbench.job_records.devices import DeviceNeed, DevicePool
from workbench.kinds.analysis import Evaluate
from workbench.kinds.clusters import ClusterPart, FindClusters
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.job_tables import DeviceShare, Job
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec

HOST = "ada"
GPUS = [Gpu(f"uuid-{number}", str(number), "H100", 80 << 30) for number in range(2)]
POOL = DevicePool(HOST, tuple(gpu.uuid for gpu in GPUS))
ONE = DeviceNeed(1)


@pytest.fixture
def session(registry: str) -> Iterator[Session]:
    """A transaction that writes, on each database, with two registered GPUs."""
    assert registry
    with database.transaction() as one:
        devices.register(one, HOST, "worker", GPUS, 60)
        yield one


def new_job(session: Session, name: str = "m") -> str:
    return jobs.create_job(session, Evaluate(mixture=name))


def start(session: Session, job_id: str, need: DeviceNeed = ONE, pool: DevicePool = POOL) -> tuple[int, list[str]]:
    fence = leases.claim(session, job_id, "worker", 30, 3)
    assert fence is not None
    return fence, [gpu.number for gpu in devices.lease(session, job_id, fence, pool, need)]


def holders(session: Session) -> list[str | None]:
    titles = [[holder.title for holder in card.holders] for card in devices.list_devices(session)]
    return [" and ".join(some) or None for some in titles]


def test_a_claimed_job_holds_its_gpus_until_it_ends(session: Session) -> None:
    first, second = new_job(session, "a"), new_job(session, "b")
    fence, gpus = start(session, first)
    assert (gpus, start(session, second)[1]) == (["0"], ["1"])
    assert holders(session) == ["Evaluate a", "Evaluate b"]
    assert jobs.get_job(session, first).gpus == ["ada/0"]
    leases.finish(session, first, fence, "done")
    assert holders(session) == [None, "Evaluate b"]
    assert start(session, new_job(session))[1] == ["0"]


@pytest.mark.parametrize("ending", ["release", "take back", "failed", "claimed again"])
def test_every_end_of_a_claim_frees_the_gpus(session: Session, ending: str) -> None:
    job_id = new_job(session)
    fence, _ = start(session, job_id)
    late = database_clock.now(session) + 60
    match ending:
        case "release":
            leases.release(session, job_id, fence)
        case "take back":
            assert leases.expire(session, late, 3) == [job_id]
        case "failed":
            leases.finish(session, job_id, fence, "failed", error="no")
        case _:
            leases.release(session, job_id, fence)
            leases.claim(session, job_id, "another", 30, 3)  # on the CPU: a new fence, without a GPU
    assert holders(session) == [None, None]


def test_a_job_whose_heartbeat_stopped_keeps_its_gpu_until_it_is_taken_back(session: Session) -> None:
    """It may still renew its lease, and would then compute beside the next one."""
    job_id = new_job(session)
    fence = leases.claim(session, job_id, "worker", -1.0, 3)
    assert fence is not None
    devices.lease(session, job_id, fence, POOL, ONE)
    assert holders(session) == ["Evaluate m", None]
    assert jobs.get_job(session, job_id).state == "interrupted"
    leases.renew(session, job_id, fence, 30)
    assert holders(session) == ["Evaluate m", None]


def test_with_too_few_free_gpus_neither_the_claim_nor_a_lease_is_written(registry: str) -> None:
    assert registry
    with database.transaction() as session:
        devices.register(session, HOST, "worker", GPUS, 60)
        start(session, new_job(session, "a"))
        second = new_job(session, "b")
    with pytest.raises(DevicesBusyError), database.transaction() as session:
        start(session, second, DeviceNeed(2))
    with database.reading() as session:
        card = jobs.get_job(session, second)
        assert (card.state, card.attempt, card.gpus) == ("queued", 0, [])
        assert holders(session) == ["Evaluate a", None]


def test_a_host_without_gpus_computes_on_its_cpu_unless_the_spec_requires_gpus(session: Session) -> None:
    nothing = DevicePool("cpu-host")
    assert start(session, new_job(session), pool=nothing)[1] == []
    with pytest.raises(DevicesBusyError):
        start(session, new_job(session), DeviceNeed(1, is_required=True), nothing)


def test_a_worker_leases_only_from_its_own_pool(session: Session) -> None:
    devices.register(session, "bert", "other", [Gpu("uuid-of-bert", "0")], 60)
    assert start(session, new_job(session, "b"), pool=DevicePool("bert", ("uuid-of-bert",)))[1] == ["0"]
    assert start(session, new_job(session), pool=DevicePool(HOST, ("uuid-1",)))[1] == ["1"]
    cards = devices.list_devices(session)
    assert [(card.host, card.number, bool(card.holders)) for card in cards] == [
        ("ada", "0", False),
        ("ada", "1", True),
        ("bert", "0", True),
    ]


def test_two_containers_of_one_machine_never_lease_the_same_gpu(session: Session) -> None:
    devices.register(session, "container", "other", [Gpu("uuid-0", "0")], 60)
    start(session, new_job(session, "a"), pool=DevicePool("container", ("uuid-0",)))
    assert devices.free_of(session, POOL)[0] == {"uuid-0": 0, "uuid-1": 1}
    assert start(session, new_job(session, "b"))[1] == ["1"]
    with pytest.raises(DevicesBusyError):
        start(session, new_job(session))


HALF = DeviceNeed(1, share=0.5)


def test_two_halves_share_a_gpu_and_a_full_one_waits_for_both(session: Session) -> None:
    a, b, c, full = (new_job(session, name) for name in ("a", "b", "c", "whole"))
    (fence_a, gpus_a), (fence_b, gpus_b) = start(session, a, HALF), start(session, b, HALF)
    assert (gpus_a, gpus_b) == (["0"], ["0"])  # the other one stays whole
    assert holders(session) == ["Evaluate a and Evaluate b", None]
    assert [holder.share for holder in devices.list_devices(session)[0].holders] == [0.5, 0.5]
    assert jobs.get_job(session, a).gpus == ["ada/0 (0.5 of it)"]
    only = DevicePool(HOST, ("uuid-0",))
    assert devices.free_of(session, only) == ({"uuid-0": 0}, {a, b})
    for job_id, need, message in ((c, HALF, "needs 0.5 of a GPU"), (full, ONE, "needs 1 GPU")):
        with pytest.raises(DevicesBusyError, match=message), session.begin_nested():
            start(session, job_id, need, only)
    leases.finish(session, a, fence_a, "done")
    with pytest.raises(DevicesBusyError), session.begin_nested():
        start(session, full, ONE, only)
    assert start(session, c, HALF, only)[1] == ["0"]
    leases.finish(session, b, fence_b, "done")
    assert holders(session) == ["Evaluate c", None]
    leases.finish(session, c, jobs_fence(session, c), "done")
    assert start(session, full, ONE, only)[1] == ["0"]
    assert devices.free_of(session, only) == ({"uuid-0": 0}, {full})
    with pytest.raises(DevicesBusyError), session.begin_nested():
        start(session, new_job(session, "late"), HALF, only)


def jobs_fence(session: Session, job_id: str) -> int:
    return session.get_one(Job, job_id).fence


@pytest.mark.parametrize("ending", ["release", "take back", "claimed again"])
def test_every_end_of_a_claim_frees_its_share(session: Session, ending: str) -> None:
    job_id = new_job(session)
    fence, _ = start(session, job_id, HALF)
    late = database_clock.now(session) + 60
    match ending:
        case "release":
            leases.release(session, job_id, fence)
        case "take back":
            assert leases.expire(session, late, 3) == [job_id]
        case _:
            leases.release(session, job_id, fence)
            assert start(session, job_id, HALF)[1] == ["0"]  # under a new fence, in the same place
    taken = 0.5 if ending == "claimed again" else 0
    assert devices.free_of(session, POOL)[0] == {"uuid-0": 1 - taken, "uuid-1": 1}
    devices.register(session, HOST, "worker", GPUS, 60)
    assert len(session.scalars(select(DeviceShare)).all()) == (ending == "claimed again")


def test_ten_tenths_are_one_gpu(session: Session) -> None:
    tenth = DeviceNeed(1, share=0.1)
    placed = [start(session, new_job(session, str(number)), tenth)[1] for number in range(11)]
    assert placed == [["0"]] * 10 + [["1"]]


def test_a_share_keeps_away_from_a_gpu_with_an_api_server_and_from_full_ones(session: Session) -> None:
    devices.register_tenant(session, HOST, "uuid-0", "http://127.0.0.1:8000", most_bytes=6 << 30, seconds=60)
    assert start(session, new_job(session, "a"), HALF)[1] == ["1"]
    assert start(session, new_job(session, "b"))[1] == ["0"]
    assert start(session, new_job(session, "c"), HALF)[1] == ["1"]
    assert devices.choose_gpus({"x": 1.0, "y": 0.25, "z": 0.5}, DeviceNeed(1, share=0.25)) == ["y"]
    assert devices.choose_gpus({"x": 1.0, "y": 0.25, "z": 1.0}, DeviceNeed(2)) == ["x", "z"]
    assert devices.choose_gpus({"x": 0.75}, DeviceNeed(1)) == []


def test_a_lost_gpu_is_withdrawn_by_a_job_with_a_part_of_it(session: Session) -> None:
    job_id = new_job(session)
    fence, _ = start(session, job_id, HALF)
    devices.withdraw_lost(session, job_id, fence, ["uuid-0"])
    assert devices.num_there(session, POOL) == 1
    assert [card.is_lost for card in devices.list_devices(session)] == [True, False]


def test_a_withdrawn_gpu_is_gone_within_the_same_tick_of_the_clock(session: Session, monkeypatch) -> None:
    fence, _ = start(session, job_id := new_job(session), HALF)
    tick = database_clock.now(session)
    monkeypatch.setattr(database_clock, "now", lambda _: tick)
    devices.withdraw_lost(session, job_id, fence, ["uuid-0"])
    assert devices.num_there(session, POOL) == 1
    devices.withdraw(session, "worker")
    assert not any(card.is_there for card in devices.list_devices(session))


def test_a_job_whose_worker_has_lost_all_its_gpus_says_so_while_it_waits(session: Session) -> None:
    for number in range(2):
        fence, _ = start(session, job_id := new_job(session, f"m{number}"))
        devices.withdraw_lost(session, job_id, fence, [f"uuid-{number}"])
        leases.release(session, job_id, fence)
    assert jobs.get_job(session, job_id).waits_for == (
        "Waits for a GPU: ada/0 and ada/1 cannot be used any more. Check with nvidia-smi, then restart the worker."
    )
    devices.register(session, HOST, "restarted", GPUS[:1], 60)
    assert jobs.get_job(session, job_id).waits_for == ""


def test_a_gpu_with_an_api_server_is_leased_last(session: Session) -> None:
    devices.register_tenant(session, HOST, "uuid-0", "http://127.0.0.1:8000", most_bytes=6 << 30, seconds=60)
    (tenant,) = devices.list_devices(session)[0].tenants
    assert (tenant.address, tenant.most_bytes) == ("http://127.0.0.1:8000", 6 << 30)
    assert [start(session, new_job(session))[1] for _ in GPUS] == [["1"], ["0"]]
    devices.register_tenant(session, HOST, "uuid-0", "http://127.0.0.1:8000", most_bytes=6 << 30, seconds=-1)
    assert devices.list_devices(session)[0].tenants == []


def test_gpus_that_no_worker_registers_any_more_are_shown_as_gone_and_then_forgotten(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.withdraw(session, "worker")
    later = database_clock.now(session) + 1
    monkeypatch.setattr(database_clock, "now", lambda _: later)
    assert [card.is_there for card in devices.list_devices(session)] == [False, False]
    monkeypatch.setattr(database_clock, "now", lambda _: later + devices.FORGET_SECONDS)
    devices.register(session, "bert", "other", [], 60)
    assert devices.list_devices(session) == []


def test_a_lost_gpu_is_not_offered_again_by_the_worker_that_lost_it_however_long_that_runs(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = new_job(session)
    fence, _ = start(session, job_id)
    devices.withdraw_lost(session, job_id, fence, ["uuid-0"])
    began = database_clock.now(session) + 1
    for half_days in range(1, 5):
        later = began + half_days * devices.FORGET_SECONDS / 2
        monkeypatch.setattr(database_clock, "now", lambda _, later=later: later)
        devices.register(session, HOST, "worker", GPUS, 60, is_renewal=True)
        assert [card.is_there for card in devices.list_devices(session)] == [False, True]


def test_what_a_job_takes_is_what_its_spec_requires_or_what_its_kind_needs(session: Session) -> None:
    def need(spec: Spec, **settings: int) -> tuple[int, bool]:
        stored = spec.model_dump(mode="json")
        result = devices.need_of(session, stored["kind"], stored, Settings(**settings))  # type: ignore[arg-type]
        return result.count, result.is_required

    joint = TrainJoint(name="m", seed_model="s", domains=["law"])
    assert need(Evaluate(mixture="m")) == (1, False)
    assert need(joint) == (1, False)
    assert need(joint, processes=4) == (4, False)
    assert need(Evaluate(mixture="m"), processes=4) == (1, False)
    assert need(TrainMode(name="m", seed_model="s", domains=["law"]), processes=4) == (4, False)
    assert need(joint.model_copy(update={"num_gpus": 2}), processes=4) == (2, True)
    assert need(MakeSeed(name="s", domains=["law"])) == (0, False)
    for clustering in (FindClusters, ClusterPart):
        assert need(clustering(name="c")) == (0, False)
        assert need(clustering(name="c", embedder="hidden_states", seed_model="s"), processes=4) == (1, False)
    assert devices.need_of(session, "not installed", {}, Settings()) == DeviceNeed()
    half = joint.model_copy(update={"gpu_share": 0.5}).model_dump(mode="json")
    assert devices.need_of(session, "train-joint", half, Settings(processes=4)) == DeviceNeed(1, share=0.5)
    assert devices.need_of(session, "train-joint", {**half, "num_gpus": 1}, Settings()) == DeviceNeed(1, True, 0.5)
    assert devices.need_of(session, "train-joint", half, Settings(launcher="slurm")).share == 1
    with pytest.raises(ValueError, match="a share is of one GPU"):
        TrainJoint(name="m", seed_model="s", domains=["law", "code"], num_gpus=2, gpu_share=0.5)


def test_a_queued_job_gives_the_reason_why_it_waits_for_gpus(session: Session) -> None:
    def reason(spec: Evaluate | TrainJoint) -> str:
        return jobs.get_job(session, jobs.create_job(session, spec)).waits_for

    joint = TrainJoint(name="m", seed_model="s", domains=["law", "code"], num_gpus=2)
    assert reason(Evaluate(mixture="m")) == ""
    start(session, new_job(session, "a"))
    assert reason(Evaluate(mixture="m")) == ""
    assert reason(joint) == "Waits for 2 GPUs of one worker: 1 of 2 is in use by “Evaluate a”."
    start(session, new_job(session, "b"))
    assert reason(Evaluate(mixture="m")) == "Waits for a GPU: 2 of 2 are in use by “Evaluate a” and “Evaluate b”."
    assert reason(joint.model_copy(update={"num_gpus": 3})) == (
        "It needs 3 GPUs of one worker, but no worker has registered more than 2. A worker that has takes it, or one "
        "with WORKBENCH_LAUNCHER=slurm, to which Slurm gives the GPUs; or submit it with fewer."
    )
    assert reason(Evaluate(mixture="m", gpu_share=0.5)).startswith("Waits for 0.5 of a GPU: 2 of 2 are in use by ")
    devices.withdraw(session, "worker")


def test_a_job_of_more_processes_than_gpus_is_no_job_for_slurm(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "get_settings", lambda: Settings(processes=3))
    joint = jobs.create_job(session, TrainJoint(name="m", seed_model="s", domains=["law"]))
    assert jobs.get_job(session, joint).waits_for == (
        "It needs 3 GPUs of one worker, but no worker has more than 2: start one that has, or lower "
        "WORKBENCH_PROCESSES."
    )


def test_gpus_of_two_workers_of_one_machine_are_not_added_up(session: Session) -> None:
    devices.register(session, HOST, "another", [Gpu("uuid-2", "2")], 60)
    joint = TrainJoint(name="m", seed_model="s", domains=["law", "code"], num_gpus=3)
    reason = jobs.get_job(session, jobs.create_job(session, joint)).waits_for
    assert reason.startswith("It needs 3 GPUs of one worker, but no worker has registered more than 2. ")
    start(session, new_job(session, "a"))
    two = jobs.create_job(session, joint.model_copy(update={"num_gpus": 2}))
    assert jobs.get_job(session, two).waits_for == "Waits for 2 GPUs of one worker: 1 of 3 is in use by “Evaluate a”."


@pytest.mark.usefixtures("registry")
def test_without_any_gpu_only_a_job_that_requires_some_waits() -> None:
    with database.transaction() as session:
        plain = jobs.create_job(session, Evaluate(mixture="m"))
        asking = jobs.create_job(session, TrainJoint(name="m", seed_model="s", domains=["law"], num_gpus=1))
        behind = jobs.create_job(
            session, TrainJoint(name="n", seed_model="s", domains=["law"], num_gpus=1), after=[plain]
        )
        cards: list[JobCard] = jobs.get_jobs(session, [plain, asking, behind])
    assert [card.waits_for for card in cards] == [
        "",
        "It needs 1 GPU, but no worker has registered any. A worker that has takes it, or one with "
        "WORKBENCH_LAUNCHER=slurm, to which Slurm gives the GPUs; or submit it with fewer.",
        f"Waits for “{cards[0].title}”.",
    ]


@pytest.mark.parametrize(("need", "places"), [(ONE, 1), (HALF, 2)])
def test_many_claimers_at_the_same_time_never_lease_a_gpu_twice(registry: str, need: DeviceNeed, places: int) -> None:
    assert registry
    with database.transaction() as session:
        devices.register(session, HOST, "worker", GPUS, 60)
        ids = [new_job(session, str(number)) for number in range(12)]
    ready, settings = threading.Barrier(4), get_settings()

    def run(mine: list[str]) -> list[tuple[str, ...]]:
        leased = []
        ready.wait(60)
        for job_id in mine:
            try:
                with database.transaction(settings) as session:
                    leased.append(tuple(start(session, job_id, need)[1]))
            except DevicesBusyError:
                pass
        return leased

    with ThreadPoolExecutor(4) as pool:
        leased = [one for some in pool.map(run, [ids[n::4] for n in range(4)]) for one in some]
    assert sorted(leased) == [("0",)] * places + [("1",)] * places
