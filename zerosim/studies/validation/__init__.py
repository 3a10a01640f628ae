"""Predictions beside what others have measured and published: rows in, signed errors out.

`row -> case -> prediction -> errors -> groups`. A case is a scenario with what was measured of it; what a row does not
say is assumed in one table. Rule: nothing here knows a row or a study by name, and no number is fitted to one.
"""
