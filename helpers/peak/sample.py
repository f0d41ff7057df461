"""How well the records of a published run stand for the whole file.

The counts that need the official file are stored with the run (``figures/data/peak_samples``), since
a notebook's quick profile opens no official file; the filter's come from the stored scores.

    python -m helpers.peak.sample smollm2-135m_peak-cf
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.peak.additivity import keep_answers
from helpers.peak.metrics_table import iterate_records
from helpers.peak.records import PeakData, load_peak
from helpers.peak.stored_scores import caption_of, scores_of
from helpers.results.archive import About, archive


def sample_counts(records: PeakData, whole: PeakData) -> pd.DataFrame:
    """One row: records and relations of a part and of the whole file, prompts that begin with the subject."""
    part, every = ({record.relation for record in data.records} for data in (records, whole))
    begin = sum(record.edit_prompt.startswith(record.subject) for record in records.records)
    row = {
        "records": len(records.records),
        "records_whole": len(whole.records),
        "relations": len(part),
        "relations_whole": len(every),
        "subject_first": begin,
    }
    return pd.DataFrame([row])


def kept_counts(scores: pd.DataFrame) -> dict[str, float]:
    """What the filter keeps of the correct answers at the prompts that count: share, and median of a prompt.

    Args:
        scores: any method's table; the filter reads the unedited model's scores only.
    """
    asked, kept = [], []
    for _, before, _ in iterate_records(scores):
        for prompt in (before.edit, *before.paraphrases):
            found = keep_answers(prompt.correct, prompt.hard, prompt.random)
            if found.usable:
                asked.append(len(prompt.correct))
                kept.append(len(found.correct))
    return {"share": sum(kept) / sum(asked), "median": float(np.median(kept))}


def publish_sample(name: str) -> Path:
    """Count and store what a published run's records are of the official file."""
    run = archive("peak").get(name)
    data = (load_peak(caption_of(run).dataset, limit=n) for n in (caption_of(run).records, None))
    about = About(source=run.about.source)
    return archive("peak_samples").put(name, {"counts": sample_counts(*data)}, about)


def sample_table(names: list[str]) -> pd.DataFrame:
    """How the published runs' records stand for their files, runs as rows."""
    rows = {}
    for name in names:
        counts = archive("peak_samples").get(name).tables["counts"].iloc[0]
        kept = kept_counts(next(iter(scores_of(archive("peak").get(name)).values())))
        rows[name] = {
            "records": f"{counts['records']} of {counts['records_whole']}",
            "relations": f"{counts['relations']} of {counts['relations_whole']}",
            "prompt begins with subject": counts["subject_first"],
            "correct answers kept": f"{100 * kept['share']:.0f} %",
            "median kept at a prompt": kept["median"],
        }
    return pd.DataFrame(rows).T.rename_axis("run")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+")
    for run_name in parser.parse_args().runs:
        print(publish_sample(run_name))
