"""The Kafka client. No other package imports it."""
