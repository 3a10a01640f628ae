"""The core of the lesson that sharding changes no mathematics: numpy does what the program of a strategy says."""

from sharding.layouts import WrongProgramError
from sharding.network import small_network, some_text
from sharding.training import program, train_sharded
from sharding.unsharded import train_unsharded

__all__ = ["WrongProgramError", "program", "small_network", "some_text", "train_sharded", "train_unsharded"]
