"""Benchmarks: each prints ratios measured in one run, and fails below its limit."""
