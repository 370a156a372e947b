"""What collectives may be expected to reach, from what is known of the network and of all-reduce.

All of it is bus bandwidth as nccl-tests defines it (PERFORMANCE.md), in GB/s.
"""

from __future__ import annotations

import math

# The network's floors are measured with all-reduce; here is what part of a node's network each can show.
HALF = "half of the all-reduce's floor: an all-reduce contains each of these"


def network_ceiling_gbps(
    collective: str, wire_gbps: float, nodes: int, ranks: int, *, reduced_in_switch: bool = False
) -> float:
    """At most, where each node has ``wire_gbps`` and holds as many ranks as every other.

    A node must take in, or give, what the others hold: (nodes - 1) / nodes of all data, for an all-reduce
    twice; by all-to-all each of its ranks must. A broadcast's root must send all of it once. Among the ranks
    of a node data need not use the network: a tree, or a ring of nodes, shows more than its rate as bus
    bandwidth, between two nodes nearly twice as much. Where switches reduce (SHARP, by NCCL's CollNet), a
    node sends its sum once and receives that of all once, however many nodes there are: 8 HDR adapters, of
    200 GB/s together, show 220 [NVIDIA/nccl issue 320].
    """
    if nodes < 2:
        return 0.0
    if collective == "all_reduce" and reduced_in_switch:
        return wire_gbps * 2 * (ranks - 1) / ranks
    whole = wire_gbps * nodes / (nodes - 1) * (ranks - 1) / ranks
    if collective == "all_to_all":
        return whole * nodes / ranks
    return wire_gbps if collective == "broadcast" else whole


def network_part(collective: str, nodes: int, ranks: int, *, pipelined: bool) -> float:
    """The part of a node's network that the collective's usual algorithm can show, in 0..1.

    A ring shows all of it. All-to-all counts what one rank sends, and a node's ranks share its network. A
    tree that is not pipelined (gloo's broadcast) sends all data once a level.
    """
    if collective == "all_to_all":
        return nodes / ranks
    if collective == "broadcast" and not pipelined:
        return 1 / math.ceil(math.log2(max(2, ranks)))
    return 1.0


def within_node_part(collective: str, ranks: int, *, switched: bool) -> float | None:
    """What part of the all-reduce's bus bandwidth the collective has at least; None if that is unknown.

    An all-reduce of S bytes in time t has bus bandwidth 2 S / t (n-1) / n. Reduce-scatter, all-gather and
    broadcast are parts or cases of it, done within t. All-to-all is not; a switch carries it like a ring.
    """
    if collective == "broadcast":
        return ranks / (2 * (ranks - 1))
    if collective == "all_to_all" and not switched:
        return None
    return 0.5
