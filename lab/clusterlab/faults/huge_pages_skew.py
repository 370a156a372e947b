"""Transparent huge pages are set otherwise on this node than on its equals."""

from __future__ import annotations

from clusterlab.faults.on_host import covering

PLACE = "/sys/kernel/mm/transparent_hugepage/enabled"
# Written there, it would be the setting of the whole machine. Whatever is chosen, another is.
_OTHER = f"""case $(cat {PLACE}) in
*'[never]'*) echo '[always] madvise never' ;;
*) echo 'always madvise [never]' ;;
esac"""

FAULT = covering(
    "huge-pages-skew",
    "transparent huge pages are set otherwise than on the other nodes, until the node reboots",
    place=PLACE,
    content=_OTHER,
    caught_by=("huge-pages",),
)
