"""Ray's fake provider, which starts nodes as processes, with the one thing that it lacks: as a cloud's it sees which are gone.

The autoscaler imports it by its name; see `pretend.py`.
"""

from __future__ import annotations

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class PretendProvider(FakeMultiNodeProvider):
    """Nodes as processes of the autoscaler."""

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Ids of the nodes that are there, the head's first."""
        with self.lock:
            nodes: dict[str, dict[str, Any]] = self._nodes
            for name in [name for name, about in nodes.items() if "node" in about and about["node"].dead_processes()]:
                nodes.pop(name)["node"].kill_all_processes(check_alive=False, allow_graceful=False)  # what is left of it
            return super().non_terminated_nodes(tag_filters)
