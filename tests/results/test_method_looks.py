"""Every editor has a look, and no two have the same one."""

from helpers.editing.editors import EDITORS
from helpers.results import method_looks as looks


def test_no_two_methods_look_the_same():
    with_app = [f"{editor}+app" for editor, entry in EDITORS.items() if entry.loss]
    methods = [*EDITORS, *with_app]
    lines = {(m, looks.line(m)["linestyle"], looks.marker(m), looks.colour(m)) for m in methods}
    assert len({look[1:] for look in lines}) == len(methods)
    assert len({looks.hatch(editor) for editor in EDITORS}) == len(EDITORS)


def test_with_app_a_method_is_dashed_and_hollow_in_its_own_colour():
    plain, protected = looks.line("ft-l"), looks.line("ft-l+app")
    assert (plain["linestyle"], plain["fillstyle"]) == ("-", "full")
    assert (protected["linestyle"], protected["fillstyle"]) == ("--", "none")
    assert plain["color"] == protected["color"] == looks.colour("ft-m")
    assert looks.mark("ft-l")["linestyle"] == ""
