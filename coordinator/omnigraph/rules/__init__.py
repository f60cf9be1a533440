"""Functions from value to value: no clock, no disk, no randomness."""
