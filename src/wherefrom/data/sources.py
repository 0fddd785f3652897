"""The datasets wherefrom knows by name: one row each, saying where its parts stand.

To add a dataset, copy the row that resembles it most. `columns` maps the parts of an example to columns; `a|b` is
a column called a in some copies of the dataset and b in others. `make` (wherefrom/data/rows.py) turns one row of the
table into an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wherefrom.data import rows
from wherefrom.data.blimp import PARADIGMS, PROMPTS
from wherefrom.data.example import Example
from wherefrom.data.tables import Row
from wherefrom.registry import Registry

POLARITY = ("negative", "positive")
Make = Callable[[str, Row, Mapping[str, str], Sequence[str]], Example]


@dataclass(frozen=True)
class Source:
    """One dataset: its parts, and where it may be found."""

    name: str
    about: str
    columns: Mapping[str, str]
    make: Make = rows.plain
    optional: tuple[str, ...] = ()  # parts that some copies do not have
    labels: tuple[str, ...] = ()  # the classes by id
    folders: tuple[str, ...] = ()  # what its folder may be called, beside its name
    splits: tuple[str, ...] = (
        "validation",
        "test",
        "train",
    )  # the first there is, is read unasked
    hub: str = ""  # its repository on the Hugging Face Hub,
    configs: tuple[str, ...] = ()  # its configurations there (all are read),
    hub_splits: tuple[str, ...] = ()  # and its splits, where they are called differently
    groups: Mapping[str, str] = field(default_factory=dict)  # `name:group` reads one of these alone
    group_column: str = ""
    balanced_group: str = ""  # `name:balanced` has as many examples of each label in this group
    split_files: tuple[str, ...] = ()  # the authors' names for the file of a split, "{}-v1.1.json",
    pooled_files: tuple[str, ...] = ()  # and for files that hold several splits, or one group each
    hides_test_labels: bool = False
    own: bool = False  # a table of the user's: what is not named is read under its own name


SOURCES: Registry[Source] = Registry("dataset")
for _source in (
    Source(
        "sst2",
        "Sentences of film reviews, negative or positive.",
        {"text": "sentence", "label": "label"},
        labels=POLARITY,
        folders=("SST-2",),
        hides_test_labels=True,
        hub="stanfordnlp/sst2",
    ),
    Source(
        "mnli",
        "Does the premise entail the hypothesis?",
        {"text": "premise|sentence1", "pair": "hypothesis|sentence2", "label": "label|gold_label"},
        labels=("entailment", "neutral", "contradiction"),
        folders=("MNLI",),
        splits=(
            "validation_matched",
            "validation_mismatched",
            "validation_mismatched_1k",
            "train",
            "test_matched",
            "test_mismatched",
        ),
        hides_test_labels=True,
        hub="nyu-mll/glue",
        configs=("mnli",),
    ),
    Source(
        "qqp",
        "Do two questions ask the same?",
        {"text": "question1", "pair": "question2", "label": "label|is_duplicate"},
        make=rows.questions,
        labels=("different", "duplicate"),
        folders=("QQP",),
        hides_test_labels=True,
        hub="nyu-mll/glue",
        configs=("qqp",),
    ),
    Source(
        "esnli",
        "SNLI: does the premise entail the hypothesis? Where a copy has highlights, the rationale are the words of the "
        "hypothesis that at least half of the annotators highlighted.",
        {"text": "premise|Sentence1", "pair": "hypothesis|Sentence2", "label": "label|gold_label"},
        make=rows.entailment,
        labels=("entailment", "neutral", "contradiction"),
        splits=("validation", "test", "train"),
    ),
    Source(
        "hatexplain",
        "Posts labelled by three annotators: the label is the majority's, the rationale the tokens that at least "
        "half of those who marked a rationale marked. Its content is offensive.",
        {"tokens": "tokens|post_tokens", "labels": "labels", "rationales": "rationales"},
        make=rows.hatexplain,
        optional=("labels",),
        labels=("hatespeech", "normal", "offensive"),
        folders=("HateXplain/Data", "HateXplain"),
        pooled_files=("dataset.json",),
        hub="Hate-speech-CNERG/hatexplain",
    ),
    Source(
        "imdb",
        "Film reviews, negative or positive.",
        {"text": "text", "label": "label"},
        labels=POLARITY,
        folders=("imdb_text2vec",),
        splits=("test", "validation", "train"),
        hub="stanfordnlp/imdb",
    ),
    Source(
        "imdb_counterfactual",
        "Film reviews and their human revisions of the opposite polarity.",
        {"text": "text", "label": "label"},
        labels=POLARITY,
        splits=("test", "validation", "train"),
    ),
    Source(
        "yelp",
        "Reviews of businesses; 1 and 2 stars are negative, 4 and 5 positive, 3 are dropped.",
        {"text": "text", "label": "label", "stars": "stars"},
        make=rows.stars,
        optional=("stars", "label"),
        labels=POLARITY,
        folders=("yelp_stars", "yelp_polarity", "yelp_review_polarity_csv"),
        splits=("test", "validation", "train"),
        hub="fancyzhx/yelp_polarity",
    ),
    Source(
        "yelp_sentences",
        "Sentences of at most 15 words with the polarity of their review.",
        {"text": "text", "label": "label"},
        labels=POLARITY,
        splits=("test", "validation", "train"),
    ),
    Source(
        "amazon",
        "Reviews of products, negative or positive.",
        {"text": "text|content", "label": "label"},
        labels=POLARITY,
        folders=("amazon_sentences", "amazon_polarity", "amazon_review_polarity_csv"),
        splits=("test", "validation", "train"),
        hub="fancyzhx/amazon_polarity",
    ),
    Source(
        "squad_v1",
        "Questions with the place of their answer in a context.",
        {"question": "question", "context": "context", "answers": "answers", "starts": "answer_starts"},
        make=rows.squad,
        optional=("starts",),
        folders=("squad",),
        split_files=("{}-v1.1.json",),
        hub="rajpurkar/squad",
    ),
    Source(
        "squad_v2",
        "As squad_v1, and questions that the context does not answer: `answer` is empty.",
        {"question": "question", "context": "context", "answers": "answers", "starts": "answer_starts"},
        make=rows.squad,
        optional=("starts",),
        split_files=("{}-v2.0.json",),
        hub="rajpurkar/squad_v2",
    ),
    Source(
        "blimp",
        "Value Zeroing's five agreement paradigms of BLiMP, with the words that decide the number; blimp:balanced has "
        "as many singular as plural sentences of rpsv, as the authors do.",
        {"good": "sentence_good", "bad": "sentence_bad", "group": "paradigm|UID"},
        make=rows.minimal_pairs,
        labels=rows.NUMBERS,
        splits=("test", "train"),
        hub="nyu-mll/blimp",
        configs=tuple(PARADIGMS.values()),
        hub_splits=("train",),
        groups=PARADIGMS,
        group_column="paradigm|UID",
        balanced_group=PARADIGMS["rpsv"],
        folders=("blimp/data",),
        pooled_files=("*.jsonl",),
    ),
    Source(
        "blimp-prompts",
        "Eleven paradigms of BLiMP up to the word in which a pair differs, with the words that decide (Yin & Neubig).",
        {"good": "sentence_good", "bad": "sentence_bad", "group": "paradigm|UID"},
        make=rows.prompts,
        folders=("blimp", "blimp/data"),
        pooled_files=("*.jsonl",),
        splits=("test", "train"),
        hub="nyu-mll/blimp",
        configs=tuple(PROMPTS.values()),
        hub_splits=("train",),
        groups=PROMPTS,
        group_column="paradigm|UID",
    ),
    Source(
        "linzen_lgd",
        "Verbs of Wikipedia sentences and their other number, 1 to 4 attractors (Linzen 2016, Goldberg's choice).",
        {
            "sentence": "sentence",
            "index": "verb_index",
            "target": "verb",
            "foil": "wrong_verb",
            "attractors": "n_attractors",
            "label": "label",
        },
        make=rows.linzen,
        optional=("label",),
        labels=rows.NUMBERS,
        splits=("test", "validation", "train"),
        folders=("bert-syntax",),
        pooled_files=("lgd_dataset.tsv", "lgd_dataset_with_is_are.tsv"),
    ),
    Source(
        "linzen",
        "Wikipedia sentences with a verb in the present tense, as published by Linzen, Dupoux & Goldberg (2016): any "
        "number of attractors, and every verb whose other number follows from its spelling.",
        {
            "sentence": "orig_sentence",
            "index": "verb_index",
            "target": "verb",
            "attractors": "n_diff_intervening",
            "label": "verb_pos",
        },
        make=rows.linzen_published,
        labels=rows.NUMBERS,
        splits=("test", "validation", "train"),
        folders=("rnn_agreement/data", "rnn_agreement"),
        pooled_files=("agr_50_mostcommon_10K.tsv", "agr_*.tsv"),
    ),
    Source(
        "linzen_colorless",
        "The same, 0 to 4 attractors (Gulordava's choice); without='linzen_lgd' drops the sentences of that one.",
        {
            "sentence": "sentence",
            "index": "verb_index",
            "target": "verb",
            "foil": "wrong_verb",
            "attractors": "n_attractors",
            "label": "label",
        },
        make=rows.linzen,
        labels=rows.NUMBERS,
        splits=("test",),
    ),
    Source(
        "cifar10",
        "Pictures of 32 × 32 pixels in ten classes (Krizhevsky 2009).",
        {"image": "image|img", "label": "label"},
        labels=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        splits=("test", "train"),
        hub="uoft-cs/cifar10",
    ),
    Source(
        "multi30k",
        "German captions of photographs and their English translations (Elliott et al. 2016): text and target.",
        {"text": "de", "target": "en"},
        splits=("test_2016_flickr", "test", "test_2017_flickr", "test_2017_mscoco", "val", "validation", "train"),
        hub="bentrevett/multi30k",
        hub_splits=("test",),
    ),
):
    SOURCES.add(_source.name, _source)
