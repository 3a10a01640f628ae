"""Turns priced work into time. Knows ops, demands and supply; no training, no topology, no rate of its own."""

from zerosim.engine.play import play

__all__ = ["play"]
