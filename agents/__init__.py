"""Persistent reactive agents."""

if __name__ == "agents":
    raise ImportError("this folder is imported as mombroker.agents")
