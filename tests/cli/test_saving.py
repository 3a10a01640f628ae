"""`run --save-cost`: tables below the report, the key `saving` in the JSON, and what its options refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import SMALL, ask
from tests.cli.test_contract import NUMBER, RUN, holds

SAVING: dict[str, Any] = {
    "storage": str,
    "files": [{"name": str, "count": int, "bytes": NUMBER}],
    "operations": [
        {"operation": str, "fits": bool, "limited_by": str}
        | dict.fromkeys(("seconds", "gather_seconds", "copy_seconds", "file_seconds", "host_peak_bytes"), NUMBER)
        | dict.fromkeys(("bytes_first_rank", "bytes_per_rank", "bytes_total"), NUMBER)
    ],
    "loading": [{"way": str, "host_peak_bytes": NUMBER, "fits": bool}],
    "gather_16bit_weights_on_model_save": bool,
    "interval_steps": int,
    "overhead": NUMBER,
    "host_capacity_bytes": NUMBER,
    "findings": list,
    "notes": list,
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_json_gains_a_key_and_keeps_the_others(small: Path) -> None:
    plain, more = ask("run", small, "--json").json, ask("run", small, "--json", "--save-cost").json
    holds(more, RUN | {"saving": SAVING})
    assert more == plain | {"saving": more["saving"]}
    assert [each["operation"] for each in more["saving"]["operations"]] == [
        "save checkpoint", "save weights", "load checkpoint",
    ]  # fmt: skip


def test_the_tables_stand_below_the_report(small: Path) -> None:
    plain, more = ask("run", small), ask("run", small, "--save-cost")
    assert more.out.startswith(plain.out)
    below = more.out.removeprefix(plain.out)
    assert "mp_rank_00_model_states.pt" in below
    assert "Saving every 500 steps adds" in below
    assert all(len(line) <= 100 and line == line.rstrip() for line in below.splitlines())


def test_a_rate_is_enough_to_ask_and_the_interval_can_be_set(small: Path) -> None:
    saving = ask("run", small, "--json", "--save-rate", "2 GB/s", "--save-every", "100").json["saving"]
    assert saving["storage"] == "shared file system, 2 GB/s"
    assert saving["interval_steps"] == 100
    often = ask("run", small, "--json", "--save-rate", "2 GB/s", "--save-every", "10").json["saving"]
    assert often["overhead"] == pytest.approx(10 * saving["overhead"])


@pytest.mark.parametrize("rate", ["2 GBs", "fast", "0", "-1 GB/s", "nan", "inf"])
def test_a_rate_that_is_none_is_refused(small: Path, rate: str) -> None:
    (line,) = ask("run", small, "--save-cost", f"--save-rate={rate}").refused()
    assert line.startswith("--save-rate: found ")


def test_an_interval_below_one_step_is_refused(small: Path) -> None:
    assert ask("run", small, "--save-cost", "--save-every", "0").code == 2
