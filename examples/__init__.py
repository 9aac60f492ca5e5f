"""Small buses to read, run and change; each topology file lies beside its agents."""
