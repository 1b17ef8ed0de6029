"""One bound for all that a server holds: models, clusterings, and the keys and values of running streams."""

from __future__ import annotations

from engine.config import SamplingConfig
from engine.loading.host import Host
from tests.journeys.conftest import Do, planned

SAMPLING = SamplingConfig(max_tokens=40, seed=1, ignore_eos=True)


def test_a_stream_has_an_idle_model_evicted_and_its_bytes_are_counted(clustered: Do) -> None:
    host = Host(device="cpu", shares_passes=True)
    for model in ("small", "ensemble"):
        list(host.stream(planned(model), "the court", SAMPLING))
    assert len(host.use().bases) == 4  # of “small”, and one of each expert of the ensemble
    use = host.use()
    assert (use.num_stream_bytes, use.num_reserved_bytes) == (0, 0)
    assert use.num_clustering_bytes > 0

    tight = Host(use.num_bytes + use.num_clustering_bytes, device="cpu", shares_passes=True)
    for model in ("small", "ensemble"):
        list(tight.stream(planned(model), "the court", SAMPLING))
    limit = use.num_bytes + use.num_clustering_bytes
    stream = tight.stream(planned("ensemble"), "the court", SAMPLING)
    answer = [next(stream)]
    now = tight.use()
    assert len(tight.use().bases) == 3  # that of “small” is gone
    assert 0 < now.num_stream_bytes <= now.num_reserved_bytes * 2
    assert now.num_bytes + now.num_clustering_bytes + now.num_reserved_bytes <= limit
    answer += stream
    assert answer == list(host.stream(planned("ensemble"), "the court", SAMPLING))
    del stream
    assert tight.use().num_reserved_bytes == 0
