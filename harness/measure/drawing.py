"""Which items a timing process gets: its own seeded draw, none of them twice.

Every process of a cell times other items, so that the interval over processes covers the items as well as the machine.
A pass is what one side of one pair answers; the first pass of a process warms up and is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.common.errors import CellFailedError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def passes(
    pool: int, sample: int, number: int, process: int, seed: int, consecutive: bool = False
) -> list[NDArray[np.int64]]:
    """`number` passes of `sample` item numbers below `pool`, int64 [sample] each, for one process of a cell.

    Processes take consecutive stretches of one seeded order, so that items are used again only when the pool is used
    up, and never twice in one process. consecutive: a pass holds neighbours of the pool. A pool too small for the
    passes of a single process makes them shorter. Raises `CellFailedError` for a pool with fewer items than passes.
    """
    if pool < number:
        raise CellFailedError(
            f"{pool} items to time are fewer than the {number} passes of a process: give the task more items, or ask "
            "for fewer pairs (--pairs)"
        )
    sample = min(sample, pool // number)
    blocks = _blocks(pool, sample, seed, consecutive)
    every = len(blocks) // number  # processes that share no item
    rounds, place = divmod(process, every)
    if rounds:  # the pool is used up: another order of it, so that processes do not get the same passes again
        blocks = _blocks(pool, sample, seed + 7919 * rounds, consecutive)
    return blocks[place * number : (place + 1) * number]


def _blocks(pool: int, sample: int, seed: int, consecutive: bool) -> list[NDArray[np.int64]]:
    """The pool in a seeded order, cut into blocks of `sample`; what is left over is left out."""
    rng = np.random.default_rng([seed, pool])
    whole = pool // sample
    if consecutive:
        first = int(rng.integers(pool - whole * sample + 1))
        return [np.arange(first + b * sample, first + (b + 1) * sample) for b in rng.permutation(whole).tolist()]
    return list(rng.permutation(pool)[: whole * sample].reshape(whole, sample))
