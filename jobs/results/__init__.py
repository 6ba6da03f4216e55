"""Jobs on what runs have measured."""
