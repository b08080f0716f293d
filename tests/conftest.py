"""What every test shares: one seed for everything random, printed and repeatable."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from engines.scratch import sweep

# How long an example takes says something of the machine, and nothing of the property.
settings.register_profile("duratune", deadline=None)
settings.load_profile("duratune")

SEED_HELP = "seed of everything random in the tests; default: a new one, printed at the top"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help=SEED_HELP)


# First, so that hypothesis, which reads its own option when it is configured, draws from the same seed.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell starts its background jobs deaf to SIGINT, and nohup to SIGHUP, and their children inherit it;
    # what is caught here is the default again in whatever the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.option.seed is None:
        shared: dict[str, int] = getattr(config, "workerinput", {})
        config.option.seed = shared.get("seed", random.SystemRandom().randrange(2**32))
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)


# Optional: the tests also run without pytest-xdist, which calls this with one of its WorkerController.
@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process that shares the tests the seed that was drawn here: it is the one that is printed."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat with --seed {config.option.seed})"


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed; a test that draws anything derives its generator from it."""
    value: int = request.config.option.seed
    return value


@pytest.fixture
def rng(request: pytest.FixtureRequest, seed: int) -> random.Random:
    """A generator of this test's own, from the run's seed and the test's name."""
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def killed_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sweep what earlier sessions left that were killed: each test notes it in a state folder of its own."""
    base = tmp_path_factory.getbasetemp()
    root = next((folder for folder in base.parents if folder.name.startswith("pytest-of-")), None)
    if root is None:
        return  # --basetemp: what lies beside it is not pytest's
    with pytest.MonkeyPatch.context() as patch:
        for depth in ("*", "*/*", "*/*/*"):
            for state in root.glob(f"pytest-*/{depth}/duratune/manifests"):
                patch.setenv("XDG_STATE_HOME", str(state.parents[1]))
                sweep()


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of the test's own: no test reads or sweeps what the user's runs left.

    What processes that a test has killed left in shared memory is swept behind it.
    """
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    yield folder
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    sweep()
