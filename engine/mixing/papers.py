"""The papers' settings of mixing, which many places have as their default. Imports nothing."""

PAPER_BLOCKS = 100  # behind a cached prior, DEMix §5.1: “100 sequences” of development data
PAPER_NEWEST_WEIGHT = 0.7  # of the newest block in an updating prior, DEMix §5.1: 1 − λ, λ = 0.3 in Eq. 9; code: 0.3
PAPER_TEMPERATURE = 0.1  # between clusters, C-BTM §3.2: “setting T=0.1 works well for most settings”
PAPER_DISTANCE_POWER = 2.0  # of the distance to a cluster, C-BTM Eq. 3; code: 4
