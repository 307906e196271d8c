"""Algorithms 2 and 3 of the paper: an episode's choices as inequalities on the reward parameters, and their solvers."""
