"""A message broker of many servers that keeps causal order, end to end, through crashes."""

__version__ = "0.1.0"
