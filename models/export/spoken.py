"""Speech of espeak-ng (a package of Debian's), and what a model heard of it in words."""

import io
import re
import shutil
import subprocess
import wave

import numpy as np

RATE = 16000
# Voices that take turns: two accents, three speakers.
VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb+m5")
# Sentences of letters alone, so that there is one way to write what is heard.
SENTENCE = re.compile(r"(?<=[.!?] )[A-Z][a-z]*(?:,? [a-z]+){5,19}\.(?= )")


def there():
    return shutil.which("espeak-ng") is not None


def sound(text, voice="en-us"):
    """What espeak-ng says, at RATE, from -1 to 1: its own 22,050 samples a second, what lies above half of RATE left out."""
    data = subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "--stdout", text], check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(data)) as file:
        rate, samples = file.getframerate(), np.frombuffer(file.readframes(1 << 30), np.int16) / 32768
    count = len(samples) * RATE // rate
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    return (np.fft.irfft(spectrum, count) * count / len(samples)).clip(-1, 1).astype(np.float32)


def write(path, samples):
    """A WAV file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())


def read(path):
    """The samples of a WAV file of 16 bits and one channel at RATE, from -1 to 1."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2), path
        return (np.frombuffer(file.readframes(1 << 30), "<i2") / 32768).astype(np.float32)


def sentences(text, count):
    """So many different sentences of a text, from all of it."""
    found = list(dict.fromkeys(SENTENCE.findall(text)))
    assert len(found) >= count, f"{len(found)} sentences, needed are {count}"
    return [found[i * len(found) // count] for i in range(count)]


def words(text):
    """Words without case and punctuation. bench/words.go counts the same."""
    return "".join(c for c in text.lower() if c.isalnum() or c == " ").split()


def edits(a, b):
    """Words to insert, remove or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]
