"""Writes expected.json: what rouge_score, sacrebleu and jiwer say about outputs and references.

    python expected.py
"""

import json
import random
from importlib.metadata import version
from pathlib import Path

import jiwer
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU

BY_HAND = {
    "equal": [("The cat sat on the mat, purring.", "The cat sat on the mat, purring.")],
    "close": [
        ("the cat sat on the mat", "the cat is on the mat"),
        ("There are 1,234.5 reasons; 12-month plans & more.", "There are 1,234.5 reasons, and 12-month plans & more!"),
    ],
    "nothing in common": [("alpha beta gamma delta", "one two three four five")],
    "empty output": [("", "something was expected"), ("half a line is here now", "half a line is here, now")],
    "empty reference": [("something came", ""), ("and one more line of it", "and one more line of it")],
    "both empty": [("", "")],
    "blank": [(" \t ", "  "), ("a \u00a0b\u2003c d\u3000e", "a b c d e")],
    "shorter than four": [("two words", "two words"), ("one", "one")],
    "repeats": [("the the the the the the the", "the cat is on the mat"), ("a a b b a a b b", "a b a b a b a b")],
    "longer output": [("one two three four five six seven eight nine ten", "one two three four")],
    "shorter output": [("one two three four", "one two three four five six seven eight nine ten")],
    "case": [("MiXeD Case Here, And There", "mixed case here, and there")],
    "entities": [("&quot;a&quot; &lt;b&gt; &amp;amp; c<skipped>d e", '"a" <b> &amp; cd e'), ("R&D & Q&A at AT&T", "R & D & Q & A at AT & T")],
    "punctuation": [
        ("Wait... what?! (Yes) [no] {maybe} ~ `x` ^_^ a/b", "Wait ... what ? ! ( Yes ) [ no ] { maybe } ~ ` x ` ^ _ ^ a / b"),
        ("3.14, 1.000,5 -7 10-12 .5 5. ,5 5,", "3.14 , 1.000,5 - 7 10 - 12 . 5 5 . , 5 5 ,"),
        ("it's the dogs' bones; don't", "it 's the dogs ' bones ; do n't"),
        ("a,,b..c., .d,e.", "a , , b . . c . , . d , e ."),
    ],
    "other scripts": [
        ("Čeština je těžká, že?", "Čeština je lehká, že?"),
        ("東京は日本の首都です。", "東京は日本の首都だ。"),
        ("\u0130stanbul \u212a and \u2126, na\u00efve caf\u00e9 3\u00d74", "istanbul k and ohm, naive cafe 3 x 4"),
        ("\u0661\u0662\u0663.\u0664 e\u0301t\u00e9 \U0001f600 ok", "123.4 \u00e9t\u00e9 \U0001f600 ok"),
    ],
}


def made():
    """Corpora at random: a reference, and an output that repeats, drops, swaps and adds words of it."""
    rng = random.Random(20261121)
    words = "the of and to in a is that for it as was with be by on not he I this are or his from at which but have an had they you were 12 3.5 1,000 U.S. well-known don't, end. \u00e9t\u00e9".split()
    for corpus in range(12):
        pairs = []
        for _ in range(rng.randint(1, 25)):
            reference = [rng.choice(words) for _ in range(rng.randint(1, 60))]
            output = []
            for word in reference:
                kind = rng.random()
                if kind < 0.1:
                    continue
                output.append(rng.choice(words) if kind < 0.1 + corpus * 0.05 else word)
                if kind > 0.93:
                    output.append(rng.choice(words))
            if len(output) > 3 and rng.random() < 0.5:
                i = rng.randrange(len(output) - 1)
                output[i], output[i + 1] = output[i + 1], output[i]
            pairs.append((" ".join(output), " ".join(reference)))
        yield f"made {corpus}", pairs


def expected(name, pairs):
    kinds = ["rouge1", "rouge2", "rougeL"]
    scorer = rouge_scorer.RougeScorer(kinds, use_stemmer=False)
    lines = [scorer.score(reference, output) for output, reference in pairs]
    bleu = BLEU(smooth_method="exp", tokenize="13a").corpus_score([o for o, _ in pairs], [[r for _, r in pairs]])
    # jiwer divides at single spaces, and has no rate of empty references.
    spaced = [[" ".join(text.split()) for text in texts] for texts in zip(*pairs)]
    references = any(spaced[1])
    return {
        "name": name,
        "outputs": [o for o, _ in pairs],
        "references": [r for _, r in pairs],
        **{kind: sum(line[kind].fmeasure for line in lines) / len(lines) for kind in kinds},
        "bleu": bleu.score,
        "wer": jiwer.wer(spaced[1], spaced[0]) if references else float(any(spaced[0])),
    }


def main():
    cases = [expected(name, pairs) for name, pairs in [*BY_HAND.items(), *made()]]
    made_by = {name: version(name) for name in ("rouge_score", "sacrebleu", "jiwer")}
    text = json.dumps({"made_by": made_by, "cases": cases}, ensure_ascii=True, indent=1)
    Path(__file__).with_name("expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
