"""The classic troubles of a step: what shows them, why, and what a remedy makes of it, played and not guessed."""
