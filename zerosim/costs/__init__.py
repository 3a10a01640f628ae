"""Prices work on a machine: how much of which resource each op needs. It knows no order of layers and no clock."""

from zerosim.costs.price import Change, Priced, price

__all__ = ["Change", "Priced", "price"]
