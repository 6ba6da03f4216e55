"""Trials under Tune: who says what runs next, what workers are told, what becomes of them, and the cluster around them."""
