"""An experiment from beginning to end: what is checked before any work, and the one path that starts and resumes it."""
