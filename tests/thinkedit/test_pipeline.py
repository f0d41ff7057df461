"""Algorithms 1-3 on a tiny world: growth, refinement, stop rules, journal, resume and replay."""

import json
from dataclasses import replace

import pytest

from helpers import UserError
from helpers.thinkedit.graph import Triplet, triplets
from helpers.thinkedit.grow.pipeline import Decision, Journal, Session, keep_all, reasoned
from helpers.thinkedit.grow.wordings import Proposal, Wording, Wordings, read_wordings
from tests.thinkedit.conftest import HOUSE, PART, SCHOOL, header_of

WENT = Triplet("Ada", "went to", "North College")


@pytest.fixture
def grow(world, tmp_path):
    """Grow a graph in the world, recorded in ``j.jsonl`` unless told otherwise."""

    def grown(reviewer=keep_all, fact=SCHOOL, *, name="j", question="", given=None, **settings):
        header = header_of(world, fact, question, **settings)
        parts = {"store": {}, "wordings": Wordings(), **(given or {})}
        return Session(Journal(tmp_path / f"{name}.jsonl", header), world, **parts).run(reviewer)

    return grown


@pytest.fixture
def path(tmp_path):
    return tmp_path / "j.jsonl"


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_world_is_found_and_its_chains_sequenced(world, grow, path):
    growth = grow()
    assert set(triplets(growth.graph)) == {SCHOOL, HOUSE, PART}
    assert growth.chains == [(SCHOOL,), (HOUSE, PART)]
    assert growth.stopped == "nothing new validated"
    assert growth.graph.edges["ada", "red house"]["question"] == "Ada lives in what?"
    assert len([p for p in world.asked if "Chain: Ada" in p]) == 1
    assert [record["kind"] for record in records(path)].count("responses") == len(world.asked)


@pytest.mark.parametrize(
    ("settings", "stopped", "rounds"),
    [
        ({"target_chains": 1}, "target number of chains", 1),
        ({"max_rounds": 1}, "number of rounds", 1),
    ],
)
def test_stop_rules(grow, settings, stopped, rounds):
    growth = grow(**settings)
    assert (growth.stopped, growth.rounds) == (stopped, rounds)
    unknown = grow(fact=WENT, name="unknown", **settings)
    assert unknown.stopped == "the fact to edit did not validate"
    assert unknown.discarded == [(WENT,)]
    assert not unknown.graph


def test_aliases_of_the_object_validate(grow):
    fact = Triplet("Ada", "studied at", "The Northern")
    assert not grow(fact=fact, name="none").chains
    aliases = {"the northern": ("North College",)}
    assert grow(fact=fact, given={"wordings": Wordings(aliases=aliases)}).chains[0] == (fact,)


def test_a_chain_question_that_names_an_entity_on_the_way_is_refused(world, grow):
    """It would ask for the last step only."""
    answer = world._one
    told = "Which school does the Red House of Ada belong to?"
    world._one = lambda prompt: told if "Chain:" in prompt else answer(prompt)
    growth = grow()
    assert growth.chains == [(SCHOOL,), (HOUSE, PART)]  # made of validated links all the same
    assert not any("Red House of Ada" in prompt for prompt in world.asked)


def test_questions_that_miss_the_subject_or_tell_the_object_are_replaced(world, grow):
    written = iter(["Do you know?", "Did Ada study at North College?"])
    answer = world._one
    world._one = lambda p: next(written) if "Subject: Ada | Relation: studied" in p else answer(p)
    for name in ("missing", "telling"):
        edge = grow(name=name).graph.edges["ada", "north college"]
        assert edge["question"] == "Ada studied at what?"


def test_a_given_question_is_asked_first(grow):
    question = "Tell me: Ada studied at what?"
    growth = grow(question=question)
    assert growth.graph.edges["ada", "north college"]["question"] == question
    assert not grow(name="unknown", question="Which is the school of Ada?").chains


def test_proposals_are_candidates_and_known_relations_have_questions(world, grow):
    lyon = Triplet("Lyon", "is a city in the country of", "France")
    europe = Triplet("France", "is on the continent of", "Europe")
    seen = []

    def person(review):
        seen.append(review)
        if review.occasion == "prune":
            return Decision(triplets=tuple(t for t in review.candidates if t.object != "Paris"))
        return Decision(discard=True)

    def respond(prompts, *, n, seed, **changes):
        answers = {"In which country is Lyon?": "France", "Which continent is France on?": "Europe"}
        return [[answers.get(str(p).split("Question: ")[-1].split("\n")[0], "?")] for p in prompts]

    world.respond = respond
    wordings = read_wordings()
    worded = Wording(lyon.relation, ("Where is {}?", "In which country is {}?"), ("{} is",))
    store = {
        "france": [Proposal("France", "P30", "Europe"), Proposal("France", "P36", "Paris")],
        "lyon": [Proposal("Lyon", "P176", "Peugeot")],
    }
    given = {
        "store": store,
        "wordings": replace(wordings, relations={**wordings.relations, "P17": worded}),
    }
    growth = grow(person, lyon, given=given)
    peugeot = Triplet("Lyon", "is made by", "Peugeot")
    paris = Triplet("France", wordings.relations["P36"].reads, "Paris")
    pruned = [review for review in seen if review.occasion == "prune"]
    assert [review.path for review in pruned] == [(lyon,), (europe,)]
    assert set(pruned[0].candidates) == {europe, paris, peugeot}
    assert pruned[1].candidates == ()  # what was omitted is not proposed again
    assert set(triplets(growth.graph)) == {lyon, europe}
    assert [r.path for r in seen if r.occasion == "refine"] == [(peugeot,)]  # after two questions


