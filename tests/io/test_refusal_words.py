"""The words of refusals: each is used, and has the figures that it needs."""

import ast
import string
import tomllib

from documents import ROOT

from ibcb.io.words import refusal

ROOM = ROOT / "src" / "ibcb" / "io"
WORDS = {
    name: words
    for section in tomllib.loads((ROOM / "refusals.toml").read_text(encoding="utf-8")).values()
    for name, words in section.items()
}


def test_every_refusal_is_used_with_the_figures_that_it_names():
    calls = {}
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("refusal", "sentence", "note")
            if named and isinstance(node.args[0], ast.Constant):
                calls.setdefault(node.args[0].value, set()).add(frozenset(each.arg for each in node.keywords))
    assert calls.keys() == WORDS.keys()
    for name, words in WORDS.items():
        assert calls[name] == {
            frozenset(figure.split("[")[0] for _, figure, _, _ in string.Formatter().parse(words) if figure)
        }


def test_figures_stand_in_a_refusal_as_messages_show_them():
    told = str(refusal("arms-without-features", absent=["a", "b\n"], arms="x" * 99))
    assert told.startswith("'a', 'b\\n' has no row in")
    assert told.endswith("'x' and 87 more; add one for each.")
    assert "arm 'a' " in str(refusal("arm-unknown", row=2, arm="a", arms=[]))
    told = str(refusal("arms-too-many", arms=1, weights=9, features=1000, most=3))
    assert told.startswith("1 arm with 9 weights each are 1,000 features")
