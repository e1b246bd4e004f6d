"""The `served` engine against a server on a real socket, good and bad."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ocr2_core.engine import Engine, PageImage
from ocr2_core.engines import create_engine
from ocr2_core.errors import EngineError, EngineUnavailable
from ocr2_core.ledger import PageResult, reconcile
from ocr2_core.served_engine import split_at_markers
from ocr2_core.served_request import Dialect, ServedModel, ServedOptions, max_tokens, request_body
from tests.ocr2_core.served_model_server import (
    API_KEY,
    Reply,
    Served,
    page_image,
    running_server,
    section,
    well_read,
)


@pytest.fixture
def served() -> Iterator[Served]:
    with running_server() as server:
        yield server


def engine_for(served: Served, **options: object) -> Engine:
    given = {"base_url": served.url, "api_key": API_KEY, "pages_per_request": 3, "backoff_s": 0.01, **options}
    return create_engine("served", **given)


def read(engine: Engine, page_count: int) -> list[PageResult]:
    results = list(engine.read_pages(page_image(index) for index in range(page_count)))
    reconcile([result.ledger for result in results], page_count)
    assert [result.page.page_index for result in results] == list(range(page_count))
    return results


def texts(results: list[PageResult]) -> list[str]:
    return [" ".join(block.text for block in result.page.blocks) for result in results]


def statuses(results: list[PageResult]) -> list[str]:
    return [result.ledger.status.value for result in results]


def test_pages_go_out_in_groups_and_come_back_in_order(served: Served) -> None:
    results = read(engine_for(served), 8)
    assert sorted(served.pages) == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert texts(results) == [f"words of page {number}" for number in range(1, 9)]
    assert statuses(results) == ["ok"] * 8
    page = results[4]
    assert page.page.page_label == "p4"
    assert (page.page.width_pt, page.page.height_pt) == (200.0, 300.0)
    assert page.page.blocks[0].bbox_norm == (10.0, 20.0, 900.0, 300.0)
    assert page.ledger.engine == "served"
    # the server counts words: 8 of each page's section, less what a marker joins
    assert sum(result.ledger.token_count for result in results) == 22 + 22 + 15


def test_request_for_a_group_on_vllm(served: Served) -> None:
    read(engine_for(served), 2)
    request = served.requests[0]
    content = request["messages"][0]["content"]
    assert content[0] == {"type": "text", "text": "<image><image>Multi page parsing."}
    assert [part["type"] for part in content[1:]] == ["image_url", "image_url"]
    del request["messages"]
    assert request == {
        "model": "baidu/Unlimited-OCR",
        "temperature": 0,
        "max_tokens": 16384,
        "skip_special_tokens": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "vllm_xargs": {"ngram_size": 35, "window_size": 1024, "whitelist_token_ids": [128821, 128822]},
    }


def test_request_for_a_single_page_on_vllm(served: Served) -> None:
    read(engine_for(served, pages_per_request=1), 1)
    request = served.requests[0]
    assert request["messages"][0]["content"][0]["text"] == "<image>document parsing."
    assert request["max_tokens"] == 8192
    assert request["vllm_xargs"]["window_size"] == 128


def test_requests_on_sglang(served: Served) -> None:
    served.owned_by = "sglang"
    read(engine_for(served, sglang_logit_processor="{}"), 4)
    group, single = sorted(served.requests, key=lambda request: -len(request["messages"][0]["content"]))
    assert group["messages"][0]["content"][0]["text"] == "Multi page parsing."
    assert group["images_config"] == {"image_mode": "base"}
    assert group["custom_logit_processor"] == "{}"
    assert group["custom_params"] == {"ngram_size": 35, "window_size": 1024}
    assert "vllm_xargs" not in group
    assert single["messages"][0]["content"][0]["text"] == "document parsing."
    assert single["images_config"] == {"image_mode": "gundam"}
    assert single["custom_params"] == {"ngram_size": 35, "window_size": 128}


def test_answers_are_bounded_by_the_context() -> None:
    options = ServedOptions("http://127.0.0.1/v1", "m")
    model = ServedModel(Dialect.VLLM, 32768)
    assert max_tokens(1, model, options) == 8192
    assert max_tokens(8, model, options) == 32768 - 8 * 273 - 16
    assert max_tokens(8, ServedModel(Dialect.VLLM, None), options) == 8 * 8192
    assert max_tokens(200, model, options) == 1


def test_large_pages_are_scaled_for_groups_and_sent_whole_alone(served: Served) -> None:
    sizes: list[tuple[int, int]] = []

    def page(index: int) -> PageImage:
        return PageImage(index, np.full((2000, 1500, 3), index + 1, np.uint8), dpi=200.0)

    for count in (2, 1):
        list(engine_for(served).read_pages([page(index) for index in range(count)]))
        for part in served.requests[-1]["messages"][0]["content"][1:]:
            url = part["image_url"]["url"].removeprefix("data:image/png;base64,")
            sizes.append(Image.open(io.BytesIO(base64.b64decode(url))).size)
    assert sizes == [(768, 1024), (768, 1024), (1500, 2000)]


def test_wrong_page_count_is_read_again_page_by_page(served: Served) -> None:
    def forgets_page_5(pages: list[int], tries: int) -> Reply:
        if len(pages) > 1 and 5 in pages:
            return well_read([page for page in pages if page != 5], tries)
        return well_read(pages, tries)

    served.reply = forgets_page_5
    results = read(engine_for(served), 6)
    assert texts(results) == [f"words of page {number}" for number in range(1, 7)]
    assert statuses(results) == ["ok"] * 3 + ["repaired"] * 3
    assert results[3].ledger.reason == (
        "read alone, for the answer for pages 4 to 6 could not be used: it has 2 pages for 3"
    )
    assert [pages for pages in served.pages if len(pages) == 1] == [[4], [5], [6]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("".join(f"<PAGE>{section(page)}" for page in (1, 2, 3, 4)), "it has 4 pages for 3"),
        (f"<PAGE>{section(1)}<PAGE>\n<PAGE>{section(3)}", "page 2 of the group is empty"),
        (f"<PAGE>{section(1)}" + f"<PAGE>{section(2, 'word ' * 60)}" * 2, "pages 2 and 3 of the group have the same"),
        ("", "it has 0 pages for 3"),
        ("Sorry, I cannot read this.", "it has 1 pages for 3"),
    ],
)
def test_group_answers_in_doubt_are_not_used(served: Served, answer: str, reason: str) -> None:
    served.reply = lambda pages, tries: Reply(answer) if len(pages) > 1 else well_read(pages, tries)
    results = read(engine_for(served), 3)
    assert texts(results) == ["words of page 1", "words of page 2", "words of page 3"]
    assert statuses(results) == ["repaired"] * 3
    assert reason in str(results[0].ledger.reason)


def test_too_many_requests_are_waited_for_as_long_as_the_server_says(served: Served) -> None:
    served.reply = lambda pages, tries: (
        Reply("busy", status=429, headers={"Retry-After": "0.3"}) if not tries else well_read(pages, tries)
    )
    start = time.monotonic()
    results = read(engine_for(served, backoff_s=0.001), 3)
    assert statuses(results) == ["ok"] * 3
    assert served.pages == [[1, 2, 3], [1, 2, 3]]
    assert time.monotonic() - start >= 0.3


def test_server_errors_are_retried(served: Served) -> None:
    served.reply = lambda pages, tries: Reply("oops", status=500) if tries < 2 else well_read(pages, tries)
    assert statuses(read(engine_for(served), 3)) == ["ok"] * 3
    assert len(served.pages) == 3


def test_page_the_server_breaks_on_costs_no_other(served: Served) -> None:
    served.reply = lambda pages, tries: Reply("boom", status=500) if 2 in pages else well_read(pages, tries)
    results = read(engine_for(served, max_tries=2), 6)
    assert statuses(results) == ["repaired", "failed", "repaired", "ok", "ok", "ok"]
    assert results[1].ledger.reason == "HTTP 500: boom"
    assert texts(results)[2] == "words of page 3"


def test_service_that_always_fails_is_reported_as_unavailable(served: Served) -> None:
    served.reply = lambda _pages, _tries: Reply("CUDA out of memory", status=503)
    with pytest.raises(EngineUnavailable, match=r"http://127.0.0.1:\d+/v1 .*3 pages in a row.*CUDA out of memory"):
        read(engine_for(served, max_tries=1), 6)
    with pytest.raises(EngineUnavailable, match="no page could be read; HTTP 503"):
        read(engine_for(served, max_tries=1), 1)


def test_pages_read_before_the_service_failed_are_kept(served: Served) -> None:
    served.reply = lambda pages, tries: Reply("down", status=503) if max(pages) > 3 else well_read(pages, tries)
    results: list[PageResult] = []
    reading = engine_for(served, max_tries=1).read_pages(page_image(index) for index in range(9))
    with pytest.raises(EngineUnavailable):
        results.extend(reading)
    assert texts(results) == [f"words of page {number}" for number in (1, 2, 3)]


def test_nothing_listening_is_unavailable() -> None:
    engine = create_engine("served", base_url="http://127.0.0.1:9", max_tries=2, backoff_s=0.01)
    with pytest.raises(EngineUnavailable, match=r"http://127\.0\.0\.1:9/v1 cannot be used: the connection failed"):
        read(engine, 1)


def test_timeouts_are_tried_again(served: Served) -> None:
    served.reply = lambda pages, tries: Reply("late", delay_s=1.5) if not tries else well_read(pages, tries)
    results = read(engine_for(served, timeout_s=0.4), 3)
    assert statuses(results) == ["ok"] * 3
    assert served.pages == [[1, 2, 3], [1, 2, 3]]


def test_truncated_page_is_failed_and_keeps_what_was_read(served: Served) -> None:
    served.reply = lambda pages, tries: (
        Reply(section(pages[0], "cut"), finish_reason="length") if 2 in pages else well_read(pages, tries)
    )
    results = read(engine_for(served), 3)
    assert statuses(results) == ["repaired", "failed", "repaired"]
    assert str(results[1].ledger.reason).startswith("truncated: the answer was cut off after 8 tokens")
    assert "cut off at the token limit" in str(results[0].ledger.reason)
    assert texts(results)[0] == "words of page 1"
    assert "cut of page 2" in texts(results)[1]


def test_empty_answer_for_a_page_with_ink_is_failed(served: Served) -> None:
    served.reply = lambda pages, tries: Reply("") if pages == [2] else well_read(pages, tries)
    results = read(engine_for(served, pages_per_request=1), 3)
    assert statuses(results) == ["ok", "failed", "ok"]
    assert results[1].ledger.reason == "the answer holds nothing for a page that has ink"


@pytest.mark.parametrize("raw", [b"<html>gateway</html>", b"[1]", b'{"choices": []}', b'{"choices": [{"message": 3}]}'])
def test_garbage_costs_the_page_only(served: Served, raw: bytes) -> None:
    served.reply = lambda pages, tries: Reply(raw=raw) if 2 in pages else well_read(pages, tries)
    results = read(engine_for(served, max_tries=2), 3)
    assert statuses(results) == ["repaired", "failed", "repaired"]
    assert str(results[1].ledger.reason).startswith("the answer")


def test_group_too_large_for_the_context_is_read_page_by_page(served: Served) -> None:
    served.reply = lambda pages, tries: (
        Reply("maximum context length is 1024", status=400) if len(pages) > 1 else well_read(pages, tries)
    )
    results = read(engine_for(served), 3)
    assert statuses(results) == ["repaired"] * 3
    assert "maximum context length" in str(results[0].ledger.reason)
    assert served.pages == [[1, 2, 3], [1], [2], [3]]


def test_wrong_key_names_the_endpoint_and_not_the_key(served: Served) -> None:
    with pytest.raises(EngineError, match=rf"{served.url} refused the API key \(HTTP 401\)") as caught:
        read(engine_for(served, api_key="wrong-key"), 3)
    assert "wrong-key" not in str(caught.value)
    assert not isinstance(caught.value, EngineUnavailable)
    assert served.pages == []


def test_wrong_model_names_those_served(served: Served) -> None:
    with pytest.raises(EngineError, match="does not serve the model 'other'; it serves: baidu/Unlimited-OCR"):
        read(engine_for(served, model="other"), 1)


def test_wrong_path_is_said(served: Served) -> None:
    with pytest.raises(EngineError, match="HTTP 404"):
        read(engine_for(served, base_url=served.url.removesuffix("/v1") + "/v2"), 1)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://host:port/v1", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(EngineError, match=r"endpoint"):
        read(create_engine("served", base_url=url), 1)


def test_user_and_password_of_the_url_are_not_shown() -> None:
    engine = create_engine("served", base_url="http://user:hush@127.0.0.1:9/v1", max_tries=1)
    with pytest.raises(EngineUnavailable) as caught:
        read(engine, 1)
    assert "hush" not in str(caught.value)
    assert "127.0.0.1:9" in str(caught.value)


def test_requests_run_together_up_to_the_limit(served: Served) -> None:
    together = threading.Barrier(3)

    def waits_for_three(pages: list[int], tries: int) -> Reply:
        together.wait(timeout=20)
        return well_read(pages, tries)

    served.reply = waits_for_three
    results = read(engine_for(served, pages_per_request=1, max_concurrency=3), 9)
    assert statuses(results) == ["ok"] * 9
    assert served.most_at_once == 3


def test_pages_are_taken_as_they_are_needed(served: Served) -> None:
    taken: list[int] = []

    def pages() -> Iterator[PageImage]:
        for index in range(40):
            taken.append(index)
            yield page_image(index)

    results = engine_for(served, pages_per_request=2, max_concurrency=2).read_pages(pages())
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(taken) <= 6


def test_answers_that_break_off_are_asked_for_again(served: Served) -> None:
    def breaks_off_twice(pages: list[int], tries: int) -> Reply:
        if tries == 0:
            return replace(well_read(pages, tries), finish_reason=None)
        if tries == 1:
            return Reply(raw=b'data: {"error": {"message": "out of memory"}}\n\n', content_type="text/event-stream")
        return well_read(pages, tries)

    served.reply = breaks_off_twice
    results = read(engine_for(served), 3)
    assert statuses(results) == ["ok"] * 3
    assert served.pages == [[1, 2, 3]] * 3


def test_server_that_does_not_stream_is_read_too(served: Served) -> None:
    served.is_streaming = False
    results = read(engine_for(served), 3)
    assert statuses(results) == ["ok"] * 3
    assert sum(result.ledger.token_count for result in results) == 22


def test_answer_that_the_server_aborted_is_no_page(served: Served) -> None:
    served.reply = lambda pages, tries: replace(
        well_read(pages, tries), finish_reason="abort" if 2 in pages else "stop"
    )
    results = read(engine_for(served, max_tries=1), 3)
    assert statuses(results) == ["repaired", "failed", "repaired"]
    assert results[1].ledger.reason == "the answer was ended by the server (abort)"


def test_leaving_early_leaves_no_request_running(served: Served) -> None:
    def slow_after_the_first(pages: list[int], tries: int) -> Reply:
        reply = well_read(pages, tries)
        return reply if 1 in pages else replace(reply, text=reply.text * 300, pause_s=0.05)

    served.reply = slow_after_the_first
    results = engine_for(served, pages_per_request=1).read_pages(page_image(index) for index in range(6))
    next(results)
    results.close()  # type: ignore[attr-defined]
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("served")]
    for worker in workers:
        worker.join(timeout=30)
    assert workers
    assert not any(worker.is_alive() for worker in workers)


def test_markers_part_the_pages() -> None:
    assert split_at_markers("<PAGE>a\n<PAGE> b") == ["a", "b"]
    assert split_at_markers("a<PAGE>b") == ["a", "b"]
    assert split_at_markers("\n<PAGE>a<PAGE>") == ["a", ""]
    assert split_at_markers("  ") == []


def test_bodies_hold_the_images_in_order() -> None:
    body = request_body([b"1", b"2"], ServedModel(Dialect.VLLM, None), ServedOptions("http://h/v1", "m"))
    urls = [part["image_url"]["url"] for part in body["messages"][0]["content"][1:]]
    assert urls == ["data:image/png;base64,MQ==", "data:image/png;base64,Mg=="]


def test_identity_does_not_depend_on_where_the_server_is() -> None:
    one = create_engine("served", base_url="http://a/v1", api_key="k")
    other = create_engine("served", base_url="http://b/v1")
    assert one.identity() == other.identity()
    assert one.identity() != create_engine("served", base_url="http://a/v1", model="m").identity()
    assert "k" not in one.identity().values()
