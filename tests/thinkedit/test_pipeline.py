"""Algorithms 1-3 on a tiny world: growth, refinement, stop rules, journal, resume and replay."""

import json
from dataclasses import replace

import pytest

from helpers.thinkedit.graph import Triplet, triplets
from helpers.thinkedit.grow.journal import Journal, JournalError, decisions
from helpers.thinkedit.grow.people import (
    AutomaticReviewer,
    Decision,
    Listed,
    Proposal,
    RecordedReviewer,
    Review,
)
from helpers.thinkedit.grow.pipeline import Session, Settings
from helpers.thinkedit.grow.sessions import reasoned
from helpers.thinkedit.grow.wordings import Wording, read_wordings

SCHOOL = Triplet("Ada", "studied at", "North College")
HOUSE = Triplet("Ada", "lives in", "Red House")
PART = Triplet("Red House", "belongs to", "North College")


def grow(model, path, reviewer=None, fact=SCHOOL, aliases=None, **settings):
    chosen = Settings(**settings)
    journal = Journal(path, model=model.fingerprint, settings=vars(chosen))
    session = Session(fact, model, journal, settings=chosen, aliases=aliases or {})
    return session.run(reviewer or AutomaticReviewer())


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_world_is_found_and_its_chains_sequenced(world, tmp_path):
    growth = grow(world, tmp_path / "j.jsonl")
    assert set(triplets(growth.graph)) == {SCHOOL, HOUSE, PART}
    assert growth.chains == [(SCHOOL,), (HOUSE, PART)]
    assert growth.stopped == "nothing new validated"
    assert growth.graph.edges["ada", "red house"]["question"] == "Ada lives in what?"
    chain_questions = [p for p in world.asked if "Chain: Ada" in p]
    assert len(chain_questions) == 1


def test_an_unknown_fact_stops_at_once(world, tmp_path):
    unknown = Triplet("Ada", "was taught by", "Bo")
    growth = grow(world, tmp_path / "j.jsonl", fact=unknown)
    assert growth.stopped == "the fact to edit did not validate"
    assert growth.discarded == [(unknown,)]
    assert growth.graph.number_of_nodes() == 0


def test_aliases_validate(world, tmp_path):
    college = Triplet("Ada", "studied at", "The Northern")
    assert not grow(world, tmp_path / "a.jsonl", fact=college).chains
    named = grow(
        world, tmp_path / "b.jsonl", fact=college, aliases={"the northern": ("North College",)}
    )
    assert named.chains[0] == (college,)


@pytest.mark.parametrize(
    ("settings", "stopped", "rounds"),
    [
        ({"target_chains": 1}, "target number of chains", 1),
        ({"max_rounds": 1}, "number of rounds", 1),
        ({"target_chains": 2}, "target number of chains", 2),
    ],
)
def test_stop_rules(world, tmp_path, settings, stopped, rounds):
    growth = grow(world, tmp_path / "j.jsonl", **settings)
    assert (growth.stopped, growth.rounds) == (stopped, rounds)


class Telling:
    """Writes a chain question that names the entity on the way, and so asks for the last step only."""

    def __init__(self, world):
        self.world, self.fingerprint = world, "telling"

    def respond(self, prompts, *, n, seed, **changes):
        told = "Which school does the Red House of Ada belong to?"
        plain = self.world.respond(prompts, n=n, seed=seed, **changes)
        return [
            [told] if "Chain:" in str(p) else own for p, own in zip(prompts, plain, strict=True)
        ]


def test_a_chain_question_that_names_an_entity_on_the_way_is_refused(world, tmp_path):
    path = tmp_path / "j.jsonl"
    growth = grow(Telling(world), path)
    assert growth.chains == [(SCHOOL,), (HOUSE, PART)]  # made of validated links all the same
    events = [r["request"]["event"] for r in records(path) if r["kind"] == "event"]
    assert events.count("no question of the whole chain") == 1
    assert not any("Red House of Ada" in prompt for prompt in world.asked)


