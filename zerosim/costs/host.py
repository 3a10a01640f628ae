"""What the host thread spends to issue an op: counts of calls times what each costs (catalogue group `host`).

The host runs ahead of the GPU; a step is bound by it only when its calls take longer than the kernels they launch.
"""

from __future__ import annotations

from zerosim.catalog import constants
from zerosim.step import HostCalls


def issue_seconds(calls: HostCalls) -> float:
    """Seconds of the host thread to issue an op."""
    cost = constants("host")
    return 1e-6 * (
        calls.kernels * cost["launch_us"]
        + calls.model_kernels * cost["model_launch_us"]
        + calls.collectives * cost["collective_call_us"]
        + calls.gradient_hooks * cost["gradient_hook_us"]
        + calls.module_hooks * cost["module_hook_us"]
        + calls.hook_parameters * cost["hook_parameter_us"]
        + calls.reads * cost["scalar_read_us"]
    )
