"""Where the rows of an episode live, cut into fixed blocks.

Everything above reduces over the blocks of an episode in order, and the blocks are the same for every home of the
rows: they depend on the counts of candidates alone. So results agree to the bit.
"""

from ibcb.engine.block import Block, Experience, Workup, block_edges, blocks, experienced
from ibcb.engine.candidates import CandidateMoments, candidate_moments
from ibcb.engine.episode_rows import LocalRows, Rows
from ibcb.engine.replay import ALL, Episode, Heading, History, Past, Subscriber, replay
from ibcb.engine.threads import Workers, one_blas_thread, workers

__all__ = [
    "ALL",
    "Block",
    "CandidateMoments",
    "Episode",
    "Experience",
    "Heading",
    "History",
    "LocalRows",
    "Past",
    "Rows",
    "Subscriber",
    "Workers",
    "Workup",
    "block_edges",
    "blocks",
    "candidate_moments",
    "experienced",
    "one_blas_thread",
    "replay",
    "workers",
]
