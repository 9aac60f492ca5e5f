"""Cores whose group changes while it works: a daisy that splits and merges, an overlay that grows."""
