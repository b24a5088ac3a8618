"""Simulate a batch job on many hosts, and print what limits it.

A job is a number of tasks, which the driver dispatches one after the other. A task reads its rows from a storage that
all hosts share, and computes them; both happen at the same time. A host fails at random and comes back after a while.
Its running tasks are repeated elsewhere. A process starts and reads the model before its first task.
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Job:
    """A job: rows, times in seconds, sizes in bytes, and rates per second."""

    hosts: int = 100
    processes: int = 16
    rows: int = 1_000_000_000
    rows_per_task: int = 20_000
    seconds_per_row: float = 0.0025
    bytes_per_row: int = 150_528
    storage_bandwidth: float = 25e9
    host_bandwidth: float = 1.25e9
    dispatches_per_second: float = 1000.0
    start_seconds: float = 15.0
    model_bytes: int = 14_000_000
    failures_per_host_hour: float = 0.0
    absence_seconds: float = 120.0

    @property
    def task_seconds(self) -> float:
        """How long a task takes: the longest of computing and reading, if all processes read at the same time."""
        volume = self.rows_per_task * self.bytes_per_row
        share = min(self.host_bandwidth / self.processes, self.storage_bandwidth / (self.hosts * self.processes))
        return max(self.rows_per_task * self.seconds_per_row, volume / share)

    @property
    def first_seconds(self) -> float:
        """How long a process takes until it can begin its first task."""
        share = min(self.host_bandwidth, self.storage_bandwidth / self.hosts) / self.processes
        return self.start_seconds + self.model_bytes / share

    @property
    def ideal_seconds(self) -> float:
        """The time of the job if computing were all that takes time."""
        return self.rows * self.seconds_per_row / (self.hosts * self.processes)


def simulated(job: Job, seed: int = 0) -> float:
    """Return how many seconds the job takes."""
    chance = random.Random(seed)
    waiting = -(-job.rows // job.rows_per_task)
    running, end, dispatched = 0, 0.0, 0.0
    failing = [(_failure(job, chance), host) for host in range(job.hosts)]
    heapq.heapify(failing)
    lost_at = [-1.0] * job.hosts
    free = [(job.first_seconds, host) for host in range(job.hosts) for _ in range(job.processes)]
    heapq.heapify(free)
    ends: list[tuple[float, float, int]] = []
    while waiting or running:
        moment = min(free[0][0] if free and waiting else float("inf"), ends[0][0] if ends else float("inf"))
        if failing[0][0] < moment:
            failed, host = heapq.heappop(failing)
            lost_at[host] = failed
            heapq.heappush(failing, (failed + job.absence_seconds + _failure(job, chance), host))
        elif ends and ends[0][0] == moment:
            moment, began, host = heapq.heappop(ends)
            running -= 1
            lost = lost_at[host] >= began
            waiting += lost
            back = lost_at[host] + job.absence_seconds + job.first_seconds
            heapq.heappush(free, (max(moment, back) if lost else moment, host))
            end = end if lost else moment
        else:
            moment, host = heapq.heappop(free)
            dispatched = max(moment, dispatched) + 1 / job.dispatches_per_second
            heapq.heappush(ends, (dispatched + job.task_seconds, dispatched, host))
            waiting, running = waiting - 1, running + 1
    return end


def _failure(job: Job, chance: random.Random) -> float:
    rate = job.failures_per_host_hour / 3600
    return chance.expovariate(rate) if rate else float("inf")


CASES = {
    "images as pixels, 2.5 ms": Job(),
    "rows of 490 bytes, 35 us": Job(
        rows=100_000_000_000, bytes_per_row=490, seconds_per_row=35e-6, rows_per_task=10**6
    ),
    "images as JPEG of 15 KB, 2 ms more to decode": Job(bytes_per_row=15_000, seconds_per_row=0.0045),
    "storage of 100 GB/s": Job(storage_bandwidth=100e9),
    "500 rows in a task": Job(rows=300_000_000, rows_per_task=500, bytes_per_row=15_000),
    "1 million rows in a task": Job(rows_per_task=1_000_000, bytes_per_row=15_000),
    "a model of 10 GB": Job(model_bytes=10_000_000_000, bytes_per_row=15_000),
    "a host fails every 10 hours": Job(failures_per_host_hour=0.1, bytes_per_row=15_000),
    "a host fails every hour": Job(failures_per_host_hour=1.0, bytes_per_row=15_000),
}


def main() -> None:
    """Print the time of each case on 1, 10 and 100 hosts, and the share of it that is computing, as a table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| job | 1 host | 10 hosts | 100 hosts |\n| --- | ---: | ---: | ---: |")
    for name, job in CASES.items():
        cells = []
        for hosts in (1, 10, 100):
            sized = replace(job, hosts=hosts, rows=job.rows * hosts // 100)  # the same work for each host
            seconds = simulated(sized)
            cells.append(f"{seconds / 3600:.2f} h, {sized.ideal_seconds / seconds:.0%}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
