"""What the papers measured, measured again with the broker's own cores: one module a paper."""
