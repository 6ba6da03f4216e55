"""What strangers' containers hold, read without running anything of theirs: archives, pickles, torch's files."""
