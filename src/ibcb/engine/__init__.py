"""Where the rows of an episode live, cut into fixed blocks.

Everything above reduces over the blocks of an episode in order, and the blocks are the same for every home of the
rows: they depend on the counts of candidates alone. So results agree to the bit.
"""

from ibcb.engine.block import Block, Workup, block_edges, blocks
from ibcb.engine.candidates import CandidateMoments, candidate_moments, first_candidates
from ibcb.engine.homes import Episode, episodes, first_steps
from ibcb.engine.rows import MemoryRows, Rows
from ibcb.engine.threads import Workers, one_blas_thread, workers

__all__ = [
    "Block",
    "CandidateMoments",
    "Episode",
    "MemoryRows",
    "Rows",
    "Workers",
    "Workup",
    "block_edges",
    "blocks",
    "candidate_moments",
    "episodes",
    "first_candidates",
    "first_steps",
    "one_blas_thread",
    "workers",
]
