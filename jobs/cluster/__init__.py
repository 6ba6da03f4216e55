"""Jobs on clusters, and on what runs there."""
