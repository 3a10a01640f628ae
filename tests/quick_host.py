"""A host that takes no time, for tests that are about the work it issues."""

from __future__ import annotations

from contextlib import AbstractContextManager

from zerosim import catalog


def quick_host() -> AbstractContextManager[None]:
    """Within it calls cost nothing."""
    return catalog.using({f"host.{name}": 0.0 for name in catalog.constants("host")})
