"""Score a reading of a manual against its truth: `python -m benchmarks.corpus.score TRUTH PRED`.

PRED is `{"pages": [{"n", "text", "paragraphs": [...]}], "headings": [{"level", "title", "page"}]}` with 1-based pages;
`paragraphs` and `headings` may be missing. Only the pages in PRED are scored, so give all that were read.

Text: CER is the Levenshtein distance over the truth's length, at most 1, after normalising quotes, dashes, bullets and
dot leaders; word F1 compares word multisets and so forgives reading order; order is 1 minus the edit distance between
the truth's and the prediction's sequence of paragraphs. Headings: matched one to one on a page by title; level accuracy
allows one shift for the whole document (a title page may take level 1); parent accuracy wants the right parent; the
tree score is 1 minus tree edit distance (Zhang-Shasha, by APTED) over the larger tree.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from apted import APTED
from apted import Config as AptedConfig
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

from benchmarks.corpus.truth import NUMBER_PREFIX

Heading = dict[str, Any]
Pairs = list[tuple[int, int]]

MIN_PAGE_CHARACTERS = 80
MIN_PARAGRAPH_CHARACTERS = 25
MIN_TITLE_SIMILARITY = 0.85
MAX_LEVEL_SHIFT = 4

_REPLACEMENTS = (
    (re.compile("[‐‑‒–—−]"), "-"),
    (re.compile("[‘’‚`´]"), "'"),
    (re.compile("[“”„«»]"), '"'),
    (re.compile("[•·∙●▪]"), "*"),
    (re.compile(r"(?:\. ?){4,}"), " ... "),
    (re.compile(r"\s+"), " "),
)
_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


def normalise(text: str) -> str:
    """NFKC, no soft hyphens, one form of each quote, dash and bullet, dot leaders as one ` ... `, single spaces."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "")
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text.strip()


def is_cjk(text: str) -> bool:
    """True when over a tenth of the characters are Chinese or Japanese: spaces then carry no meaning."""
    return len(_CJK.findall(text)) > 0.1 * max(1, len(text))


def character_error_rate(truth: str, predicted: str) -> float | None:
    """0 is perfect, 1 the worst counted; None when the truth is empty."""
    gold, read = normalise(truth), normalise(predicted)
    if is_cjk(gold):
        gold, read = gold.replace(" ", ""), read.replace(" ", "")
    if not gold:
        return None
    return min(1.0, Levenshtein.distance(gold, read) / len(gold))


def word_f1(truth: str, predicted: str) -> float | None:
    """F1 of the word multisets (characters in Chinese and Japanese); None when the truth has no word."""

    def words(text: str) -> Counter[str]:
        clean = normalise(text)
        return Counter(re.sub(r"\s", "", clean)) if cjk else Counter(re.findall(r"\w+", clean))

    cjk = is_cjk(truth)
    gold, read = words(truth), words(predicted)
    if not gold:
        return None
    return 2 * (gold & read).total() / max(1, gold.total() + read.total())


def reading_order(blocks: Iterable[dict[str, Any]], paragraphs: Sequence[str]) -> float | None:
    """1 when the truth's body paragraphs stand in the same order in the prediction; None with fewer than three."""
    gold = [
        text.casefold()[:120]
        for block in blocks
        if not block.get("furniture") and len(text := normalise(block["text"])) >= MIN_PARAGRAPH_CHARACTERS
    ]
    if len(gold) < 3:
        return None
    read = normalise("\n".join(paragraphs)).casefold()
    places = []
    for index, text in enumerate(gold):
        alignment = fuzz.partial_ratio_alignment(text, read, score_cutoff=70)
        if alignment is not None:
            places.append((alignment.dest_start, index))
    found = [index for _, index in sorted(places)]
    return 1 - Levenshtein.distance(list(range(len(gold))), found) / len(gold)


def title_similarity(first: str, second: str) -> float:
    """0..1: the best over both titles with and without their numbers, Markdown marks and punctuation ignored."""
    forms_first, forms_second = _title_forms(first), _title_forms(second)
    if not all(forms_first) or not all(forms_second):
        return 0.0
    return max(float(fuzz.ratio(left, right)) / 100 for left in forms_first for right in forms_second)


def match_headings(gold: Sequence[Heading], predicted: Sequence[Heading]) -> Pairs:
    """Pairs (gold index, predicted index) on the same page, the most similar first, each used once."""
    candidates = []
    for i, true_heading in enumerate(gold):
        for j, guess in enumerate(predicted):
            if guess["page"] != true_heading["page"]:
                continue
            printed = true_heading.get("printed") or true_heading["title"]
            similarity = max(
                title_similarity(true_heading["title"], guess["title"]), title_similarity(printed, guess["title"])
            )
            if similarity >= MIN_TITLE_SIMILARITY:
                candidates.append((-similarity, abs(i - j), i, j))
    pairs: dict[int, int] = {}
    for _, _, i, j in sorted(candidates):
        if i not in pairs and j not in pairs.values():
            pairs[i] = j
    return sorted(pairs.items())


def level_accuracy(gold: Sequence[Heading], predicted: Sequence[Heading], pairs: Pairs) -> tuple[float, int]:
    """Share of pairs at the right level under the one shift of all predicted levels that fits best, and that shift."""
    if not pairs:
        return 0.0, 0

    def share(shift: int) -> float:
        return sum(bool(gold[i]["level"] == predicted[j]["level"] + shift) for i, j in pairs) / len(pairs)

    shifts = range(-MAX_LEVEL_SHIFT, MAX_LEVEL_SHIFT + 1)
    best = max(shifts, key=lambda shift: (share(shift), -abs(shift), shift))
    return share(best), best


