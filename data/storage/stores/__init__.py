"""What folders behind a URI are read and written through."""
