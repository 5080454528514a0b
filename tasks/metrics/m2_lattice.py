"""The edits that turn a source into a hypothesis and match a set of gold edits best (Dahlmeier & Ng 2012, section 3).

Node (i, j) of the Levenshtein matrix means that i source and j hypothesis tokens are read. Edges are deletions,
insertions, substitutions and unchanged tokens of all cheapest alignments, once with substitutions at cost 1 and once at
2. Consecutive edges are merged into phrase edits with at most `max_unchanged_words` unchanged tokens.

The best path has the most gold edits, then the fewest elementary edges outside them, then the fewest edits. This is the
order of the official scorer's weights (-|E| for a gold edit, 1 for an elementary edge, 0.001 for any other edit), here
in whole numbers. As there, an edge of both alignments has the 0.001 twice. Paths that tie in all three differ at most
in how edits without a match are split; the official scorer then chooses by the order of its edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

GOLD, UNIT, EDIT = -(1 << 50), 1 << 20, 1  # weights of a gold edit, of an elementary edge, of another edit
_DIAGONAL, _DELETION, _INSERTION = 1, 2, 4
_NEVER = 1 << 60


class Edit(NamedTuple):
    """Source tokens [start, end) replaced by `words`, hypothesis tokens [begin, begin + len(words))."""

    start: int
    end: int
    words: tuple[str, ...]


class Gold(NamedTuple):
    """A gold edit of one annotator. Any of its corrections (tuples of words, possibly empty) counts as right."""

    start: int
    end: int
    corrections: tuple[tuple[str, ...], ...]


class Lattice:
    """The alignments of one source and one hypothesis, used once per annotator for the best edits."""

    def __init__(self, source: Sequence[str], hypothesis: Sequence[str], max_unchanged_words: int = 2) -> None:
        ids: dict[str, int] = {}
        left = np.array([ids.setdefault(word, len(ids)) for word in source], np.int64)
        right = np.array([ids.setdefault(word, len(ids)) for word in hypothesis], np.int64)
        self.hypothesis = tuple(hypothesis)
        self.unchanged = max_unchanged_words
        first, second = _alignments(left, right, 1), _alignments(left, right, 2)
        grid = (first | second) != 0
        grid[0, 0] = True
        self._rows, self._columns = (axis.astype(np.int64) for axis in np.nonzero(grid))
        self._number = np.full(grid.shape, -1, np.int64)
        self._number[grid] = np.arange(len(self._rows))
        self._times = np.stack([((first & bit) != 0).astype(np.int64) + ((second & bit) != 0) for bit in (1, 2, 4)])
        self._same = np.zeros(grid.shape, np.bool_)
        if len(left) and len(right):
            self._same[1:, 1:] = left[:, None] == right[None, :]

    def best_edits(self, gold: Sequence[Gold]) -> list[Edit]:
        """The edits of the best path in order of position, phrases as tuples of words."""
        weights = self._gold_weights(gold)
        keys = sorted(weights)
        start = np.array([key[0] for key in keys], np.int64)
        end = np.array([key[1] for key in keys], np.int64)
        weight = np.array([weights[key] for key in keys], np.int64)
        path = _best_path(
            self._rows, self._columns, self._number, self._times, self._same, start, end, weight, self.unchanged
        )
        edits = []
        for before, after in zip(path[:-1].tolist(), path[1:].tolist(), strict=True):
            i, j, k, m = self._rows[before], self._columns[before], self._rows[after], self._columns[after]
            if not (k - i == m - j == 1 and self._same[k, m]):
                edits.append(Edit(int(i), int(k), self.hypothesis[j:m]))
        return edits

    def _gold_weights(self, gold: Sequence[Gold]) -> dict[tuple[int, int], int]:
        """(from node, to node) -> weight, for the phrase edits whose weight depends on the gold edits."""
        weights: dict[tuple[int, int], int] = {}
        inserted: dict[int, list[Gold]] = {}
        for edit in gold:
            if edit.start == edit.end:
                inserted.setdefault(edit.start, []).append(edit)
                continue
            for words in edit.corrections:
                for column in range(len(self.hypothesis) - len(words) + 1):
                    if self.hypothesis[column : column + len(words)] == words:
                        pair = self._nodes(edit.start, column, edit.end, column + len(words))
                        if pair:
                            weights[pair] = GOLD
        for row, edits in inserted.items():
            weights |= self._insertion_weights(row, edits)
        return weights

    def _nodes(self, row: int, column: int, last_row: int, last_column: int) -> tuple[int, int] | None:
        if last_row >= len(self._number):
            return None
        before, after = int(self._number[row, column]), int(self._number[last_row, last_column])
        return (before, after) if before >= 0 and after >= 0 else None

    def _insertion_weights(self, row: int, gold: Sequence[Gold]) -> dict[tuple[int, int], int]:
        """Weights of all insertions before source token `row`. Each gold edit is assigned to at most one edge.

        Gold edits are assigned alternately from both ends of the ordered edges. After a match, only edges that continue
        the matched one stay candidates. This is the official scorer's procedure, which decides ties.
        """
        if row >= len(self._number):
            return {}
        times = self._times[2][row]
        edges: list[tuple[int, int]] = []  # (from column, to column), repeated as often as in the graph
        for begin in range(len(self.hypothesis)):
            for stop in range(begin + 1, len(self.hypothesis) + 1):
                if not times[stop] or self._number[row, begin] < 0:
                    break
                edges += [(begin, stop)] * (int(times[stop]) if stop == begin + 1 else 1)
        weight = {edge: (edge[1] - edge[0]) * UNIT for edge in edges}
        left, right, current = 0, len(edges) - 1, 0
        first, last = 0, len(gold) - 1
        while left <= right:
            edge = edges[current]
            from_left = current == left
            candidates = range(first, last + 1) if from_left else range(last, first - 1, -1)
            words = self.hypothesis[edge[0] : edge[1]]
            match = next((number for number in candidates if words in gold[number].corrections), None)
            if match is None:
                weight[edge] += EDIT
                if from_left:
                    left, current = left + 1, right
                else:
                    right, current = right - 1, left
                continue
            weight[edge] = GOLD
            if from_left:
                first, left = match + 1, left + 1
                while left < len(edges) and edges[left][0] != edge[1]:
                    weight[edges[left]] += EDIT
                    left += 1
                current = left
            else:
                last, right = match - 1, right - 1
                while right >= 0 and edges[right][1] != edge[0]:
                    weight[edges[right]] += EDIT
                    right -= 1
                current = right
        number = self._number[row]
        return {(int(number[begin]), int(number[stop])): cost for (begin, stop), cost in weight.items()}


@njit(nogil=True, cache=True)
def _alignments(source, hypothesis, substitution):  # type: ignore[no-untyped-def]
    """int8 [n + 1, m + 1]: for each node on a cheapest alignment, the steps (bits) by which these reach it."""
    n, m = len(source), len(hypothesis)
    cost = np.zeros((n + 1, m + 1), np.int64)
    steps = np.zeros((n + 1, m + 1), np.int8)
    for i in range(1, n + 1):
        cost[i, 0], steps[i, 0] = i, _DELETION
    for j in range(1, m + 1):
        cost[0, j], steps[0, j] = j, _INSERTION
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            diagonal = cost[i - 1, j - 1] + (0 if source[i - 1] == hypothesis[j - 1] else substitution)
            deletion, insertion = cost[i - 1, j] + 1, cost[i, j - 1] + 1
            least = min(diagonal, deletion, insertion)
            cost[i, j] = least
            steps[i, j] = (
                _DIAGONAL * (diagonal == least) + _DELETION * (deletion == least) + _INSERTION * (insertion == least)
            )
    used = np.zeros((n + 1, m + 1), np.bool_)
    used[n, m] = True
    for i in range(n, -1, -1):
        for j in range(m, -1, -1):
            if not used[i, j]:
                steps[i, j] = 0
                continue
            if steps[i, j] & _DIAGONAL:
                used[i - 1, j - 1] = True
            if steps[i, j] & _DELETION:
                used[i - 1, j] = True
            if steps[i, j] & _INSERTION:
                used[i, j - 1] = True
    return steps


@njit(nogil=True, cache=True)
def _best_path(rows, columns, number, times, same, gold_from, gold_to, gold_weight, max_unchanged):  # type: ignore[no-untyped-def]
    """Nodes of the lightest path. From every node in order, phrase edits are extended by one elementary edge at a time.

    Only the shortest way to a node is kept (ties: the first), with its count of unchanged tokens, which must be at most
    `max_unchanged`. Each improvement counts once more in the edit's weight.
    """
    nodes = len(rows)
    best = np.full(nodes, _NEVER, np.int64)
    parent = np.full(nodes, -1, np.int64)
    best[0] = 0
    length = np.zeros(nodes, np.int64)
    unchanged = np.zeros(nodes, np.int64)
    count = np.zeros(nodes, np.int64)
    seen = np.full(nodes, -1, np.int64)
    weight = np.zeros(nodes, np.int64)
    given = np.full(nodes, -1, np.int64)
    gold = 0
    for start in range(nodes):
        while gold < len(gold_from) and gold_from[gold] == start:
            given[gold_to[gold]], weight[gold_to[gold]] = start, gold_weight[gold]
            gold += 1
        seen[start], length[start], unchanged[start], last = start, 0, 0, start
        node = start
        while node <= last:
            if seen[node] == start:
                if node > start:
                    alone = length[node] == 1
                    kept = unchanged[node] == length[node]  # only unchanged tokens
                    if given[node] == start:
                        cost = weight[node]
                    else:
                        cost = length[node] * UNIT + (0 if kept else count[node] * EDIT)
                    if (alone or not kept) and best[start] + cost < best[node]:
                        best[node], parent[node] = best[start] + cost, start
                for step in range(3):
                    row, column = rows[node] + (step != 2), columns[node] + (step != 1)
                    if row >= number.shape[0] or column >= number.shape[1] or times[step, row, column] == 0:
                        continue
                    after = number[row, column]
                    stays = unchanged[node] + (step == 0 and same[row, column])
                    longer = length[node] + 1
                    if (node == start or stays <= max_unchanged) and (seen[after] != start or longer < length[after]):
                        if seen[after] != start:
                            seen[after], count[after] = start, 0
                        length[after], unchanged[after] = longer, stays
                        count[after] += times[step, row, column] if node == start else 1
                        last = max(last, after)
            node += 1
    found = np.empty(nodes, np.int64)
    size, node = 0, nodes - 1
    while node >= 0:
        found[size] = node
        size += 1
        node = parent[node]
    return found[:size][::-1].copy()
