"""Numerical building blocks that know nothing of logs: ridge algebra, Newton's method, the choice likelihood."""
