"""Which second moments an editor needs, told before it is built, since making them takes minutes."""

from __future__ import annotations

from helpers.editing.hyperparameters import (
    AlphaEditHyperparameters,
    MemitHyperparameters,
    PruneHyperparameters,
    RectHyperparameters,
    RomeHyperparameters,
    VectorHyperparameters,
    read_hyperparameters,
)

_FAMILY: dict[str, tuple[str, type[VectorHyperparameters]]] = {
    "rome": ("rome", RomeHyperparameters),
    "r-rome": ("rome", RomeHyperparameters),
    "memit": ("memit", MemitHyperparameters),
    "alphaedit": ("alphaedit", AlphaEditHyperparameters),
}
_WRAPPERS: dict[str, type[RectHyperparameters] | type[PruneHyperparameters]] = {
    "rect": RectHyperparameters,
    "prune": PruneHyperparameters,
}


def moment_layers(editor: str, model: str, *, preset: str) -> tuple[int, ...]:
    """Layers whose second moments the editor called ``editor`` needs: none outside the ROME family.

    Raises:
        HyperparameterError: the model's params file has no such editor or preset.
    """
    if editor in _WRAPPERS:
        base = read_hyperparameters(editor, _WRAPPERS[editor], model, preset).base
        return moment_layers(base, model, preset=preset)
    if editor not in _FAMILY:
        return ()
    section, kind = _FAMILY[editor]
    layers: tuple[int, ...] = read_hyperparameters(section, kind, model, preset).moment_layers
    return layers
