"""What every step of the recipe shares: sizes, seed, vocabulary."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BartConfig, GenerationConfig, PreTrainedTokenizerFast

SEED = 20261
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # BART's order: the ids are those of BartConfig
BEGIN, PAD, END, UNKNOWN = range(4)
LETTERS = "abcdefghijklmnopqrstuvwxyz'-."
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
PHONEMES = [vowel + stress for vowel in VOWELS for stress in "012"] + CONSONANTS
VOCABULARY = [*SPECIALS, *LETTERS, *PHONEMES]
POSITIONS = 64  # the longest word has 28 letters
MAX_LENGTH = 48  # of what is generated


def config() -> BartConfig:
    return BartConfig(
        vocab_size=len(VOCABULARY), d_model=128, max_position_embeddings=POSITIONS,
        encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=512,
        decoder_layers=3, decoder_attention_heads=4, decoder_ffn_dim=512,
        activation_function="gelu", dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        init_std=0.05, bos_token_id=BEGIN, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=END, forced_eos_token_id=END,
    )


def generation_config() -> GenerationConfig:
    return GenerationConfig(
        bos_token_id=BEGIN, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=END,
        forced_eos_token_id=END, max_length=MAX_LENGTH, num_beams=4,
    )


def tokenizer() -> Tokenizer:
    """One vocabulary for both sides: a small letter is a token, and so is a phoneme in capitals.

    Every small letter, apostrophe, hyphen and point is a piece by itself; what is
    left between spaces is a phoneme, looked up whole. No piece is ever continued,
    so the prefix of continuations occurs in no token, and decoding sets one space
    between tokens.
    """
    made = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCABULARY)}, unk_token="<unk>",
                                      continuing_subword_prefix="##", max_input_chars_per_word=100))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("[a-z'.-]"), "isolated")])
    made.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    made.add_special_tokens(list(SPECIALS))
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", BEGIN), ("</s>", END)])
    return made


def fast_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", pad_token="<pad>", eos_token="</s>",
                                   unk_token="<unk>", clean_up_tokenization_spaces=False)
