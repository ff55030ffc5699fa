"""Guess how a file would be declared as a dataset, with a reason for each guess.

Pure decisions over what was read; whoever reads the file is elsewhere.
"""
