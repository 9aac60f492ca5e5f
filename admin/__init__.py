"""What an operator uses: the command line, topologies, analysis."""

if __name__ == "admin":
    raise ImportError("this folder is imported as mombroker.admin")
