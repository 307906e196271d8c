"""Worlds in which an expert can act: candidates and what each of them would have earned."""

from ibcb.paper.environments.movielens import MovieLens
from ibcb.paper.environments.movielens_files import MovieLensFormatError
from ibcb.paper.environments.worlds import Arms, Offers, Phase, Streams, Synthetic, World

__all__ = ["Arms", "MovieLens", "MovieLensFormatError", "Offers", "Phase", "Streams", "Synthetic", "World"]
