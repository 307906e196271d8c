"""Estimators with scikit-learn's interface, and the files that keep them."""
