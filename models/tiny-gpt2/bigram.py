"""The baselines that the model is held against: a unigram and a bigram over the same tokens.

The bigram is interpolated Kneser-Ney (Kneser and Ney 1995, in the interpolated
form of Chen and Goodman 1999):

    p(b | a) = max(n(a b) - D, 0) / n(a)  +  D * t(a) / n(a) * q(b)

n counts pairs, t(a) is the number of different tokens seen after a, and q(b) is
the share of different tokens that b has been seen after, add-one smoothed so
that no token is impossible. D = n1 / (n1 + 2 n2), from the pairs seen once and twice.
"""

import numpy as np


class Bigram:
    def __init__(self, ids: np.ndarray, vocabulary: int):
        pairs = np.zeros((vocabulary, vocabulary))
        np.add.at(pairs, (ids[:-1], ids[1:]), 1)
        once, twice = (pairs == 1).sum(), (pairs == 2).sum()
        self.discount = float(once / (once + 2 * twice))
        after = (pairs > 0).sum(0) + 1.0
        continuation = after / after.sum()
        total, kinds = pairs.sum(1, keepdims=True), (pairs > 0).sum(1, keepdims=True)
        seen = np.maximum(total, 1)
        probability = np.maximum(pairs - self.discount, 0) / seen + self.discount * kinds / seen * continuation
        # A token that never has a successor in training leaves all its mass to q.
        probability = np.where(total > 0, probability, continuation)
        self.log = np.log(probability)
        unigram = np.bincount(ids, minlength=vocabulary) + 1.0
        self.unigram_log = np.log(unigram / unigram.sum())

    def losses(self, ids: np.ndarray) -> np.ndarray:
        """-log p of ids[1:], in nats."""
        return -self.log[ids[:-1], ids[1:]]

    def unigram_losses(self, ids: np.ndarray) -> np.ndarray:
        return -self.unigram_log[ids[1:]]
