"""ClickHouse's own engine behind ClickHouse's HTTP interface, for one machine and one data path."""
