"""Studies: each module asks one question of a model; its main verb is ``run``."""
