"""The ledger of deviations: the page is the records', and every switch is one of its editor."""

from __future__ import annotations

import pytest

from helpers.editing.editors import EDITORS
from helpers.editing.request import EditRequest
from helpers.editing.rows import edit_row
from tests.editing.conftest import VALUES, assert_same
from tools.deviations import COMMITS, DEVIATIONS, NOTEBOOK, PAGE, Switch, notebook, page

SWITCHES = [row.repeated for row in DEVIATIONS if isinstance(row.repeated, Switch)]


def test_the_page_is_that_of_the_records():
    assert PAGE.read_text("utf-8") == page(), "run python -m tools.deviations"


def test_the_notebook_has_the_records_in_short():
    assert NOTEBOOK.read_text("utf-8") == notebook(), "run python -m tools.deviations"


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: f"{switch.editor}.{switch.field}")
def test_every_switch_is_a_hyperparameter_that_takes_its_value(switch):
    row = EDITORS[switch.editor]
    assert switch.field in row.hyperparameters.model_fields
    others = {**VALUES.get(row.section, {}), **row.values}
    if row.section == "alphaedit":
        others["nullspace_threshold"] = 0.02
    hyperparameters = row.hyperparameters(**{**others, switch.field: switch.value})
    assert getattr(hyperparameters, switch.field) == switch.value


def test_every_record_names_a_repository_with_its_commit():
    assert {name for row in DEVIATIONS for name in row.repositories} == set(COMMITS)


def test_ft_l_of_a_target_of_one_token_is_ft_m(tiny, make_editor):
    lm = tiny("llama")
    request = EditRequest("Bach", "{} (", "a")  # no blank comes before the answer
    assert len(edit_row(lm, request).target) == 1
    (by_last,) = make_editor("ft-l", lm).edit([request])
    (by_all,) = make_editor("ft-m", lm).edit([request])
    assert_same(by_last, by_all)
    assert all(delta.norm() > 0 for delta in by_last.values())
