"""CounterFact's metrics as the ROME paper has them (Section 3.3), and its Table 4 next to a run's own.

An answer's probability is the geometric mean over its tokens, exp(-mean negative log-likelihood), which is
what the authors' code compares. Of a record's edit prompt (E), paraphrases (P) and neighbourhood prompts (N)

    ES, PS: the share at which P(new) > P(true)    NS: at which P(true) > P(new)
    EM, PM: the mean of P(new) - P(true)           NM: of P(true) - P(new)
    S: the harmonic mean of the means of ES, PS and NS over records
"""

from __future__ import annotations

from statistics import harmonic_mean

import numpy as np
import pandas as pd

from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_relations
from helpers.results.statistics import Kind, interval
from helpers.results.text import in_points, published_table

ROLES = {"edit": "E", "paraphrase": "P", "neighbourhood": "N"}
KIND_OF_ENDING: dict[str, Kind] = {"S": "share", "M": "number"}  # by the end of a metric's name


def counterfact_metrics(scores: pd.DataFrame, moment: str = "after") -> pd.DataFrame:
    """ES to NM of each record (index case_id and relation) ``before`` or ``after`` its edit, as fractions."""
    log_mean = scores[f"sum_{moment}"].astype(float) / scores["tokens"]
    keys = ["case_id", "role", "prompt_index"]
    answers = scores[[*keys, "list"]].astype({"role": str, "list": str}).assign(log_mean=log_mean)
    by_prompt = answers.pivot(index=keys, columns="list", values="log_mean")
    roles = by_prompt.index.get_level_values("role")
    sign = np.where(roles == "neighbourhood", -1, 1)
    is_success = sign * (by_prompt["new"] - by_prompt["true"]) > 0
    magnitude = sign * (np.exp(by_prompt["new"]) - np.exp(by_prompt["true"]))
    prompts = pd.DataFrame({"S": is_success.astype(float), "M": magnitude})
    metrics: dict[str, pd.Series] = {}
    for role, letter in ROLES.items():
        means = prompts[roles == role].groupby(level="case_id").mean()
        metrics |= {f"{letter}{end}": means[end] for end in KIND_OF_ENDING}
    relations = scores.groupby("case_id")["relation"].first()
    return pd.DataFrame(metrics).set_index(relations, append=True)


def score(by_record: pd.DataFrame) -> float:
    """S, the harmonic mean of the three shares."""
    return float(harmonic_mean([float(by_record[name].mean()) for name in ("ES", "PS", "NS")]))


def metrics_of(run: Run) -> dict[str, pd.DataFrame]:
    """``counterfact_metrics`` of the unedited model and of each method of a published run."""
    relations = {int(key): value for key, value in run.about.caption["relations"].items()}
    scores = {}
    for name, table in run.tables.items():
        scores[name] = table.assign(relation=table["case_id"].map(relations))
    every = pd.concat(scores.values(), ignore_index=True)
    unedited = every.drop_duplicates(["case_id", "role", "prompt_index", "list"])
    methods = {name: counterfact_metrics(table) for name, table in scores.items()}
    return {"unedited": counterfact_metrics(unedited, "before"), **methods}


def counterfact_table(run: Run) -> ShownTable:
    """Means in percent with 95 % intervals and n, then the paper's GPT-2 XL on 7,500 records."""
    rows = {}
    metrics = metrics_of(run)
    for method, by_record in metrics.items():
        row = {"S": f"{100 * score(by_record):.1f}"}
        for name in map(str, by_record):
            row[name] = in_points(interval(by_record[name], KIND_OF_ENDING[name[-1]]))
        rows[run.about.source["model"], method] = {**row, "n": len(by_record)}
    table = pd.concat([pd.DataFrame.from_dict(rows, orient="index"), paper_table()])
    table.index = table.index.set_names(["model", "method"])
    return with_relations(table, (by_record["ES"] for by_record in metrics.values()))


def paper_table() -> pd.DataFrame:
    """The ROME paper's Table 4, GPT-2 XL, without its measures of generated text."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for item in published_table("rome_table_4").to_dict("records"):
        half_width = f" ± {item['half_width']}" if item["half_width"] else ""
        row = rows.setdefault((f"{item['model']} (paper)", item["method"]), {})
        row[item["metric"]] = f"{item['value']:.1f}{half_width}"
    return pd.DataFrame.from_dict(rows, orient="index").assign(n=7500)
