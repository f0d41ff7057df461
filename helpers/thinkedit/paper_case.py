"""The paper's own case, Harry Potter's school, in the stored runs and in the paper's Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence

from pandas import DataFrame as Table

from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note
from helpers.results.text import published_table
from helpers.thinkedit.metrics import DEFAULT, Known, chain_table, recovery_by_steps
from helpers.thinkedit.tables import facts_of

HARRY_POTTER = 9  # the case's number in KnowGIC


def chains_of_case(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT, case_id: int = HARRY_POTTER
) -> Table:
    """One edit's chains after a method's stored edit, as ``metrics.chain_table`` gives them."""
    facts = facts_of(run, method, mode=mode, rule=rule)
    steps_of_chains = run.tables["chains"]
    return chain_table(
        facts[facts["case_id"] == case_id], steps_of_chains[steps_of_chains["case_id"] == case_id]
    )


def left_of_case(
    run: Run,
    methods: Sequence[str],
    rules: Sequence[Known],
    *,
    mode: str = "independent",
    case_id: int = HARRY_POTTER,
) -> Table:
    """What each method's edit leaves of one old fact, directly and along longer chains.

    A row a rule for "known" and a method: the probability of the old object at the direct question before and
    after the edit, and of the chains of two steps or more their number, those deducible before, those active
    after, and their IFR (Definition 3).
    """
    rows = []
    for rule in rules:
        for method in methods:
            chains = chains_of_case(run, method, mode=mode, rule=rule, case_id=case_id)
            direct = chains[chains["length"] == 1].iloc[0]
            longer = chains[chains["length"] > 1]
            rows.append(
                {
                    "known": "by rank as well" if rule.top else f"at least {rule.threshold:g}",
                    "method": method,
                    "direct before": direct["before"],
                    "direct after": direct["after"],
                    "longer chains": len(longer),
                    "deducible before": int(longer["kept"].sum()),
                    "active after": int(longer["active"].sum()),
                    "of these deducible": int((longer["kept"] & longer["active"]).sum()),
                    "IFR, two steps or more": recovery_by_steps(longer)["value"].iloc[-1],
                }
            )
    return Table(rows)


def steps_of_case(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT, case_id: int = HARRY_POTTER
) -> Table:
    """One edit's chains by number of steps, in the form of the paper's Table 2."""
    chains = chains_of_case(run, method, mode=mode, rule=rule, case_id=case_id)
    return recovery_by_steps(chains).rename(columns={"kept": "deducible before", "value": "IFR"})


def printed_case() -> ShownTable:
    """The paper's Table 2, with what its rows combine to by Definition 3 next to what Table 1 prints.

    Definition 3 weights each of the n chains of s steps by 1/√s, so that a row weighs n/√s.
    """
    printed = published_table("thinkedit_table_1").set_index("metric")["value"]
    by_steps = published_table("thinkedit_table_2")
    table = by_steps.pivot(index="steps", columns="metric", values="value")
    table = table.astype({"chains": int, "active_chains": int})
    weights = table["chains"] / table.index.astype(int) ** 0.5
    combined = (table["ifr"] * weights).sum() / weights.sum()
    return with_note(
        table,
        f"by Definition 3 the rows combine to {combined:.2f}, Table 1 prints {printed['ifr']}",
        f"active: {table['active_chains'].sum()} of {printed['chains']:.0f} chains",
    )
