"""What the compiler of `MOMBROKER_COMPILE=1` is told; without it that is not there, and not needed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        return lambda cls: cls
