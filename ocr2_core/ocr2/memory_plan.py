"""How much GPU memory reading takes, and how many documents fit at a time: the budget behind `ocr2kb plan`.

weights + activations + (KV working set + index + a document's share of a decode step) × concurrency, all plus a margin.
KV and index are exact: they are counted from the geometry as the block pool counts them. Activations are estimates
from the shapes of the largest tensors of each stage (stages run one after another, so the largest counts). The KV
pool is sized so that `concurrency` working sets stay under its watermark. GB are 10⁹ bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ocr2_core.errors import EngineError
from ocr2_core.ocr2.model_geometry import ModelGeometry
from ocr2_core.ocr2.page_groups import Grouping

GB = 1e9
# "Multi page parsing." and the one before it; BOS comes on top
PROMPT_TOKENS = 5
BOS_TOKENS = 1
# text tokens of a dense page, for the comparison with full attention
TEXT_TOKENS_A_PAGE = 2277
MAX_CONCURRENCY = 4096


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is asked: a GPU, documents of `page_count` pages, `concurrency` of them at a time, groups of a preset.

    `block_budget`: blocks attended to in a step; copied only where `has_kernel` is false (no Triton).
    """

    gpu_bytes: int
    page_count: int = 300
    concurrency: int = 16
    preset: str = "v1-safe"
    page_chunk_size: int | None = None
    margin: float = 0.2
    kv_cache_watermark: float = 0.8
    block_budget: int = 64
    has_kernel: bool = True
    prefill_chunk_tokens: int = 1024
    encode_pages: int = 4
    prompt_tokens: int = PROMPT_TOKENS
    geometry: ModelGeometry = field(default_factory=ModelGeometry)

    def __post_init__(self) -> None:
        counts = {"pages": self.page_count, "concurrency": self.concurrency, "GPU memory": self.gpu_bytes}
        for name, value in counts.items():
            if value < 1:
                raise EngineError(f"{name} must be at least 1, not {value}.")
        if not 0 <= self.margin < 1 or not 0 < self.kv_cache_watermark <= 1:
            raise EngineError("the margin must be in 0..1 and the watermark over 0 and at most 1.")

    @property
    def group_pages(self) -> int:
        """Pages of one document in the cache at a time, at most."""
        return min(Grouping.of_preset(self.preset, self.page_chunk_size).page_chunk_size, self.page_count)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The budget in bytes. `kv_bytes`, `index_bytes` and `step_bytes` are of one document, `pool_bytes` of all."""

    request: PlanRequest
    weight_bytes: int
    encode_bytes: int
    prefill_bytes: int
    step_bytes: int
    kv_bytes: int
    index_bytes: int

    @property
    def activation_bytes(self) -> int:
        """The largest stage that is not a share of each document: encoding pages or prefilling a group."""
        return max(self.encode_bytes, self.prefill_bytes)

    @property
    def pool_bytes(self) -> int:
        """KV and index of all documents together, with the headroom that the watermark keeps free."""
        request = self.request
        working_sets = (self.kv_bytes + self.index_bytes) * request.concurrency
        # with a single document the batch may fill the pool to the brim
        return working_sets if request.concurrency == 1 else round(working_sets / request.kv_cache_watermark)

    @property
    def margin_bytes(self) -> int:
        """For what nothing above counts: the CUDA context, the allocator's slack, library workspaces."""
        return round(self._counted_bytes * self.request.margin)

    @property
    def total_bytes(self) -> int:
        return self._counted_bytes + self.margin_bytes

    @property
    def is_fitting(self) -> bool:
        return self.total_bytes <= self.request.gpu_bytes

    @property
    def full_attention_bytes(self) -> int:
        """What one document's KV would be were all its pages and all its text kept, for comparison."""
        request = self.request
        return request.page_count * (request.geometry.page_tokens + TEXT_TOKENS_A_PAGE) * request.geometry.token_bytes

    @property
    def _counted_bytes(self) -> int:
        steps = self.step_bytes * self.request.concurrency
        return self.weight_bytes + self.activation_bytes + steps + self.pool_bytes


def make_plan(request: PlanRequest) -> MemoryPlan:
    """The budget for what is asked, fitting or not."""
    geometry, pages = request.geometry, request.group_pages
    text, value = geometry.text, geometry.value_bytes
    tokens = working_tokens(request)
    patches = geometry.vision.patches
    one_layer_kv = tokens * geometry.token_bytes // text.layers
    mask = min(request.prefill_chunk_tokens, tokens) * tokens * value
    hidden = pages * geometry.page_tokens * text.hidden * value
    expert_rows = request.prefill_chunk_tokens * text.experts_a_token
    experts = expert_rows * (text.hidden + 3 * text.expert_intermediate) * value
    selected = 0 if request.has_kernel else request.block_budget * geometry.block_tokens * geometry.token_bytes
    return MemoryPlan(
        request=request,
        weight_bytes=geometry.weight_bytes or geometry.parameter_count * value,
        # the scores of a global attention layer and the position bias added to them
        encode_bytes=2 * request.encode_pages * geometry.vision.heads * patches**2 * value,
        # a group's embeddings and outputs, one layer's keys and values laid side by side, mask, routed experts
        prefill_bytes=2 * hidden + one_layer_kv + mask + experts,
        # copies of the selected blocks where no kernel reads them in place, and logits in fp32
        step_bytes=selected + 4 * text.vocabulary,
        kv_bytes=tokens * geometry.token_bytes,
        index_bytes=pages * geometry.page_index_bytes,
    )


