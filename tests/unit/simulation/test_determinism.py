"""Whatever is done to a world: it's the same again, for the same seed, and nothing is ever in two places."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from activities.ports import NotSent, Unclear, Verb
from simulation.adapters import SimulatedCluster, SimulatedProvider
from simulation.hazards import Behaviour, Effect, Hazard, Manner
from simulation.layout import Layout
from simulation.world import World
from tests.unit.simulation.worlds import HandClock, mark

LAYOUT = Layout(
    nodes=8,
    rack_size=2,
    spares=1,
    hazards=(
        Hazard(verb=Effect.REBOOT, manner=Manner.TIMEOUT_AFTER, probability=0.3),
        Hazard(verb=Effect.EVICT, manner=Manner.THROTTLE, probability=0.3),
    ),
)
BEHAVIOURS = (Behaviour(), Behaviour(clears=(Effect.REBOOT,), recurs_after_s=300), Behaviour(not_ready=True))

node = st.integers(1, 8)
deeds = st.one_of(
    st.tuples(st.just("do"), node, st.sampled_from(Verb)),
    st.tuples(st.just("evict"), node, st.booleans()),
    st.tuples(st.just("mark"), node, st.booleans()),
    st.tuples(st.just("inject"), node, st.sampled_from(BEHAVIOURS)),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, 700]), st.none()),
)


class Life:
    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self.world = World.create(path, LAYOUT, seed=9, clock=self.clock)
        self.cluster = SimulatedCluster(self.world, "sim-a")

    def live(self, deed: str, number: int, what: object) -> object:
        name = f"gpu-a-{number:03d}"
        found = self.world.node(name)
        try:
            match deed, what:
                case "wait", _:
                    self.clock.forward(number)
                case "do", Verb() if found:
                    return SimulatedProvider(self.world, found.machine.provider).do(what, found, "inc-1")
                case "evict", bool():
                    return [self.cluster.evict(pod, 30) for pod in self.cluster.pods(name)]
                case "mark", bool():
                    return self.cluster.mark(name, mark()) if what else self.cluster.lift(name, "inc-1")
                case "inject", Behaviour() if found:
                    self.world.inject(name, "xid/79", behaviour=what)
        except (NotSent, Unclear) as failure:
            return type(failure), str(failure)
        return None

    def picture(self) -> list[object]:
        nodes = self.world.nodes()
        effects = [effect.model_copy(update={"pid": 0}) for effect in self.world.effects()]
        return [nodes, [self.cluster.pods(n.name) for n in nodes], effects, self.world.faults(), self.world.billing()]


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.lists(deeds, max_size=25))
def test_the_same_deeds_make_the_same_world(done: list[tuple[str, int, object]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        lives = [Life(Path(directory) / name) for name in ("one", "two")]
        for deed in done:
            first, second = (life.live(*deed) for life in lives)
            assert first == second
        assert lives[0].picture() == lives[1].picture()
        for life in lives:
            pods = [pod for n in life.world.nodes() for pod in life.cluster.pods(n.name)]
            assert len({pod.uid for pod in pods}) == len(pods)
            assert len({(pod.namespace, pod.name) for pod in pods}) == len(pods)
            for n in life.world.nodes():
                gpus = sum(8 for pod in life.cluster.pods(n.name) if pod.tier == "workload")
                assert gpus <= n.gpus
            life.world.close()


@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.lists(deeds, max_size=20))
def test_looking_changes_nothing(done: list[tuple[str, int, object]]) -> None:
    """One world is looked at after every deed, the other only at the end."""
    with tempfile.TemporaryDirectory() as directory:
        watched, alone = (Life(Path(directory) / name) for name in ("one", "two"))
        for deed in done:
            watched.live(*deed)
            watched.picture()
            alone.live(*deed)
        assert watched.picture() == alone.picture()
        for life in (watched, alone):
            life.world.close()
