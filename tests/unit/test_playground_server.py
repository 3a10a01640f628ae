"""The playground's door: who may ask, what is refused, and files that read back as what is shown."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cli.asking import ROOT, SMALL
from zerosim.playground.server import HEADERS, LARGEST, app
from zerosim.playground.start import Start, begin
from zerosim.scenario import from_mapping, load
from zerosim.simulation import simulate

HOME = "http://127.0.0.1:8000"
HOSTILE = "<script>alert('x')</script>\u2028\" & </script>"


class Door:
    """The application, asked without a network."""

    def __init__(self, start: Start) -> None:
        self.app = app(start, 8000)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        async def answer() -> Any:
            through = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=through, base_url=HOME) as client:
                return await client.request(method, path, **more)

        return asyncio.run(answer())

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, **more)

    def post(self, path: str, **more: Any) -> Any:
        return self.ask("POST", path, **more)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Door:
    file = tmp_path_factory.mktemp("play") / "small.yaml"
    file.write_text(SMALL)
    return Door(begin(file))


@pytest.fixture(scope="module")
def begun(client: Door) -> dict[str, Any]:
    told: dict[str, Any] = client.get("/start").json()
    return told


def question(begun: dict[str, Any], **knobs: Any) -> dict[str, Any]:
    return {"start": begun["start"], "state": {**begun["state"], **knobs}, "page": "test", "number": 1}


def asked(client: Door, begun: dict[str, Any], path: str = "/play", **knobs: Any) -> Any:
    answer = client.post(path, json=question(begun, **knobs))
    assert answer.status_code == 200, answer.text
    return answer


# --- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/play.js", "/knobs.js", "/answer.js", "/link.js", "/asking.js", "/play.css",
                                  "/timeline.js", "/page.css", "/icon.svg", "/start", "/nothing"])  # fmt: skip
def test_everything_says_what_a_browser_must_not_do_with_it(client: Door, path: str) -> None:
    told = client.get(path)
    assert told.status_code == (404 if path == "/nothing" else 200)
    assert {name: told.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in told.headers["Content-Security-Policy"]
    assert "access-control-allow-origin" not in told.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:80", "localhost", ""])
def test_another_name_for_this_machine_is_refused(client: Door, host: str) -> None:
    told = client.get("/start", headers={"Host": host})
    assert told.status_code == 403
    assert "state" not in told.text
    assert client.get("/start", headers={"Host": "localhost:8000"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9000", "https://127.0.0.1:8000"])
def test_another_page_is_refused(client: Door, begun: dict[str, Any], origin: str) -> None:
    told = client.post("/play", json=question(begun), headers={"Origin": origin})
    assert told.status_code == 403
    assert client.post("/play", json=question(begun), headers={"Origin": HOME}).status_code == 200
    assert client.ask("OPTIONS", "/play", headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "text/plain", 415),  # what a form elsewhere could send
        (b"{}", "", 415),
        (b"{", "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b'{"page": NaN}', "application/json", 400),
        (b"{}", "application/json", 400),
        (b"[]", "application/json; charset=utf-8", 400),
        (b"\xff", "application/json", 400),
        (b" " * (LARGEST + 1), "application/json", 413),
    ],
)
def test_what_is_no_question_is_refused(client: Door, body: bytes, kind: str, status: int) -> None:
    told = client.post("/play", content=body, headers={"Content-Type": kind})
    assert told.status_code == status
    ((beside),) = told.json()["wrong"]
    assert "expected" in beside["text"]


def test_questions_are_sent_and_not_named_in_an_address(client: Door) -> None:
    assert client.get("/play").status_code == 405
    assert client.get("/download/trace").status_code == 405


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_has_the_numbers_of_the_command(client: Door, begun: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    told = asked(client, begun, micro_batch=3, reduce_bucket="2m").json()
    changes = ["training.micro_batch_size=3", "strategy.deepspeed.zero_optimization.reduce_bucket_size=2m"]
    alone = simulate(load(tmp_path / "small.yaml", changes)).summary()
    shown = {each["name"]: each["value"] for each in told["numbers"]}
    assert shown["step"] == alone.step_seconds == told["figure"]["seconds"]
    assert (shown["tokens"], shown["mfu"]) == (alone.tokens_per_second, alone.mfu)
    (gpu,) = told["memory"]
    assert (gpu["peak"], gpu["capacity"]) == (alone.memory["gpu"].peak_bytes, alone.memory["gpu"].capacity_bytes)
    assert told["state"]["reduce_bucket"] == "2m"
    assert 'id="stalls"' in told["sections"]


def test_host_memory_is_that_of_the_ranks_of_a_node(client: Door, begun: dict[str, Any]) -> None:
    told = asked(client, begun, gpus=8, offload_optimizer="cpu").json()
    gpu, dram = told["figure"]["memory"][0]
    assert (gpu["tier"], dram["tier"], dram["ranks"]) == ("gpu", "dram", 8)
    assert dram["peak"] == told["memory"][1]["peak"]


def test_what_is_wrong_is_an_answer_and_stands_beside_its_knob(client: Door, begun: dict[str, Any]) -> None:
    assert asked(client, begun, micro_batch=0).json() == {
        "wrong": [{"control": "micro_batch", "text": "found 0; expected a number greater than or equal to 1"}]
    }
    (beside,) = asked(client, begun, accumulation=100_000).json()["wrong"]
    assert beside["control"] == "accumulation"


def test_a_link_of_another_scenario_is_told_and_not_played(client: Door, begun: dict[str, Any]) -> None:
    told = client.post("/play", json={**question(begun), "start": "0123"})
    (beside,) = told.json()["wrong"]
    assert (told.status_code, beside["control"]) == (200, "")
    assert "small.yaml" in beside["text"]


def test_an_older_question_of_the_same_page_gets_no_timeline(client: Door, begun: dict[str, Any]) -> None:
    newer, older = ({**question(begun), "page": "one", "number": number} for number in (2, 1))
    assert "figure" in client.post("/play", json=newer).json()
    assert client.post("/play", json=older).json() == {"superseded": True}


def test_titles_stay_text() -> None:
    start = begin(None, (f"title={json.dumps(HOSTILE.replace(chr(0x2028), ''))}",))
    client = Door(start)
    told = client.post("/play", json=question(client.get("/start").json())).json()
    assert told["title"] == start.scenario.title
    assert "<script" not in told["sections"]


# --- files -----------------------------------------------------------------------------------------------------------

TURNED: dict[str, Any] = {
    "strategy": "zero3",
    "micro_batch": 2,
    "network": 50,
    "nodes": 2,
    "reduce_bucket": 1e6,
    "overlap": "off",
}


def test_the_scenario_that_is_kept_is_the_one_that_is_shown(client: Door, begun: dict[str, Any]) -> None:
    shown = asked(client, begun, **TURNED).json()
    kept = from_mapping(yaml.safe_load(asked(client, begun, "/download/scenario", **TURNED).content))
    assert simulate(kept).makespan == shown["figure"]["seconds"]
    assert kept.title == shown["title"]


def test_the_deepspeed_json_reads_as_the_same_strategy(client: Door, begun: dict[str, Any]) -> None:
    text = yaml.safe_load(asked(client, begun, "/download/scenario", **TURNED).content)
    data = json.loads(asked(client, begun, "/download/deepspeed", **TURNED).content)
    assert data["train_micro_batch_size_per_gpu"] == 2
    assert data["zero_optimization"]["reduce_bucket_size"] == 1_000_000
    again = from_mapping({**text, "strategy": {"deepspeed": data}})
    assert again.strategy == from_mapping(text).strategy
    (beside,) = asked(client, begun, "/download/deepspeed", strategy="ddp").json()["wrong"]
    assert "a ZeRO stage" in beside["text"]


def test_the_trace_is_that_of_the_step(client: Door, begun: dict[str, Any]) -> None:
    shown = asked(client, begun, **TURNED).json()
    trace = json.loads(gzip.decompress(asked(client, begun, "/download/trace", **TURNED).content))
    ends = [event["ts"] + event["dur"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert max(ends) / 1e6 == pytest.approx(shown["figure"]["seconds"], rel=1e-3)
    assert trace["distributedInfo"]["world_size"] == 16


def test_a_calibration_is_in_the_scenario_that_is_kept(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("name: c\ncopies: {h2d: {rate: 20 GB/s, source: a test}}\n")
    (tmp_path / "small.yaml").write_text(SMALL + "calibration: cluster.yaml\n")
    client = Door(begin(tmp_path / "small.yaml"))
    kept = asked(client, client.get("/start").json(), "/download/scenario").content
    again, given = from_mapping(yaml.safe_load(kept), ROOT).calibration, load(tmp_path / "small.yaml").calibration
    assert again is not None
    assert given is not None
    assert replace(again, origin="") == replace(given, origin="")