def working_tokens(request: PlanRequest) -> int:
    """Tokens that one document keeps in the cache at most; it does not grow with the document."""
    fixed = BOS_TOKENS + request.prompt_tokens + request.geometry.text.window_tokens
    return request.group_pages * request.geometry.page_tokens + fixed


def largest_concurrency(request: PlanRequest) -> int:
    """The most documents at a time that fit, 0 if not even one does."""
    return _largest(lambda count: make_plan(replace(request, concurrency=count)).is_fitting, MAX_CONCURRENCY)


def largest_group(request: PlanRequest) -> int:
    """The most pages in a group that fit at the concurrency asked for, at most the document's; 0 if none do."""
    return _largest(lambda count: make_plan(replace(request, page_chunk_size=count)).is_fitting, request.page_count)


def _largest(is_fitting: Any, most: int) -> int:
    """The largest number in 1..most that fits, by bisection (fitting is monotone); 0 if 1 does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_fitting(middle) else (low, middle - 1)
    return low


def as_json(plan: MemoryPlan) -> dict[str, Any]:
    """The plan as plain data: `ocr2kb plan --json`."""
    request = plan.request
    asked = asdict(request)
    del asked["geometry"]
    return {
        "asked": {**asked, "group_pages": request.group_pages},
        "fits": plan.is_fitting,
        "largest_concurrency": largest_concurrency(request),
        "largest_group_pages": largest_group(request),
        "parameter_count": request.geometry.parameter_count,
        "kv_token_bytes": request.geometry.token_bytes,
        "working_tokens": working_tokens(request),
        "bytes": {
            "weights": plan.weight_bytes,
            "activations": plan.activation_bytes,
            "steps": plan.step_bytes * request.concurrency,
            "kv_a_document": plan.kv_bytes,
            "index_a_document": plan.index_bytes,
            "kv_pool": plan.pool_bytes,
            "margin": plan.margin_bytes,
            "total": plan.total_bytes,
            "full_attention_kv_a_document": plan.full_attention_bytes,
        },
    }


def plan_lines(plan: MemoryPlan) -> list[str]:
    """The plan for people."""
    request = plan.request
    geometry = request.geometry
    rows = [
        ("weights", plan.weight_bytes, f"{geometry.parameter_count:,} parameters"),
        ("activations", plan.activation_bytes, "estimate: encoding pages or prefilling a group"),
        ("decode steps", plan.step_bytes * request.concurrency, f"{request.concurrency} documents"),
        ("KV pool", plan.pool_bytes, _pool_words(plan)),
        ("margin", plan.margin_bytes, f"{request.margin:.0%}"),
    ]
    lines = [f"{name:<13}{size / GB:>9.2f} GB  {note}" for name, size, note in rows]
    verdict = "fits" if plan.is_fitting else "does not fit"
    lines.append(f"{'total':<13}{plan.total_bytes / GB:>9.2f} GB  {verdict} in {request.gpu_bytes / GB:.2f} GB")
    lines.append(
        f"One document of {request.page_count} pages keeps {plan.kv_bytes / GB:.2f} GB of KV and "
        f"{plan.index_bytes / GB:.3f} GB of index; full attention would keep {plan.full_attention_bytes / GB:.2f} GB."
    )
    most, group = largest_concurrency(request), largest_group(request)
    if most:
        lines.append(f"Largest concurrency with groups of {request.group_pages} pages: {_up_to(most)}.")
    else:
        lines.append(f"Not even one document fits with groups of {request.group_pages} pages.")
    if group:
        lines.append(f"Largest group with {request.concurrency} documents at a time: {group} pages.")
    else:
        lines.append(f"No group size fits {request.concurrency} documents at a time.")
    return lines


def _pool_words(plan: MemoryPlan) -> str:
    request = plan.request
    per_document = f"{request.concurrency} × ({plan.kv_bytes / GB:.3f} KV + {plan.index_bytes / GB:.3f} index)"
    return per_document if request.concurrency == 1 else f"{per_document} / {request.kv_cache_watermark} watermark"


def _up_to(count: int) -> str:
    return f"{count} or more" if count == MAX_CONCURRENCY else str(count)
