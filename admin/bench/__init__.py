"""Measurements of a bus: each figure beside F, the time that the same disk takes to make one small record durable."""
