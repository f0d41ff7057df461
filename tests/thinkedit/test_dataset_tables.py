"""What the notebook says of KnowGIC is what the files hold."""

from helpers.thinkedit import knowgic
from helpers.thinkedit.dataset_tables import base_questions, chain_length_table, metric_table
from helpers.thinkedit.edits import chain_lengths


def test_chains_are_counted_in_both_layouts(data_folder):
    table = chain_length_table()
    assert table.loc["paper"].tolist() == [21, 72, 110, 158, 205, 566]
    for layout in knowgic.LAYOUTS:
        lengths = chain_lengths(knowgic.load_edits(layout))
        assert table.loc[layout].tolist() == [*lengths.values(), sum(lengths.values())]


def test_the_papers_facts_are_those_of_the_file(data_folder):
    questions = base_questions()
    subjects = {edit.subject for edit in knowgic.load_edits("2025-06")}
    assert set(questions["subject"]) == subjects
    assert len(questions) == 21
    assert questions["question"].str.contains("[subject]", regex=False).all()
    assert questions.groupby("category")["question"].nunique().eq(1).all()  # Table 8: one each


def test_only_ifr_sees_deduction_and_only_ckp_the_context():
    table = metric_table().set_index("metric")
    assert table.index[table["deduction"] == "yes"].tolist() == ["IFR"]
    assert table.index[table["context"] == "yes"].tolist() == ["CKP"]
