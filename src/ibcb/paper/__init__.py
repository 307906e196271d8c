"""The paper's world: simulated deciders with their rewards, its baselines, its metrics, its tables."""