def parent_accuracy(gold: Sequence[Heading], predicted: Sequence[Heading], pairs: Pairs) -> float:
    """Share of pairs whose parents are paired with each other, or which both have none."""
    if not pairs:
        return 0.0
    gold_parents, predicted_parents = _parents(gold), _parents(predicted)
    partner: dict[int | None, int | None] = {None: None, **dict(pairs)}
    right = sum(gold_parents[i] in partner and partner[gold_parents[i]] == predicted_parents[j] for i, j in pairs)
    return right / len(pairs)


def tree_score(gold: Sequence[Heading], predicted: Sequence[Heading], pairs: Pairs) -> float | None:
    """1 minus tree edit distance over the larger tree's size; unmatched headings match nothing. None without gold."""
    if not gold:
        return None
    gold_of = {j: i for i, j in pairs}
    gold_tree = _tree(gold, lambda i: f"gold {i}")
    predicted_tree = _tree(predicted, lambda j: f"gold {gold_of[j]}" if j in gold_of else f"extra {j}")
    distance = APTED(gold_tree, predicted_tree, _TreeConfig()).compute_edit_distance()
    return float(max(0.0, 1 - distance / max(len(gold), len(predicted))))


def score(truth: dict[str, Any], prediction: dict[str, Any]) -> dict[str, float | int | None]:
    """All scores of one manual over the pages in `prediction`."""
    read = {page["n"]: page for page in prediction["pages"]}
    result: dict[str, float | int | None] = _text_scores(truth, read)
    if prediction.get("headings") is not None:
        gold = [heading for heading in truth["outline"] if heading["page"] in read]
        guesses = [heading for heading in prediction["headings"] if heading["page"] in read]
        result.update(_heading_scores(gold, guesses))
    return result


def _text_scores(truth: dict[str, Any], read: dict[int, dict[str, Any]]) -> dict[str, float | int | None]:
    error_rates: list[float] = []
    word_scores: list[float] = []
    orders: list[float] = []
    for page in truth["pages"]:
        guess = read.get(page["n"])
        if guess is None or guess.get("text") is None or len(normalise(page["text"])) < MIN_PAGE_CHARACTERS:
            continue
        error_rate, words = character_error_rate(page["text"], guess["text"]), word_f1(page["text"], guess["text"])
        order = reading_order(page["blocks"], guess.get("paragraphs") or guess["text"].split("\n"))
        error_rates += [] if error_rate is None else [error_rate]
        word_scores += [] if words is None else [words]
        orders += [] if order is None else [order]
    if not error_rates:
        return {}
    return {
        "cer_mean": statistics.mean(error_rates),
        "cer_median": statistics.median(error_rates),
        "cer_p90": sorted(error_rates)[int(0.9 * (len(error_rates) - 1))],
        "word_f1": statistics.mean(word_scores),
        "order": statistics.mean(orders) if orders else None,
    }


def _heading_scores(gold: Sequence[Heading], guesses: Sequence[Heading]) -> dict[str, float | int | None]:
    pairs = match_headings(gold, guesses)
    precision = len(pairs) / len(guesses) if guesses else 0.0
    recall = len(pairs) / len(gold) if gold else 0.0
    level, shift = level_accuracy(gold, guesses, pairs)
    return {
        "gold": len(gold),
        "pred": len(guesses),
        "matched": len(pairs),
        "h_p": precision,
        "h_r": recall,
        "h_f1": 2 * precision * recall / (precision + recall) if pairs else 0.0,
        "level_acc": level,
        "shift": shift,
        "parent_acc": parent_accuracy(gold, guesses, pairs),
        "tree": tree_score(gold, guesses, pairs),
    }


def _title_forms(title: str) -> set[str]:
    whole = _letters(title)
    return {whole, _letters(NUMBER_PREFIX.sub("", title)) or whole}


def _letters(title: str) -> str:
    return re.sub(r"[\W_]+", "", normalise(re.sub(r"[*_`#]+", "", title)).casefold())


def _parents(headings: Sequence[Heading]) -> list[int | None]:
    parents: list[int | None] = []
    path: list[int] = []
    for index, heading in enumerate(headings):
        while path and headings[path[-1]]["level"] >= heading["level"]:
            path.pop()
        parents.append(path[-1] if path else None)
        path.append(index)
    return parents


class _Node:
    __slots__ = ("children", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: list[_Node] = []


class _TreeConfig(AptedConfig):  # type: ignore[misc]
    def rename(self, node1: _Node, node2: _Node) -> int:
        return int(node1.name != node2.name)

    def children(self, node: _Node) -> list[_Node]:
        return node.children


def _tree(headings: Sequence[Heading], name: Callable[[int], str]) -> _Node:
    root = _Node("root")
    nodes = [_Node(name(index)) for index in range(len(headings))]
    for node, parent in zip(nodes, _parents(headings), strict=True):
        (root if parent is None else nodes[parent]).children.append(node)
    return root


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.score", description=__doc__)
    parser.add_argument("truth", type=Path)
    parser.add_argument("pred", type=Path)
    options = parser.parse_args(arguments)
    truth, prediction = (json.loads(path.read_text(encoding="utf-8")) for path in (options.truth, options.pred))
    print(json.dumps(score(truth, prediction), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
