"""Models: where they come from, what is known of them, and how text becomes their tokens."""
