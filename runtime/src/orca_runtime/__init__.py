"""The decider, projector and ask shells over NATS JetStream; knows no domain."""
