"""Events, subjects, identifiers and units of Orca."""
