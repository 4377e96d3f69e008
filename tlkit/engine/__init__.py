"""Runs specs on models: the only place that runs a model under interventions."""
