"""What ordering costs, from the servers' logs: export to Parquet, a Spark data source, analysis, advice.

Needs the extra `spark`; nothing outside this package imports pyspark or pyarrow.
"""

from importlib import import_module
from types import ModuleType

from mombroker.core.errors import MomError


def extra(name: str) -> ModuleType:
    """A module of this package. Raises MomError, with the remedy, where the extra is not installed."""
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError as error:
        if str(error.name).startswith("mombroker"):
            raise
        raise MomError("this needs the extra `spark`; install it with: pip install 'mombroker[spark]'") from None
