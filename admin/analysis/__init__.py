"""What ordering costs, from the servers' logs: export to Parquet, a Spark data source, analysis, advice.

Needs the extra `spark`; beside this package only audit/export.py and the papers' sweeps import pyspark or pyarrow.
"""

from importlib import import_module
from types import ModuleType

from mombroker.core.errors import MomError


def extra(name: str) -> ModuleType:
    """A module of mombroker.admin that needs the extra. Raises MomError, with the remedy, where that is not there."""
    try:
        return import_module(f"mombroker.admin.{name}")
    except ImportError as error:
        if str(error.name).startswith("mombroker"):
            raise
        raise MomError("this needs the extra `spark`; install it with: pip install 'mombroker[spark]'") from None
