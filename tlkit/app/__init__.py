"""The patching explorer: a widget for notebooks, and the same widget served to a browser."""
