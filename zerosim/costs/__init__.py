"""Prices work on a machine: how much of which resource each op needs. It knows no order of layers and no clock."""

from zerosim.costs.price import Priced, price

__all__ = ["Priced", "price"]
