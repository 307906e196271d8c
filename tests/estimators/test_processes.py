"""Fits in forked and in spawned processes: the bits of this one, and nobody waits for a thread that is not there."""

import json
import os
import subprocess
import sys

#: a fit here, one in a child forked while other threads are in the midst of everything, and one in a spawned worker
PROGRAM = """
import json, os, signal, sys, threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from threadpoolctl import threadpool_info

import ibcb
from ibcb.engine import one_blas_thread, threads
from ibcb.estimators.models import content_digest
from ibcb.numerics.ridge import Ridge

def fitted():
    run = ibcb.simulate("synthetic", n_episodes=3, batch_size=40, n_candidates=4, n_features=3, warmup=40, seed=0)
    models = [ibcb.IBCB(expert=kind, l2=0.3).fit(run.log) for kind in ("sbucb", "other")]
    blas = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    states = [model.get_state() for model in models]
    return [[content_digest(arrays, json.dumps(state)) for arrays, state in states], blas]

def hold(held):
    with one_blas_thread(), ibcb._importing, threads._one_thread._lock:
        held.set()
        threading.Event().wait()

def compute(held):
    # A value that is being worked out, of a class that every fit uses.
    value = vars(Ridge)["whitener"]
    real = value.func

    def waiting(ridge):
        value.func = real
        held.set()
        threading.Event().wait()

    value.func = waiting
    object.__new__(Ridge).whitener

def forked():
    for task in (hold, compute):
        held = threading.Event()
        threading.Thread(target=task, args=(held,), daemon=True).start()
        held.wait()
    reader, writer = os.pipe()
    if not os.fork():
        signal.alarm(30)
        os.write(writer, json.dumps(fitted()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return json.loads(answer.read() or "null")

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        spawned = pool.submit(fitted)
        here, spawned = fitted(), spawned.result()
    print(json.dumps({"here": here, "spawned": spawned, "forked": forked() if hasattr(os, "fork") else here}))
    sys.stdout.flush()
    os._exit(0)
"""


def test_forked_and_spawned_processes_fit_to_the_same_bits(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    # Two threads, so that a limit that is not lifted shows.
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["spawned"] == found["here"]
    assert found["forked"] == found["here"]
