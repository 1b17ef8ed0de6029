"""A scheduler of vLLM that has all rows of a group draw their token in the same step.

A group waits until all its requests have come. Each row reads its prompt like any other request, in chunks and with
what is cached, but for the last token, which is read only in a step with all rows. Those rows go first and have their
blocks of the cache for certain; a row that is preempted takes its group with it. Everything else is as without it.

Written for vLLM 0.32, whose scheduler is not a stable interface.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from vllm_mixtures.rows import row_of

logger = init_logger("vllm.expert_workbench")


@dataclass
class Gang:
    """The requests of a group, by their row; as long as one is missing they are not in any queue."""

    num_rows: int
    rows: dict[int, Request] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all its requests have come."""
        return len(self.rows) == self.num_rows

    @property
    def requests(self) -> list[Request]:
        """Its requests, in the order of rows."""
        return [self.rows[number] for number in sorted(self.rows)]

    @property
    def is_ready(self) -> bool:
        """Whether each row has one token left to read."""
        return self.is_complete and all(
            request.status == RequestStatus.RUNNING and request.num_tokens - request.num_computed_tokens == 1
            for request in self.rows.values()
        )


class MixtureScheduler(Scheduler):
    """vLLM's scheduler, for requests of their own and for groups."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.scheduler_config.async_scheduling:
            raise ValueError("Groups need every step's tokens before the next: start vLLM with --no-async-scheduling.")
        if self.policy != SchedulingPolicy.FCFS:
            raise ValueError("Groups are scheduled as they come: start vLLM without --scheduling-policy.")
        if self.vllm_config.max_concurrent_batches > 1 or self.parallel_config.data_parallel_size > 1:
            raise ValueError("The rows of a group are in one step: start vLLM without pipeline or data parallelism.")
        self._gangs: dict[str, Gang] = {}
        self._gang_of: dict[str, str] = {}  # by the id of a request
        self._may_draw: set[str] = set()  # ids of rows that read their last token in this step

    def add_request(self, request: Request) -> None:
        """Takes a request; one of a group is held until all of it has come."""
        row = row_of(request.sampling_params)
        if row is None:
            super().add_request(request)
            return
        gang = self._gangs.setdefault(row.group, Gang(row.num_rows))
        if gang.num_rows != row.num_rows or row.number in gang.rows:
            super().add_request(request)
            self._fail([request], f"another request is row {row.number} of its group already")
            return
        gang.rows[row.number] = request
        self._gang_of[request.request_id] = row.group
        if not gang.is_complete:
            return
        for one in gang.requests:
            super().add_request(one)
        if why := self._why_not(gang):
            self._fail(gang.requests, why)

    def _why_not(self, gang: Gang) -> str:
        """Why a complete group can never run; empty where it can."""
        lengths = {one.num_tokens for one in gang.requests}
        adapters = {one.lora_request.lora_int_id for one in gang.requests if one.lora_request}
        if min(lengths) < 2:
            return "a group needs a prompt of two tokens at least"
        if len(lengths) > 1:
            return "its rows have different prompts"
        if gang.num_rows > self.max_num_active_reqs:
            return f"it has {gang.num_rows} rows, and vLLM runs {self.max_num_active_reqs} (--max-num-seqs)"
        if self.lora_config is not None and len(adapters) > self.lora_config.max_loras:
            return f"it has {len(adapters)} adapters, and vLLM runs {self.lora_config.max_loras} (--max-loras)"
        return ""

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        """Ends requests; the other rows of their groups end with an error, as no mixture is left."""
        ids = None if request_ids is None else {request_ids} if isinstance(request_ids, str) else set(request_ids)
        names = [*self._gangs] if ids is None else {self._gang_of[id] for id in ids if id in self._gang_of}
        held = [one for name in names if not self._gangs[name].is_complete for one in self._gangs[name].requests]
        for one in held:  # so that all ends are reported in one way
            super().add_request(one)
        ended = super().finish_requests(ids, finished_status)
        for name in names:
            self._leave_out(name)
        return ended

    def _leave_out(self, name: str) -> None:
        requests = self._gangs.pop(name).requests
        for one in requests:
            self._gang_of.pop(one.request_id, None)
        self._fail([one for one in requests if not one.is_finished()], "another row of its group has ended")

    def _fail(self, requests: Iterable[Request], why: str) -> None:
        """Has requests end with an error at the end of this step."""
        for request in requests:
            logger.info("Request %s of a mixture ends: %s.", request.request_id, why)
            self.encoder_cache_mismatch_reqs.add(request.request_id)  # whose ends are reported one by one

    def schedule(self, *arguments: Any, **options: Any) -> SchedulerOutput:
        """The requests of the next step."""
        for name in [name for name, gang in self._gangs.items() if any(one.is_finished() for one in gang.requests)]:
            self._leave_out(name)
        ready = [gang for gang in self._gangs.values() if gang.is_ready]
        ready = self._with_space(ready)
        first = [request for gang in ready for request in gang.requests]
        self._may_draw = {request.request_id for request in first}
        self.running = [*first, *(one for one in self.running if one.request_id not in self._may_draw)]
        output = super().schedule(*arguments, **options)
        if not output.total_num_scheduled_tokens and self._pause_state == PauseState.UNPAUSED:
            self._make_way()
        return output

    def _reserve_prefill_lookahead(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """As many tokens as may be read now: all but the last for a row whose group is not ready."""
        num_new_tokens = super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)
        waits = request.request_id in self._gang_of and request.request_id not in self._may_draw
        most = request.num_tokens - num_computed_tokens - 1 if waits else num_new_tokens
        return max(0, min(num_new_tokens, most))

    def _get_local_prefix_cache_hit(self, request: Request) -> tuple[KVCacheBlocks, int, int, bool]:
        """What of a prompt is cached; of a row at most so much that two tokens are left, so that it can be admitted."""
        blocks, num_cached, boundary, diverged = super()._get_local_prefix_cache_hit(request)
        most = max(0, request.num_tokens - 2)
        if request.request_id in self._gang_of and num_cached > most:
            kept, num_cached, _ = self.kv_cache_manager.coordinator.find_longest_cache_hit(request.block_hashes, most)
            blocks = self.kv_cache_manager.create_kv_cache_blocks(kept)
        return blocks, num_cached, boundary, diverged

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        """Whether a request may be admitted.

        Adapters of rows that wait for their group count as in use, and groups are put together one after another.
        """
        return (
            super()._handle_blocked_waiting_request(request)
            and self._adapter_fits(request)
            and not self._is_behind_another_group(request)
        )

    def _is_behind_another_group(self, request: Request) -> bool:
        own = self._gang_of.get(request.request_id)
        older = itertools.takewhile(lambda pair: pair[0] != own, self._gangs.items()) if own is not None else ()
        return any(
            one.status != RequestStatus.RUNNING for _, gang in older if gang.is_complete for one in gang.requests
        )

    def _adapter_fits(self, request: Request) -> bool:
        if self.lora_config is None or request.lora_request is None or not self._gangs:
            return True
        used = {one.lora_request.lora_int_id for one in self.running if one.lora_request}
        return len(used | {request.lora_request.lora_int_id}) <= self.lora_config.max_loras

    def _with_space(self, ready: list[Gang]) -> list[Gang]:
        """The groups that have their blocks in this step for certain; others are preempted, the newest first."""
        ready = list(ready)
        while ready and self._blocks_needed(ready) > self.kv_cache_manager.block_pool.get_num_free_blocks():
            rows = {one.request_id for gang in ready for one in gang.requests}
            others = [one for one in self.running if one.request_id not in rows]
            if others:
                self._preempt_all(self._with_its_group(others[-1]))
            elif len(ready) > 1:
                self._preempt_all(ready.pop().requests)
            else:
                self._fail(ready.pop().requests, "the key-value cache cannot hold all rows of its group")
        return ready

    def _blocks_needed(self, ready: list[Gang]) -> int:
        groups = self.kv_cache_config.kv_cache_groups
        least = min(group.kv_cache_spec.block_size for group in groups)
        requests = (one for gang in ready for one in gang.requests)
        return len(groups) * sum(one.num_computed_tokens % least == 0 for one in requests)

    def _with_its_group(self, request: Request) -> list[Request]:
        name = self._gang_of.get(request.request_id)
        return [request] if name is None else self._gangs[name].requests

    def _preempt_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.status == RequestStatus.RUNNING:
                self.running.remove(request)
                self._preempt_request(request, time.monotonic())

    def _make_way(self) -> None:
        """Where no request can go on, the newest group gives back what it holds; the last of all fails."""
        holding = [
            gang
            for gang in self._gangs.values()
            if gang.is_complete and any(one.status == RequestStatus.RUNNING for one in gang.requests)
        ]
        waiting = [gang for gang in self._gangs.values() if gang.is_complete]
        if len(holding) > 1:
            requests = holding[-1].requests
            self._preempt_all(requests)
            self.waiting.remove_requests(requests)
            for request in requests:
                self.waiting.add_request(request)
        elif waiting:
            why = "its rows cannot run together: they need more sequences, adapters or cache than this vLLM has"
            self._fail((holding or waiting)[0].requests, why)
