"""Worlds in which an expert can act: candidates and what each of them would have earned."""

from ibcb.environments.movielens import MovieLens
from ibcb.environments.movielens_files import MovieLensFormatError
from ibcb.environments.synthetic import Synthetic
from ibcb.environments.world import Phase, Streams, World

__all__ = ["MovieLens", "MovieLensFormatError", "Phase", "Streams", "Synthetic", "World"]
