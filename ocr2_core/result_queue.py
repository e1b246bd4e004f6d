"""Results of pages that finish in any order, handed out in page order, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator

from ocr2_core.ledger import PageResult


class ResultQueue:
    """Pages are `expect`ed in order and answered by `put`; `ready` yields the answered ones at the head."""

    def __init__(self) -> None:
        # dicts keep insertion order: the pages not handed out yet, with their result once there is one
        self._pages: dict[int, PageResult | None] = {}
        self._answered_count = 0

    def expect(self, page_index: int) -> None:
        """Keep a place for the page; it keeps its place when it is expected again."""
        self._pages.setdefault(page_index, None)

    def put(self, result: PageResult) -> bool:
        """Take a result; False, and nothing taken, when its page is not waited for."""
        page_index = result.page.page_index
        if page_index not in self._pages or self._pages[page_index] is not None:
            return False
        self._pages[page_index] = result
        self._answered_count += 1
        return True

    def ready(self) -> Iterator[PageResult]:
        """Hand out the results at the head, up to the first page without one."""
        while self._pages:
            page_index = next(iter(self._pages))
            result = self._pages[page_index]
            if result is None:
                return
            del self._pages[page_index]
            self._answered_count -= 1
            yield result

    def unanswered(self) -> list[int]:
        """The pages without a result, in order."""
        return [page_index for page_index, result in list(self._pages.items()) if result is None]

    @property
    def waiting_count(self) -> int:
        """How many results wait for a page before them."""
        return self._answered_count