def test_a_synonym_of_the_responses_validates_from_then_on(world, tmp_path):
    fact = Triplet("Ada", "studied at", "The Northern")

    class Knowing:
        def decide(self, review):
            if review.occasion == "prune":
                return Decision(triplets=(HOUSE,))
            return Decision(alias="north college")

    def refuse(review):
        with pytest.raises(ValueError, match="a synonym must occur"):
            Decision(alias="South College").check(review)

    grown = grow(world, tmp_path / "j.jsonl", Knowing(), fact=fact)
    assert grown.chains[0] == (fact,)
    assert grow(world, tmp_path / "j.jsonl", fact=fact).chains == grown.chains  # replayed
    refuse(Review("refine", "Where?", (fact,), ("North College",)))


def test_proposals_are_candidates_and_known_relations_have_questions(world, tmp_path):
    lyon, europe = (
        Triplet("Lyon", "is a city in the country of", "France"),
        Triplet("France", "is on the continent of", "Europe"),
    )
    seen = []

    class Person:
        def decide(self, review):
            seen.append(review)
            if review.occasion == "prune":
                return Decision(triplets=tuple(t for t in review.candidates if t.object != "Paris"))
            return Decision(discard=True)

    def respond(prompts, *, n, seed, **changes):
        answers = {"In which country is Lyon?": "France", "Which continent is France on?": "Europe"}
        return [[answers.get(str(p).split("Question: ")[-1].split("\n")[0], "?")] for p in prompts]

    world.respond = respond
    journal = Journal(tmp_path / "j.jsonl", model="w", settings={})
    session = Session(
        lyon,
        world,
        journal,
        proposer=Listed([
            Proposal("France", "P30", "Europe"),
            Proposal("France", "P36", "Paris"),
            Proposal("Lyon", "P176", "Peugeot"),
        ]),
        wordings=replace(read_wordings(), relations={
            **read_wordings().relations,
            "P17": Wording(lyon.relation, ("Where is {}?", "In which country is {}?"), ("{} is",)),
        }),
    )  # fmt: skip
    growth = session.run(Person())
    peugeot = Triplet("Lyon", "is made by", "Peugeot")
    paris = Triplet("France", read_wordings().relations["P36"].reads, "Paris")
    pruned = [review for review in seen if review.occasion == "prune"]
    assert [review.path for review in pruned] == [(lyon,), (europe,)]
    assert pruned[0].candidates == (europe, paris, peugeot)
    assert pruned[1].candidates == ()  # what was left out is not proposed again
    assert set(triplets(growth.graph)) == {lyon, europe}
    assert [r.path for r in seen if r.occasion == "refine"] == [(peugeot,)]  # after two questions


class Expert:
    """Refines an unknown relation once, prunes everything and adds a missing triplet."""

    def __init__(self):
        self.reviews: list[Review] = []

    def decide(self, review):
        self.reviews.append(review)
        if review.occasion == "prune":
            return Decision(triplets=(HOUSE,) if review.path == (SCHOOL,) else ())
        return Decision(question="Ada studied at what?", path=(SCHOOL,))


def test_refinement_is_asked_again_and_replaces_the_fact(world, tmp_path):
    expert = Expert()
    growth = grow(
        world, tmp_path / "j.jsonl", expert, fact=Triplet("Ada", "went to", "North College")
    )
    assert growth.fact == SCHOOL
    assert [review.occasion for review in expert.reviews] == ["refine", "prune", "prune"]
    assert expert.reviews[0].responses == ("I do not know.",)
    assert set(triplets(growth.graph)) == {SCHOOL, HOUSE}


def test_attempts_are_bounded(world, tmp_path):
    class Stubborn:
        count = 0

        def decide(self, review):
            self.count += 1
            return Decision(question="Who is it?", path=review.path)

    stubborn = Stubborn()
    fact = Triplet("Ada", "went to", "North College")
    growth = grow(world, tmp_path / "j.jsonl", stubborn, fact=fact, max_attempts=3)
    assert stubborn.count == 2
    assert growth.discarded == [(fact,)]


def test_every_attempt_is_another_draw(world, tmp_path):
    class Hopeful:
        def decide(self, review):
            return Decision(question=review.question, path=review.path)

    seeds, respond = [], world.respond

    def noted(prompts, *, n, seed, **changes):
        seeds.extend(seed for prompt in map(str, prompts) if prompt.endswith("Answer:"))
        return respond(prompts, n=n, seed=seed, **changes)

    world.respond = noted
    fact = Triplet("Ada", "went to", "North College")
    grow(world, tmp_path / "j.jsonl", Hopeful(), fact=fact, max_attempts=3, seed=5)
    assert seeds == [5, 6, 7]


