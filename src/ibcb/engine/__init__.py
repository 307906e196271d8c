"""Where the rows of an episode live, cut into fixed blocks.

Everything above reduces over the blocks of an episode in order, and the blocks are the same for every home of
the rows: runs of `BLOCK_STEPS` whole steps counted from the episode's start. So results agree to the bit.
"""

from ibcb.engine.memory import BLOCK_STEPS, Block, blocks

__all__ = ["BLOCK_STEPS", "Block", "blocks"]
