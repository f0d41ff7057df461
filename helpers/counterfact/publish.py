"""CounterFact as a benchmark, and its published run: a table of scores for each method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Any

import pandas as pd

from helpers.counterfact.records import CounterFactRecord, read_records
from helpers.fetch import locate, official_files
from helpers.results.benchmark import benchmark_publication
from helpers.results.evaluation import Asked, Benchmark
from helpers.results.publish import Publication
from helpers.scoring.answers import Question


def publication(params: Mapping[str, Any]) -> Publication:
    """Every method of the parameters on the first records of the data set that they name."""
    return benchmark_publication(benchmark_of(params), params)


def benchmark_of(params: Mapping[str, Any]) -> Benchmark[CounterFactRecord]:
    """The records that the parameters name, and what is asked of each."""
    file = official_files()[params["dataset"]]
    path = locate(file)
    return Benchmark(
        name="counterfact",
        version=1,  # raise it when what is scored, or how, changes
        data={"dataset": file.name, "checksum": file.checksum},
        path=str(path),
        cases=read_records(path, params["records"]),
        request=attrgetter("request"),
        questions=counterfact_questions,
        relation=attrgetter("relation"),
        content=asdict,
    )


def counterfact_questions(record: CounterFactRecord) -> Asked:
    """The new and the true answer at every prompt of a record, and the key of each."""
    prompts = [("edit", 0, record.request.text)]
    prompts += [("paraphrase", i, prompt) for i, prompt in enumerate(record.paraphrases)]
    prompts += [("neighbourhood", i, prompt) for i, prompt in enumerate(record.neighbourhood)]
    answers = (record.target_new, record.target_true)
    keys = [
        (record.case_id, role, index, name)
        for role, index, _ in prompts
        for name in ("new", "true")
    ]
    table = pd.DataFrame(keys, columns=["case_id", "role", "prompt_index", "list"])
    return [Question(prompt, answers) for _, _, prompt in prompts], table
