"""Transactional sending with a progress log. It runs on executors and knows no Spark and no command line."""
