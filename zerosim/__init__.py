"""zerosim: a discrete-event simulator of one training step across tiered memory."""
