"""What to do, as frozen data: no model is needed to write, print, compare or save a spec."""
