"""What ordering costs, from the servers' logs: export to Parquet, a Spark data source, analysis, advice.

Needs the extra `spark`; nothing outside this package imports pyspark or pyarrow.
"""
