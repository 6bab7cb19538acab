"""Rules for cores that multiply one pair at a time: they ask nothing of a target."""
