"""The tokenizers of host/generate/text/testdata: one of each kind, trained small.

Every function takes the training text and returns a tokenizers.Tokenizer put
together as the models of its name are, or, where no model is like it, so that
the parts which no other kind has are used once.
"""

import base64
import io
import json

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from lines import common

LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level(text, size, pre, special=()):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=BYTES, show_progress=False))
    return t


def gpt2(text):
    t = byte_level(text, 900, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_tokens([AddedToken("  " * n, normalized=True) for n in (4, 3, 2, 1)])
    return t


def bart(text):
    t = byte_level(text, 900, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.add_tokens([AddedToken("newword", single_word=True), AddedToken("[DAY]", rstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def whisper(text):
    t = byte_level(text, 700, pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_special_tokens(["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"])
    t.add_tokens([AddedToken(f"<|{n / 50:.2f}|>", normalized=True) for n in range(50)])
    names = ["<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"]
    t.post_processor = processors.TemplateProcessing(single=f"{names[0]} {names[1]} $A {names[2]}", pair=f"{names[0]} {names[1]} $A $B {names[2]}",
                                                     special_tokens=[(n, t.token_to_id(n)) for n in names])
    return t


def llama3(text):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = byte_level(text, 900, pre)
    t.model.ignore_merges = True
    t.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    begin = "<|begin_of_text|>"
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, t.token_to_id(begin))])])
    return t


def qwen(text):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = byte_level(text, 700, pre, ["<|endoftext|>"])
    t.normalizer = normalizers.NFC()
    return t


def cased(text):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CASED), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    return byte_level(text, 700, pre, ["<|endoftext|>"])


def clip(text):
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix="", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=900, special_tokens=["<|startoftext|>", "<|endoftext|>"], initial_alphabet=BYTES,
                                                    end_of_word_suffix="</w>", show_progress=False))
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), add_prefix_space=False)
    return t


def fallback_bpe(text, normalizer, pre):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")  # for training only: words stay short
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1200, special_tokens=special, limit_alphabet=250, show_progress=False))
    t = with_special(t, special[:3])  # the bytes are tokens of the model, not looked for in text
    t.pre_tokenizer = pre
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def with_special(t, names):
    """t with those added tokens only."""
    spec = json.loads(t.to_str())
    spec["added_tokens"] = [a for a in spec["added_tokens"] if a["content"] in names]
    if spec["pre_tokenizer"]:
        spec["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(spec))


def llama2(text):
    return fallback_bpe(text, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None)


def mistral(text):
    t = fallback_bpe([line.replace(" ", "\u2581") for line in text], None, pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    return t


def charsmap(text, **rules) -> bytes:
    """The precompiled normaliser of a sentencepiece model."""
    return base64.b64encode(proto(text, 300, **rules).normalizer_spec.precompiled_charsmap)


def proto(text, size, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(common(text, size // 3)), model_writer=out, vocab_size=size, num_threads=1, minloglevel=2,
                                             hard_vocab_limit=False, character_coverage=1.0, input_sentence_size=0, **options)
    return sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())


def unigram(text, normalizer, pre, size, **options):
    text = common(text, size // 3)
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(text, trainers.UnigramTrainer(vocab_size=size, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False, **options))
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def t5(text):
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t = unigram(text, normalizers.Precompiled(base64.b64decode(charsmap(text))), pre, 700)
    t.add_special_tokens([f"<extra_id_{n}>" for n in range(19, -1, -1)])
    return t


def umt5(text):
    # identity with a few rules of our own: small, and keys of several characters
    normalizer = normalizers.Sequence([normalizers.Precompiled(base64.b64decode(charsmap(text, normalization_rule_tsv=str(RULES)))),
                                       normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    t = unigram(text, normalizer, pre_tokenizers.Metaspace(prepend_scheme="first"), 700)
    t.add_special_tokens(["<extra_id_0>", AddedToken("<mask>", lstrip=True)])
    return t


def bytes_unigram(text):
    t = unigram(text, normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(" ", "\u2581")]),
                pre_tokenizers.Metaspace(prepend_scheme="never", split=False), 600, initial_alphabet=[])
    spec = json.loads(t.to_str())
    spec["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    spec["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(spec))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    return t


def wordpiece(text, normalizer, post, **decoder):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(text, trainers.WordPieceTrainer(vocab_size=1100, limit_alphabet=350, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                          show_progress=False))
    t.decoder = decoders.WordPiece(**decoder)
    t.post_processor = post
    return t


def bert(text):
    return wordpiece(text, normalizers.BertNormalizer(), processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]))


def bert_cased(text):
    t = wordpiece(text, normalizers.BertNormalizer(lowercase=False, strip_accents=False, handle_chinese_chars=False),
                  processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), cleanup=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous")])
    return t


def words(text):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Punctuation("contiguous")])
    t.train_from_iterator(text, trainers.WordLevelTrainer(vocab_size=1200, special_tokens=["<unk>"], show_progress=False))
    return t


def prefixed(text):
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Replace("\u0301", ""), normalizers.Prepend("x")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Punctuation("merged_with_next"), pre_tokenizers.Split(Regex(r"\s+"), "removed"),
                                               pre_tokenizers.Split("a", "contiguous"), pre_tokenizers.FixedLength(7)])
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], limit_alphabet=300, continuing_subword_prefix="##", show_progress=False))
    t.decoder = decoders.BPEDecoder(suffix="##")
    return t


RULES = None  # path of a normalisation table, set by train.py

KINDS = {f.__name__: f for f in (gpt2, bart, whisper, llama3, qwen, cased, clip, llama2, mistral, t5, umt5, bytes_unigram, bert, bert_cased, words, prefixed)}
