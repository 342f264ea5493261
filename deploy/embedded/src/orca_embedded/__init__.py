"""NATS, ClickHouse and the five services on one machine, under one supervisor."""
