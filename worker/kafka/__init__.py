"""Adapters for the Kafka clients. No other package imports ``confluent_kafka`` or ``kafka``."""
