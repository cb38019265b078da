"""Conversion of records to columns and back. It runs on executors and knows no Spark session and no command line."""
