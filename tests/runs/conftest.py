"""Fixtures of the runs' tests."""

import pytest

from helpers.editing.hyperparameters import RomeHyperparameters


@pytest.fixture
def rome_settings():
    """Quick settings of ROME for a tiny model, without statistics."""
    return RomeHyperparameters(
        layers=(1,),
        v_num_grad_steps=4,
        v_lr=0.5,
        v_weight_decay=1e-3,
        clamp_norm_factor=4,
        kl_factor=0.0625,
        context_template_length_params=(),
        mom2_adjustment=False,
    )
