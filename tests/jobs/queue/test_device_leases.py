"""Workers with pretended GPUs: each job sees only those that it has leased, and no GPU has two jobs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import select
from tiny_kind import job_spec
from world import RunningWorkbench, create, eventually

from engine import device as hardware
from engine.device import Gpu, address_of, numbers_of
from jobs.attempt import leased_devices
from jobs.attempt.attempt import attempt, take
from jobs.attempt.runner import see_only
from jobs.queue import submit, tasks
from jobs.queue.choosing import choose_job, leasing
from jobs.queue.device_registration import gpus_of, register_gpus, tenancy
from jobs.queue.tasks import run_jobs
from workbench.answers.cards import DeviceCard, DeviceHolder
from workbench.errors import BadSettingsError, BadSpecError, DevicesBusyError, LostGpuError
from workbench.job_records import jobs as rows
from workbench.job_records.devices import DevicePool, list_devices
from workbench.registry import database
from workbench.schema.job_tables import Device
from workbench.settings import Settings, read_settings

PRESENT = [Gpu(f"uuid-{number}", str(number + 4), "H100", 80 << 30) for number in range(4)]


def pretended(settings: Settings, gpus: str) -> Settings:
    return settings.model_copy(update={"gpus": gpus})


def calm(servers: RunningWorkbench) -> Settings:
    """Leases that last however long a busy machine stands still."""
    return servers.settings.model_copy(update={"lease_seconds": 600.0})


def devices(servers: RunningWorkbench) -> list[DeviceCard]:
    with database.reading(servers.settings) as session:
        return list_devices(session)


def holders(servers: RunningWorkbench) -> list[DeviceHolder]:
    return [holder for device in devices(servers) for holder in device.holders]


def share(part: float, **count: int) -> str:
    with database.transaction() as session:
        return rows.create_job(session, job_spec(**count).model_copy(update={"gpu_share": part}))


@pytest.mark.slow
def test_twelve_jobs_over_eight_gpus_of_two_workers_of_which_one_dies(servers: RunningWorkbench) -> None:
    started = [
        servers.start("tiny_worker.py", WORKBENCH_GPUS=gpus, WORKBENCH_WORKER_SLOTS="4") for gpus in ("0-3", "4-7")
    ]
    servers.start("jobs.queue.scheduler")
    ids = [
        submit.submit(job_spec(milliseconds=200)) for _ in range(12)
    ]  # longer than a busy machine takes to start four
    most, is_killed = 0, False
    until = time.monotonic() + 240
    while not all(servers.card(job_id).state == "done" for job_id in ids):
        assert time.monotonic() < until, [servers.card(job_id) for job_id in ids]
        held = [device for device in devices(servers) if device.holders]
        most = max(most, len(held))
        by_first = [one.holders[0].job_id for one in held if one.number in "0123"]
        if not is_killed and len(by_first) == 4:
            is_killed = True  # a host that is lost: the worker and its jobs' processes
            started[0].kill()
            for job_id in by_first:
                for process in servers.runners(job_id):
                    process.kill()
        time.sleep(0.02)
    assert is_killed
    assert 4 <= most <= 8
    assert [servers.num_effects(job_id) for job_id in ids] == [1] * 12
    leased = [line.split() for line in (servers.settings.root / "leased.txt").read_text().splitlines()]
    assert {number for _, number in leased} <= set("01234567")
    assert {job_id for job_id, _ in leased} == set(ids)
    assert not list(servers.settings.root.glob("*.overlap"))
    assert [device.holders for device in devices(servers)] == [[]] * 8
    eventually(lambda: [device.is_there for device in devices(servers)] == [False] * 4 + [True] * 4)


@pytest.mark.usefixtures("tiny_runner")
def test_a_job_sees_only_the_gpus_that_it_has_leased(servers: RunningWorkbench) -> None:
    ids = [create(), create(), create()]
    two = pretended(servers.settings, "5-6").model_copy(update={"worker_slots": 3})
    *_, last = run_jobs(ids, two)
    assert [card.state for card in last] == ["done"] * 3
    leased = (servers.settings.root / "leased.txt").read_text().splitlines()
    assert {line.split()[1] for line in leased} == {"5", "6"}
    assert not list(servers.settings.root.glob("*.overlap"))
    assert [device.is_there for device in devices(servers)] == [False, False]  # withdrawn at the end


@pytest.mark.usefixtures("tiny_runner")
def test_without_gpus_nothing_is_leased_and_nothing_is_hidden(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    *_, last = run_jobs([create()], servers.settings)
    assert [card.state for card in last] == ["done"]
    assert devices(servers) == []
    assert not (servers.settings.root / "leased.txt").exists()


def test_a_job_that_needs_several_gpus_keeps_later_ones_from_them_but_not_for_another_machine(
    servers: RunningWorkbench,
) -> None:
    settings = calm(servers)
    with register_gpus(pretended(settings, "0-1")) as pool, leasing(pool):
        running, large, too_large, later = create(), create(num_gpus=2), create(num_gpus=3), create()
        assert take(settings, running, "somebody", pool) is not None
        with choose_job(settings) as job_id:
            assert job_id is None  # one GPU is free, and the large job waits for both
        assert "1 of 2 is in use by" in servers.card(large).waits_for
        assert "no worker has registered more than 2" in servers.card(too_large).waits_for
        submit.request_stop(large, "cancel")
        with choose_job(settings) as job_id:
            assert job_id == later
            with choose_job(settings) as another:
                assert another is None  # that GPU is meant for the job that was chosen


def test_jobs_that_share_a_gpu_run_in_order_and_a_full_one_keeps_later_shares_from_it(
    servers: RunningWorkbench,
) -> None:
    settings = calm(servers)
    with register_gpus(pretended(settings, "0")) as pool, leasing(pool):
        first, second, full, later = share(0.5), share(0.5), create(), share(0.25)
        with choose_job(settings) as one, choose_job(settings) as other:
            assert (one, other) == (first, second)
            with choose_job(settings) as another:
                assert another is None  # both halves are meant for the jobs that were chosen
        claim = take(settings, first, "somebody", pool)
        assert claim is not None
        assert ([gpu.number for gpu in claim.gpus], claim.gpu_share) == (["0"], 0.5)
        submit.request_stop(second, "cancel")
        with choose_job(settings) as job_id:
            assert job_id is None  # half is free, but the whole job is first
        assert servers.card(full).waits_for == "Waits for a GPU: 1 of 1 is in use by “Evaluate count”."
        submit.request_stop(full, "cancel")
        with choose_job(settings) as job_id:
            assert job_id == later


@pytest.mark.long
@pytest.mark.slow
def test_two_halves_run_at_once_and_a_killed_worker_frees_its_shares(servers: RunningWorkbench) -> None:
    worker = servers.start("tiny_worker.py", WORKBENCH_GPUS="5", WORKBENCH_WORKER_SLOTS="4")
    servers.start("jobs.queue.scheduler")
    halves = [share(0.5, milliseconds=300) for _ in range(3)]  # longer than a busy machine takes to start two
    full = create()
    submit.call_workers(servers.settings, [*halves, full])
    eventually(lambda: len(holders(servers)) == 2, seconds=60)
    assert sum(holder.share for holder in holders(servers)) == 1
    running = [holder.job_id for holder in holders(servers)]
    (waiting,) = set(halves) - set(running)
    assert servers.card(waiting).waits_for.startswith("Waits for 0.5 of a GPU: 1 of 1 is in use by ")
    worker.kill()
    for job_id in running:
        for process in servers.runners(job_id):
            process.kill()
    eventually(lambda: holders(servers) == [], seconds=60)
    servers.start("tiny_worker.py", WORKBENCH_GPUS="5", WORKBENCH_WORKER_SLOTS="4")
    most, until = 0.0, time.monotonic() + 240
    while not all(servers.card(job_id).state == "done" for job_id in [*halves, full]):
        assert time.monotonic() < until, [servers.card(job_id) for job_id in halves]
        held = holders(servers)
        most = max(most, sum(one.share for one in held))
        assert len(held) < 2 or full not in {one.job_id for one in held}
        time.sleep(0.02)
    assert most == 1
    assert [servers.num_effects(job_id) for job_id in [*halves, full]] == [1] * 4


def test_a_process_with_a_share_of_a_gpu_is_bounded_to_that_share_of_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    bounds: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", bounds.append)
    leased_devices._bound_memory(1.0)
    leased_devices._bound_memory(0.25)
    assert bounds == [0.25]


def test_a_local_run_keeps_no_gpu_free_for_a_job_that_it_does_not_run(servers: RunningWorkbench) -> None:
    settings = calm(servers)
    with register_gpus(pretended(settings, "0-1")) as pool, leasing(pool):
        running, foreign, own = create(), create(num_gpus=2), create()
        assert take(settings, running, "somebody", pool) is not None
        with choose_job(settings) as job_id:
            assert job_id is None  # a worker keeps the free GPU for the job that needs both
        with choose_job(settings, {own, "absent"}) as job_id:
            assert job_id == own != foreign


def test_a_worker_without_gpus_leaves_jobs_that_require_some(servers: RunningWorkbench) -> None:
    asking, plain = create(num_gpus=1), create()
    with leasing(DevicePool("here")), choose_job(servers.settings) as job_id:
        assert job_id == plain
    with pytest.raises(DevicesBusyError):
        take(servers.settings, asking, "somebody", DevicePool("here"))
    assert servers.card(asking).state == "queued"


def test_a_job_whose_gpu_is_gone_goes_back_and_the_gpu_is_offered_again_when_a_worker_lists_it(
    servers: RunningWorkbench,
) -> None:
    settings = servers.settings.model_copy(update={"lease_seconds": 30.0, "heartbeat_seconds": 0.1})
    job_id = create()
    with register_gpus(settings, lambda: PRESENT[:1]) as pool, leasing(pool):
        claim = take(settings, job_id, "somebody", pool)
        assert claim is not None
        with pytest.raises(LostGpuError, match=r"GPU 4 \(H100\)"):
            list(attempt(claim, settings, sys.exit))  # this process sees no GPU
        card = servers.card(job_id)
        assert (card.state, card.attempt, servers.num_starts(job_id)) == ("queued", 0, 0)
        assert "GPU 4 (H100) cannot be used any more" in servers.events(job_id)[-1]
        time.sleep(0.5)  # some heartbeats
        assert not devices(servers)[0].is_there
        with choose_job(settings) as none:
            assert none is None
    with register_gpus(settings, lambda: PRESENT[:1]):
        assert devices(servers)[0].is_there


def test_the_numbers_name_the_gpus_that_are_there(home: Path) -> None:
    assert home
    settings = Settings()
    assert gpus_of(settings, lambda: PRESENT) == PRESENT
    assert gpus_of(pretended(settings, "1,3"), lambda: PRESENT) == [PRESENT[1], PRESENT[3]]
    assert gpus_of(Settings(device="cuda:2"), lambda: PRESENT) == [PRESENT[2]]
    assert gpus_of(Settings(device="cpu"), lambda: PRESENT) == []
    assert gpus_of(settings, list) == []
    assert [gpu.visible for gpu in gpus_of(pretended(settings, "4-6"), list)] == ["4", "5", "6"]
    with pytest.raises(BadSpecError, match=r"GPU 4, 5 does not exist: this process sees 4, numbered from 0\."):
        gpus_of(pretended(settings, "3-5"), lambda: PRESENT)


@pytest.mark.parametrize("value", ["many", "3-1", "-1", "1;2", "0-99999"])
def test_numbers_that_are_none_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_GPUS", value)
    with pytest.raises(BadSettingsError, match="WORKBENCH_GPUS must be numbers or ranges"):
        read_settings()


def test_numbers_are_those_of_the_gpus_that_the_worker_itself_may_see() -> None:
    assert numbers_of(2, {}) == ["0", "1"]
    assert numbers_of(2, {"CUDA_VISIBLE_DEVICES": "3, GPU-5a"}) == ["3", "GPU-5a"]


def test_a_gpu_is_addressed_by_its_uuid_and_a_part_of_one_as_it_was_named() -> None:
    assert address_of("5a60-11", "H100", "3") == address_of("5a60-11", "H100", "GPU-5a") == "GPU-5a60-11"
    assert address_of("5a60-11", "A100 MIG 1g.5gb", "0") == ""
    assert address_of("5a60-11", "A100 MIG 1g.5gb", "MIG-77-2") == "MIG-77-2"


def test_a_leased_gpu_is_the_only_one_of_the_process(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    monkeypatch.setenv("WORKBENCH_DEVICE", "cuda:2")
    assert see_only([], Settings()).device == "cuda:2"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert see_only(["2"], Settings()).device == Settings().device == "cuda"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_an_api_server_is_a_tenant_while_it_runs(servers: RunningWorkbench) -> None:
    with register_gpus(pretended(servers.settings, "0")) as pool:
        (uuid,) = pool.uuids
        with tenancy(servers.settings, uuid, "http://127.0.0.1:8000"):
            (card,) = devices(servers)
            assert [tenant.most_bytes for tenant in card.tenants] == [servers.settings.cache_bytes]
        eventually(lambda: devices(servers)[0].tenants == [])


def test_a_process_that_exits_inside_the_block_ends_its_registrations(servers: RunningWorkbench) -> None:
    long = pretended(servers.settings, "0").model_copy(update={"lease_seconds": 600.0})
    with pytest.raises(SystemExit), register_gpus(long) as pool:
        with pytest.raises(SystemExit), tenancy(long, pool.uuids[0], "http://127.0.0.1:8000"):
            assert devices(servers)[0].tenants
            sys.exit()
        eventually(lambda: devices(servers)[0].tenants == [])
        sys.exit()
    eventually(lambda: not devices(servers)[0].is_there)


def test_a_registration_outlives_its_first_seconds_by_a_heartbeat(servers: RunningWorkbench) -> None:
    settings = pretended(servers.settings, "0").model_copy(update={"lease_seconds": 60.0, "heartbeat_seconds": 0.1})

    def seen_until() -> float:
        with database.reading(settings) as session:
            return session.scalars(select(Device.seen_until)).one()

    with register_gpus(settings):
        first = seen_until()
        eventually(lambda: seen_until() > first)
        assert devices(servers)[0].is_there


def test_behind_a_number_there_may_be_another_gpu_but_not_behind_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    there = SimpleNamespace(uuid="b")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: there)
    assert not leased_devices._sees([Gpu("a", "0", "H100", 1)])
    assert leased_devices._sees([Gpu("b", "0", "H100", 1)])
    assert leased_devices._sees([Gpu("a", "0", "H100", 1, "GPU-a")])  # else CUDA would show none
    assert not leased_devices._sees([Gpu("a", "0", "H100", 1, "GPU-a"), Gpu("b", "1", "H100", 1, "GPU-b")])


@pytest.mark.usefixtures("tiny_runner")
def test_a_worker_that_sees_two_of_four_gpus_leases_them_by_uuid_and_shows_their_numbers(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    visible = [Gpu(uuid, number, address=f"GPU-{uuid}") for uuid, number in (("ad", "2"), ("be", "3"))]
    job_id, settings = create(), servers.settings
    with register_gpus(settings, lambda: visible) as pool, leasing(pool):
        assert [device.number for device in devices(servers)] == ["2", "3"]
        tasks.run(job_id)
    assert (servers.settings.root / "leased.txt").read_text() == f"{job_id} GPU-ad\n"
    assert " on GPU 2." in (settings.jobs_folder / job_id / "log.txt").read_text()


def test_gpus_that_cannot_be_listed_are_reported_and_not_leased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hardware, "has_driver", lambda: True)
    monkeypatch.setattr(hardware, "python_command", lambda _: [sys.executable, "-c", "raise SystemExit('no driver')"])
    assert hardware.find_gpus() == []
    assert "jobs lease none" in (shown := capsys.readouterr().err)
    assert "no driver" in shown
    listing = '[{"uuid": "u", "number": "3", "name": "H100", "memory_bytes": 5, "address": "GPU-u"}]'
    monkeypatch.setattr(hardware, "python_command", lambda _: [sys.executable, "-c", f"print('{listing}')"])
    assert hardware.find_gpus() == [Gpu("u", "3", "H100", 5, "GPU-u")]
    monkeypatch.setattr(hardware, "has_driver", lambda: False)
    assert hardware.find_gpus() == []
