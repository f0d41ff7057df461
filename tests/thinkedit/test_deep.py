"""Deep edits: what else is changed, to what, and by how many vectors."""

from dataclasses import replace

from helpers.scoring.answers import Question, score_answers
from helpers.thinkedit import knowgic
from helpers.thinkedit.deep import PLAUSIBLE, deep_edits, further_questions
from helpers.thinkedit.knowgic import Chain, ChainFact
from helpers.thinkedit.probes import OTHER_RIVALS, kinds_of


def test_first_steps_get_harmless_objects(edits):
    kinds = {"who": frozenset({"Bo", "Di", "Flo", "Gus"})}
    (friend,) = further_questions(edits[0], kinds)
    assert (friend.prompt, friend.correct) == ("{}'s friend is", ("Bo",))
    assert friend.harmless == ("Di", "Flo", "Gus")
    assert further_questions(edits[0], {}) == []


def test_each_question_is_asked_once_and_never_the_edited_one(edits):
    """Two friends are one question; the direct fact in another wording is what the edit asks."""
    friend = edits[0].chains[1].facts[0]
    second = replace(friend, object="Gus")
    direct = replace(edits[0].facts[0], prompt="{} has its home in")
    through = replace(direct, object="Asia")
    ends = [ChainFact(name, "{} lives in", "Rome", "Where?") for name in ("Gus", "Asia")]
    chains = (
        Chain((direct,)),
        edits[0].chains[1],
        Chain((second, ends[0])),
        Chain((through, ends[1])),
    )
    edit = replace(edits[0], chains=chains)
    names = [f"N{i:02}" for i in range(2 * OTHER_RIVALS)]
    kinds = {"who": frozenset({*names, "Bo", "Gus"}), "town": frozenset(names)}
    (asked,) = further_questions(edit, kinds)
    assert (asked.prompt, asked.correct) == ("{}'s friend is", ("Bo", "Gus"))
    assert asked.harmless == tuple(names)


def test_targets_are_plausible_and_drawn_by_the_seed(tiny, edits):
    model = tiny("llama")
    names = [f"{letter}a{letter}" for letter in "bcdfghjklmnp"]
    kinds = {"who": frozenset({*names, "Bo"})}
    (friend,) = further_questions(edits[0], kinds)
    scores = score_answers(model, [Question("Ada's friend is", friend.harmless)])
    best = scores.sort_values("mean")["answer"].tail(PLAUSIBLE)
    plausible = {friend.harmless[place] for place in best}

    def drawn(seed):
        ((request,),) = deep_edits(model, edits[:1], kinds, seed=seed)
        return request.prompts_with_targets[-1][1]

    targets = [drawn(seed) for seed in range(20)]
    assert set(targets) <= plausible
    assert len(set(targets)) > 2
    assert drawn(3) == targets[3]


def test_questions_that_begin_alike_share_a_request(tiny, edits):
    friend = edits[0].chains[1]
    other = replace(friend.facts[0], prompt="The rival of {} is")
    edit = replace(edits[0], chains=(*edits[0].chains, Chain((other, friend.facts[1]))))
    kinds = {"who": frozenset({"Bo", "Di", "Flo", "Gus"})}
    ((first, second),) = deep_edits(tiny("llama"), [edit], kinds)
    assert first.prompts_with_targets[0] == ("{} lives in", "Oslo")
    assert [prompt for prompt, _ in first.prompts_with_targets[1:]] == ["{}'s friend is"]
    assert [prompt for prompt, _ in second.prompts_with_targets] == ["The rival of {} is"]
    assert (first.record, second.record) == ("1", "1")


def test_an_edit_without_further_questions_stays_one_request(tiny, edits):
    found = deep_edits(tiny("llama"), edits, kinds_of(edits))
    assert [len(requests) for requests in found] == [1, 1, 1]
    assert all(requests[0].further == () for requests in found)


def test_nearly_all_published_questions_have_the_edits_own_key(data_folder):
    edits = knowgic.load_edited_graphs("2025-06")
    kinds, begin = kinds_of(edits), [edit.prompt.partition("{}")[0] for edit in edits]
    asked = [[q.prompt for q in further_questions(edit, kinds)] for edit in edits]
    alike = [q.startswith(b + "{}") for own, b in zip(asked, begin, strict=True) for q in own]
    assert (len(alike), sum(alike)) == (30, 29)
