"""A dataset of your own: a function of a path that gives a Dataset.

    stepformer evaluate steps.tsv --reader tsv --check --plugin dataset.py
    stepformer evaluate steps.tsv --reader tsv --predictions found/ --plugin dataset.py

Or, in an installed package:  [project.entry-points."stepformer.datasets"]  tsv = "my_package.dataset:read_tsv"

This one reads lines of video, task, duration, start, end and step, with tabs between them; times in seconds.
"""

from pathlib import Path

from stepformer.data import READERS, Annotation, Dataset, Problem, Task, VideoRecord


def read_tsv(source):
    """What cannot be read becomes a Problem, which `evaluate --check` lists; nothing is guessed."""
    steps, found, durations, problems = {}, {}, {}, []
    for number, line in enumerate(Path(source).read_text("utf-8").splitlines(), 1):
        try:
            video, task, *times, text = line.split("\t")
            duration_s, start_s, end_s = map(float, times)
        except ValueError:
            problems.append(Problem("unparsable", f"{source}:{number}", "expected six columns; left out"))
            continue
        known = steps.setdefault(task, [])
        if text not in known:
            known.append(text)  # a task's steps in the order in which they are first seen
        found.setdefault((video, task), []).append(Annotation(known.index(text), start_s, end_s, text))
        durations[video, task] = duration_s
    videos = [VideoRecord(v, t, durations[v, t], tuple(marks)) for (v, t), marks in found.items()]
    tasks = {task: Task(task, task, tuple(texts)) for task, texts in steps.items()}
    return Dataset("tsv", tasks, tuple(videos), tuple(problems))


READERS.register("tsv", read_tsv)