def test_a_replay_asks_nothing_and_writes_nothing(world, tmp_path):
    path = tmp_path / "j.jsonl"
    first = grow(world, path)
    written, asked = path.read_bytes(), len(world.asked)
    again = grow(world, path)
    assert len(world.asked) == asked
    assert path.read_bytes() == written
    assert again.chains == first.chains
    assert list(triplets(again.graph)) == list(triplets(first.graph))


def test_a_run_resumes_after_any_line(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    complete = path.read_bytes()
    lines = complete.splitlines(keepends=True)
    for kept in range(len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        grow(world, path)
        assert path.read_bytes() == complete


def test_an_unfinished_line_is_dropped(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    complete = path.read_bytes()
    path.write_bytes(complete[:-9])
    with pytest.warns(UserWarning, match="unfinished last line"):
        grow(world, path)
    assert path.read_bytes() == complete


def test_reading_a_journal_leaves_it_alone(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    growing = path.read_bytes()[:-9]  # as another process sees it that is not done with the line
    path.write_bytes(growing)
    assert decisions(path)
    assert path.read_bytes() == growing


def test_a_journal_of_another_model_or_other_settings_is_refused(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    with pytest.raises(JournalError, match=r"line 1: written with another settings"):
        grow(world, path, max_steps=2)
    world.fingerprint = "world-2"
    with pytest.raises(JournalError, match=r"another model.*world-1.*start a new journal"):
        grow(world, path)


def test_a_changed_record_is_noticed(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    whole = path.read_text()
    path.write_text(whole.replace("North College", "South College"))
    with pytest.raises(JournalError, match="not the line that was written"):
        grow(world, path)
    path.write_text("[]\n")
    with pytest.raises(JournalError, match="line 1: no journal record"):
        grow(world, path)


def test_recorded_decisions_are_repeated_and_gaps_refused(world, tmp_path):
    first = grow(world, tmp_path / "first.jsonl", Expert())
    recorded = RecordedReviewer(tmp_path / "first.jsonl")
    again = grow(world, tmp_path / "second.jsonl", recorded)
    assert list(triplets(again.graph)) == list(triplets(first.graph))
    other = Review("refine", "Who?", (HOUSE,), ())
    with pytest.raises(JournalError, match="holds no decision for refine 'Who"):
        recorded.decide(other)
    fallback = RecordedReviewer(tmp_path / "first.jsonl", otherwise=AutomaticReviewer())
    assert fallback.decide(other) == Decision(discard=True)


def test_every_prompt_response_and_decision_is_in_the_journal(world, tmp_path):
    path = tmp_path / "j.jsonl"
    grow(world, path)
    kinds = [record["kind"] for record in records(path)]
    assert kinds[0] == "run"
    assert kinds.count("responses") == len(world.asked)
    assert "decision" in kinds
    assert records(path)[-1]["outcome"]["reason"] == "nothing new validated"


@pytest.mark.parametrize(
    ("occasion", "decision"),
    [
        ("refine", Decision(question="", path=(SCHOOL,))),
        ("refine", Decision(question="Who?")),
        ("refine", Decision(question="Who?", path=(SCHOOL, HOUSE))),
        ("prune", Decision(discard=True)),
    ],
)
def test_decisions_that_answer_nothing_are_refused(occasion, decision):
    with pytest.raises(ValueError, match=r"refine|pruning"):
        decision.check(Review(occasion, "Who?", (SCHOOL,), ()))


@pytest.mark.parametrize(
    ("occasion", "decision"),
    [
        ("refine", Decision(question="Who?", path=(Triplet("Ada", "is", "ADA"),))),
        ("prune", Decision(triplets=(Triplet("Ada", "is", "ada"),))),
        ("prune", Decision(triplets=(Triplet("Ada", " ", "Bo"),))),
    ],
)
def test_decisions_that_hold_no_facts_are_refused(occasion, decision):
    with pytest.raises(ValueError, match=r"itself|empty part"):
        decision.check(Review(occasion, "Who?", (SCHOOL,), ()))


def test_a_review_that_came_up_twice_is_repeated_in_order(world, tmp_path):
    review = Review("refine", "Who?", (SCHOOL,), ())
    taken = [Decision(question="Who?", path=(SCHOOL,)), Decision(discard=True)]
    journal = Journal(tmp_path / "j.jsonl", model=world.fingerprint, settings={})
    for decision in taken:
        journal.record("decision", review.as_json(), decision.as_json())
    recorded = RecordedReviewer(tmp_path / "j.jsonl")
    assert [recorded.decide(review) for _ in range(3)] == [*taken, taken[1]]


def test_a_journal_holds_any_line_separator(world, tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, model=world.fingerprint, settings={})
    journal.record("responses", {"prompt": "?"}, ["one\u2028two\x85three"])
    again = Journal(path, model=world.fingerprint, settings={})
    assert again.recall("responses", {"prompt": "?"}) == ["one\u2028two\x85three"]


def test_nothing_pending_means_nothing_to_decide(world, tmp_path):
    journal = Journal(tmp_path / "j.jsonl", model=world.fingerprint, settings={})
    session = Session(SCHOOL, world, journal)
    session.run(AutomaticReviewer())
    with pytest.raises(ValueError, match="no review is pending"):
        session.decide(Decision())


def test_questions_that_miss_the_subject_or_tell_the_object_are_replaced(world, tmp_path):
    written = iter(["Do you know?", "Did Ada study at North College?"])
    answer = world._one
    world._one = lambda p: next(written) if "Subject: Ada | Relation: studied" in p else answer(p)
    for name in ("missing", "telling"):
        growth = grow(world, tmp_path / f"{name}.jsonl")
        question = growth.graph.edges["ada", "north college"]["question"]
        assert question == "Ada studied at what?"


def test_every_model_and_setting_has_a_journal_of_its_own(tmp_path):
    def journal(model, **settings):
        return Journal.kept_in(tmp_path, "own", model=model, settings=settings)

    first = journal("a", seed=0)
    assert journal("a", seed=0).path == first.path
    assert len({first.path, journal("b", seed=0).path, journal("a", seed=1).path}) == 3


def test_reasoning_is_drawn_as_set_and_links_know_where_they_come_from(world, tmp_path):
    drawn, respond = [], world.respond

    def noted(prompts, *, n, seed, **changes):
        if changes:
            drawn.append((n, changes))
        return respond(prompts, n=n, seed=seed, **changes)

    world.respond = noted
    store = Listed([
        Proposal("Ada", "y", "Oz"),
        Proposal("Ada", "z", "North College"),
    ])  # fmt: skip
    reads = {"y": "visited", "z": "loves"}
    worded = {r: Wording(t, ("{} " + t + " what?",), ("{} " + t,)) for r, t in reads.items()}
    settings = Settings(thoughts=2, thought_tokens=40, statements=2)
    growth = Session(
        SCHOOL,
        world,
        Journal(tmp_path / "j.jsonl", model="w", settings={}),
        settings=settings,
        proposer=store,
        wordings=replace(read_wordings(), relations=worded),
    ).run(AutomaticReviewer())
    assert drawn[0] == (2, {"max_new_tokens": 40, "stop": None})
    assert {tuple(changes.items()) for _, changes in drawn[1::2]} == {(("temperature", 0.0),)}
    visited = Triplet("Ada", "visited", "Oz")
    # SCHOOL's pair has its link: "loves" cannot become one, and is not offered
    assert growth.offered == {HOUSE.key, visited.key}
    assert growth.reasoned == {SCHOOL.key, HOUSE.key}  # of three statements two are read
    rows = reasoned([growth]).drop(columns="share").to_numpy().tolist()
    assert rows == [[2, 1, 1, 1], [2, 1, 1, 1], [2, 1, 1, 0], [1, 0, 0, 0]]


def test_a_question_of_ones_own_is_asked_first(world, tmp_path):
    def grown(question):
        journal = Journal(tmp_path / f"{len(question)}.jsonl", model="w", settings={})
        return Session(SCHOOL, world, journal, question=question).run(AutomaticReviewer())

    question = "Tell me: Ada studied at what?"
    assert grown(question).graph.edges["ada", "north college"]["question"] == question
    assert not grown("Which is the school of Ada?").chains  # asked, and not known
