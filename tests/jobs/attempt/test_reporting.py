"""What a row says of running work, and how sure the end is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import DamagedFileError
from engine.events import Evaluated, OverallProgress, PartOrder, Progress, Saved, Saving, Step, TrainingFinished
from jobs.attempt import reporting
from jobs.attempt.reporting import CURVE_POINTS, JobMessage, JobPace, Reporter, Throughput, TimeLeft


def step(number: int, total: int = 300) -> Step:
    return Step(number, total, 5.214, 1e-3, number * 100, 9800.4, {"law": 5.0, "code": 5.4})


def test_a_step_reads_as_a_sentence() -> None:
    reporter = Reporter()
    reporter.add(step(40))
    taken = reporter.take()
    assert taken.note == "step 40 of 300 · loss 5.21 nats/token · 9,800 tokens/s"
    assert taken.progress == pytest.approx(40 / 300)


def test_an_update_whose_operations_were_counted_says_how_fast_they_went() -> None:
    counted = replace(step(40), num_flops=6e9)  # 4,000 tokens at 9,800.4 a second
    reporter = Reporter()
    reporter.add(counted)
    taken = reporter.take()
    assert str(taken.note).endswith("9,800 tokens/s · 14.7 GFLOP/s")
    assert ("flops_per_second", 40, pytest.approx(6e9 * 9800.4 / 4000)) in taken.metrics


def test_the_result_holds_the_throughput_of_all_updates_and_of_nothing_else() -> None:
    reporter = Reporter()
    reporter.add(Progress(1, 2, "documents"))
    assert reporter.result() == {}
    reporter.add(Step(1, 2, 1.0, 1e-3, 100, 50.0, num_flops=400.0))  # two seconds
    reporter.add(Step(2, 2, 1.0, 1e-3, 100, 100.0, num_flops=400.0))  # one second
    assert reporter.result()["throughput"] == {
        "num_steps": 2,
        "tokens_per_second": pytest.approx(200 / 3),
        "flops_per_second": pytest.approx(800 / 3),
        "flops_per_update": 400,
        "flops_per_token": 4,
    }


def test_the_throughput_of_updates_after_a_checkpoint_is_not_kept_with_it(tmp_path: Path) -> None:
    """A killed attempt makes them again."""
    reporter, file = Reporter(), tmp_path / "throughput.json"
    for event in (step(1), step(2), Saving(2), step(3), Saved(2, "there")):
        reporter.add(event)
    reporter.keep_throughput(file, at_saving=True)
    assert Throughput.load(file).num_steps == 2
    reporter.keep_throughput(file)
    assert Throughput.load(file).num_steps == 3


def test_no_flipped_bit_in_the_throughput_is_taken_for_what_was_written(tmp_path: Path) -> None:
    file, kept = tmp_path / "throughput.json", Throughput(12, 3400, 5.5e9, 7.25)
    kept.save(file)
    written = file.read_bytes()
    assert Throughput.load(file) == kept
    for bit in range(len(written) * 8):
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with suppress(DamagedFileError):
            assert Throughput.load(file) == kept  # such as E for e in 5.5e9
    for cut in (b"", written[:20], b"[1]", b"null", b'{"num_steps": 1, "more": 2}'):
        file.write_bytes(cut)
        with pytest.raises(DamagedFileError):
            Throughput.load(file)


def test_the_throughput_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    file = tmp_path / "throughput.json"
    file.write_text('{"num_steps": 12, "num_tokens": 3400, "num_flops": 5.5e9, "seconds": 7.25}')
    assert Throughput.load(file) == Throughput(12, 3400, 5.5e9, 7.25)


def test_progress_of_unknown_length_claims_no_share() -> None:
    reporter = Reporter()
    reporter.add(Progress(1200, None, "documents", "reading"))
    taken = reporter.take()
    assert (taken.note, taken.progress) == ("1,200 documents · reading", None)


def test_what_comes_before_the_work_says_nothing_of_how_far_it_is() -> None:
    reporter = Reporter()
    reporter.add(Progress(295, 295, "documents", "test", is_first=True))
    taken = reporter.take()
    assert (taken.note, taken.progress, taken.eta) == ("295 of 295 documents · test", None, None)


def test_curves_hold_every_domain() -> None:
    reporter = Reporter()
    reporter.add(step(1))
    reporter.add(Evaluated(1, {"law": 4.5}))
    names = {name for name, _, _ in reporter.take().metrics}
    assert names == {"loss", "learning_rate", "tokens_per_second", "loss/law", "loss/code", "dev_loss/law"}


def test_a_long_curve_keeps_the_same_steps_each_time() -> None:
    reporter = Reporter()
    for number in range(1, 50_001):
        reporter.add(step(number, 50_000))
    steps = [number for name, number, _ in reporter.take().metrics if name == "loss"]
    assert steps == [1, *range(50, 50_001, 50)]
    assert len(steps) <= CURVE_POINTS + 1


def test_checkpoints_do_not_flood_the_events() -> None:
    reporter = Reporter()
    for number in range(100):
        reporter.add(Saved(number, "there"))
    assert reporter.take().messages == (JobMessage("Checkpoint at step 0.", "checkpoint"),)


def test_the_parts_of_a_training_are_kept_as_data_beside_their_sentence() -> None:
    reporter = Reporter()
    reporter.add(PartOrder(["court", "kitchen"]))
    (message,) = reporter.take().messages
    assert (message.kind, message.data) == ("parts", {"parts": ["court", "kitchen"]})
    assert message.text == "Its gates weigh the backbone and the parts court, kitchen."


def test_an_early_end_completes_the_work_and_is_reported() -> None:
    reporter = Reporter()
    reporter.add(step(40))
    reporter.add(TrainingFinished(20, 40, 300, {"law": 4.0}))
    taken = reporter.take()
    assert taken.progress == reporting.ALMOST
    assert [message.text for message in taken.messages] == [
        "Stopped early, after step 40 of 300: the weights are those of step 20, the best on held-out text."
    ]
    reporter.add(TrainingFinished(280, 300, 300, {"law": 4.0}))
    assert reporter.take().messages[0].text.startswith("Made all 300 steps: the weights are those of step 280")


def test_an_end_with_the_last_weights_is_not_reported_and_running_work_never_shows_full_progress() -> None:
    reporter = Reporter()
    reporter.add(step(300))
    reporter.add(TrainingFinished(300, 300, 300, {"law": 4.0}))
    taken = reporter.take()
    assert not taken.messages
    assert str(taken.note).startswith("step 300 of 300")
    assert taken.progress == reporting.ALMOST < 1


def test_a_training_that_made_its_model_worse_is_reported_with_what_may_help() -> None:
    reporter = Reporter()
    reporter.add(TrainingFinished(300, 300, 300, {"law": 4.0, "sea": 2.0}, {"law": 3.0, "sea": 2.5}))
    (message,) = reporter.take().messages
    assert message.text.startswith("The training made its model worse")
    assert reporter.result() == {"worse": message.text}
    assert "rose on “law” from 3.00 to 4.00 nats" in message.text
    assert "Lower the learning rate" in message.text


def test_what_could_not_be_written_is_written_later() -> None:
    reporter = Reporter()
    reporter.add(step(1))
    reporter.add(Saved(1, "there"))
    missed = reporter.take()
    assert not reporter.take()
    reporter.put_back(missed)
    later = reporter.take()
    assert (later.metrics, later.messages) == (missed.metrics, missed.messages)


def test_steady_work_has_a_narrow_estimate() -> None:
    pace = JobPace()
    for second in range(11):
        pace.see(second, second * 10, "steps")
    assert pace.estimate(200) == TimeLeft(10, 10, 10)


def test_uneven_work_says_how_unsure_its_end_is() -> None:
    pace, done = JobPace(), 0.0
    for second in range(41):
        done += 5 if second < 20 else 15
        pace.see(second, done, "steps")
    estimate = pace.estimate(2000)
    assert estimate is not None
    assert estimate.soonest < estimate.seconds < estimate.latest
    assert (round(estimate.soonest / 60), round(estimate.latest / 60)) == (2, 5)


def test_units_that_take_unlike_long_are_no_basis_for_an_estimate() -> None:
    """The laws of a self-check take from 0.1 to 4 seconds: what the first took says nothing of the rest."""
    pace = JobPace()
    for at, done in ((5.4, 1), (7.9, 2), (8.8, 4), (9.7, 8), (13.1, 12), (13.9, 16)):
        pace.see(at, done, "laws")
    assert pace.estimate(19) is None
    even = JobPace()
    for at, done in ((0, 1), (1, 2), (2, 4), (3, 6), (4, 7), (5, 9)):
        even.see(at, done, "laws")
    assert even.estimate(19) is not None


def test_a_new_phase_starts_the_estimate_afresh() -> None:
    pace = JobPace()
    for second in range(11):
        pace.see(second, second, "documents")
    pace.see(11, 0, "steps")
    assert pace.estimate(100) is None


def test_work_of_several_phases_reports_how_far_all_of_them_are() -> None:
    reporter = Reporter()
    reporter.add(Progress(1, 2, "rounds", "cost 3", phase="clusters", overall=OverallProgress(0.2, 60, 40, 90)))
    taken = reporter.take()
    assert (taken.progress, taken.eta, taken.note) == (0.2, TimeLeft(60, 40, 90), "1 of 2 rounds · cost 3")


def test_the_estimate_reaches_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, now = Reporter(), iter(range(1000))
    monkeypatch.setattr(reporting, "monotonic", lambda: next(now))
    for number in range(1, 12):
        reporter.add(step(number))
        taken = reporter.take()
    assert taken.eta is not None
    assert taken.eta.seconds == pytest.approx(289)
    assert taken.note is not None
    assert "left" not in taken.note
