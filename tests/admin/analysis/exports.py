"""Exports of played stores, for tests: what was to be in one, and what is."""

from pathlib import Path

from mombroker.admin.analysis import files, schema

DAY = 86_400 * 10**9


def run(stores, target, **more):
    from mombroker.admin.analysis.export import export

    return {each.server: each for each in export(stores, target, **more)}


def table(target: Path, names=("server", "incarnation", "seq")):
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for file in files.chosen(target):
        part = pq.ParquetFile(file.path).read([name for name in names if name != "server"])
        if "server" in names:
            part = part.append_column("server", pa.array([file.server] * len(part)))
        parts.append(part.select(names))
    return pa.concat_tables(parts)


def keys(target: Path):
    return sorted(tuple(row.values()) for row in table(target).to_pylist())


def expected(stores):
    return sorted(
        (server, reader.meta()["incarnation"], seq)
        for server, reader in stores.items()
        for seq, _ in reader.log(0, 1 << 30)
    )


class Upto:
    """A store as it was when its log ended at a commit near this share of it."""

    def __init__(self, reader, share: float):
        self.reader, self.end = reader, reader.log_end()
        for self.end in reader.log_cuts(0, max(1, int(reader.log_end() * share)), 1 << 30):
            pass

    def __getattr__(self, name: str):
        return getattr(self.reader, name)

    def log_end(self) -> int:
        return self.end

    def commits(self, after: int, upto: int, limit: int):
        return self.reader.commits(after, min(upto, self.end), limit)


def older(file: files.File, version: int = schema.VERSION - 1) -> None:
    """Make this file one of an earlier program, that knew fewer columns, or with `version` one of a later program."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file.path).read()
    if version < schema.VERSION:
        table = table.drop_columns(["commits", "commit_rows", "commit_bytes"])
    pq.write_table(table.replace_schema_metadata({schema.VERSION_KEY: str(version)}), file.path)
