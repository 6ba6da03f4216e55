"""Values that are learned from the data's own actions alone, and policies drawn from them."""
