"""A small made-up corpus in layouts that people have, and the text vectors that go with it: for whole_path.sh.

    python examples/made_up_corpus.py corpus FOLDER           captions/*.csv, features/*.mp4.npy, COIN.json
    python examples/made_up_corpus.py vectors OUT.npz JSONL COIN.json      a vector for every phrase and step text

Features stand for a video encoder's: what is to be seen in a second is the mean of its words' vectors, plus noise. The
text vectors stand for its text tower. Everything is drawn from a fixed seed.
"""

import csv
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

DIM = 64
TASKS = {
    "MakeOmelette": ["crack the eggs", "whisk the eggs", "heat the butter", "pour the eggs", "fold the omelette"],
    "ChangeTire": ["loosen the nuts", "raise the car", "remove the wheel", "mount the spare", "tighten the nuts"],
    "PlantTree": ["dig a hole", "loosen the roots", "place the tree", "fill the hole", "water the tree"],
    "MakeTea": ["boil the water", "warm the pot", "add the leaves", "pour the water", "strain the tea"],
}


def vector(text):
    """The mean of fixed random vectors of the words, of unit length."""
    total = np.zeros(DIM)
    for word in text.lower().split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
        total += np.random.default_rng(seed).standard_normal(DIM)
    return (total / max(np.linalg.norm(total), 1e-9)).astype(np.float32)


def write_corpus(folder, videos_per_task=6):
    rng = np.random.default_rng(0)
    (folder / "captions").mkdir(parents=True)
    (folder / "features").mkdir()
    database, number = {}, 0
    for task, steps in TASKS.items():
        for i in range(videos_per_task):
            video = f"{task.lower()}{i}"
            frames, marks, said, now = [], [], [], 0
            for step in steps:
                pause, length = int(rng.integers(1, 5)), int(rng.integers(4, 9))
                frames += [vector("somebody talks")] * pause + [vector(step)] * length
                now += pause
                marks.append({"id": str(number + steps.index(step)), "segment": [now, now + length], "label": step})
                if rng.random() < 0.8:  # not everything that is done is said
                    said.append((now + float(rng.normal()), now + length, f"now {step}."))
                now += length
            noise = rng.standard_normal((len(frames), DIM)) / np.sqrt(DIM)
            np.save(folder / "features" / f"{video}.mp4.npy", np.float32(np.array(frames) + 2.0 * noise))
            with (folder / "captions" / f"{video}.csv").open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["start", "end", "text"])
                rows.writerows((f"{max(0.0, start):.2f}", end, text) for start, end, text in said)
            database[video] = {"duration": now, "class": task, "recipe_type": list(TASKS).index(task), "start": 0,
                               "subset": "testing" if i >= videos_per_task - 2 else "training", "end": now,
                               "video_url": "", "annotation": marks}  # fmt: skip
        number += len(steps)
    (folder / "COIN.json").write_text(json.dumps({"database": database}))


def write_vectors(out, phrases, annotations):
    texts = {json.loads(line)["text"] for line in phrases.read_text("utf-8").splitlines() if line.strip()}
    for video in json.loads(annotations.read_text("utf-8"))["database"].values():
        texts |= {mark["label"] for mark in video["annotation"]}
    texts = sorted(texts)
    np.savez(out, text=np.array(texts), emb=np.stack([vector(text) for text in texts]))


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    if what == "corpus":
        write_corpus(Path(paths[0]))
    else:
        write_vectors(*map(Path, paths))
