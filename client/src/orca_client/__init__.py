"""The async SDK and the orca command."""
