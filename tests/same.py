"""Whether two values of any kind are the same to the bit."""

from dataclasses import fields, is_dataclass

import numpy as np


def assert_same_model(one, other):
    """Two fitted models have the same weights, to the bit, and say the same of them."""
    for name in ("coef_", "policy_coefs_", "next_policy_coef_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("intercept_", "l2_", "diagnostics_", "log_fingerprint_", "notes_", "solver_"):
        assert getattr(one, name) == getattr(other, name)


def assert_same(one, other, where="value"):
    """To the bit, with all types; NaN equals NaN. Of a dataclass its fields count, not what it has cached."""
    assert type(one) is type(other), where
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True, err_msg=where)
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other), where
        for place, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{place}]")
    elif is_dataclass(one):
        for each in fields(one):
            assert_same(getattr(one, each.name), getattr(other, each.name), f"{where}.{each.name}")
    elif hasattr(one, "__dict__") and not isinstance(one, type):
        assert_same(vars(one), vars(other), where)
    elif hasattr(type(one), "__slots__"):
        assert_same(*({name: getattr(x, name) for name in type(x).__slots__} for x in (one, other)), where)
    else:
        assert one == other or (one != one and other != other), where
