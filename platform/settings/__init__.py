"""What a user says of an experiment, and what that means: settings, algorithms by name, what is measured and compared by."""
