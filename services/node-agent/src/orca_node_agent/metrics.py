"""Prometheus metrics of a node agent, read from what it knows when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orca_node_agent.agent import Agent
from orca_node_agent.records import Phase


class AgentCollector(Collector):
    """What one agent has in hand: attempts by phase, its spool, whether its GPUs answer."""

    def __init__(self, agent: Agent, node: str) -> None:
        self._agent, self._node = agent, node

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One family per measure, labelled by node."""
        spool = self._agent.spool
        phases = Counter(record.progress.phase for record in list(spool.records.values()))
        attempts = GaugeMetricFamily(
            "orca_node_attempts", "Attempts that placement still lists", labels=("node", "phase")
        )
        for phase in Phase:
            attempts.add_metric((self._node, phase.value), phases[phase])
        yield attempts
        yield self._gauge("orca_node_spool_rows", "Messages the broker has not yet", spool.rows)
        yield self._gauge("orca_node_spool_full", "1 while no new work is taken", spool.full)
        yield self._gauge(
            "orca_node_gpus_answer", "1 while the GPU driver answers", self._agent.gpus_answer
        )

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=("node",))
        family.add_metric((self._node,), float(value))
        return family


def serve(agent: Agent, node: str, port: int) -> None:
    """Serve the metrics on 127.0.0.1:``port``; 0 serves nothing."""
    if port:
        registry = CollectorRegistry()
        registry.register(AgentCollector(agent, node))
        start_http_server(port, addr="127.0.0.1", registry=registry)