def test_reasoning_is_drawn_as_set_and_links_know_where_they_come_from(world, grow):
    drawn, respond = [], world.respond

    def noted(prompts, *, n, seed, **changes):
        if changes:
            drawn.append((n, changes))
        return respond(prompts, n=n, seed=seed, **changes)

    world.respond = noted
    store = {"ada": [Proposal("Ada", "y", "Oz"), Proposal("Ada", "z", "North College")]}
    reads = {"y": "visited", "z": "loves"}
    worded = {r: Wording(t, ("{} " + t + " what?",), ("{} " + t,)) for r, t in reads.items()}
    given = {"store": store, "wordings": Wordings(worded)}
    growth = grow(given=given, thoughts=2, thought_tokens=40, statements=2)
    assert drawn[0] == (2, {"max_new_tokens": 40, "stop": None})
    assert {tuple(changes.items()) for _, changes in drawn[1::2]} == {(("temperature", 0.0),)}
    visited = Triplet("Ada", "visited", "Oz")
    # SCHOOL's pair has its link: "loves" cannot become one, and is not offered
    assert growth.offered == {HOUSE.key, visited.key}
    assert growth.reasoned == {SCHOOL.key, HOUSE.key}  # of three statements two are read
    rows = reasoned([growth]).drop(columns="share").to_numpy().tolist()
    assert rows == [[2, 1, 1, 1], [2, 1, 1, 1], [2, 1, 1, 0], [1, 0, 0, 0]]


def test_refinement_is_asked_again_and_replaces_the_fact(grow):
    reviews = []

    def expert(review):
        reviews.append(review)
        if review.occasion == "prune":
            return Decision(triplets=(HOUSE,) if review.path == (SCHOOL,) else ())
        return Decision(question="Ada studied at what?", path=(SCHOOL,))

    growth = grow(expert, WENT)
    assert growth.fact == SCHOOL
    assert [review.occasion for review in reviews] == ["refine", "prune", "prune"]
    assert reviews[0].responses == ("I do not know.",)
    assert set(triplets(growth.graph)) == {SCHOOL, HOUSE}


def test_attempts_are_bounded_and_each_is_another_draw(world, grow):
    seeds, respond = [], world.respond

    def noted(prompts, *, n, seed, **changes):
        seeds.extend(seed for prompt in map(str, prompts) if prompt.endswith("Answer:"))
        return respond(prompts, n=n, seed=seed, **changes)

    world.respond = noted
    growth = grow(
        lambda review: Decision(question=review.question, path=review.path),
        WENT,
        max_attempts=3,
        seed=5,
    )
    assert seeds == [5, 6, 7]
    assert growth.discarded == [(WENT,)]


def test_a_run_resumes_after_any_line_and_its_replay_asks_nothing(world, grow, path):
    first = grow()
    complete, asked = path.read_bytes(), len(world.asked)
    again = grow()
    assert len(world.asked) == asked
    assert again.chains == first.chains
    assert list(triplets(again.graph)) == list(triplets(first.graph))
    lines = complete.splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        grow()
        assert path.read_bytes() == complete
    path.write_bytes(complete[:-9])
    with pytest.warns(UserWarning, match="unfinished last line"):
        grow()
    assert path.read_bytes() == complete


def test_a_journal_of_another_model_or_other_settings_is_refused(world, grow):
    grow()
    with pytest.raises(UserError, match=r"j.jsonl: holds a run of .*start a new journal"):
        grow(max_steps=2)
    world.fingerprint = "world-2"
    with pytest.raises(UserError, match=r"world-1.*world-2.*another model"):
        grow()


def test_a_changed_record_is_noticed(grow, path):
    grow()
    path.write_text(path.read_text().replace("North College", "South College"))
    with pytest.raises(UserError, match="line 2: no line of a run"):
        grow()
    path.write_text("[]\n")
    with pytest.raises(UserError, match="line 1: no line of a run"):
        grow()


@pytest.mark.parametrize(
    ("fact", "decision", "message"),
    [
        (WENT, Decision(path=(SCHOOL,)), "needs a question"),
        (WENT, Decision(question="Who?"), "needs a question"),
        (SCHOOL, Decision(triplets=(Triplet("Ada", "is", "ADA"),)), "itself"),
        (SCHOOL, Decision(triplets=(Triplet("Ada", " ", "Bo"),)), "empty part"),
    ],
)
def test_decisions_that_answer_nothing_or_hold_no_facts_are_refused(grow, fact, decision, message):
    with pytest.raises(ValueError, match=message):
        grow(lambda _: decision, fact)
