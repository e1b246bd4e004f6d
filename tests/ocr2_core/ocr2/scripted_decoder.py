"""A fake model for tests: it writes chosen tokens for each page, and keeps honest books of its blocks and bytes.

Faults are part of the script: pages skipped, doubled, split, looping, too long, a document ended early or gone on too
long. Its vocabulary is a list of strings; a page's text is their concatenation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ocr2_core.ocr2.errors import PoolExhausted
from ocr2_core.ocr2.guards import StructureTokens
from ocr2_core.ocr2.operations import SourcePage
from ocr2_core.ocr2.page_decoder import Boundary, EncodedPage, KvUsage

STOP, PAGE, FILLER = 0, 1, 2
WINDOW = 128
BLOCK_TOKENS = 16
TOKEN_BYTES = 10
INDEX_BYTES = 3


class Words:
    """The vocabulary: strings and their numbers."""

    stop_token_ids = frozenset({STOP})
    group_prompt_token_ids = (3, 4, 5)
    single_prompt_token_ids = (3, 5)

    def __init__(self, page_marker: Sequence[str] = ("<PAGE>",)) -> None:
        self.strings = ["<end>", "<PAGE>", "…", "Multi", " page", " parsing."]
        self._ids = {string: number for number, string in enumerate(self.strings)}
        self.page_marker_token_ids = tuple(self.id(string) for string in page_marker)
        rows = frozenset({self.id("</tr>")})
        tags = ("<|det|>", "<|/det|>", "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>")
        self.structure = StructureTokens(frozenset({STOP, PAGE, *(self.id(tag) for tag in tags)}), rows)

    def id(self, string: str) -> int:
        if string not in self._ids:
            self._ids[string] = len(self.strings)
            self.strings.append(string)
        return self._ids[string]

    def ids(self, strings: Sequence[str]) -> list[int]:
        return [self.id(string) for string in strings]

    def marker_length(self, token_ids: Sequence[int]) -> int:
        length = len(self.page_marker_token_ids)
        return length if tuple(token_ids[-length:]) == self.page_marker_token_ids else 0

    def text(self, token_ids: Sequence[int]) -> str:
        return "".join(self.strings[token] for token in token_ids)


def page_strings(page_index: int, seed: int = 0, word_count: int = 24) -> list[str]:
    """A page of made-up words that no other page has."""
    chance = random.Random(f"{seed}/{page_index}")
    words = [f"{chance.randrange(10**5):05d} " for _ in range(word_count)]
    return ["<|det|>", "text", f" [10, 20, {100 + page_index % 800}, 200]", "<|/det|>", *words]


@dataclass(frozen=True)
class Fault:
    """`kind`: skip, double, split, loop, long, end (before the page), extra (after it), empty, crash. `alone`: whether
    it also strikes when the page is read alone. `times`: how often it strikes at all."""

    kind: str
    page_index: int
    alone: bool = False
    times: int = 1000


@dataclass
class Script:
    """One document: its pages as strings, and its faults. The features of an encoded page are (script, page index)."""

    words: Words
    page_count: int
    faults: Sequence[Fault] = ()
    seed: int = 0
    pages: dict[int, list[str]] = field(default_factory=dict)
    token_count: int = 49
    goes_on: bool = False  # at a group's end it writes a page marker and not the stop, unless the document ends there
    alone_token_count: int = 81
    struck: dict[Fault, int] = field(default_factory=dict)
    read_alone: list[int] = field(default_factory=list)

    def strings(self, page_index: int) -> list[str]:
        return self.pages.get(page_index) or page_strings(page_index, self.seed)

    def text(self, page_index: int) -> str:
        return "".join(self.strings(page_index))

    def source_pages(self, first: int = 0) -> list[SourcePage]:
        return [self.source_page(index) for index in range(first, self.page_count)]

    def source_page(self, index: int) -> SourcePage:
        def alone() -> EncodedPage:
            self.read_alone.append(index)
            return EncodedPage(index, self.alone_token_count, (self, index))

        return SourcePage(index, EncodedPage(index, self.token_count, (self, index)), alone)

    def strikes(self, kind: str, page_index: int, is_alone: bool) -> bool:
        for fault in self.faults:
            if (fault.kind, fault.page_index) == (kind, page_index) and (fault.alone or not is_alone):
                self.struck[fault] = self.struck.get(fault, 0) + 1
                return self.struck[fault] <= fault.times
        return False

    def output(self, page_indexes: Sequence[int], is_alone: bool, is_single: bool = False) -> list[int]:
        """What the model writes for these pages, each page with its marker before it, and the stop."""
        marker = self.words.page_marker_token_ids
        written: list[int] = []
        for index in page_indexes:
            tokens = self.words.ids(self.strings(index))
            if self.strikes("end", index, is_alone):
                break
            if self.strikes("skip", index, is_alone):
                continue
            if self.strikes("loop", index, is_alone):
                again = self.words.ids([f"again{number} " for number in range(7)])
                tokens = [*tokens[:10], *again * 400]
            if self.strikes("long", index, is_alone):
                tokens = [*tokens, *self.words.ids(page_strings(index, 77, 600)[4:])]
            if self.strikes("empty", index, is_alone):
                tokens = []
            if self.strikes("split", index, is_alone):
                half = len(tokens) // 2
                tokens = [*tokens[:half], *marker, *tokens[half:]]
            written += [*marker, *tokens]
            if self.strikes("double", index, is_alone):
                written += [*marker, *tokens]
            if self.strikes("extra", index, is_alone):
                written += [*marker, *self.words.ids(page_strings(index, 99))]
        if self.goes_on and not is_single and page_indexes[-1] != self.page_count - 1:
            written += [*marker, *self.words.ids(page_strings(page_indexes[-1], 55))]
        return [*written, STOP]


@dataclass
class _Sequence:
    pages: dict[int, int]  # page index → blocks
    script: Script
    output: list[int]
    prompt: tuple[int, ...]
    position: int = 0
    current_page_index: int | None = None
    is_carried: bool = False
    fed: list[int] = field(default_factory=list)


class ScriptedDecoder:
    """See PageDecoder. `pool_blocks`: blocks of the pool. `on_step` is called before each step with its tokens."""

    page_token_id = PAGE
    stop_token_ids = frozenset({STOP})

    def __init__(
        self, words: Words, *, pool_blocks: int = 10**6, on_step: Callable[[dict[int, int]], None] | None = None
    ) -> None:
        self.words = words
        self.pool_blocks = pool_blocks
        self.free_blocks = pool_blocks
        self.on_step = on_step
        self.sequences: dict[int, _Sequence] = {}
        self.opened: list[tuple[int, ...]] = []
        self.hand_overs: list[tuple[Boundary, tuple[int, ...], tuple[int, ...]]] = []
        self.released: list[int] = []
        self.batch_sizes: list[int] = []
        self.peak_kv_bytes = 0
        self.vocabulary_size = 10**4

    def sequence_bytes(self, page_token_counts: Sequence[int], prompt_token_count: int) -> int:
        blocks = sum(self._blocks(count) for count in page_token_counts)
        return blocks * BLOCK_TOKENS * TOKEN_BYTES + self._local_bytes(len(page_token_counts), prompt_token_count)

    def open_sequence(
        self, pages: Sequence[EncodedPage], prompt_token_ids: Sequence[int]
    ) -> tuple[int, NDArray[np.float32]]:
        assert pages
        blocks = self._take(pages)
        number = next(number for number in range(10**6) if number not in self.sequences)
        script: Script = pages[0].features[0]
        is_alone = len(pages) == 1 and pages[0].token_count == script.alone_token_count
        is_single = tuple(prompt_token_ids) == Words.single_prompt_token_ids
        output = script.output([page.page_index for page in pages], is_alone, is_single)
        self.sequences[number] = _Sequence(blocks, script, output, tuple(prompt_token_ids))
        self.opened.append(tuple(page.page_index for page in pages))
        self._note_peak()
        return number, self._logits(self.sequences[number])

    def hand_over(
        self, sequence: int, kept_page_indexes: Sequence[int], new_pages: Sequence[EncodedPage], boundary: Boundary
    ) -> NDArray[np.float32] | None:
        state = self.sequences[sequence]
        assert boundary is Boundary.CARRY or not kept_page_indexes
        read = set(state.pages)
        for page_index in [page for page in state.pages if page not in kept_page_indexes]:
            self.free_blocks += state.pages.pop(page_index)
        state.pages.update(self._take(new_pages))
        self.hand_overs.append((boundary, tuple(kept_page_indexes), tuple(page.page_index for page in new_pages)))
        self._note_peak()
        state.position = 0
        if boundary is Boundary.RESTART:
            # a group is asked for in the words it has when it is opened by itself
            assert len(new_pages) == 1 or state.prompt == Words.group_prompt_token_ids
            state.output = state.script.output([page.page_index for page in new_pages], False)
            return self._logits(state)
        to_read = [page.page_index for page in new_pages if page.page_index not in read]
        state.output = state.script.output(to_read, False)
        state.is_carried = True
        return None

    def step(self, token_ids: dict[int, int]) -> dict[int, NDArray[np.float32]]:
        if self.on_step is not None:
            self.on_step(token_ids)
        self.batch_sizes.append(len(token_ids))
        answers = {}
        for sequence, token in token_ids.items():
            state = self.sequences[sequence]
            if state.is_carried:
                # decoding goes on in the middle of the output: with a page marker, or with its last token
                marker = self.words.page_marker_token_ids
                assert token in (marker[0], marker[-1])
                state.position = len(marker) - 1 if token == marker[-1] else 0
                state.is_carried = False
            state.fed.append(token)
            state.position = min(state.position + 1, len(state.output) - 1)
            answers[sequence] = self._logits(state)
        self._note_peak()
        return answers

    def set_current_page(self, sequence: int, page_index: int) -> None:
        assert page_index in self.sequences[sequence].pages
        self.sequences[sequence].current_page_index = page_index

    def release_page(self, sequence: int, page_index: int) -> None:
        self.free_blocks += self.sequences[sequence].pages.pop(page_index)
        self.released.append(page_index)

    def close_sequence(self, sequence: int) -> None:
        self.free_blocks += sum(self.sequences.pop(sequence).pages.values())

    def usage(self) -> KvUsage:
        used = self.pool_blocks - self.free_blocks
        assert used == sum(sum(state.pages.values()) for state in self.sequences.values())
        open_ones = self.sequences.values()
        local = sum(self._local_bytes(len(state.pages), len(state.prompt)) for state in open_ones)
        block_bytes = BLOCK_TOKENS * TOKEN_BYTES
        return KvUsage(used * block_bytes + local, used * INDEX_BYTES, self.pool_blocks * block_bytes)

    def _take(self, pages: Sequence[EncodedPage]) -> dict[int, int]:
        blocks = {page.page_index: self._blocks(page.token_count) for page in pages}
        wanted = sum(blocks.values())
        if wanted > self.free_blocks:
            raise PoolExhausted(wanted, self.free_blocks, self.pool_blocks)
        self.free_blocks -= wanted
        return blocks

    @staticmethod
    def _blocks(token_count: int) -> int:
        return -(-(token_count - 1) // BLOCK_TOKENS)

    @staticmethod
    def _local_bytes(page_count: int, prompt_count: int) -> int:
        return (1 + prompt_count + page_count + WINDOW) * TOKEN_BYTES

    def _note_peak(self) -> None:
        self.peak_kv_bytes = max(self.peak_kv_bytes, self.usage().kv_bytes)

    def _logits(self, state: _Sequence) -> NDArray[np.float32]:
        logits = np.zeros(self.vocabulary_size, np.float32)
        logits[[STOP, PAGE]] = -1.0
        logits[FILLER] = 1.0
        logits[state.output[state.position]] = 2.0
        return logits
