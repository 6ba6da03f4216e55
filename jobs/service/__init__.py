"""Commands of policies that serve."""
