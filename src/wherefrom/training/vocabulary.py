"""Vocabularies learned from text, as tokenizers that transformers opens: lower-cased word pieces, bytes, or pieces of
words in their own case for two languages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

BETWEEN, PADDING = "<|endoftext|>", "<|padding|>"  # of the byte-level vocabulary: between documents, and to fill up

END, UNKNOWN, FILL = "</s>", "<unk>", "<pad>"  # of the vocabulary of a translator: as Marian calls them

# Letters of other scripts would each take two places (at the start and inside of a word) of a small vocabulary.
ALPHABET = 160


def learn(lines: Iterable[str], size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Learn `size` word pieces from `lines`; the tokenizer writes `[CLS] text [SEP]` (`[CLS] a [SEP] b [SEP]`).

    The same lines give the same vocabulary. Left to itself, the trainer numbers letters inside of words, and breaks
    ties between rare ones, in the order of a hash map, another in every run: it is told of both.
    """
    from tokenizers import trainers

    texts = list(lines)  # read twice
    letters, inside = _letters(_reader(), texts)
    told = [*SPECIAL, *(f"##{letter}" for letter in inside)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=told,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    taught = _reader()
    taught.train_from_iterator(batches(texts, 1000), trainer)
    tokenizer = _reader(taught.get_vocab())  # in which only the special tokens are special
    tokenizer.add_special_tokens(list(SPECIAL))
    return _wrap(tokenizer, max_length, single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1")


def _reader(pieces: dict[str, int] | None = None) -> Tokenizer:
    """A lower-casing tokenizer of words and these pieces of them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    found = Tokenizer(models.WordPiece(pieces or {}, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.decoder = decoders.WordPiece()
    return found


def _letters(reader: Tokenizer, texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The letters that get a place of their own, the most frequent; and those of them that stand inside of words."""
    parts: Counter[str] = Counter()
    for text in texts:
        parts.update(reader.normalizer.normalize_str(text).split())
    frequent: Counter[str] = Counter()
    inside: set[str] = set()
    for part, count in parts.items():
        for word, _ in reader.pre_tokenizer.pre_tokenize_str(part):
            inside.update(word[1:])
            for letter in word:
                frequent[letter] += count
    kept = sorted(frequent, key=lambda letter: (-frequent[letter], letter))[:ALPHABET]
    return sorted(kept), sorted(inside.intersection(kept))


def learn_bytes(lines: Iterable[str], size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Learn `size` byte-level pieces (as GPT-2's) from `lines`; the tokenizer writes `<|endoftext|> text`.

    A language model is given the mark between documents first, so that its first word is predicted too, and so that
    attention that is needed nowhere has a place to go.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BETWEEN, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(batches(lines, 1000), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BETWEEN} $A",
        pair=f"{BETWEEN} $A $B",
        special_tokens=[(BETWEEN, tokenizer.token_to_id(BETWEEN))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
        bos_token=BETWEEN,
        eos_token=BETWEEN,
        pad_token=PADDING,
    )


def learn_pieces(lines: Iterable[str], size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Learn `size` pieces of words in their own case (as SentencePiece's, ▁ for a blank); it writes `text </s>`.

    A blank before a mark is dropped, so that corpora whose marks stand apart (`nicht , daß`) are read as other texts.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+(?=[.,;:!?]|\s|$)|^\s+"), "")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    tokenizer.decoder = decoders.Metaspace()
    texts = list(lines)  # read twice
    letters, _ = _letters(tokenizer, texts)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, UNKNOWN, FILL],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(batches(texts, 1000), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        eos_token=END,
        unk_token=UNKNOWN,
        pad_token=FILL,
    )


def cls_at_end(tokenizer: PreTrainedTokenizerFast, max_length: int) -> PreTrainedTokenizerFast:
    """The same word pieces, but writing `text [CLS]`: for heads that read the last token."""
    from tokenizers import Tokenizer

    # A copy: the caller's tokenizer keeps its own template.
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    return _wrap(copy, max_length, single="$A [CLS]", pair=None)


def _wrap(tokenizer: Tokenizer, max_length: int, single: str, pair: str | None) -> PreTrainedTokenizerFast:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    used = [token for token in SPECIAL if token in f"{single} {pair}"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair or f"{single} $B:1 [CLS]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in used],
    )
    names = ["input_ids", "attention_mask"]
    if pair is not None:
        # GPT-2 would add the *word* embedding of a token type, so only BERT's template names them.
        names.insert(1, "token_type_ids")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=names,
        padding_side="right",
        truncation_side="right",
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """`items` in lists of at most `size`.

    >>> list(batches("abc", 2))
    [['a', 'b'], ['c']]
    """
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
