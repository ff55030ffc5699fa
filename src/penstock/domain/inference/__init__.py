"""Infer the declaration of a dataset from a sample of a CSV file.

Every guess has a reason. The file itself is read elsewhere.
"""
